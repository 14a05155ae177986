//! Accesses a second of one policy over one trace, dense and hashed, repeated:
//! `cargo run --release -p tracesim --example speed -- TRACE POLICY SIZE [REPEATS]`.
//! With `once` in place of the repeats: one pass over the hashed index
//! only, for counting instructions under callgrind.

use baselines::registry::{self, PolicyVisitor};
use policy::{Instruction, LineKey, Policy, Unpinned};
use std::path::Path;
use std::time::Instant;
use trace::Strictness;
use tracesim::{PoolSize, SimulationPlan, TraceSource};

/// One pass with keys spread as on a volume; returns seconds and misses.
struct Pass<'a>(&'a TraceSource);

impl PolicyVisitor for Pass<'_> {
    type Output = (f64, u64);

    fn visit<P: Policy + 'static>(self, mut policy: P) -> (f64, u64) {
        let started = Instant::now();
        let mut misses = 0;
        let walk = self.0.for_each_chunk(|chunk| {
            let mut lines = chunk.lines.iter();
            for r in &chunk.requests {
                for line in lines.by_ref().take(r.lines as usize) {
                    let key = LineKey(u64::from(*line) << 3);
                    let answer = policy.access(key, &r.request, &Unpinned);
                    misses += u64::from(!matches!(answer, Instruction::Hit(_)));
                }
            }
        });
        walk.expect("the trace is in memory");
        (started.elapsed().as_secs_f64(), misses)
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [trace, policy, size, rest @ ..] = args.as_slice() else {
        panic!("usage: speed TRACE POLICY SIZE [REPEATS]");
    };
    let size = PoolSize::Share(size.parse().expect("a share of the footprint"));
    let source =
        TraceSource::open(Path::new(trace), None, Strictness::Strict, 4096).expect("a trace");
    let slots = source.pool_lines(size);
    let hashed = || registry::visit_hashed(policy, slots, 1, Pass(&source)).expect("a policy");
    if rest.first().is_some_and(|r| r == "once") {
        let (_, misses) = hashed();
        println!("{} accesses, {misses} misses", source.accesses());
        return;
    }
    let repeats: usize = rest.first().map_or(5, |r| r.parse().expect("a number"));
    let plan = SimulationPlan {
        policies: vec![policy.clone()],
        sizes: vec![size],
        threads: 1,
    };
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..repeats {
        let row = &plan.run(&source, &|| {}).expect("simulated")[0];
        rates[0].push(row.accesses as f64 / row.seconds / 1e6);
        rates[1].push(source.accesses() as f64 / hashed().0 / 1e6);
    }
    for (name, list) in ["dense", "hashed"].iter().zip(&mut rates) {
        list.sort_by(f64::total_cmp);
        println!(
            "{policy} {name}: median {:.1} million accesses a second, from {:.1} to {:.1}",
            list[list.len() / 2],
            list[0],
            list[list.len() - 1]
        );
    }
}
