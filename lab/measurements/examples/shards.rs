//! `shards SHARDS BUSY_POLL_US all|further SECONDS DIRECTORY`: prints the 4 KiB hits a second of one cache,
//! read by all shards or by the further ones, and the home shard's time for each. The files of the
//! cache and its origin are made in the directory.
//!
//! `shards chart HIT_NS COUNT_NS FILE`: draws the hits of 1 to 16 modelled shards at these costs.

use block::Nanos;
use measurements::bench::shards::{ShardCosts, ShardRun, chart, reads};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["chart", hit, count, file] => {
            let costs = ShardCosts::measured(hit.parse()?, count.parse()?);
            std::fs::write(file, chart(costs)?)?;
        }
        [shards, poll_us, who, seconds, dir] => {
            let seconds: f64 = seconds.parse()?;
            let run = ShardRun {
                shards: shards.parse()?,
                busy_poll: Nanos::from_micros(poll_us.parse()?),
                home_reads: who == "all",
                span: Nanos((seconds * 1e9) as u64),
            };
            let reads = reads(run, Path::new(dir))?;
            println!("{:.0} {:.1}", reads.per_s, reads.home_ns);
        }
        _ => return Err("usage: see the head of examples/shards.rs".into()),
    }
    Ok(())
}
