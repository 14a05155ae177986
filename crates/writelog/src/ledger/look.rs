//! The contents of a device for a copy of a log, or for the journal. Nothing is written.

use super::choose::{CandidateState, fault};
use crate::pair::PairBlocks;
use block::{Device, Env, Extent, IoResult, Lba};
use layout::{
    BLOCK_SECTORS, Foreign, LOG_AREA, LOG_SUPERBLOCKS, LogSuperblock, PROBE_BYTES, SuperblockError,
    foreign, log_segments,
};
use std::rc::Rc;

/// A device for a copy, or for the journal.
pub struct LogCandidate<P> {
    /// Name of the device.
    pub name: String,
    /// Failure domain of the device.
    pub domain: Rc<str>,
    /// The device, or the reason why it is unusable.
    pub device: Result<P, String>,
    /// As [`CopyArea::holes`](crate::CopyArea::holes).
    pub holes: Vec<Extent>,
}

/// Reads the superblock of a device's copy of a log; `None` without one.
pub async fn superblock_of<D: Device>(device: &D, env: &Env) -> IoResult<Option<LogSuperblock>> {
    if device.geometry().sectors.0 / BLOCK_SECTORS < LOG_AREA {
        return Ok(None);
    }
    let pair = PairBlocks::new(LOG_SUPERBLOCKS);
    Ok(pair.read(device, &env.pool).await?.newest.ok())
}

/// Returns the reason why `device`, called `name`, cannot have a copy of the log of `volume`,
/// whatever is on the other device of that log.
pub async fn unfit_for_log<D: Device>(
    volume: &str,
    name: &str,
    device: &D,
    env: &Env,
) -> Option<String> {
    let found = look(&PairBlocks::new(LOG_SUPERBLOCKS), device, env).await;
    fault(volume, name, &found)
}

/// Reads the contents of a device.
pub(super) async fn look<P: Device>(pair: &PairBlocks, device: &P, env: &Env) -> CandidateState {
    let blocks = device.geometry().sectors.0 / BLOCK_SECTORS;
    if blocks < LOG_AREA {
        return CandidateState::Other("is too small".into());
    }
    let room = log_segments(blocks);
    match pair.read(device, &env.pool).await.map(|pair| pair.newest) {
        Ok(Ok(superblock)) => CandidateState::Log {
            superblock: Box::new(superblock),
            room,
        },
        Ok(Err(SuperblockError::Blank)) => match probe(device, env).await {
            Ok(None) => CandidateState::Blank { room },
            Ok(Some(Foreign(what))) => CandidateState::Other(format!("holds {what}")),
            Err(error) => CandidateState::Absent(error.to_string()),
        },
        // The other copy has all data of this one.
        Ok(Err(SuperblockError::Damaged(how))) => {
            CandidateState::Absent(format!("its superblock is damaged: {how}"))
        }
        Ok(Err(SuperblockError::Foreign(what))) => CandidateState::Other(format!("holds {what}")),
        Ok(Err(error)) => CandidateState::Other(format!("cannot be read: {error}")),
        Err(error) => CandidateState::Absent(error.to_string()),
    }
}

/// Looks for foreign contents in the first bytes.
pub(super) async fn probe<P: Device>(device: &P, env: &Env) -> IoResult<Option<Foreign>> {
    let buf = env.pool.take(PROBE_BYTES);
    let (buf, read) = device.read(Lba::ZERO, buf).await;
    read.map(|()| foreign(&buf))
}
