//! Reading and writing metadata. A member that fails at this is ejected: its contents could not be
//! distinguished from stale ones.

use crate::core::CacheCore;
use crate::counters::Counter;
use crate::devices::{DeviceState, PoolMember};
use crate::health::DeviceFault;
use block::{
    Buf, Deadline, Device, Env, Fua, IoErrorKind, IoResult, Lba, Nanos, Sectors, SharedBuf,
};
use layout::{BLOCK_BYTES, PoolSuperblock};
use std::rc::Rc;

/// Attempts before a write counts as failed: one sector may have been bad, and
/// is another one below by the next attempt.
const ATTEMPTS: u32 = 3;

/// Time limit for a read, while only the opening of the pool waits for the answer.
pub(super) const READ_MAX: Nanos = Nanos::from_secs(30);

/// Bytes of a table area that are read or written at once.
pub(super) const TABLE_CHUNK_BYTES: usize = 64 * BLOCK_BYTES;

/// An operation on a member.
pub(crate) enum Do {
    Write(Lba, SharedBuf, Fua),
    Flush,
}

/// Returns true if `member` succeeded; otherwise the member is ejected.
pub(crate) async fn perform<P: Device>(
    core: &Rc<CacheCore<P>>,
    member: &Rc<PoolMember<P>>,
    what: Do,
) -> bool {
    for attempt in 1.. {
        if member.state.get() != DeviceState::Online {
            return false;
        }
        // The device may keep this value after the wait has ended.
        let (device, work) = (member.clone(), what.again());
        let working = core.env.spawn.persist(async move {
            device.operations.begin();
            let result = match work {
                Do::Write(at, data, fua) => device.device.write(at, data, fua).await,
                Do::Flush => device.device.flush().await,
            };
            device.operations.end();
            result
        });
        let deadline = Deadline::new(&core.env.timer, core.metadata_timeout());
        let fault = match deadline.bound(working).await {
            Some(Ok(())) => {
                if let Do::Write(_, data, _) = &what {
                    core.counters.add(Counter::MetadataBytes, data.len() as u64);
                }
                return true;
            }
            Some(Err(error)) if error.kind() == IoErrorKind::Media && attempt < ATTEMPTS => {
                continue;
            }
            Some(Err(error)) => DeviceFault::of(error.kind()),
            None => DeviceFault::Late,
        };
        core.state.borrow_mut().eject(member, fault);
        return false;
    }
    unreachable!("the attempts are counted")
}

impl Do {
    fn again(&self) -> Do {
        match self {
            Do::Write(at, data, fua) => Do::Write(*at, data.clone(), *fua),
            Do::Flush => Do::Flush,
        }
    }
}

/// Reads `bytes` at `at` of a device that does not serve yet; `Timeout` without an answer within
/// `limit`.
pub(crate) async fn read<D: Device>(
    device: &D,
    at: Lba,
    bytes: usize,
    env: &Env,
    limit: Nanos,
) -> IoResult<Buf> {
    let mut attempt = 1;
    loop {
        let reading = device.read(at, env.pool.take(bytes));
        let deadline = Deadline::new(&env.timer, limit);
        let Some((buf, result)) = deadline.bound(reading).await else {
            let what = "it does not answer: check the device, or leave it out of the pool";
            return Err(device.geometry().error(IoErrorKind::Timeout, what));
        };
        match result {
            Ok(()) => return Ok(buf),
            Err(error) if error.kind() != IoErrorKind::Media || attempt == ATTEMPTS => {
                return Err(error);
            }
            Err(_) => attempt += 1,
        }
    }
}

/// Reads metadata; `None` if one of its sectors is unreadable, for another copy exists.
pub(crate) async fn readable<D: Device>(
    device: &D,
    at: Lba,
    bytes: usize,
    env: &Env,
    limit: Nanos,
) -> IoResult<Option<Vec<u8>>> {
    match read(device, at, bytes, env, limit).await {
        Ok(buf) => Ok(Some(buf.to_vec())),
        Err(error) if error.kind() == IoErrorKind::Media => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads as much of the table area of a copy of a superblock as its rows take, on a device that is
/// used from `base` on; nothing if that is unreadable.
pub(crate) async fn table_area<D: Device>(
    device: &D,
    base: Lba,
    (superblock, copy): (Option<&[u8]>, usize),
    env: &Env,
    limit: Nanos,
) -> IoResult<Vec<u8>> {
    let area = superblock.and_then(|bytes| PoolSuperblock::table_area(bytes, copy));
    let extent = area.map(|area| area.extent(base));
    let whole = device.geometry().extent();
    let Some(extent) = extent.filter(|extent| whole.contains(*extent)) else {
        return Ok(Vec::new());
    };
    let mut table = Vec::new();
    while (table.len() as u64) < extent.len.bytes() {
        let at = extent.start + Sectors(table.len() as u64 / block::SECTOR_BYTES);
        let bytes = TABLE_CHUNK_BYTES.min(extent.len.bytes() as usize - table.len());
        match readable(device, at, bytes, env, limit).await? {
            Some(chunk) => table.extend(chunk),
            None => return Ok(Vec::new()),
        }
    }
    Ok(table)
}
