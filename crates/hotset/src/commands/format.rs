//! `hotset pool format`: blanks a device, so that a pool takes it as new.

use super::inspect::{Image, superblock_of};
use crate::Failure;
use layout::{
    BLOCK_BYTES, LOG_SUPERBLOCKS, LogSuperblock, PROBE_BYTES, SUPERBLOCK_BLOCKS, SuperblockError,
};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The superblock of a log of write-back, if the device has one.
fn log_of(image: &Image) -> Option<LogSuperblock> {
    let block = |at: u64| {
        let mut bytes = vec![0; BLOCK_BYTES];
        let read = image
            .file
            .read_exact_at(&mut bytes, at * BLOCK_BYTES as u64);
        read.ok().map(|()| bytes)
    };
    let blocks = LOG_SUPERBLOCKS.map(block);
    LogSuperblock::newest(blocks.each_ref().map(Option::as_deref)).ok()
}

pub fn run(path: &Path, yes: bool, rewind: bool) -> Result<(), Failure> {
    let image = Image::open(path, true)?;
    if let Some(log) = log_of(&image).filter(|log| log.owes && !rewind) {
        return Err(Failure::Runtime(format!(
            "{}: it has what volume {} may owe its origin; serve the volume until it has ended in \
             order, or give that up with --rewind: the origin stays as it is, an earlier state",
            path.display(),
            log.volume
        )));
    }
    let mut ends = vec![image.bytes / BLOCK_BYTES as u64];
    let holds = match superblock_of(&image) {
        Err(SuperblockError::Blank) => None,
        Ok(superblock) => {
            // A device that has grown has its other superblock where it ended.
            ends.push(superblock.blocks);
            Some(format!(
                "it belongs to pool {} ({})",
                superblock.label, superblock.pool
            ))
        }
        Err(error) => Some(error.to_string()),
    };
    if let (Some(holds), false) = (&holds, yes) {
        return Err(Failure::Runtime(format!(
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
    let synced = image.file.sync_all();
    synced.map_err(|cause| image.failure("may not have reached the disk", cause))
}
