//! `parity`: the parity of RAID 5 beside a Reed-Solomon crate that makes one shard
//! of the same data, in bytes of data a second on one core.

use measurements::bench::{paired, report};
use reed_solomon_simd::ReedSolomonEncoder;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Chunks of a stripe, and their length in bytes: a stripe fits the processor's caches.
const DATA: usize = 3;
const CHUNK: usize = 64 << 10;
const RUNS: usize = 9;
const SPAN: Duration = Duration::from_millis(300);

/// GB of data a second that `stripe` gets through.
fn rate(
    mut stripe: impl FnMut() -> Result<(), reed_solomon_simd::Error>,
) -> Result<f64, reed_solomon_simd::Error> {
    let (begin, mut stripes) = (Instant::now(), 0);
    while begin.elapsed() < SPAN {
        for _ in 0..64 {
            stripe()?;
        }
        stripes += 64;
    }
    Ok((stripes * DATA * CHUNK) as f64 / begin.elapsed().as_secs_f64() / 1e9)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut rng = fastrand::Rng::with_seed(1);
    let data: [Vec<u8>; DATA] = [(); DATA].map(|()| (0..CHUNK).map(|_| rng.u8(..)).collect());
    let mut parity = vec![0; CHUNK];
    let mut encoder = ReedSolomonEncoder::new(DATA, 1, CHUNK)?;
    let mut pairs = Vec::new();
    for _ in 0..RUNS {
        let ours = rate(|| {
            parity.copy_from_slice(&data[0]);
            for chunk in &data[1..] {
                raid::xor(&mut parity, chunk);
            }
            black_box(&mut parity);
            Ok(())
        })?;
        let peer = rate(|| {
            for chunk in &data {
                encoder.add_original_shard(chunk)?;
            }
            black_box(encoder.encode()?.recovery(0));
            Ok(())
        })?;
        pairs.push((ours, peer));
    }
    let name = "parity of 3 chunks of 64 KiB, one core";
    let row = paired(name, "GB/s", "reed-solomon-simd, 3 + 1", None, &pairs);
    println!("{}", report::table(&[row], "One process, in turn."));
    Ok(())
}
