//! A sample of a new scheme, in tests: a target of the driver, by its number. This file and
//! its line in `place.rs` are all that it takes.

use super::raw::{Bare, Raw, Role};
use crate::Later;
use crate::platform::Platform;
use block::{IoResult, TargetId};
use control::config;

pub(super) fn open<'a, P: Platform>(
    platform: &'a P,
    device: &'a config::Device,
    _: Role,
) -> Option<Later<'a, IoResult<Raw<P>>>> {
    let place = device.path.as_ref()?.value.to_str()?;
    let number = place.strip_prefix("/target/")?.parse().ok()?;
    Some(Box::pin(async move {
        Ok(Raw {
            device: Bare::Disk(platform.local().disk(TargetId(number))?),
            hold: None,
            place: place.to_owned(),
            is_file: false,
            standing: None,
        })
    }))
}
