//! Opening a pool: the role of each device, and its use.
//!
//! A device that answers nothing, fails, is damaged or was cut short counts as absent.
//!
//! A device is *current* if four conditions hold. It belongs to this pool; it has the greatest
//! epoch that any device or the witness knows; the witness counts it as a member; and its
//! superblock is not older than the witness's. Only the lines of current devices are used. Other
//! devices of this pool are reinitialised; foreign devices are left unchanged, unless overwriting
//! is allowed.
//!
//! Order: everything is read and decided before anything is written. Devices that are reinitialised
//! are claimed by a superblock that is never trusted and get their bitmaps, then all get their
//! superblocks; if the members are others than before, with a greater epoch.

use super::bitmap::{keep_marked, write_image};
use super::discards::ClientDiscards;
use super::durability::Durability;
use super::io::{READ_MAX, readable, table_area};
use super::membership::{Given, MembershipVerdict, PoolMembership, place_of, refuse, unusable};
use super::store::{NewStore, SuperblockCopies};
use super::superblocks::{WITNESS_SECTORS, claim, write_superblocks};
use super::{PoolMetadata, PoolState};
use crate::cache::Cache;
use crate::config::Config;
use crate::core::CacheCore;
use crate::devices::{DeviceId, PoolMember};
use crate::health::DeviceFault;
use crate::pool_device::NewPoolDevice;
use block::{Deadline, Device, Env, Extent, IoError, IoErrorKind, IoResult, Lba, Mutex, Signal};
use layout::{
    BITMAP_BLOCKS, BLOCK_BYTES, BLOCK_SECTORS, Bitmap, LayoutPlan, MEMBERS_MAX, NAME_BYTES_MAX,
    PROBE_BYTES, PoolRole, PoolSuperblock, SUPERBLOCK_BLOCKS, SuperblockError, Uuid,
    VOLUME_QUIESCED, VolumeRecord, current_superblock, first_superblock, fitting, newest_bitmap,
    second_superblock,
};
use policy::Policy;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const SUPERBLOCK_BYTES: usize = SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES;

/// The findings on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceFindings {
    /// Its lines are read back; true if the pool was closed in order.
    Lines {
        /// The pool was closed in order.
        clean: bool,
    },
    /// The device is new, and has no lines.
    Nothing,
    /// Lines that cannot be trusted, and why.
    Unusable(&'static str),
}

/// A device of a pool that was opened.
#[derive(Clone, Debug)]
pub struct OpenReport {
    /// Its place among those that were given.
    pub at: usize,
    /// Its name in this cache.
    pub id: DeviceId,
    /// Its place in the geometry.
    pub name: String,
    /// Findings on the device.
    pub found: DeviceFindings,
}

/// A pool that was opened.
#[derive(Clone, Debug)]
pub struct OpenedPool {
    /// Devices of the pool, in the order in which they were given.
    pub devices: Vec<OpenReport>,
    /// Devices that were given and could not be read, by their place, with the reason. They are
    /// lost to the pool.
    pub absent: Vec<(usize, String)>,
    /// Members that were not given, and are lost to the pool.
    pub missing: Vec<String>,
    /// Volumes with forgotten lines, since they were quiesced when the pool was last used.
    pub quiesced: Vec<String>,
}

fn too_many_devices(pool: &str) -> IoError {
    let what = format!(
        "a pool has at most {MEMBERS_MAX} devices: remove one, or make an array of several"
    );
    IoError::new(IoErrorKind::Invalid, what).on(pool.to_owned())
}

/// Refuses a new device with a superblock too small for `volumes` volumes.
fn has_room<D: Device>(device: &NewPoolDevice<D>, line_blocks: u32, volumes: usize) -> IoResult {
    // A device without room for a line is refused as such.
    let plan = LayoutPlan::new(device.extent.len, line_blocks).ok();
    match plan.map(|plan| plan.volumes()) {
        Some(room) if room < volumes => {
            let what = format!(
                "too small for a pool of {volumes} volumes, it has room for {room}: give it more room"
            );
            refuse(&device.device, what)
        }
        _ => Ok(()),
    }
}

/// A device that is reinitialised, and has no room for the volumes that the pool remembers.
fn too_small<D: Device>(
    given: &[Given<D>],
    verdict: &MembershipVerdict,
    line_blocks: u32,
) -> Option<(usize, IoError)> {
    let volumes = verdict.newest.as_ref()?.volumes.rows() as usize;
    let memberships = verdict.memberships.iter().enumerate();
    let new = memberships.filter(|(_, is)| !matches!(is, PoolMembership::Current(_)));
    let small = |(nth, _): (usize, _)| {
        let refused = has_room(&given[nth].device, line_blocks, volumes).err()?;
        Some((nth, refused))
    };
    new.filter_map(small).next()
}

