//! Reads of blocks that miss, where a line holds only the blocks that were asked for since its
//! admission, as in the engine; the simulator of traces takes lines for whole:
//! `cargo run --release -p tracesim --example parts -- LINE_KIB POLICY,... TRACE...`.

use baselines::registry;
use policy::{Instruction, LineKey, LineParts, PolicyOp, PolicyRequest, Unpinned};
use std::collections::HashSet;
use std::path::Path;
use trace::{Strictness, TraceReader, TraceRecord};

const BLOCK_BYTES: u64 = 4096;
/// Shares of the blocks that a trace touches.
const SIZES: [f64; 3] = [0.03, 0.1, 0.3];
/// Cells of fewer lines are left out.
const LINES_MIN: u32 = 16;

/// The share of blocks read that a pool of `slots` lines does not hold, and the number of blocks
/// written to the pool.
fn run(records: &[TraceRecord], policy: &str, slots: u32, line_blocks: u64) -> [f64; 2] {
    let mut policy = registry::build(policy, slots, 1).expect("a policy's name");
    let mut valid = vec![false; slots as usize * line_blocks as usize];
    let (mut read, mut missed, mut filled) = (0u64, 0u64, 0u64);
    for record in records {
        let is_read = record.op == trace::RecordOp::Read;
        let blocks = record.blocks(BLOCK_BYTES);
        let (mut at, end) = (*blocks.start(), blocks.end() + 1);
        while at < end {
            let (line, first) = (at / line_blocks, at % line_blocks);
            let count = (end - at).min(line_blocks - first);
            let request = PolicyRequest {
                op: if is_read {
                    PolicyOp::Read
                } else {
                    PolicyOp::Write
                },
                len_bytes: record.len_bytes,
                parts: LineParts::of(first as u32, count as u32, line_blocks.ilog2()),
            };
            let key = LineKey(u64::from(record.volume) << 40 | line);
            let (slot, comes) = match policy.access(key, &request, &Unpinned) {
                Instruction::Hit(slot) => (Some(slot), false),
                Instruction::Admit(slot) | Instruction::Replace { slot, .. } => (Some(slot), true),
                Instruction::Bypass(_) => (None, false),
            };
            let mut found = 0;
            if let Some(slot) = slot {
                let start = slot.0 as usize * line_blocks as usize;
                let held = &mut valid[start..start + line_blocks as usize];
                if comes {
                    held.fill(false);
                }
                let touched = &mut held[first as usize..(first + count) as usize];
                found = touched.iter().filter(|valid| **valid).count() as u64;
                touched.fill(true);
                filled += count - if is_read { found } else { 0 };
            }
            if is_read {
                read += count;
                missed += count - found;
            }
            at += count;
        }
    }
    [missed as f64 / read.max(1) as f64, filled as f64]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [line_kib, policies, traces @ ..] = args.as_slice() else {
        panic!("usage: parts LINE_KIB POLICY,... TRACE...");
    };
    let line_blocks = line_kib.parse::<u64>().expect("a size") * 1024 / BLOCK_BYTES;
    let policies: Vec<&str> = policies.split(',').collect();
    let mut sums = vec![[0.0; 2]; policies.len()];
    let mut cells = 0.0;
    for path in traces {
        let reader = TraceReader::open(Path::new(path), None, Strictness::Strict).expect("a trace");
        let records: Result<Vec<TraceRecord>, _> = reader.collect();
        let records = records.expect("a sound trace");
        let touched = records.iter().flat_map(|record| {
            let volume = u64::from(record.volume) << 44;
            record.blocks(BLOCK_BYTES).map(move |block| volume | block)
        });
        let blocks = touched.collect::<HashSet<u64>>().len() as f64;
        for size in SIZES {
            let slots = (blocks * size / line_blocks as f64) as u32;
            if slots < LINES_MIN {
                continue;
            }
            let of = |policy: &&str| run(&records, policy, slots, line_blocks);
            let row: Vec<[f64; 2]> = policies.iter().map(of).collect();
            for (sum, [missed, filled]) in sums.iter_mut().zip(&row) {
                *sum = [sum[0] + missed, sum[1] + filled / row[0][1]];
            }
            let missed = row.iter().map(|[missed, _]| format!(" {missed:.4}"));
            println!("{path} {size} {slots}{}", missed.collect::<String>());
            cells += 1.0;
        }
    }
    for (policy, [missed, filled]) in policies.iter().zip(sums) {
        let (missed, filled) = (missed / cells, filled / cells);
        println!("{policy}: mean miss {missed:.4}, {filled:.2} of the first's fills");
    }
}
