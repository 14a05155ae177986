//! Fills and misses of `auto-endurance` and `auto` against first-touch LRU on
//! the traces that are at least half reads:
//! `cargo run --release -p tracesim --example endurance -- TRACE...`.

use std::path::Path;
use trace::Strictness;
use tracesim::{SimulationPlan, TraceSource};

fn main() {
    let sizes = [0.03, 0.1, 0.3].map(tracesim::PoolSize::Share).to_vec();
    let names = ["lru", "auto", "auto-endurance"];
    let mut sums = [[0.0; 2]; 3];
    let mut cells = 0.0;
    for path in std::env::args().skip(1) {
        let source =
            TraceSource::open(Path::new(&path), None, Strictness::Strict, 4096).expect("a trace");
        if source.info().reads * 2 < source.info().requests {
            continue;
        }
        let plan = SimulationPlan {
            policies: names.map(String::from).to_vec(),
            sizes: sizes.clone(),
            threads: 2,
        };
        for rows in plan
            .run(&source, &|| {})
            .expect("simulated")
            .chunks(names.len())
        {
            cells += 1.0;
            for (sum, row) in sums.iter_mut().zip(rows) {
                let share = row.admitted_bytes as f64 / rows[0].admitted_bytes as f64;
                sum[0] += share;
                sum[1] += row.miss_ratio;
                println!(
                    "{:20} {:5} {:15} miss {:.4} fills {:.2} of LRU's",
                    row.trace, row.size_fraction, row.policy, row.miss_ratio, share
                );
            }
        }
    }
    for (name, sum) in names.iter().zip(sums) {
        println!(
            "{name}: mean fills {:.2} of LRU's, mean miss {:.4}",
            sum[0] / cells,
            sum[1] / cells
        );
    }
}