/// Reads the superblock of a device or of a part of one.
async fn probe<D: Device>(
    device: &D,
    part: Extent,
    env: &Env,
) -> IoResult<Result<PoolSuperblock, SuperblockError>> {
    let bytes = part.len.bytes();
    if bytes < (2 * SUPERBLOCK_BYTES) as u64 {
        return refuse(
            device,
            "too small to hold metadata: give it more room".into(),
        );
    }
    // A second superblock written in part is no sign of foreign data.
    let probe = (bytes as usize - SUPERBLOCK_BYTES).min(PROBE_BYTES);
    let mut start = readable(device, part.start, probe, env, READ_MAX).await?;
    if start.is_none() {
        // The part behind the superblock may be unreadable; for a device of this pool it adds no
        // information.
        start = readable(device, part.start, SUPERBLOCK_BYTES, env, READ_MAX).await?;
        let tail = table_area(device, part.start, (start.as_deref(), 0), env, READ_MAX).await?;
        start = start.filter(|start| PoolSuperblock::decode(start, &tail).is_ok());
    }
    let start = start.as_deref();
    let tail = table_area(device, part.start, (start, 0), env, READ_MAX).await?;
    let first = first_superblock(start, &tail);
    let blocks = match &first {
        Ok(superblock) if superblock.role == PoolRole::Member => {
            superblock.blocks.min(bytes / BLOCK_BYTES as u64)
        }
        Ok(_) => 2 * SUPERBLOCK_BLOCKS,
        Err(_) => bytes / BLOCK_BYTES as u64,
    };
    let last = part.start + block::Sectors((blocks - SUPERBLOCK_BLOCKS) * BLOCK_SECTORS);
    let end = readable(device, last, SUPERBLOCK_BYTES, env, READ_MAX).await?;
    let end = end.as_deref();
    let tail = table_area(device, part.start, (end, 1), env, READ_MAX).await?;
    Ok(current_superblock(
        start,
        first,
        second_superblock(end, &tail),
    ))
}

/// Reads the record of the origin of `volume` from one device of a pool that no cache has open,
/// with a number: of several devices the greater holds. Nothing is written.
pub async fn origin_record_on<D: Device>(
    device: &D,
    env: &Env,
    volume: &str,
) -> IoResult<Option<(u64, Vec<u8>)>> {
    let superblock = probe(device, device.geometry().extent(), env).await?.ok();
    Ok(superblock.and_then(|superblock| {
        let mut volumes = superblock.volumes.volumes().into_iter();
        let found = volumes.find(|known| known.name == volume)?;
        Some((superblock.sequence, found.origin))
    }))
}

/// The area of the bitmap; zeroes for blocks that cannot be read, which are no bitmap.
async fn bitmap_area<D: Device>(device: &D, start: Lba, env: &Env) -> IoResult<Vec<u8>> {
    let bytes = BITMAP_BLOCKS as usize * BLOCK_BYTES;
    if let Some(area) = readable(device, start, bytes, env, READ_MAX).await? {
        return Ok(area);
    }
    let mut area = Vec::with_capacity(bytes);
    for block in 0..BITMAP_BLOCKS {
        let at = start + block::Sectors(block * BLOCK_SECTORS);
        let block = readable(device, at, BLOCK_BYTES, env, READ_MAX).await?;
        area.extend(block.unwrap_or(vec![0; BLOCK_BYTES]));
    }
    Ok(area)
}

/// The usable devices of a pool.
struct JudgedDevices<P> {
    given: Vec<Given<P>>,
    verdict: MembershipVerdict,
    /// The bitmap of each current device.
    bitmaps: Vec<Option<Bitmap>>,
    /// Other devices, by their place, with the reason.
    absent: Vec<(usize, String)>,
}

