//! The quality table of one policy against the baselines:
//! `cargo run --release -p tracesim --example auto_table -- DIR [POLICY [TRACE...]]`.

use std::collections::BTreeMap;
use std::path::Path;
use trace::Strictness;
use tracesim::{SimulationPlan, TraceSource};

const SIZES: [f64; 5] = [0.001, 0.01, 0.03, 0.1, 0.3];
/// Cells of fewer blocks are left out, as in the baselines' description.
const BLOCKS_MIN: u64 = 100;

struct Cell {
    trace: String,
    miss: f64,
    lru: f64,
    best: f64,
    belady: f64,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("the directory of the traces");
    let policy = args.next().unwrap_or_else(|| "auto".into());
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
    let mut cells = Vec::new();
    for (trace, expected) in &baselines {
        if !chosen.is_empty() && !chosen.iter().any(|c| c == trace) {
            continue;
        }
        let path = Path::new(&dir).join(format!("{trace}.csv.zst"));
        let source = TraceSource::open(&path, None, Strictness::Strict, 4096).expect("a trace");
        let plan = SimulationPlan {
            policies: vec![policy.clone()],
            sizes: SIZES.map(tracesim::PoolSize::Share).to_vec(),
            threads: 2,
        };
        for row in plan.run(&source, &|| {}).expect("simulated") {
            if row.cache_blocks < BLOCKS_MIN {
                continue;
            }
            let of = |name| expected[&(row.size_fraction.to_string(), name)];
            let cell = Cell {
                trace: trace.to_string(),
                miss: row.miss_ratio,
                lru: of("LRU"),
                best: of("BEST_ONLINE"),
                belady: of("Belady"),
            };
            println!(
                "{trace:22} {:6} {:7} {policy} {:.4} lru {:.4} ({:+.4}) best {:.4} ({:+.4}) belady {:.4} {:5.0} ns",
                row.size_fraction,
                row.cache_blocks,
                cell.miss,
                cell.lru,
                cell.miss - cell.lru,
                cell.best,
                cell.miss - cell.best,
                cell.belady,
                row.seconds / row.accesses as f64 * 1e9
            );
            cells.push(cell);
        }
    }
    summary("all", &cells.iter().collect::<Vec<_>>());
    let without: Vec<&Cell> = cells.iter().filter(|c| c.trace != "iozone_ssd").collect();
    summary("without iozone_ssd", &without);
}

fn summary(name: &str, cells: &[&Cell]) {
    let n = cells.len().max(1) as f64;
    let mean = |f: &dyn Fn(&Cell) -> f64| cells.iter().map(|c| f(c)).sum::<f64>() / n;
    let near = cells.iter().filter(|c| c.miss <= c.best + 0.01).count();
    let worst = |f: &dyn Fn(&Cell) -> f64| cells.iter().map(|c| f(c)).fold(f64::MIN, f64::max);
    println!(
        "{name}: {} cells, mean miss {:.4}, cut against LRU {:.2}%, per-cell best {:.2}%, \
         Belady {:.2}%, within 0.01 of best {:.0}%, worst against LRU {:+.4}, worst against best {:+.4}",
        cells.len(),
        mean(&|c| c.miss),
        100.0 * mean(&|c| 1.0 - c.miss / c.lru),
        100.0 * mean(&|c| 1.0 - c.best / c.lru),
        100.0 * mean(&|c| 1.0 - c.belady / c.lru),
        100.0 * near as f64 / n,
        worst(&|c| c.miss - c.lru),
        worst(&|c| c.miss - c.best)
    );
}
