//! Whether a configuration leaves out what may be owed.

use super::refusal::{Refusal, refusal};
use crate::platform::Platform;
use control::config::{Config, VolumeMode};

/// Refuses a configuration that does not serve by its log what may owe something.
pub(super) async fn refuse_owing<P: Platform>(
    config: &Config,
    platform: &P,
) -> Result<(), Refusal> {
    for log in platform.logs().await.map_err(refusal)? {
        let superblock = &log.superblock;
        let volume = config
            .volumes
            .iter()
            .find(|v| v.name.as_str() == superblock.volume);
        let is_served = volume.is_some_and(|v| v.in_force() == VolumeMode::WriteBack);
        if superblock.owes && !is_served {
            let [first, second] = &superblock.devices;
            return Err(format!(
                "volume {} may owe something to its origin, which is on {first} and {second}, \
                 and the configuration does not serve it as write-back; put it back until it has \
                 ended in order, or give that up with `hotset pool recover {} --rewind`, or, if it \
                 is not to be in the configuration, by removing {}",
                superblock.volume,
                superblock.volume,
                log.file.display()
            ));
        }
    }
    Ok(())
}