/// Reads the devices of a pool, and decides on each. A device that turns out to be unusable counts
/// as absent, and the others are judged again.
async fn judge<P: Device>(
    devices: Vec<NewPoolDevice<P>>,
    witness: Option<&PoolSuperblock>,
    durability: &Durability,
    line_blocks: u32,
    env: &Env,
) -> IoResult<JudgedDevices<P>> {
    let (mut given, mut absent) = (Vec::new(), Vec::new());
    for (at, device) in devices.into_iter().enumerate() {
        match probe(&device.device, device.extent, env).await {
            Ok(superblock) => given.push(Given {
                at,
                device,
                superblock,
            }),
            Err(error) => absent.push((at, error.to_string())),
        }
    }
    given.retain(|given| match unusable(given, durability.overwrite) {
        None => true,
        Some(why) => {
            absent.push((given.at, why));
            false
        }
    });
    loop {
        let verdict = MembershipVerdict::on(&given, witness, durability, line_blocks)?;
        let bitmaps = match too_small(&given, &verdict, line_blocks) {
            Some(small) => Err(small),
            None => bitmaps_of(&given, &verdict, env).await,
        };
        match bitmaps {
            Ok(bitmaps) => {
                return Ok(JudgedDevices {
                    given,
                    verdict,
                    bitmaps,
                    absent,
                });
            }
            Err((nth, error)) => absent.push((given.remove(nth).at, error.to_string())),
        }
    }
}

/// The metadata of a pool with `volumes`, before its devices are added.
fn metadata(
    verdict: &MembershipVerdict,
    witness: Option<PoolSuperblock>,
    volumes: Vec<VolumeRecord>,
    durability: &mut Durability,
) -> PoolMetadata {
    let as_before = witness.is_some() && verdict.is_as_before();
    let newest_superblock = verdict.newest.as_ref();
    let next_volume = newest_superblock.map_or(1, |h| h.next_volume.max(1));
    let numbered = witness.as_ref().map_or(0, |superblock| superblock.given);
    let newest = newest_superblock.map_or(0, |superblock| superblock.sequence);
    PoolMetadata {
        pool: verdict.pool.unwrap_or_else(|| Uuid((durability.uuids)())),
        label: durability.label.clone(),
        host: durability.host.clone(),
        witness: durability.witness.take(),
        witness_uuid: Cell::new(match &witness {
            Some(superblock) => superblock.device,
            None => Uuid((durability.uuids)()),
        }),
        record: RefCell::new(witness),
        witness_copies: SuperblockCopies::default(),
        encoded: RefCell::default(),
        superblock: block::Durable::new(
            PoolState {
                epoch: verdict.epoch + u64::from(!as_before),
                clean: false,
                next_volume,
                volumes: Rc::new(volumes.into_iter().map(|v| (v.id, v)).collect()),
            },
            newest.max(numbered),
        ),
        incarnation: Cell::new(0),
        departed: Cell::new(false),
        image_due: Cell::new(false),
        loading: Cell::new(0),
        closed: Cell::new(false),
        table: super::table::DurableVolumes::new(super::REGION_BLOCKS),
        loose: RefCell::default(),
        discarded: ClientDiscards::default(),
        origins: RefCell::default(),
        lock: Mutex::default(),
        committing: Mutex::default(),
        signal: Signal::default(),
        marked: Signal::default(),
        activity: Signal::default(),
        warmed: Signal::default(),
    }
}

impl<P: Device> Cache<P> {
    /// Opens the pool that `durability` names, on `devices`, and brings back the trusted lines,
    /// while it serves. See [`Cache::close`].
    ///
    /// Devices that cannot be read, or were cut short, are left out; [`OpenedPool::absent`] names them.
    /// Fails, having written nothing, if a device has foreign data (unless that is to be
    /// overwritten) or metadata of another version.
    pub async fn open(
        config: Config,
        policy: Box<dyn Policy>,
        env: Env,
        mut durability: Durability,
        devices: Vec<NewPoolDevice<P>>,
    ) -> IoResult<(Cache<P>, OpenedPool)> {
        if fitting(&durability.label) != durability.label {
            let what = format!("a pool's name has at most {NAME_BYTES_MAX} bytes: shorten it");
            return Err(IoError::new(IoErrorKind::Invalid, what).on(durability.label));
        }
        if devices.len() > MEMBERS_MAX {
            return Err(too_many_devices(&durability.label));
        }
        durability.host = fitting(&durability.host).to_owned();
        let line_blocks = config.line_bytes / BLOCK_BYTES as u32;
        let witness = witness_superblock(&durability, &env).await?;
        let judged = judge(devices, witness.as_ref(), &durability, line_blocks, &env).await?;
        let (verdict, absent) = (judged.verdict, judged.absent);
        let volumes = verdict.newest.as_ref();
        let volumes = volumes.map_or(Vec::new(), |newest| newest.volumes.volumes());
        let quiesced = |v: &VolumeRecord| v.flags & VOLUME_QUIESCED != 0;
        let (quiesced, volumes): (Vec<_>, _) = volumes.into_iter().partition(quiesced);
        let durable = Rc::new(metadata(&verdict, witness, volumes, &mut durability));
        let cache = Cache::with(config, policy, env, Some(durable.clone()))?;
        let mut reports = Vec::new();
        let memberships = verdict.memberships.into_iter().zip(judged.bitmaps);
        let given = judged.given.into_iter().zip(memberships);
        for (Given { at, device, .. }, (membership, bitmap)) in given {
            let name = device.device.geometry().name.to_string();
            let (store, found) = store(membership, bitmap, &mut durability.uuids);
            let id = cache.add_member(device, Some(store))?;
            let report = OpenReport {
                at,
                id,
                name,
                found,
            };
            reports.push(report);
        }
        cache.begin(&durable).await;
        let opened = OpenedPool {
            devices: reports,
            absent,
            missing: verdict.missing,
            quiesced: quiesced.into_iter().map(|volume| volume.name).collect(),
        };
        Ok((cache, opened))
    }

