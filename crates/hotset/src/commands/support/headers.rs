//! Superblocks of hotset on a device, as JSON.
//!
//! Not here: other bytes of the device. The identity of an origin and its samples are counted, and
//! not shown.

use super::part::reason;
use crate::commands::format::{array_copies_of, journal_of, log_of};
use crate::commands::inspect::{InspectedImage, pool_of};
use block::SECTOR_BYTES;
use layout::{JournalSuperblock, LogSuperblock, SuperblockError};
use raid::ArraySuperblock;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The superblocks of the file or block device at `path`, which a daemon may use at the time.
pub fn of(path: &Path) -> Result<Value, String> {
    let name = path.display();
    let meta = fs::metadata(path).map_err(|cause| format!("{name}: {cause}"))?;
    // An open of a pipe would wait for the pipe's other end.
    if !meta.is_file() && !meta.file_type().is_block_device() {
        return Err(format!("{name}: is neither a file nor a block device"));
    }
    let image = InspectedImage::beside_users(path, false);
    let image = image.map_err(reason)?;
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut report = json!({
        "path": path.display().to_string(),
        "leads_to": real.display().to_string(),
        "bytes": image.bytes,
    });
    match pool_of(&image) {
        Ok((_, mut pool, damaged)) => {
            pool["damaged"] = json!(damaged);
            report["pool"] = pool;
        }
        Err(error @ SuperblockError::Blank) => report["first_block"] = json!(error.to_string()),
        Err(error) => report["no_pool"] = json!(error.to_string()),
    }
    if let Some(log) = log_of(&image) {
        report["log"] = log_report(&log);
    }
    if let Some(journal) = journal_of(&image) {
        report["journal"] = journal_report(&journal);
    }
    let copies = array_copies_of(&image);
    if copies.iter().any(Option::is_some) {
        let copies = copies.iter().map(|copy| copy.as_ref().map(array_report));
        report["array"] = copies.collect();
    }
    Ok(report)
}

/// The superblock of a log.
pub fn log_report(log: &LogSuperblock) -> Value {
    let journal = log.journal.as_ref();
    json!({
        "volume": log.volume,
        "uuid": log.log.to_string(),
        "copy": log.copy,
        "devices": log.devices,
        "may_be_dirty": log.may_be_dirty,
        "trusted": log.mask,
        "sequence": log.sequence,
        "epoch": log.epoch,
        "incarnation": log.incarnation,
        "segments": log.segments,
        "volume_bytes": log.sectors * SECTOR_BYTES,
        "opened_ns": log.opened_at,
        "host": log.host,
        "journal": journal.map(|(uuid, device)| json!({
            "uuid": uuid.to_string(), "device": device,
        })),
        "identity_bytes": log.identity.len(),
        "origin_record_bytes": log.record.len(),
    })
}

fn journal_report(journal: &JournalSuperblock) -> Value {
    json!({
        "volume": journal.volume,
        "uuid": journal.journal.to_string(),
        "log": journal.log.to_string(),
        "sequence": journal.sequence,
        "retired": journal.retired,
        "half_blocks": journal.half,
        "volume_bytes": journal.sectors * SECTOR_BYTES,
        "identity_bytes": journal.identity.len(),
    })
}

fn array_report(array: &ArraySuperblock) -> Value {
    let members = array.table.iter().map(|member| {
        json!({
            "uuid": member.uuid.to_string(),
            "state": format!("{:?}", member.state),
            "bytes": member.sectors.0 * SECTOR_BYTES,
            "checkpoint_bytes": member.checkpoint.0 * SECTOR_BYTES,
            "failed_at": member.failed_at,
            "map_writes": member.map_writes,
        })
    });
    json!({
        "name": array.name,
        "uuid": array.array.to_string(),
        "member_uuid": array.member.to_string(),
        "role": array.role,
        "level": array.level.name(),
        "events": array.events,
        "sealed": array.sealed,
        "generation": array.generation.to_string(),
        "history": array.history.iter().map(|start| json!({
            "generation": start.generation.to_string(), "event": start.event,
        })).collect::<Vec<_>>(),
        "chunk_bytes": array.chunk.0 * SECTOR_BYTES,
        "data_at": array.data_at.0 * SECTOR_BYTES,
        "region_bytes": array.region.0 * SECTOR_BYTES,
        "journal_slots": array.journal_slots,
        "members": members.collect::<Vec<_>>(),
        "lost_ranges": array.bad.len(),
        "gaps": array.gaps.len(),
        "scrubbed_s": array.scrubbed.since,
        "scrub_ended": array.scrubbed.ended,
    })
}
