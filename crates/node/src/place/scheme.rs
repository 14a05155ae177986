//! Opening a place, whatever it is.

use super::nbd;
use super::raw::{Bare, Raw, Role, claimed};
use crate::platform::Platform;
use block::{IoError, IoResult, Kind};
use control::config;

/// Opens the place of a device: a file or block device, or an export of an NBD server.
pub(super) async fn raw_of<P: Platform>(
    platform: &P,
    device: &config::Device,
    role: Role,
) -> IoResult<Raw<P>> {
    let path = match (&device.path, &device.nbd) {
        (Some(path), _) => &path.value,
        (None, Some(uri)) => return nbd::open(platform, device, &uri.value, role).await,
        (None, None) => {
            let what = "no place is given; give `path` or `nbd`";
            return Err(IoError::new(Kind::Invalid, what).on(device.name.value.to_string()));
        }
    };
    let timer = platform.local().env().timer;
    let open = async || platform.open_disk(device, path).await;
    let (disk, hold) = claimed(&timer, open).await?;
    Ok(Raw {
        device: Bare::Disk(disk),
        hold: Some(hold),
        place: path.display().to_string(),
        is_file: true,
        standing: None,
    })
}
