//! `hotset pool inspect`: the contents of a pool device, and their damage. Superblocks alone are read
//! for `hotset support`.

use crate::CommandFailure;
use crate::platform::claim;
use command::{print, print_line};
use layout::{
    BITMAP_BITS, BITMAP_BLOCKS, BLOCK_BYTES, LINE_BITS, LayoutPlan, LogReader, MapPage, Mask,
    PROBE_BYTES, PoolRole, PoolSuperblock, SUPERBLOCK_BLOCKS, SlotChange, SuperblockError,
    current_superblock, entries_per_page, first_superblock, newest_bitmap, second_superblock,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

const SUPERBLOCK_BYTES: u64 = SUPERBLOCK_BLOCKS * BLOCK_BYTES as u64;

/// An open file or block device.
pub struct InspectedImage {
    pub file: File,
    pub bytes: u64,
    name: String,
}

impl InspectedImage {
    /// Opens a file or block device, which no daemon uses until this is dropped.
    pub fn open(path: &Path, write: bool) -> Result<InspectedImage, CommandFailure> {
        let image = InspectedImage::beside_users(path, write)?;
        let claimed = claim::wait(|| uring::claim(&image.file));
        let name = || image.name.clone();
        claimed.map_err(|error| CommandFailure::Runtime(error.on(name()).to_string()))?;
        Ok(image)
    }

    /// Opens a file or block device that a daemon may use at the time.
    pub fn beside_users(path: &Path, write: bool) -> Result<InspectedImage, CommandFailure> {
        let name = path.display().to_string();
        let opened = File::options().read(true).write(write).open(path);
        let mut file = opened.map_err(|cause| {
            let remedy = "correct the path, or let this user read and write it";
            CommandFailure::Runtime(format!("{name}: cannot be opened ({cause}); {remedy}"))
        })?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(|cause| {
            let what = "its size cannot be determined";
            CommandFailure::Runtime(format!("{name}: {what}: {cause}"))
        })?;
        Ok(InspectedImage { file, bytes, name })
    }

    pub fn failure(&self, what: &str, cause: std::io::Error) -> CommandFailure {
        CommandFailure::Runtime(format!("{}: {what}: {cause}", self.name))
    }

    fn read(&self, at: u64, bytes: u64) -> Result<Vec<u8>, CommandFailure> {
        let mut out = vec![0; bytes as usize];
        let read = self.file.read_exact_at(&mut out, at);
        read.map_err(|cause| {
            self.failure(&format!("{bytes} bytes at {at} cannot be read"), cause)
        })?;
        Ok(out)
    }

    fn blocks(&self, area: layout::PlannedArea) -> Result<Vec<u8>, CommandFailure> {
        let block = BLOCK_BYTES as u64;
        self.read(area.start * block, area.blocks * block)
    }
}

/// A device's two copies of the superblock.
struct InspectedCopies {
    start: Option<Vec<u8>>,
    first: Result<PoolSuperblock, SuperblockError>,
    second: Result<PoolSuperblock, SuperblockError>,
}

impl InspectedCopies {
    fn read(image: &InspectedImage) -> InspectedCopies {
        if image.bytes < 2 * SUPERBLOCK_BYTES {
            let cut = || Err(SuperblockError::Damaged("it is cut short"));
            return InspectedCopies {
                start: None,
                first: cut(),
                second: cut(),
            };
        }
        let start = image.read(0, image.bytes.min(PROBE_BYTES as u64)).ok();
        let tail = |bytes: Option<&[u8]>, copy| {
            let area = bytes.and_then(|bytes| PoolSuperblock::table_area(bytes, copy));
            area.and_then(|area| image.blocks(area).ok())
                .unwrap_or_default()
        };
        let first = first_superblock(start.as_deref(), &tail(start.as_deref(), 0));
        let whole = image.bytes / BLOCK_BYTES as u64;
        let blocks = match &first {
            Ok(superblock) if superblock.role == PoolRole::Member => superblock.blocks.min(whole),
            Ok(_) => 2 * SUPERBLOCK_BLOCKS,
            Err(_) => whole,
        };
        let end = image.read(
            (blocks - SUPERBLOCK_BLOCKS) * BLOCK_BYTES as u64,
            SUPERBLOCK_BYTES,
        );
        let end = end.ok();
        InspectedCopies {
            second: second_superblock(end.as_deref(), &tail(end.as_deref(), 1)),
            start,
            first,
        }
    }

    /// The superblock that holds.
    fn superblock(&self) -> Result<PoolSuperblock, SuperblockError> {
        current_superblock(
            self.start.as_deref(),
            self.first.clone(),
            self.second.clone(),
        )
    }
}

/// The superblock that holds.
pub fn superblock_of(image: &InspectedImage) -> Result<PoolSuperblock, SuperblockError> {
    InspectedCopies::read(image).superblock()
}

/// The superblock of a pool device that holds, its report, and the damage of its copies.
pub fn pool_of(
    image: &InspectedImage,
) -> Result<(PoolSuperblock, Value, Vec<String>), SuperblockError> {
    let copies = InspectedCopies::read(image);
    let superblock = copies.superblock()?;
    let version = match &copies.start {
        Some(start) if copies.first.is_ok() => PoolSuperblock::version(start),
        _ => layout::VERSION,
    };
    let mut damaged = Vec::new();
    for (copy, which) in [&copies.first, &copies.second].into_iter().zip(["A", "B"]) {
        match copy {
            Ok(copy) if copy.sequence != superblock.sequence => {
                damaged.push(format!("superblock {which} is older than the other"));
            }
            Ok(_) => {}
            Err(error) => damaged.push(format!("superblock {which}: {error}")),
        }
    }
    let report = json!({
        "format": version,
        "role": if superblock.role == PoolRole::Member { "member" } else { "witness" },
        "pool": superblock.label,
        "pool_uuid": superblock.pool.to_string(),
        "device": superblock.name,
        "device_uuid": superblock.device.to_string(),
        "host": superblock.host,
        "sequence": superblock.sequence,
        "epoch": superblock.epoch,
        "closed_in_order": superblock.clean,
        "line_bytes": u64::from(superblock.line_blocks) * BLOCK_BYTES as u64,
        "members": superblock.members.iter().map(|m| json!({
            "device": m.name, "uuid": m.device.to_string(), "domain": m.domain, "lines": m.slots,
        })).collect::<Vec<_>>(),
        "volumes": superblock.volumes.volumes().iter().map(|v| json!({
            "name": v.name, "id": v.id, "bytes": v.sectors * block::SECTOR_BYTES,
            "origin_record_bytes": v.origin.len(),
        })).collect::<Vec<_>>(),
    });
    Ok((superblock, report, damaged))
}

pub fn run(path: &Path, lines: bool, as_json: bool) -> Result<(), CommandFailure> {
    let image = InspectedImage::open(path, false)?;
    let (superblock, mut report, mut damaged) = pool_of(&image).map_err(|error| {
        let what = format!("{}: {error}; no pool can be read here", path.display());
        CommandFailure::Runtime(what)
    })?;
    if let Some(plan) = superblock.plan() {
        inspect_member(&image, &superblock, &plan, lines, &mut report, &mut damaged)?;
    }
    report["damaged"] = json!(damaged);
    match as_json {
        true => print_line(format!("{report:#}"))?,
        false => print(text(&report, 0))?,
    }
    if damaged.is_empty() {
        Ok(())
    } else {
        let what = format!("{}: {} damaged; see above", path.display(), damaged.len());
        Err(CommandFailure::Runtime(what))
    }
}

fn inspect_member(
    image: &InspectedImage,
    superblock: &PoolSuperblock,
    plan: &LayoutPlan,
    lines: bool,
    report: &mut Value,
    damaged: &mut Vec<String>,
) -> Result<(), CommandFailure> {
    let areas = plan.areas().into_iter().map(|(name, area)| {
        let block = BLOCK_BYTES as u64;
        json!({ "area": name, "at": area.start * block, "bytes": area.blocks * block })
    });
    report["areas"] = areas.collect();
    if plan.blocks * BLOCK_BYTES as u64 > image.bytes {
        damaged.push(format!("cut short: {} bytes are left", image.bytes));
        return Ok(());
    }
    let bitmap = image.blocks(plan.bitmap)?;
    for (n, block) in bitmap.chunks_exact(BLOCK_BYTES).enumerate() {
        // Of a pair, one may be torn by a crash; the other pair holds then.
        if layout::Bitmap::decode(block, superblock.device).is_err() {
            damaged.push(format!("bitmap, block {n} of {BITMAP_BLOCKS}"));
        }
    }
    let bitmap = newest_bitmap(&bitmap, superblock.device);
    report["marked_regions"] = json!(
        bitmap
            .as_ref()
            .map_or(BITMAP_BITS as usize, |bitmap| bitmap.regions.count())
    );
    report["region_bytes"] = json!(u64::from(superblock.region_blocks) * BLOCK_BYTES as u64);
    let log_end_min = bitmap.map_or(0, |bitmap| bitmap.log_end);
    let mut map = read_map(image, superblock, plan, damaged)?;
    let end = replay(image, superblock, plan, &mut map)?;
    let expected = if superblock.clean {
        superblock.log_end
    } else {
        log_end_min
    };
    if end < expected {
        damaged.push(format!(
            "log: it ends before block {end}, and is known to reach {expected}"
        ));
    }
    report["log_blocks"] = json!(end - superblock.log_start);
    let mut by_volume: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for slot in map.values().filter(|slot| slot.key != 0) {
        let valid: u32 = slot.valid.iter().map(|word| word.count_ones()).sum();
        let sums = by_volume.entry(slot.key >> LINE_BITS).or_default();
        *sums = (sums.0 + u64::from(valid > 0), sums.1 + u64::from(valid));
    }
    report["lines"] = json!({
        "room": plan.slots,
        "by_volume_id": by_volume.iter().map(|(id, (lines, blocks))| {
            json!({ "volume": id, "lines": lines, "bytes": blocks * BLOCK_BYTES as u64 })
        }).collect::<Vec<_>>(),
    });
    if lines {
        verify(image, plan, &map, damaged)?;
    }
    Ok(())
}

/// The entry of a slot in the map.
#[derive(Default)]
struct InspectedSlot {
    key: u64,
    valid: Mask,
    crcs: BTreeMap<u32, u32>,
}

fn bits(mask: &Mask) -> impl Iterator<Item = u32> + '_ {
    (0..256).filter(|bit| mask[*bit as usize / 64] >> (bit % 64) & 1 == 1)
}

