//! Prints the results of the queries in three runs, given PARAMETER=VALUE of unpublished
//! parameters, to see the effect of each.

use block::Nanos;
use experiment::nytro::{NytroScale, run_one};

fn main() {
    let mut scale = NytroScale::FULL;
    for arg in std::env::args().skip(1) {
        let (name, value) = arg.split_once('=').expect("PARAMETER=VALUE");
        let value: f64 = value.parse().expect("a number");
        match name {
            "lookups" => scale.shape.lookups = value,
            "processor_us" => scale.shape.processor = Nanos::from_micros(value as u64),
            "database_mb" => scale.shape.bytes = value as u64 * 1_000_000,
            "promotes_scans" => scale.promotes_scans = value != 0.0,
            _ => panic!("no parameter is called {name}"),
        }
    }
    for cached in [false, true] {
        let (runs, equal, took) = run_one(1, scale, cached).expect("a run");
        println!("cached {cached}: {took}, snapshot {equal}");
        for run in runs {
            let (span, sum) = (run.span().0 as f64 / 1e9, run.whole());
            let worst = run.points.iter().map(|p| p.taken.0 as f64 / p.reads as f64);
            println!(
                "  {span:.1} s, {} reads, {:.3} ms a read, at worst {:.3}, {:.0} MB/s",
                sum.reads,
                sum.taken.0 as f64 / 1e6 / sum.reads as f64,
                worst.fold(0.0, f64::max) / 1e6,
                sum.bytes as f64 / 1e6 / span
            );
            let queries = run
                .queries
                .iter()
                .map(|q| format!("{:.1}", q.0 as f64 / 1e9));
            println!("    {}", queries.collect::<Vec<_>>().join(" "));
        }
    }
}
