//! Compares sampled miss-ratio curves with the exact ones of simulated LRU.
//!
//! `cargo run --release -p advise --example curves -- DIRECTORY|- [ONE_IN]`, the
//! directory with traces as CSV; a hyphen leaves traces out. Streams generated
//! here come after them.

use policy::profile::{MissRatioCurve, STATE_BYTES_MAX};
use policy::{Instruction, LineKey, PolicyRequest, Unpinned, registry};
use std::path::PathBuf;
use trace::{Strictness, TraceReader};

const BLOCK_BYTES: u64 = 4096;
/// Sizes compared, as shares of the distinct blocks.
const SHARES: [f64; 12] = [
    0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0,
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = arguments
        .first()
        .ok_or("name the directory of traces, or give a hyphen")?;
    let one_in: u32 = arguments.get(1).map_or(Ok(1), |text| text.parse())?;
    println!("| stream | accesses | blocks | mean error | greatest | in the band | state KiB |");
    println!("|---|---|---|---|---|---|---|");
    if directory != "-" {
        let files = std::fs::read_dir(directory)?.map(|file| Ok(file?.path()));
        let mut files = files.collect::<std::io::Result<Vec<PathBuf>>>()?;
        files.retain(|file| file.to_string_lossy().contains(".csv.zst"));
        files.sort();
        for file in files {
            let mut stream = Vec::new();
            for record in TraceReader::open(&file, None, Strictness::Lenient)? {
                let record = record?;
                let volume = u64::from(record.volume) << 40;
                stream.extend(record.blocks(BLOCK_BYTES).map(|block| volume ^ block));
            }
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            compare(name.trim_end_matches(".csv.zst"), &stream, one_in);
        }
    }
    for (name, stream) in generated() {
        compare(name, &stream, one_in);
    }
    Ok(())
}

/// Streams of a million accesses, each to teach a different lesson.
fn generated() -> Vec<(&'static str, Vec<u64>)> {
    let n = 1_000_000u64;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut power = |exponent: f64, blocks: f64| (rng.f64().powf(exponent) * blocks) as u64;
    vec![
        (
            "uniform over 50000",
            (0..n).map(|_| power(1.0, 50_000.0)).collect(),
        ),
        (
            "skewed over 500000",
            (0..n).map(|_| power(6.0, 500_000.0)).collect(),
        ),
        ("loop of 30000", (0..n).map(|i| i % 30_000).collect()),
        (
            "skewed, with scans",
            (0..n)
                .map(|i| match i / 50_000 % 4 {
                    3 => (1 << 30) + i,
                    _ => power(4.0, 100_000.0),
                })
                .collect(),
        ),
    ]
}

fn compare(name: &str, stream: &[u64], one_in: u32) {
    let mut curve = MissRatioCurve::new(one_in);
    stream.iter().for_each(|block| curve.access(*block, 1));
    assert!(curve.state_bytes() < STATE_BYTES_MAX);
    let mut blocks: Vec<u64> = stream.to_vec();
    blocks.sort_unstable();
    blocks.dedup();
    let sizes = SHARES.map(|share| ((share * blocks.len() as f64) as u32).max(1));
    let (mut sum, mut greatest, mut inside) = (0.0, 0.0f64, 0);
    for lines in sizes {
        let mut lru = registry::build("lru", lines, 1).expect("registered");
        let misses = stream.iter().filter(|block| {
            let answer = lru.access(LineKey(**block), &PolicyRequest::default(), &Unpinned);
            !matches!(answer, Instruction::Hit(_))
        });
        let exact = misses.count() as f64 / stream.len() as f64;
        let point = curve.at(u64::from(lines));
        let off = (point.miss_ratio - exact).abs();
        sum += off;
        greatest = greatest.max(off);
        inside += u32::from(off <= point.error + 1e-9);
    }
    println!(
        "| {name} | {} | {} | {:.4} | {greatest:.4} | {inside}/{} | {} |",
        stream.len(),
        blocks.len(),
        sum / sizes.len() as f64,
        sizes.len(),
        curve.state_bytes() >> 10,
    );
}
