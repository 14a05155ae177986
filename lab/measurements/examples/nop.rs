//! `nop OPS DEPTH`: reads through the executor on a driver that completes at
//! once; run under a profiler or an instruction counter.

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let mut next = |default| args.next().and_then(Result::ok).unwrap_or(default);
    let (ops, depth) = (next(1_000_000), next(32));
    let took = measurements::bench::nop::reads(ops, depth);
    println!("{:.1} ns an operation", took.as_nanos() as f64 / ops as f64);
}
