//! Every scheme of places.

use super::raw::{Open, Raw, Role};
#[cfg(test)]
use super::target;
use super::{file, nbd};
use crate::platform::Platform;
use block::{IoError, IoResult, Kind};
use control::config;

fn schemes<P: Platform>() -> impl Iterator<Item = Open<P>> {
    let schemes = [
        #[cfg(test)]
        target::open,
        file::open as Open<P>,
        nbd::open,
    ];
    schemes.into_iter()
}

/// What is at the place of a device.
pub(super) async fn raw_of<P: Platform>(
    platform: &P,
    device: &config::Device,
    role: Role,
) -> IoResult<Raw<P>> {
    let mut opening = schemes::<P>();
    let Some(opening) = opening.find_map(|open| open(platform, device, role)) else {
        let what = "no place is given; give `path` or `nbd`";
        return Err(IoError::new(Kind::Invalid, what).on(device.name.value.to_string()));
    };
    opening.await
}
