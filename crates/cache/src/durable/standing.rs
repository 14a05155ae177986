//! Which pool a device is of, and whether what is on it is trusted.
//!
//! Not here: reading the heads that tell (`open`).

use super::durability::Durability;
use crate::pool_device::PoolDevice;
use block::{Device, IoError, IoResult, Kind};
use layout::{BLOCK_SECTORS, Head, HeadError, Role, Uuid};

/// A device that was given to a pool, and its head.
pub(super) struct Given<P> {
    /// Its place among those that were given.
    pub at: usize,
    pub device: PoolDevice<P>,
    pub head: Result<Head, HeadError>,
}

/// What the heads of devices and of the witness come to.
pub(super) struct Verdict {
    /// `None` if it is new.
    pub pool: Option<Uuid>,
    /// What the pool was when it was last written.
    pub newest: Option<Head>,
    pub epoch: u64,
    /// As the devices were given.
    pub standings: Vec<Standing>,
    /// Members that are not here, or not trusted.
    pub missing: Vec<String>,
}

impl Verdict {
    /// Reads nothing. `Err`: a device is not this pool's, or was cut short.
    pub fn on<P: Device>(
        given: &[Given<P>],
        witness: Option<&Head>,
        durability: &Durability,
        line_blocks: u32,
    ) -> IoResult<Verdict> {
        let pool = pool_of(durability, witness, given)?;
        let ours = |head: &&Head| Some(head.pool) == pool;
        let heads = given.iter().map(|given| given.head.as_ref().ok());
        let known = || heads.clone().flatten().filter(ours).chain(witness);
        let newest = known().max_by_key(|head| head.sequence).cloned();
        let epoch = known().map(|head| head.epoch).max().unwrap_or(0);
        let mut standings = Vec::new();
        for (given, head) in given.iter().zip(heads.clone()) {
            standings.push(match head.filter(ours) {
                None => Standing::New,
                Some(_) if durability.cold => Standing::Stale(STALE_COLD),
                Some(head) => standing(head.clone(), witness, epoch, line_blocks, &given.device)?,
            });
        }
        let current = |uuid: Uuid| {
            let is = |s: &Standing| matches!(s, Standing::Current(head) if head.device == uuid);
            standings.iter().any(is)
        };
        let before = newest.as_ref().map_or(&[][..], |head| &head.members);
        let missing = before.iter().filter(|member| !current(member.device));
        Ok(Verdict {
            missing: missing.map(|member| member.name.clone()).collect(),
            pool,
            newest,
            epoch,
            standings,
        })
    }

    /// Whether all are trusted, and nobody is missing.
    pub fn is_as_before(&self) -> bool {
        let current = |standing: &Standing| matches!(standing, Standing::Current(_));
        self.missing.is_empty() && self.standings.iter().all(current)
    }
}

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
const STALE_COLD: &str = "the pool was to be opened cold";

/// Which pool this is; `None` if it is new.
fn pool_of<P: Device>(
    durability: &Durability,
    witness: Option<&Head>,
    given: &[Given<P>],
) -> IoResult<Option<Uuid>> {
    let mut pool = witness.map(|head| head.pool);
    for Given { device, head, .. } in given {
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
fn standing<P: Device>(
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

pub(super) fn refuse<T>(device: &impl Device, what: String) -> IoResult<T> {
    let name = device.geometry().name.to_string();
    Err(IoError::new(Kind::Invalid, what).on(name))
}