fn read_map(
    image: &InspectedImage,
    superblock: &PoolSuperblock,
    plan: &LayoutPlan,
    damaged: &mut Vec<String>,
) -> Result<BTreeMap<u32, InspectedSlot>, CommandFailure> {
    let mut map = BTreeMap::new();
    let Some(which) = superblock.map else {
        return Ok(map);
    };
    let each = entries_per_page(plan.line_blocks);
    let pages = image.blocks(plan.maps[usize::from(which)])?;
    let pages = pages.chunks_exact(BLOCK_BYTES).take(plan.pages() as usize);
    for (number, block) in (0..).zip(pages) {
        let page = MapPage::decode(
            block,
            superblock.device,
            plan.line_blocks,
            number,
            superblock.generation,
        );
        let Ok(page) = page else {
            damaged.push(format!("map, page {number}: its {each} lines are lost"));
            continue;
        };
        for (n, entry) in (0..).zip(page.entries) {
            let slot = InspectedSlot {
                key: entry.key,
                valid: entry.valid,
                crcs: (0..).zip(entry.crcs).collect(),
            };
            map.insert(number as u32 * each + n, slot);
        }
    }
    Ok(map)
}

/// Applies the log. Returns the sequence number after its end.
fn replay(
    image: &InspectedImage,
    superblock: &PoolSuperblock,
    plan: &LayoutPlan,
    map: &mut BTreeMap<u32, InspectedSlot>,
) -> Result<u64, CommandFailure> {
    let log = image.blocks(plan.log)?;
    let mut incarnation = 0;
    for sequence in superblock.log_start..superblock.log_start + plan.log.blocks {
        let at = (sequence % plan.log.blocks) as usize * BLOCK_BYTES;
        let block = &log[at..at + BLOCK_BYTES];
        let reader = LogReader::open(block, superblock.device, plan.line_blocks, sequence);
        let Ok(reader) = reader else {
            return Ok(sequence);
        };
        if reader.incarnation() < incarnation {
            return Ok(sequence);
        }
        incarnation = reader.incarnation();
        for change in reader.flatten() {
            apply(map.entry(change.slot).or_default(), &change);
        }
    }
    Ok(superblock.log_start + plan.log.blocks)
}

