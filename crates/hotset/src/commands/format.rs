//! `hotset pool format`: blanks a device, so that a pool takes it as new.

use super::inspect::{InspectedImage, superblock_of};
use crate::CommandFailure;
use control::check::roles;
use control::config::Name;
use control::place::BasePlace;
use layout::array::SUPERBLOCKS;
use layout::{
    BLOCK_BYTES, BLOCK_SECTORS, BlockPair, COMMIT_BLOCKS, JournalCommit, JournalSuperblock,
    LOG_SUPERBLOCKS, LogSuperblock, PROBE_BYTES, SUPERBLOCK_BLOCKS, SuperblockError,
};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// Bytes of one discard.
const TRIM_STEP: u64 = 1 << 30;
/// `_IO(0x12, 119)` of the kernel.
const BLKDISCARD: libc::c_ulong = 0x1277;
const PUNCH: libc::c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

fn block(image: &InspectedImage, at: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; BLOCK_BYTES];
    let at = at.checked_mul(BLOCK_BYTES as u64)?;
    image.file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// The superblock of a log of write-back, if the device has one.
pub fn log_of(image: &InspectedImage) -> Option<LogSuperblock> {
    let blocks = LOG_SUPERBLOCKS.map(|at| block(image, at));
    BlockPair::legible(blocks.each_ref().map(Option::as_deref))
}

/// The superblock of the array of which a device is a member, in each of its copies.
pub fn array_copies_of(image: &InspectedImage) -> [Option<raid::ArraySuperblock>; 2] {
    let at = SUPERBLOCKS.map(|at| at.0 / BLOCK_SECTORS);
    at.map(|at| raid::ArraySuperblock::decode(&block(image, at)?))
}

/// The superblock of a journal of write-back, if the device has one.
pub fn journal_of(image: &InspectedImage) -> Option<JournalSuperblock> {
    let blocks = LOG_SUPERBLOCKS.map(|at| block(image, at));
    BlockPair::legible(blocks.each_ref().map(Option::as_deref))
}

/// The superblock of a journal that may have to be replayed.
fn pending_of(image: &InspectedImage) -> Option<JournalSuperblock> {
    let found = journal_of(image)?;
    let halves = [0, 1].map(|half| found.half_at(half));
    let commits = halves.into_iter().flat_map(|at| at..at + COMMIT_BLOCKS);
    let commits = commits.filter_map(|at| block(image, at));
    let mut commits = commits.filter_map(|b| JournalCommit::decode(&b, found.journal).ok());
    commits
        .any(|commit| commit.group > found.retired)
        .then_some(found)
}

/// Discards all data of the device, if the device can.
fn trim(image: &InspectedImage) {
    let is_disk = image
        .file
        .metadata()
        .is_ok_and(|meta| meta.file_type().is_block_device());
    let mut at = 0;
    while at < image.bytes {
        let len = TRIM_STEP.min(image.bytes - at);
        let descriptor = image.file.as_raw_fd();
        let range = [at, len];
        // SAFETY: the request reads two numbers; the other call takes no pointers.
        let done = unsafe {
            match is_disk {
                true => libc::ioctl(descriptor, BLKDISCARD as _, range.as_ptr()),
                false => libc::fallocate(descriptor, PUNCH, at as i64, len as i64),
            }
        };
        if done != 0 {
            return;
        }
        at += len;
    }
}

/// Refuses a device that the configuration in `file` uses for anything but a pool.
fn check_role(file: &Path, path: &Path) -> Result<(), CommandFailure> {
    let config = crate::configuration::read_alone(file)?;
    let here = BasePlace::at(path);
    let at = |device: &Name| {
        let mut devices = config.devices.iter();
        devices.any(|d| d.name.value == *device && BasePlace::of(d).overlaps(&here))
    };
    let of_pool = |device: &Name| {
        let mut pools = config.pools.iter();
        pools.any(|pool| pool.devices.value.contains(device))
    };
    let all = roles(&config);
    let mut others = all.iter().filter(|role| !of_pool(role.device));
    match others.find(|role| at(role.device)) {
        None => Ok(()),
        Some(role) => Err(CommandFailure::Runtime(format!(
            "{}: it is device {}, which {} uses; take it out of the configuration first",
            path.display(),
            role.device,
            role.by
        ))),
    }
}

pub fn run(
    path: &Path,
    config: Option<&Path>,
    yes: bool,
    discard: bool,
) -> Result<(), CommandFailure> {
    if let Some(config) = config {
        check_role(config, path)?;
    }
    let image = InspectedImage::open(path, true)?;
    if let Some(log) = log_of(&image).filter(|log| log.may_be_dirty && !discard) {
        return Err(CommandFailure::Runtime(format!(
            "{}: it may hold dirty data of volume {}. Serve the volume until it has ended in \
             order, write the data back with `hotset pool recover {} --write-back`, or discard it \
             with --discard: the origin stays as it is",
            path.display(),
            log.volume,
            log.volume
        )));
    }
    if let Some(journal) = pending_of(&image).filter(|_| !discard) {
        return Err(CommandFailure::Runtime(format!(
            "{}: it is the journal of volume {}, whose origin may have half of what it has. Serve \
             the volume until it has ended in order, replay it with `hotset pool recover {} \
             --discard`, or lose it with --discard here",
            path.display(),
            journal.volume,
            journal.volume
        )));
    }
    let mut ends = vec![image.bytes / BLOCK_BYTES as u64];
    let array = array_copies_of(&image).into_iter().flatten().next();
    let holds = match superblock_of(&image) {
        Err(SuperblockError::Foreign(_)) if array.is_some() => {
            array.map(|array| format!("it is a member of array {} ({})", array.name, array.array))
        }
        Err(SuperblockError::Blank) => None,
        Ok(superblock) => {
            // A device that has grown has its other superblock at its former end.
            ends.push(superblock.blocks);
            Some(format!(
                "it belongs to pool {} ({})",
                superblock.label, superblock.pool
            ))
        }
        Err(error) => Some(error.to_string()),
    };
    if let (Some(holds), false) = (&holds, yes) {
        return Err(CommandFailure::Runtime(format!(
            "{}: {holds}; give --yes to lose that",
            path.display()
        )));
    }
    let blank = |at: u64, bytes: u64| {
        let zeroes = vec![0; bytes as usize];
        let written = image.file.write_all_at(&zeroes, at);
        written.map_err(|cause| image.failure("cannot be written", cause))
    };
    blank(0, image.bytes.min(PROBE_BYTES as u64))?;
    for end in ends.into_iter().filter(|end| *end >= SUPERBLOCK_BLOCKS) {
        let superblock = SUPERBLOCK_BLOCKS * BLOCK_BYTES as u64;
        blank((end - SUPERBLOCK_BLOCKS) * BLOCK_BYTES as u64, superblock)?;
    }
    trim(&image);
    let synced = image.file.sync_all();
    synced.map_err(|cause| image.failure("may not have reached the disk", cause))
}
