//! What is on a device that is to have a copy of a log, or its journal. Nothing is written.

use super::choose::Found;
use crate::pair::PairBlocks;
use block::{Device, Env, Extent, IoResult, Lba};
use layout::{
    BLOCK_SECTORS, Foreign, LOG_AREA, LOG_SUPERBLOCKS, LogSuperblock, PROBE_BYTES, SuperblockError,
    foreign, log_segments,
};
use std::rc::Rc;

/// A device that is to have a copy, or the journal.
pub struct Candidate<P> {
    /// What it is called.
    pub name: String,
    /// What it fails with.
    pub domain: Rc<str>,
    /// The device, or why it cannot be used.
    pub device: Result<P, String>,
    /// As [`Area::holes`](crate::Area::holes).
    pub holes: Vec<Extent>,
}

/// What a device says of the log that it has a copy of; none if it is not one.
pub async fn superblock_of<D: Device>(device: &D, env: &Env) -> IoResult<Option<LogSuperblock>> {
    if device.geometry().sectors.0 / BLOCK_SECTORS < LOG_AREA {
        return Ok(None);
    }
    let pair = PairBlocks::new(LOG_SUPERBLOCKS);
    Ok(pair.read(device, &env.pool).await?.newest.ok())
}

/// What is on a device.
pub(super) async fn look<P: Device>(pair: &PairBlocks, device: &P, env: &Env) -> Found {
    let blocks = device.geometry().sectors.0 / BLOCK_SECTORS;
    if blocks < LOG_AREA {
        return Found::Other("is too small".into());
    }
    let room = log_segments(blocks);
    match pair.read(device, &env.pool).await.map(|pair| pair.newest) {
        Ok(Ok(superblock)) => Found::Log {
            superblock: Box::new(superblock),
            room,
        },
        Ok(Err(SuperblockError::Blank)) => match probe(device, env).await {
            Ok(None) => Found::Blank { room },
            Ok(Some(Foreign(what))) => Found::Other(format!("holds {what}")),
            Err(error) => Found::Absent(error.to_string()),
        },
        // The other copy has all that this one had.
        Ok(Err(SuperblockError::Damaged(how))) => {
            Found::Absent(format!("its superblock is damaged: {how}"))
        }
        Ok(Err(SuperblockError::Foreign(what))) => Found::Other(format!("holds {what}")),
        Ok(Err(error)) => Found::Other(format!("cannot be read: {error}")),
        Err(error) => Found::Absent(error.to_string()),
    }
}

/// What its first bytes show of somebody else's.
pub(super) async fn probe<P: Device>(device: &P, env: &Env) -> IoResult<Option<Foreign>> {
    let buf = env.pool.take(PROBE_BYTES);
    let (buf, read) = device.read(Lba::ZERO, buf).await;
    read.map(|()| foreign(&buf))
}
