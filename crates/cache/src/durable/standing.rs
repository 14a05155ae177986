//! Which pool a device is of, and whether what is on it is trusted.

use super::open::{Durability, refuse};
use crate::devices::PoolDevice;
use block::{Device, IoResult};
use layout::{BLOCK_SECTORS, Head, HeadError, Role, Uuid};

/// What a device is to the pool.
pub(super) enum Standing {
    New,
    Stale(&'static str),
    Current(Box<Head>),
}

const STALE_EPOCH: &str = "the volumes were written without it since";
const STALE_WITNESS: &str =
    "no record beside the pool tells whether the volumes were written without it";
const STALE_IMAGE: &str =
    "it holds less than the record beside the pool knows it to have held: it went back in time";
const STALE_LINES: &str = "its lines have another length";
pub(super) const STALE_COLD: &str = "the pool was to be opened cold";

/// Which pool this is; `None` if it is new.
pub(super) fn pool_of<P: Device>(
    durability: &Durability,
    witness: Option<&Head>,
    devices: &[PoolDevice<P>],
    heads: &[Result<Head, HeadError>],
) -> IoResult<Option<Uuid>> {
    let mut pool = witness.map(|head| head.pool);
    for (device, head) in devices.iter().zip(heads) {
        let remedy = format!(
            "to use it here all the same, and lose that, run `hotset pool format --yes {}`",
            device.device.geometry().name
        );
        let head = match head {
            Ok(head) => head,
            Err(HeadError::Blank) => continue,
            Err(_) if durability.overwrite => continue,
            Err(error) => return refuse(&device.device, format!("{error}; {remedy}")),
        };
        let same_host = head.host == durability.host;
        let same_pool = match pool {
            Some(pool) => pool == head.pool,
            None => head.label == durability.label && same_host && head.role == Role::Member,
        };
        if same_pool {
            pool = Some(head.pool);
        } else if !durability.overwrite {
            let whose = if same_host {
                "this host"
            } else {
                "another host"
            };
            let what = format!(
                "it belongs to pool {} ({}) of {whose}; put that into the configuration, or {remedy}",
                head.label, head.pool
            );
            return refuse(&device.device, what);
        }
    }
    Ok(pool)
}

/// What a device with this head is to the pool.
pub(super) fn standing<P: Device>(
    head: Head,
    witness: Option<&Head>,
    epoch: u64,
    line_blocks: u32,
    device: &PoolDevice<P>,
) -> IoResult<Standing> {
    let blocks = device.extent.len.0 / BLOCK_SECTORS;
    if head.blocks > blocks {
        let what = format!(
            "it was cut short, from {} to {blocks} blocks of 4 KiB: restore its size, or run \
             `hotset pool format --yes {}`",
            head.blocks,
            device.device.geometry().name
        );
        return refuse(&device.device, what);
    }
    let is_member = |head: &Head, witness: &Head| {
        witness
            .members
            .iter()
            .any(|member| member.device == head.device)
    };
    Ok(match witness {
        None => Standing::Stale(STALE_WITNESS),
        Some(_) if head.epoch < epoch => Standing::Stale(STALE_EPOCH),
        // Nothing is written to a volume before the witness has the members. One that it
        // lacks, whatever its epoch, is of an opening that was cut short, or came then.
        Some(witness) if !is_member(&head, witness) => Standing::Stale(STALE_EPOCH),
        // The witness is written after all members.
        Some(witness) if head.sequence < witness.sequence => Standing::Stale(STALE_IMAGE),
        Some(_) if head.line_blocks != line_blocks => Standing::Stale(STALE_LINES),
        Some(_) if head.region_blocks != super::REGION_BLOCKS => Standing::Stale(STALE_LINES),
        Some(_) => Standing::Current(Box::new(head)),
    })
}
