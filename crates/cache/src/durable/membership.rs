//! The pool of a device, and the trust in its content.
//!
//! Not here: reading the superblocks (`open`).

use super::durability::Durability;
use crate::pool_device::NewPoolDevice;
use block::{Device, IoError, IoErrorKind, IoResult};
use layout::{BLOCK_SECTORS, PoolRole, PoolSuperblock, SuperblockError, Uuid};

/// A device that was given to a pool, and its superblock.
pub(super) struct Given<P> {
    /// Its place among those that were given.
    pub at: usize,
    pub device: NewPoolDevice<P>,
    pub superblock: Result<PoolSuperblock, SuperblockError>,
}

/// The judgement of the superblocks of devices and of the witness.
pub(super) struct MembershipVerdict {
    /// `None` for a new pool.
    pub pool: Option<Uuid>,
    /// State of the pool in its newest superblock.
    pub newest: Option<PoolSuperblock>,
    pub epoch: u64,
    /// Memberships, in the order of the given devices.
    pub memberships: Vec<PoolMembership>,
    /// Members that are not here, or not trusted.
    pub missing: Vec<String>,
}

impl MembershipVerdict {
    /// Reads nothing. `Err`: a device is not this pool's.
    pub fn on<P: Device>(
        given: &[Given<P>],
        witness: Option<&PoolSuperblock>,
        durability: &Durability,
        line_blocks: u32,
    ) -> IoResult<MembershipVerdict> {
        let pool = pool_of(durability, witness, given)?;
        let ours = |superblock: &&PoolSuperblock| Some(superblock.pool) == pool;
        let superblocks = given.iter().map(|given| given.superblock.as_ref().ok());
        let known = || superblocks.clone().flatten().filter(ours).chain(witness);
        let newest = known()
            .max_by_key(|superblock| superblock.sequence)
            .cloned();
        let epoch = known()
            .map(|superblock| superblock.epoch)
            .max()
            .unwrap_or(0);
        let mut memberships = Vec::new();
        for superblock in superblocks.clone() {
            memberships.push(match superblock {
                None => PoolMembership::New,
                Some(_) if durability.cold => PoolMembership::Stale(STALE_COLD),
                Some(other) if Some(other.pool) != pool => PoolMembership::Stale(STALE_POOL),
                Some(superblock) => membership(superblock.clone(), witness, epoch, line_blocks),
            });
        }
        let current = |uuid: Uuid| {
            let is = |s: &PoolMembership| matches!(s, PoolMembership::Current(superblock) if superblock.device == uuid);
            memberships.iter().any(is)
        };
        let before = newest
            .as_ref()
            .map_or(&[][..], |superblock| &superblock.members);
        let missing = before.iter().filter(|member| !current(member.device));
        Ok(MembershipVerdict {
            missing: missing.map(|member| member.name.clone()).collect(),
            pool,
            newest,
            epoch,
            memberships,
        })
    }

    /// True if all members are trusted, and none is missing.
    pub fn is_as_before(&self) -> bool {
        let current =
            |membership: &PoolMembership| matches!(membership, PoolMembership::Current(_));
        self.missing.is_empty() && self.memberships.iter().all(current)
    }
}

