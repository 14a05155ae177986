//! `path`: a file or block device.

use super::raw::{Bare, Raw, Role, claimed};
use crate::Later;
use crate::platform::Platform;
use block::IoResult;
use control::config;

pub(super) fn open<'a, P: Platform>(
    platform: &'a P,
    device: &'a config::Device,
    _: Role,
) -> Option<Later<'a, IoResult<Raw<P>>>> {
    let path = &device.path.as_ref()?.value;
    Some(Box::pin(async move {
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
    }))
}