    /// Writes the decisions of opening, and starts the tasks that go on.
    async fn begin(&self, durable: &Rc<PoolMetadata>) {
        let core = &self.0;
        let members = core.state.borrow().devices.kept();
        for member in &members {
            let store = member.store.as_ref().expect("a member that is kept");
            match store.found.as_ref().map(|found| &found.bitmap) {
                None => {}
                Some(Some(bitmap)) => durable.table.intent.found(&bitmap.regions),
                Some(None) => durable.table.intent.found_all(),
            }
        }
        let held = durable.lock.lock().await;
        // With a new device the pool is in another epoch than before.
        let before = durable.superblock.now().epoch.saturating_sub(1);
        for member in members.iter().filter(|m| is_new(m)) {
            write_new_bitmap(core, durable, member, before).await;
        }
        durable
            .incarnation
            .set(durable.superblock.number() as u32 + 1);
        write_superblocks(core, durable).await;
        drop(held);
        let spawn = &core.env.spawn;
        spawn.spawn(keep_marked(Rc::downgrade(core), durable.clone()));
        spawn.spawn(super::commit::keep_committed(
            Rc::downgrade(core),
            durable.clone(),
        ));
        let found: Vec<_> = members.into_iter().filter(|m| !is_new(m)).collect();
        durable.loading.set(found.len());
        for member in found {
            spawn.spawn(super::warm::warm(core.clone(), durable.clone(), member));
        }
    }

    /// Puts a device into a pool that remembers, or into any other as [`Cache::add_device`] does.
    /// `uuid` is to name the device.
    ///
    /// Fails, having written nothing, if the device has foreign data.
    pub async fn join(&self, device: NewPoolDevice<P>, uuid: u128) -> IoResult<DeviceId> {
        let core = &self.0;
        let Some(durable) = &core.durable else {
            return self.add_device(device);
        };
        let superblock = probe(&device.device, device.extent, &core.env).await?;
        let format = format!(
            "to use it here all the same, and lose that, run `hotset pool format --yes {}`",
            place_of(&device.device)
        );
        match superblock {
            Err(SuperblockError::Blank) => {}
            Ok(superblock) if superblock.pool == durable.pool => {}
            Ok(superblock) => {
                let what = format!(
                    "it belongs to pool {} ({}); {format}",
                    superblock.label, superblock.pool
                );
                return refuse(&device.device, what);
            }
            Err(error) => return refuse(&device.device, format!("{error}; {format}")),
        }
        let _held = durable.lock.lock().await;
        if core.state.borrow().devices.kept().len() == MEMBERS_MAX {
            return Err(too_many_devices(&durable.label));
        }
        let volumes = durable.superblock.now().volumes.len();
        has_room(&device, core.shape.blocks(), volumes)?;
        let id = self.add_member(device, Some(NewStore::New(Uuid(uuid))))?;
        // The device counts from here on, and gets no fewer marks than the present ones.
        drop(durable.table.intent.image());
        let members = core.state.borrow().devices.kept();
        for member in members.iter().filter(|member| member.id == id) {
            let epoch = durable.superblock.now().epoch;
            write_new_bitmap(core, durable, member, epoch).await;
        }
        write_superblocks(core, durable).await;
        Ok(id)
    }

