//! `hits OPS DEPTH POLICY|gate DEPTH|served DEPTH|crossed DEPTH|checksum`: hits of the cache engine
//! on a driver that completes at once, of the volume, at its gate, over NBD, or over NBD on another
//! shard, or checksums alone; run under an instruction counter.

use measurements::bench::{hits, nbd_hits};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|arg| arg.parse().ok());
    let ops = number(0).unwrap_or(1_000_000);
    match args.get(1).map(String::as_str) {
        Some("checksum") => hits::checksums(ops),
        Some("gate") => hits::at_gate(ops, number(2).unwrap_or(32)),
        Some("served") => nbd_hits::reads(ops, number(2).unwrap_or(32)),
        Some("crossed") => nbd_hits::crossed(ops, number(2).unwrap_or(32)),
        _ => {
            let policy = args.get(2).map_or(hits::POLICIES[0], String::as_str);
            hits::reads(ops, number(1).unwrap_or(32), policy);
        }
    }
}
