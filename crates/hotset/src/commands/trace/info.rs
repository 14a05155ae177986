//! `hotset trace info`.

use super::OnDevice;
use crate::CommandFailure;
use crate::commands::table::{TextTable, bytes};
use crate::commands::traces::OWN;
use command::{print, print_line};
use serde_json::json;
use std::path::{Path, PathBuf};
use trace::{Info, Skipped};

pub fn run(traces: &[PathBuf], input: &OnDevice, json: bool) -> Result<(), CommandFailure> {
    let mut reports = Vec::new();
    for path in traces {
        let mut reader = input.open(&OWN, path)?.with_flushes();
        let mut info = Info::default();
        for record in reader.by_ref() {
            info.add(&record.map_err(CommandFailure::runtime)?);
        }
        let (format, skipped) = (reader.format(), reader.skipped());
        if json {
            reports.push(object(path, format.name(), &info, &skipped));
        } else {
            input.input.report(path, &skipped);
            print(table(path, format.name(), &info).to_string())?;
        }
    }
    if json {
        let text = serde_json::to_string_pretty(&reports).map_err(CommandFailure::runtime)?;
        print_line(text)?;
    }
    Ok(())
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn seconds(info: &Info) -> f64 {
    info.last.since(info.first).as_secs_f64()
}

/// Names are stable; shares are of one.
fn object(path: &Path, format: &str, info: &Info, skipped: &Skipped) -> serde_json::Value {
    json!({
        "trace": path.display().to_string(),
        "format": format,
        "requests": info.requests,
        "reads": info.reads,
        "writes": info.requests - info.reads,
        "forced_writes": info.forced,
        "flushes": info.flushes,
        "read_share": share(info.reads, info.requests),
        "bytes": info.bytes,
        "read_bytes": info.read_bytes,
        "write_bytes": info.bytes - info.read_bytes,
        "volumes": info.volumes(),
        "end_bytes": info.end_bytes,
        "seconds": seconds(info),
        "block_accesses": info.block_accesses,
        "unique_blocks": info.unique_blocks(),
        "footprint_bytes": info.footprint_bytes(),
        "read_blocks": info.read_blocks(),
        "written_blocks": info.written_blocks(),
        "reused_blocks": info.reused_blocks(),
        "reuse_share": info.reuse_share(),
        "sequential_share": share(info.sequential, info.requests),
        "skipped": {
            "malformed": skipped.malformed,
            "out_of_order": skipped.out_of_order,
            "beyond_end": skipped.beyond_end,
            "truncated": skipped.truncated,
        },
    })
}

fn table(path: &Path, format: &str, info: &Info) -> TextTable {
    let percent = |part, whole| format!("{:.1}%", 100.0 * share(part, whole));
    let mean = |bytes_all: u64, n: u64| bytes(bytes_all / n.max(1));
    let writes = info.requests - info.reads;
    let write_bytes = info.bytes - info.read_bytes;
    let seconds = seconds(info);
    let rate = match seconds {
        0.0 => "the trace has no times".into(),
        _ => format!(
            "{seconds:.1} s, {:.1} a second",
            info.requests as f64 / seconds
        ),
    };
    let mut table = TextTable::new(&[&path.display().to_string(), format]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("requests", info.requests.to_string());
    row("time", rate);
    row("volumes", info.volumes().to_string());
    row("highest address", bytes(info.end_bytes));
    row(
        "reads",
        format!(
            "{} ({}), {}, {} each",
            info.reads,
            percent(info.reads, info.requests),
            bytes(info.read_bytes),
            mean(info.read_bytes, info.reads)
        ),
    );
    row(
        "writes",
        format!(
            "{writes} ({}), {}, {} each",
            percent(writes, info.requests),
            bytes(write_bytes),
            mean(write_bytes, writes)
        ),
    );
    row(
        "flushes",
        format!(
            "{}, and {} of the writes are forced",
            info.flushes, info.forced
        ),
    );
    let of_blocks = |blocks: u64| bytes(blocks * 4096);
    row(
        "footprint",
        format!(
            "{}: {} read, {} written",
            of_blocks(info.unique_blocks()),
            of_blocks(info.read_blocks()),
            of_blocks(info.written_blocks())
        ),
    );
    row(
        "reused",
        format!(
            "{} of the blocks, {:.1}% of the accesses",
            percent(info.reused_blocks(), info.unique_blocks()),
            100.0 * info.reuse_share()
        ),
    );
    row("sequential", percent(info.sequential, info.requests));
    table
}
