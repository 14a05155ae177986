//! What is on a device that is to have a copy of a log, or its journal. Nothing is written.

use super::choose::Found;
use block::{Buf, Device, Env, IoResult, Kind, Lba};
use layout::{
    BLOCK_BYTES, BLOCK_SECTORS, Foreign, LOG_AREA, LOG_SUPERBLOCKS, LogSuperblock, PROBE_BYTES,
    SuperblockError, foreign, log_segments,
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
}

async fn block<D: Device>(device: &D, env: &Env, block: u64) -> IoResult<Option<Buf>> {
    let buf = env.pool.take(BLOCK_BYTES);
    match device.read(Lba(block * BLOCK_SECTORS), buf).await {
        (buf, Ok(())) => Ok(Some(buf)),
        (_, Err(error)) if error.kind() == Kind::Media => Ok(None),
        (_, Err(error)) => Err(error),
    }
}

/// The superblock that holds, of the two at these blocks.
pub(super) async fn read<D: Device>(
    device: &D,
    env: &Env,
    blocks: [u64; 2],
) -> IoResult<Result<LogSuperblock, SuperblockError>> {
    let first = block(device, env, blocks[0]).await?;
    let second = block(device, env, blocks[1]).await?;
    let bytes = [&first, &second].map(|buf| buf.as_deref());
    Ok(LogSuperblock::newest(bytes))
}

/// What a device says of the log that it has a copy of; none if it is not one.
pub async fn superblock_of<D: Device>(device: &D, env: &Env) -> IoResult<Option<LogSuperblock>> {
    if device.geometry().sectors.0 / BLOCK_SECTORS < LOG_AREA {
        return Ok(None);
    }
    Ok(read(device, env, LOG_SUPERBLOCKS).await?.ok())
}

/// What is on a device.
pub(super) async fn look<P: Device>(device: &P, env: &Env) -> Found {
    let blocks = device.geometry().sectors.0 / BLOCK_SECTORS;
    if blocks < LOG_AREA {
        return Found::Other("is too small".into());
    }
    let room = log_segments(blocks);
    match read(device, env, LOG_SUPERBLOCKS).await {
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
