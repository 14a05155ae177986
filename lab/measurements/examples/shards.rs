//! `shards SHARDS BUSY_POLL_US SECONDS DIRECTORY`: prints the 4 KiB hits a second of one cache, asked for on so
//! many shards at once. The files of the cache and its origin are made in the directory.

use std::path::Path;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [shards, poll_us, seconds, dir] = &args[..] else {
        return Err("usage: shards SHARDS BUSY_POLL_US SECONDS DIRECTORY".into());
    };
    let span = Duration::from_secs_f64(seconds.parse()?);
    let poll = block::Nanos::from_micros(poll_us.parse()?);
    let reads = measurements::bench::shards::reads(shards.parse()?, poll, span, Path::new(dir))?;
    println!("{reads:.0}");
    Ok(())
}
