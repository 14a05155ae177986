//! `hits OPS DEPTH|checksum`: hits of the cache engine on a driver that
//! completes at once, or checksums alone; run under an instruction counter.

fn main() {
    let mut args = std::env::args().skip(1);
    let ops = args
        .next()
        .and_then(|ops| ops.parse().ok())
        .unwrap_or(1_000_000);
    match args.next().as_deref() {
        Some("checksum") => lab::bench::hits::checksums(ops),
        depth => lab::bench::hits::reads(ops, depth.and_then(|d| d.parse().ok()).unwrap_or(32)),
    }
}