/// The role of a device in the pool.
pub(super) enum PoolMembership {
    New,
    Stale(&'static str),
    Current(Box<PoolSuperblock>),
}

const STALE_EPOCH: &str = "the volumes were written without it since";
const STALE_WITNESS: &str =
    "no record beside the pool shows whether the volumes were written without it";
const STALE_IMAGE: &str =
    "it holds less than the record beside the pool knows it to have held: it went back in time";
const STALE_POOL: &str = "it belongs to another pool of this name";
const STALE_LINES: &str = "its lines have another length";
const STALE_COLD: &str = "the pool was to be opened cold";

/// Returns the identity of the pool; `None` if the pool is new.
fn pool_of<P: Device>(
    durability: &Durability,
    witness: Option<&PoolSuperblock>,
    given: &[Given<P>],
) -> IoResult<Option<Uuid>> {
    let mut pool = witness.map(|superblock| superblock.pool);
    for Given {
        device, superblock, ..
    } in given
    {
        let remedy = format!(
            "to use it here all the same, and lose that, run `hotset pool format --yes {}`",
            place_of(&device.device)
        );
        let superblock = match superblock {
            Ok(superblock) => superblock,
            Err(SuperblockError::Blank) => continue,
            Err(_) if durability.overwrite => continue,
            Err(error) => return refuse(&device.device, format!("{error}; {remedy}")),
        };
        let same_host = superblock.host == durability.host;
        // A record beside the pool that was lost, and written again while the device was away, has
        // another identity: the name decides then, and the lines are not used.
        let same_name = superblock.label == durability.label
            && same_host
            && superblock.role == PoolRole::Member;
        if pool == Some(superblock.pool) || same_name {
            pool.get_or_insert(superblock.pool);
        } else if !durability.overwrite {
            let whose = if same_host {
                "this host"
            } else {
                "another host"
            };
            let what = format!(
                "it belongs to pool {} ({}) of {whose}; put that into the configuration, or {remedy}",
                superblock.label, superblock.pool
            );
            return refuse(&device.device, what);
        }
    }
    Ok(pool)
}

/// The role of a device with this superblock in the pool.
fn membership(
    superblock: PoolSuperblock,
    witness: Option<&PoolSuperblock>,
    epoch: u64,
    line_blocks: u32,
) -> PoolMembership {
    let is_member = |superblock: &PoolSuperblock, witness: &PoolSuperblock| {
        witness
            .members
            .iter()
            .any(|member| member.device == superblock.device)
    };
    match witness {
        None => PoolMembership::Stale(STALE_WITNESS),
        Some(_) if superblock.epoch < epoch => PoolMembership::Stale(STALE_EPOCH),
        // No volume is written before the witness has the members. A member unknown to the witness,
        // whatever its epoch, is of an incarnation that was cut short, or was added in one.
        Some(witness) if !is_member(&superblock, witness) => PoolMembership::Stale(STALE_EPOCH),
        // The witness is written after all members.
        Some(witness) if superblock.sequence < witness.sequence => {
            PoolMembership::Stale(STALE_IMAGE)
        }
        Some(_) if superblock.line_blocks != line_blocks => PoolMembership::Stale(STALE_LINES),
        Some(_) if superblock.region_blocks != super::REGION_BLOCKS => {
            PoolMembership::Stale(STALE_LINES)
        }
        Some(_) => PoolMembership::Current(Box::new(superblock)),
    }
}

/// Returns why a device cannot be used, though the device may be this pool's.
pub(super) fn unusable<P: Device>(given: &Given<P>, overwrite: bool) -> Option<String> {
    let (device, place) = (&given.device, place_of(&given.device.device));
    let blocks = device.extent.len.0 / BLOCK_SECTORS;
    match &given.superblock {
        Ok(superblock) if superblock.blocks > blocks => Some(format!(
            "it was cut short, from {} to {blocks} blocks of 4 KiB: restore its size, or run \
             `hotset pool format --yes {place}`",
            superblock.blocks,
        )),
        Err(error @ SuperblockError::Damaged(_)) if !overwrite => Some(format!(
            "{error}: mend the device, or run `hotset pool format --yes {place}`"
        )),
        _ => None,
    }
}

/// The place of a device, which its name may have in parentheses at its end.
pub(super) fn place_of(device: &impl Device) -> String {
    let name = &device.geometry().name;
    let place = name
        .split_once(" (")
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    place.unwrap_or(name).to_owned()
}

pub(super) fn refuse<T>(device: &impl Device, what: String) -> IoResult<T> {
    let name = device.geometry().name.to_string();
    Err(IoError::new(IoErrorKind::Invalid, what).on(name))
}
