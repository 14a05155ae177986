//! Reading the superblocks of a device.
//!
//! A read that fails is tried once more before it counts, and none is waited for beyond its time
//! limit: a device that does not answer is one that cannot be read.

use crate::membership::KnownMember;
use crate::superblock::ArraySuperblock;
use block::{
    BoxDevice, Deadline, Device, Env, Geometry, IoError, IoErrorKind, IoResult, Lba, Nanos, Sectors,
};
use layout::BLOCK_BYTES;
use layout::array::SUPERBLOCKS;
use layout::array::superblock::{VERSION, version};

/// Time limit of a read of a superblock, if no other is given.
pub(crate) const TIMEOUT: Nanos = Nanos::from_secs(10);

/// A copy of a superblock.
enum ExaminedCopy {
    Sound(Box<ArraySuperblock>),
    /// The block is no superblock.
    None,
    /// The block may be a superblock: it cannot be read, or is damaged.
    Unknown(IoError),
}

/// Reads the superblock of a device; `None` if it has none. `Err` if there may be one that cannot
/// be read.
pub async fn examine(env: &Env, device: &BoxDevice) -> IoResult<Option<ArraySuperblock>> {
    let known = known(env, device, None).await?;
    Ok(known.map(|known| known.newest().clone()))
}

/// Reads the superblocks of a device, each within `timeout`.
pub(crate) async fn known(
    env: &Env,
    device: &BoxDevice,
    timeout: Option<Nanos>,
) -> IoResult<Option<KnownMember>> {
    let timeout = timeout.unwrap_or(TIMEOUT);
    let mut sound = [None, None];
    let mut unknown = Ok(());
    for (copy, sound) in SUPERBLOCKS.into_iter().zip(&mut sound) {
        match read_copy(env, device, copy, timeout).await {
            ExaminedCopy::Sound(superblock) => *sound = Some(*superblock),
            ExaminedCopy::None => {}
            ExaminedCopy::Unknown(error) => {
                let unresponsive = error.kind() == IoErrorKind::Timeout;
                unknown = Err(error);
                if unresponsive {
                    break;
                }
            }
        }
    }
    match KnownMember::new(sound) {
        Some(known) => Ok(Some(known)),
        None => unknown.map(|()| None),
    }
}

async fn read_copy(env: &Env, device: &BoxDevice, at: Sectors, timeout: Nanos) -> ExaminedCopy {
    let geometry = device.geometry();
    if geometry.sectors < at + Sectors(8) {
        return ExaminedCopy::None;
    }
    let mut tries = 2;
    loop {
        tries -= 1;
        let buf = env.pool.take(BLOCK_BYTES);
        let deadline = Deadline::new(&env.timer, timeout);
        let read = deadline.bound(device.read(Lba(at.0), buf)).await;
        match read {
            Some((buf, Ok(()))) => {
                return match ArraySuperblock::decode(&buf) {
                    Some(superblock) => ExaminedCopy::Sound(Box::new(superblock)),
                    None if ArraySuperblock::claims(&buf) => {
                        ExaminedCopy::Unknown(illegible(geometry, &buf))
                    }
                    None => ExaminedCopy::None,
                };
            }
            Some((_, Err(error))) if tries == 0 => return ExaminedCopy::Unknown(error),
            Some((_, Err(_))) => {}
            None => {
                let what = "no answer in time to a read of its superblock";
                return ExaminedCopy::Unknown(geometry.error(IoErrorKind::Timeout, what));
            }
        }
    }
}

/// Makes the error for a block that claims to be a superblock, but is of no use.
fn illegible(geometry: &Geometry, block: &[u8]) -> IoError {
    let what = match version(block) {
        Some(version) if version != VERSION => format!(
            "its superblock is of array format version {version}, which this hotset does not read; \
             copy what it holds with the hotset that made it, and create the array again"
        ),
        _ => "its superblock is damaged".into(),
    };
    IoError::new(IoErrorKind::Corrupt, what).on(geometry.name.to_string())
}