    /// Ends the use of the pool in order, so that the next incarnation finds its whole contents.
    /// Close the volumes before: later writes are not followed. A device that does not answer is
    /// ejected; an unresponsive origin or witness is waited for.
    pub async fn close(&self) {
        let core = &self.0;
        let Some(durable) = &core.durable else {
            return;
        };
        let deadline = Deadline::new(&core.env.timer, core.metadata_timeout());
        if deadline.bound(self.settle()).await.is_none() {
            let state = &mut *core.state.borrow_mut();
            let unresponsive = |member: &Rc<PoolMember<P>>| member.operations.count() > 0;
            for member in state.devices.kept().into_iter().filter(unresponsive) {
                state.eject(&member, DeviceFault::Late);
            }
        }
        super::commit::close(core, durable).await;
    }

    /// Waits until all lines that were found are in use.
    pub async fn warmed(&self) {
        let Some(durable) = &self.0.durable else {
            return;
        };
        let warm = || self.0.state.borrow().devices.all_warm();
        durable.warmed.until(warm).await;
    }
}

/// Claims a device that is reinitialised, so that its later contents are recognised as this pool's
/// after a power cut. Then writes both pairs of the bitmap, so that no older one is left.
pub(super) async fn write_new_bitmap<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &PoolMetadata,
    member: &Rc<PoolMember<P>>,
    epoch: u64,
) {
    if !claim(core, durable, member, epoch).await {
        return;
    }
    for _ in 0..2 {
        let image = durable.table.intent.image();
        write_image(core, durable, member, &image).await;
    }
}

fn is_new<P: Device>(member: &PoolMember<P>) -> bool {
    member
        .store
        .as_ref()
        .is_some_and(|store| store.found.is_none())
}

async fn witness_superblock(
    durability: &Durability,
    env: &Env,
) -> IoResult<Option<PoolSuperblock>> {
    let Some(witness) = &durability.witness else {
        return Ok(None);
    };
    let geometry = witness.geometry();
    if geometry.sectors.0 < WITNESS_SECTORS {
        return refuse(
            witness,
            format!("a record beside the pool needs {WITNESS_SECTORS} sectors"),
        );
    }
    let superblocks = Extent::new(Lba(0), block::Sectors(WITNESS_SECTORS));
    match probe(witness, superblocks, env).await? {
        Ok(superblock) if superblock.role == PoolRole::Witness => Ok(Some(superblock)),
        Ok(_) | Err(SuperblockError::Foreign(_)) => refuse(
            witness,
            "it is not a pool witness: move it away, or correct the path".into(),
        ),
        Err(SuperblockError::Version(version)) => refuse(
            witness,
            format!(
                "written by a newer hotset (format {version}): use that, or move the file away to start cold"
            ),
        ),
        // Without a superblock nothing is trusted, which is safe.
        Err(SuperblockError::Blank | SuperblockError::Damaged(_)) => Ok(None),
    }
}

/// The state kept of a device's metadata, and the findings there.
fn store(
    membership: PoolMembership,
    bitmap: Option<Bitmap>,
    uuids: &mut dyn FnMut() -> u128,
) -> (NewStore, DeviceFindings) {
    match membership {
        PoolMembership::New => (NewStore::New(Uuid(uuids())), DeviceFindings::Nothing),
        PoolMembership::Stale(why) => (NewStore::New(Uuid(uuids())), DeviceFindings::Unusable(why)),
        PoolMembership::Current(superblock) => {
            let plan = superblock.plan().expect("checked when it was read");
            let clean = superblock.clean;
            (
                NewStore::Known {
                    plan: Box::new(plan),
                    superblock,
                    bitmap,
                },
                DeviceFindings::Lines { clean },
            )
        }
    }
}

/// Reads the newest bitmap of each trusted device. `Err` names one that could not be read.
async fn bitmaps_of<P: Device>(
    given: &[Given<P>],
    verdict: &MembershipVerdict,
    env: &Env,
) -> Result<Vec<Option<Bitmap>>, (usize, IoError)> {
    let mut all = Vec::new();
    for (nth, membership) in verdict.memberships.iter().enumerate() {
        let PoolMembership::Current(superblock) = membership else {
            all.push(None);
            continue;
        };
        let plan = superblock.plan().expect("checked when it was read");
        let device = &given[nth].device;
        let at: Lba = plan.bitmap.lba(device.extent.start, 0);
        let area = bitmap_area(&device.device, at, env).await;
        let area = area.map_err(|error| (nth, error))?;
        all.push(newest_bitmap(&area, superblock.device));
    }
    Ok(all)
}
