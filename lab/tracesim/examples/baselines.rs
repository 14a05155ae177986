//! Compares the policies with published baselines:
//! `cargo run --release -p tracesim --example baselines -- DIR [POLICY...]`, where
//! DIR holds `baselines.csv` and the traces named there.

use std::collections::BTreeMap;
use std::path::Path;
use trace::Strictness;
use tracesim::{BELADY, SimulationPlan, TraceSource};

const SIZES: [f64; 5] = [0.001, 0.01, 0.03, 0.1, 0.3];

/// Names in the baselines, by the names here.
const BASELINE_NAMES: [(&str, &str); 11] = [
    ("lru", "LRU"),
    ("clock", "CLOCK"),
    ("2q", "2Q"),
    ("arc", "ARC"),
    ("lirs", "LIRS"),
    ("s3-fifo", "S3-FIFO"),
    ("sieve", "SIEVE"),
    ("clock2q-plus", "Clock2Q+"),
    ("w-tinylfu-1", "W-TinyLFU(1%)"),
    ("w-tinylfu-20", "W-TinyLFU(20%)"),
    (BELADY, "Belady"),
];

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("the directory of the traces");
    let chosen: Vec<String> = args.collect();
    let text = std::fs::read_to_string(Path::new(&dir).join("baselines.csv")).expect("baselines");
    let mut baselines: BTreeMap<&str, BTreeMap<(String, &str), f64>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let f: Vec<&str> = line.split(',').collect();
        let ratio = f[4].parse().expect("a number");
        baselines
            .entry(f[0])
            .or_default()
            .insert((f[1].to_string(), f[3]), ratio);
    }
    let policies: Vec<String> = BASELINE_NAMES
        .iter()
        .map(|(name, _)| name.to_string())
        .filter(|name| chosen.is_empty() || chosen.contains(name))
        .collect();
    let mut differences: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (trace, expected) in &baselines {
        let path = Path::new(&dir).join(format!("{trace}.csv.zst"));
        let source = TraceSource::open(&path, None, Strictness::Strict, 4096).expect("a trace");
        let plan = SimulationPlan {
            policies: policies.clone(),
            sizes: SIZES.map(tracesim::PoolSize::Share).to_vec(),
            threads: 2,
        };
        for row in plan.run(&source, &|| {}).expect("simulated") {
            let theirs = BASELINE_NAMES
                .iter()
                .find(|(n, _)| *n == row.policy)
                .expect("listed")
                .1;
            let Some(ratio) = expected.get(&(row.size_fraction.to_string(), theirs)) else {
                continue;
            };
            let difference = row.miss_ratio - ratio;
            if row.cache_blocks >= 100 {
                differences
                    .entry(row.policy.clone())
                    .or_default()
                    .push(difference);
            }
            let mark = if difference.abs() > 0.005 { " <--" } else { "" };
            println!(
                "{trace:22} {:6} {:8} {:14} {:.4} {ratio:.4} {difference:+.4} {:6.1} M/s{mark}",
                row.size_fraction,
                row.cache_blocks,
                row.policy,
                row.miss_ratio,
                row.accesses as f64 / row.seconds / 1e6
            );
        }
    }
    for (policy, list) in differences {
        let off = list.iter().filter(|d| d.abs() > 0.005).count();
        let mean = list.iter().sum::<f64>() / list.len() as f64;
        let worst = list
            .iter()
            .fold(0.0f64, |w, d| if d.abs() > w.abs() { *d } else { w });
        println!(
            "{policy:14} cells {} beyond 0.005: {off} mean {mean:+.4} worst {worst:+.4}",
            list.len()
        );
    }
}
