//! Fitness of devices as members, by their geometry alone.

use crate::core::ArrayCore;
use crate::member::MemberCandidate;
use block::{Device, Geometry, IoError, IoErrorKind, IoResult, Sectors};

pub(crate) fn invalid(what: impl Into<String>) -> IoError {
    IoError::new(IoErrorKind::Invalid, what.into())
}

/// Returns the reason why a device cannot be a member, if there is one. The array has logical
/// blocks of `block`, and uses `needed` sectors of the device. Its data does not matter.
pub(crate) fn unusable(
    candidate: &MemberCandidate,
    block: Sectors,
    needed: Sectors,
) -> Option<String> {
    let geometry = candidate.device.geometry();
    let name = &geometry.name;
    if geometry.block > block {
        return Some(format!(
            "{name} has logical blocks of {} bytes, the array of {}: it counts as absent; copy it \
             to a device with smaller ones, or give another in its place",
            geometry.block.bytes(),
            block.bytes()
        ));
    }
    (geometry.sectors < needed).then(|| {
        format!(
            "{name} is smaller than it was: it needs {} MiB, and counts as absent; restore its \
             size, or give another in its place",
            needed.bytes().div_ceil(1 << 20)
        )
    })
}

/// Refuses a spare that could take no member's place.
pub(crate) fn check_spare(core: &ArrayCore, geometry: &Geometry) -> IoResult {
    let needed = core.meta().data_at + core.shape.member_sectors(0);
    if geometry.sectors < needed {
        return Err(core.error(
            IoErrorKind::Invalid,
            format!(
                "{} has {} MiB, a member needs {} MiB; give a larger device",
                geometry.name,
                geometry.sectors.bytes() >> 20,
                needed.bytes().div_ceil(1 << 20)
            ),
        ));
    }
    if geometry.block > core.geometry.block {
        let what = format!("{} has larger logical blocks than the array", geometry.name);
        return Err(core.error(IoErrorKind::Invalid, what));
    }
    Ok(())
}
