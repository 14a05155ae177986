//! The policies against measured baselines. Needs the traces: set HOTSET_SHARED
//! to the directory that holds `traces/`. The quick test runs a few small cells;
//! `cargo test --release -p tracesim --lib baselines:: -- --ignored` runs all.

use crate::{BELADY, PoolSize, SimulationPlan, TraceSource};
use std::collections::HashMap;
use std::path::PathBuf;
use trace::Strictness;

/// Differences up to this mean that definitions agree.
const AGREEMENT: f64 = 0.005;
/// Cells of fewer blocks are left out of the baselines' own means.
const BLOCKS_MIN: u64 = 100;
const SIZES: [f64; 5] = [0.001, 0.01, 0.03, 0.1, 0.3];

/// Names here and in the baselines, and the greatest difference allowed.
///
/// W-TinyLFU depends on the layout of its frequency sketch, which the baselines do not define.
/// SIEVE's hand starts over from the oldest line after it has passed the newest, as in the paper;
/// on postmark the baseline's does not.
const POLICIES: [(&str, &str, f64); 11] = [
    ("lru", "LRU", AGREEMENT),
    ("clock", "CLOCK", AGREEMENT),
    ("2q", "2Q", AGREEMENT),
    ("arc", "ARC", AGREEMENT),
    ("lirs", "LIRS", AGREEMENT),
    ("s3-fifo", "S3-FIFO", AGREEMENT),
    ("sieve", "SIEVE", 0.03),
    ("clock2q-plus", "Clock2Q+", AGREEMENT),
    ("w-tinylfu-1", "W-TinyLFU(1%)", 0.03),
    ("w-tinylfu-20", "W-TinyLFU(20%)", 0.03),
    (BELADY, "Belady", AGREEMENT),
];

fn traces() -> Option<PathBuf> {
    let dir = std::env::var_os("HOTSET_SHARED").map(|dir| PathBuf::from(dir).join("traces"));
    if dir.is_none() {
        println!("skipped: HOTSET_SHARED is not set, so there are no traces to run");
    }
    dir
}

fn baselines(dir: &std::path::Path) -> HashMap<(String, String, String), f64> {
    let text = std::fs::read_to_string(dir.join("baselines.csv")).expect("baselines.csv");
    let rows = text.lines().skip(1).map(|line| {
        let f: Vec<&str> = line.split(',').collect();
        let ratio = f[4].parse().expect("a miss ratio");
        ((f[0].into(), f[1].into(), f[3].into()), ratio)
    });
    rows.collect()
}

fn compare(names: &[&str], sizes: &[f64]) {
    let Some(dir) = traces() else {
        return;
    };
    let expected = baselines(&dir);
    let mut wrong = Vec::new();
    let mut compared = 0;
    for name in names {
        let path = dir.join(format!("{name}.csv.zst"));
        let source = TraceSource::open(&path, None, Strictness::Strict, 4096).expect("a trace");
        let plan = SimulationPlan {
            policies: POLICIES.iter().map(|p| p.0.to_string()).collect(),
            sizes: sizes.iter().copied().map(PoolSize::Share).collect(),
            threads: 2,
        };
        for row in plan.run(&source, &|| {}).expect("simulated") {
            let (_, theirs, allowed) = POLICIES.iter().find(|p| p.0 == row.policy).expect("listed");
            let cell = (row.trace, row.size_fraction.to_string(), theirs.to_string());
            let difference = row.miss_ratio - expected[&cell];
            if row.cache_blocks >= BLOCKS_MIN {
                compared += 1;
                if difference.abs() > AGREEMENT {
                    println!("{cell:?}: {:.4}, off by {difference:+.4}", row.miss_ratio);
                }
                if difference.abs() > *allowed {
                    wrong.push(cell);
                }
            }
        }
    }
    assert!(compared > 0 && wrong.is_empty(), "{wrong:?}");
}

#[test]
fn small_cells_agree_with_the_baselines() {
    compare(&["hplajw"], &[0.03, 0.1, 0.3]);
}

#[test]
#[ignore = "runs every cell of every policy: minutes"]
fn all_cells_agree_with_the_baselines() {
    let all = [
        "arc_OLTP",
        "arc_P2",
        "arc_P3",
        "cap_pg_oltp",
        "cap_web",
        "cloudphysics_sample",
        "hplajw",
        "iozone_ssd",
        "opencas_ycsba_rocksdb",
        "pcmark_ssd",
        "postmark_ssd",
    ];
    compare(&all, &SIZES);
}