fn apply(slot: &mut InspectedSlot, change: &SlotChange) {
    if let Some(key) = change.key {
        *slot = InspectedSlot {
            key,
            ..InspectedSlot::default()
        };
    }
    slot.valid = change.valid;
    let crcs = bits(&change.changed).zip(change.crcs.iter().copied());
    slot.crcs.extend(crcs);
}

/// Reads every valid block.
fn verify(
    image: &InspectedImage,
    plan: &LayoutPlan,
    map: &BTreeMap<u32, InspectedSlot>,
    damaged: &mut Vec<String>,
) -> Result<(), CommandFailure> {
    for (number, slot) in map.iter().filter(|(_, slot)| slot.key != 0) {
        for block in bits(&slot.valid) {
            let at = plan.lines.start + u64::from(number * plan.line_blocks + block);
            let bytes = image.read(at * BLOCK_BYTES as u64, BLOCK_BYTES as u64)?;
            if slot.crcs.get(&block) != Some(&crc_fast::crc32_iscsi(&bytes)) {
                damaged.push(format!(
                    "line in slot {number}: block {block} is not what was written"
                ));
            }
        }
    }
    Ok(())
}

/// Returns a report for a person: a line a value, indented.
fn text(value: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let Value::Object(fields) = value else {
        return format!("{indent}{}\n", plain(value));
    };
    let field = |(name, value): (&String, &Value)| {
        let name = name.replace('_', " ");
        match value {
            Value::Object(_) => format!("{indent}{name}:\n{}", text(value, depth + 1)),
            Value::Array(items) if items.is_empty() => format!("{indent}{name}: none\n"),
            Value::Array(items) => {
                let rows = items.iter().map(|item| row(item, &indent));
                format!("{indent}{name}:\n{}", rows.collect::<String>())
            }
            other => format!("{indent}{name}: {}\n", plain(other)),
        }
    };
    fields.iter().map(field).collect()
}

/// Returns a row of a list, on one line.
fn row(value: &Value, indent: &str) -> String {
    let Value::Object(fields) = value else {
        return format!("{indent}  {}\n", value.as_str().unwrap_or_default());
    };
    let field = |(name, value): (&String, &Value)| {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        format!("{} {text}", name.replace('_', " "))
    };
    let fields: Vec<String> = fields.iter().map(field).collect();
    format!("{indent}  {}\n", fields.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_with_a_new_line_forgets_the_old_checksums() {
        let mut slot = InspectedSlot::default();
        let change = |key, valid, changed, crcs: &[u32]| SlotChange {
            slot: 0,
            key,
            valid: [valid, 0, 0, 0],
            changed: [changed, 0, 0, 0],
            crcs: crcs.to_vec(),
        };
        apply(&mut slot, &change(Some(5), 3, 3, &[10, 11]));
        apply(&mut slot, &change(None, 6, 4, &[12]));
        assert_eq!((slot.key, slot.valid[0], slot.crcs.len()), (5, 6, 3));
        apply(&mut slot, &change(Some(6), 1, 1, &[20]));
        assert_eq!(slot.crcs.get(&0), Some(&20));
        assert_eq!(slot.crcs.len(), 1);
    }
}
