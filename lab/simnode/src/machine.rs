//! A simulated machine: disks behind the paths of a configuration.
//!
//! Invariants:
//!     a holder loses a disk that is unplugged, for good, even once the disk is back
//!     a path is busy ⟺ the path has a holder, or a request of its disk has not ended
//!     a disk is present to its holder ⟺ the disk was not unplugged since the holder opened it

use block::{
    BoxDevice, Device as _, Geometry, IoError, IoErrorKind, IoResult, Lba, Nanos, Sectors, TargetId,
};
use control::address::NbdUri;
use control::config::{self, Config, Name};
use control::memory::MemoryRoom;
use layout::{BLOCK_BYTES, LOG_WITNESS_BYTES, LogSuperblock, WITNESS_BLOCKS};
use node::{LogWitness, NodeEvent, Platform, Remembered, ReservationStep, UserProcess};
use origin::DeviceIdentity;
use shard::{Local, ShardDisk};
use sim::{DiskSpec, Medium, SimDriver, SimRng, SimWorld, WorldControl};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Number of targets of a disk, which takes another target at each return. After so many returns
/// the first holder would have the disk again.
const TURNS: usize = 6;
/// Time of opening a disk.
const OPENING: Nanos = Nanos::from_micros(200);
/// The time of day when a world begins, in seconds since 1970.
const BEGAN: u64 = 1_800_000_000;
/// Draws names that were never given.
const NAMES: u64 = 11;

/// A disk behind a path.
struct SimPlace {
    turns: Vec<TargetId>,
    turn: Cell<usize>,
    away: Cell<bool>,
    unresponsive: Cell<bool>,
    /// The turn in which its holder opened the disk.
    held: Cell<Option<usize>>,
    /// Number of openings.
    openings: Cell<u64>,
    sectors: Cell<Sectors>,
    /// The node's key is registered, and has the reservation.
    registered: Cell<bool>,
    reserved: Cell<bool>,
    /// Another host has the reservation, and the node's key is removed.
    elsewhere: Cell<bool>,
    medium: Option<Medium>,
}

impl SimPlace {
    fn target(&self) -> TargetId {
        self.turns[self.turn.get()]
    }
}

/// The machine, which outlives its nodes.
pub struct SimMachine {
    control: WorldControl,
    places: BTreeMap<String, SimPlace>,
    /// The witnesses by the names of pools.
    witnesses: BTreeMap<String, (TargetId, Medium)>,
    /// The witnesses of logs by the names of their volumes.
    logs: BTreeMap<String, (TargetId, Medium)>,
    names: RefCell<SimRng>,
    events: RefCell<Vec<NodeEvent>>,
    /// The content of the configuration's file.
    file: RefCell<Config>,
    /// The memory available, if limited.
    memory: Cell<Option<u64>>,
    /// Identities of disks that are more than their paths.
    identities: RefCell<BTreeMap<String, DeviceIdentity>>,
}

impl SimMachine {
    /// The disks of `config`, each with the specification of `spec`, a witness for each pool, and a
    /// witness for each log.
    pub fn new(
        world: &mut SimWorld,
        config: &Config,
        mut spec: impl FnMut(&config::Device) -> IoResult<DiskSpec>,
    ) -> IoResult<Rc<SimMachine>> {
        let mut places = BTreeMap::new();
        for device in &config.devices {
            let Some(path) = &device.path else { continue };
            let spec = spec(device)?;
            let sectors = Cell::new(spec.geometry.sectors);
            let first = world.add_disk(spec)?;
            let mut turns = vec![first];
            for _ in 1..TURNS {
                turns.extend(world.add_again(first));
            }
            let place = SimPlace {
                turns,
                turn: Cell::new(0),
                away: Cell::new(false),
                unresponsive: Cell::new(false),
                held: Cell::new(None),
                openings: Cell::new(0),
                sectors,
                registered: Cell::new(false),
                reserved: Cell::new(false),
                elsewhere: Cell::new(false),
                medium: world.medium(first),
            };
            places.insert(path.value.display().to_string(), place);
        }
        let mut beside = |name: &Name, bytes: u64| {
            let sectors = Sectors(bytes / block::SECTOR_BYTES);
            let spec = DiskSpec::new(Geometry::new(
                format!("witness of {name}"),
                sectors,
                Sectors(1),
            ));
            let disk = world.add_disk(spec)?;
            let medium = world.medium(disk).expect("it keeps its bytes");
            IoResult::Ok((name.to_string(), (disk, medium)))
        };
        let pools = config.pools.iter();
        let witnesses =
            pools.map(|pool| beside(&pool.name.value, WITNESS_BLOCKS * BLOCK_BYTES as u64));
        let witnesses = witnesses.collect::<IoResult<_>>()?;
        let volumes = config.volumes.iter().filter(|v| !v.log.value.is_empty());
        let logs = volumes.map(|volume| beside(&volume.name.value, LOG_WITNESS_BYTES));
        let logs = logs.collect::<IoResult<_>>()?;
        Ok(Rc::new(SimMachine {
            control: world.control(),
            places,
            witnesses,
            logs,
            names: RefCell::new(SimRng::fork(world.seed(), NAMES)),
            events: RefCell::default(),
            file: RefCell::new(config.clone()),
            memory: Cell::new(None),
            identities: RefCell::default(),
        }))
    }

    /// Changes the file of the configuration.
    pub fn write_configuration(&self, config: Config) {
        *self.file.borrow_mut() = config;
    }

    fn place(&self, path: &str) -> &SimPlace {
        &self.places[path]
    }

    /// The present target of the disk behind `path`.
    pub fn target(&self, path: &str) -> TargetId {
        self.place(path).target()
    }

    /// Unplugs the disk behind `path`.
    pub fn pull(&self, path: &str) {
        let place = self.place(path);
        if !place.away.replace(true) {
            place.unresponsive.set(false);
            self.control.kill(place.target());
        }
    }

    /// Plugs the disk behind `path` in again.
    pub fn give_back(&self, path: &str) {
        let place = self.place(path);
        if place.away.replace(false) {
            place.turn.set((place.turn.get() + 1) % place.turns.len());
            self.control.revive(place.target());
        }
    }

    /// Lets no request at `path` end.
    pub fn silence(&self, path: &str) {
        let place = self.place(path);
        if !place.away.get() && !place.unresponsive.replace(true) {
            self.control.hang(place.target());
        }
    }

    /// Lets requests at `path` end again.
    pub fn unsilence(&self, path: &str) {
        let place = self.place(path);
        if place.unresponsive.replace(false) {
            self.control.release(place.target());
        }
    }

    /// The disk behind `path` loses the writes that are not durable and goes on, as a server that
    /// is killed and found again.
    pub fn forget(&self, path: &str) {
        self.control.forget(self.place(path).target());
    }

    /// Gives the disk behind `path` this size from now on. Its holder has the former one.
    pub fn grow(&self, path: &str, sectors: Sectors) {
        let place = self.place(path);
        place.sectors.set(sectors);
        let turns = place.turns.iter();
        turns.for_each(|turn| self.control.grow(*turn, sectors));
    }

    /// Gives the disk behind `path` an identity, or the path again if `identity` is `None`.
    pub fn identify(&self, path: &str, identity: Option<DeviceIdentity>) {
        let mut identities = self.identities.borrow_mut();
        match identity {
            Some(identity) => identities.insert(path.into(), identity),
            None => identities.remove(path),
        };
    }

    /// The witness of the log of a volume.
    pub fn log_witness(&self, volume: &str) -> TargetId {
        self.logs[volume].0
    }

    /// Limits the available memory to `bytes`.
    pub fn limit_memory(&self, bytes: u64) {
        self.memory.set(Some(bytes));
    }

    /// Pauses the processes of the machine for `span`, while the clock runs on.
    pub fn pause(&self, span: Nanos) {
        self.control.pause(span);
    }

    /// The power goes, and is back at the next start.
    pub fn cut_power(&self) {
        self.places
            .values()
            .for_each(|place| place.unresponsive.set(false));
        self.control.cut_power(None);
    }

    /// Lets requests at all disks end again.
    pub fn unsilence_all(&self) {
        self.places.keys().for_each(|path| self.unsilence(path));
    }

    /// Plugs all unplugged disks in again, and lets all unresponsive disks answer.
    pub fn repair(&self) {
        self.places.keys().for_each(|path| self.give_back(path));
        self.unsilence_all();
    }

    /// True if the disk answers its holder, or would answer the next one.
    pub fn is_present(&self, path: &str) -> bool {
        let place = self.place(path);
        let same = place.held.get().is_none_or(|turn| turn == place.turn.get());
        same && !place.away.get() && !place.unresponsive.get()
    }

    /// True if the path has a holder.
    pub fn is_held(&self, path: &str) -> bool {
        self.place(path).held.get().is_some()
    }

    /// Number of openings of the path.
    pub fn openings(&self, path: &str) -> u64 {
        self.place(path).openings.get()
    }

    /// True if the disk behind `path` is reserved.
    pub fn is_reserved(&self, path: &str) -> bool {
        self.place(path).reserved.get()
    }

    /// Another host takes the disk behind `path` over, or releases it.
    pub fn reserve_elsewhere(&self, path: &str, elsewhere: bool) {
        let place = self.place(path);
        place.elsewhere.set(elsewhere);
        if elsewhere {
            place.registered.set(false);
            place.reserved.set(false);
        }
        let turns = place.turns.iter();
        turns.for_each(|turn| self.control.reserve(*turn, elsewhere));
    }

    /// The bytes of the disk behind `path`, as another host has them.
    pub fn medium(&self, path: &str) -> &Medium {
        let medium = self.place(path).medium.as_ref();
        medium.expect("it keeps its bytes")
    }

    /// True if the disk is unplugged.
    pub fn is_away(&self, path: &str) -> bool {
        self.place(path).away.get()
    }

    /// The paths that have a holder.
    pub fn held(&self) -> Vec<String> {
        let held = self
            .places
            .iter()
            .filter(|(_, place)| place.held.get().is_some());
        held.map(|(path, _)| path.clone()).collect()
    }

    /// Returns the events of nodes since the last call.
    pub fn take_events(&self) -> Vec<NodeEvent> {
        self.events.take()
    }
}

/// A machine, as seen by the node that runs on the shard `local`.
#[derive(Clone)]
pub struct SimPlatform {
    machine: Rc<SimMachine>,
    local: Local<SimDriver>,
}

impl SimPlatform {
    /// The machine for a node on `local`.
    pub fn new(machine: Rc<SimMachine>, local: Local<SimDriver>) -> SimPlatform {
        SimPlatform { machine, local }
    }

    /// The witness behind `target`, once no request to the witness is in flight.
    fn beside(&self, target: TargetId) -> IoResult<(BoxDevice, PathHold)> {
        let disk = self.local.disk(target)?;
        match self.local.in_flight(target) {
            0 => Ok((BoxDevice::new(disk), PathHold(None))),
            _ => Err(disk.geometry().error(IoErrorKind::Busy, "is in use")),
        }
    }
}

/// A path that cannot be opened again until the hold is dropped; or no path.
pub struct PathHold(Option<(Rc<SimMachine>, String)>);

impl Drop for PathHold {
    fn drop(&mut self) {
        if let Some((machine, path)) = &self.0 {
            machine.place(path).held.set(None);
        }
    }
}

impl Platform for SimPlatform {
    type Driver = SimDriver;
    type Hold = PathHold;

    fn local(&self) -> &Local<SimDriver> {
        &self.local
    }

    async fn open_disk(
        &self,
        _: &config::Device,
        path: &Path,
    ) -> IoResult<(ShardDisk<SimDriver>, PathHold)> {
        let path = path.display().to_string();
        let error = |kind, what: &'static str| Err(IoError::new(kind, what).on(path.clone()));
        let Some(place) = self.machine.places.get(&path) else {
            return error(IoErrorKind::Gone, "is no disk of this machine");
        };
        if place.held.get().is_some() || self.local.in_flight(place.target()) > 0 {
            return error(IoErrorKind::Busy, "is in use");
        }
        place.held.set(Some(place.turn.get()));
        place.openings.set(place.openings.get() + 1);
        let hold = PathHold(Some((self.machine.clone(), path.clone())));
        self.local.env().timer.sleep(OPENING).await;
        match place.away.get() {
            true => error(IoErrorKind::Gone, "is unplugged"),
            false => {
                place.held.set(Some(place.turn.get()));
                Ok((self.local.disk(place.target())?, hold))
            }
        }
    }

    fn claim_export(&self, uri: &NbdUri) -> IoResult<PathHold> {
        let what = "no server is in this world; give `path`";
        Err(IoError::new(IoErrorKind::Unsupported, what).on(uri.to_string()))
    }

    fn read_certificates(&self, file: &Path) -> IoResult<Vec<u8>> {
        let what = "no files are in this world";
        Err(IoError::new(IoErrorKind::Unsupported, what).on(file.display().to_string()))
    }

    /// The reservation of a disk, of which a test decides when another host takes it.
    async fn reservation(&self, path: &str, _: &Name, step: ReservationStep) -> IoResult<bool> {
        self.local.env().timer.sleep(OPENING).await;
        let place = self.machine.place(path);
        if place.elsewhere.get() && !matches!(step, ReservationStep::TakeOver) {
            return Err(
                IoError::new(IoErrorKind::Reserved, "is another host's").on(path.to_owned())
            );
        }
        if place.elsewhere.get() {
            self.machine.reserve_elsewhere(path, false);
        }
        let lasted = place.registered.get();
        let (registered, reserved) = match step {
            ReservationStep::Resume | ReservationStep::Check => (lasted, lasted),
            ReservationStep::Take | ReservationStep::TakeOver => (true, true),
            ReservationStep::Release => (lasted, false),
            ReservationStep::Leave => (false, false),
        };
        place.registered.set(registered);
        place.reserved.set(reserved);
        match step {
            ReservationStep::Resume => Ok(lasted),
            _ => Ok(true),
        }
    }

    async fn configuration(&self) -> Result<Config, String> {
        Ok(self.machine.file.borrow().clone())
    }

    async fn witness(&self, pool: &Name) -> IoResult<(BoxDevice, PathHold)> {
        let (target, _) = self.machine.witnesses[pool.as_str()];
        self.beside(target)
    }

    async fn log_witness(&self, volume: &Name) -> IoResult<(BoxDevice, PathHold)> {
        let (target, _) = self.machine.logs[volume.as_str()];
        self.beside(target)
    }

    async fn logs(&self) -> IoResult<Vec<LogWitness>> {
        let logs = self.machine.logs.iter();
        let found = logs.filter_map(|(volume, (_, medium))| {
            let mut bytes = vec![0; LOG_WITNESS_BYTES as usize];
            medium.latest(Lba::ZERO, &mut bytes);
            let (first, second) = bytes.split_at(BLOCK_BYTES);
            let superblock = LogSuperblock::newest([Some(first), Some(second)]).ok()?;
            Some(LogWitness {
                file: volume.into(),
                superblock,
            })
        });
        Ok(found.collect())
    }

    async fn other_pools(&self, ours: &[&str]) -> IoResult<Vec<Remembered>> {
        let others = self.machine.witnesses.iter();
        let others = others.filter(|(pool, _)| !ours.contains(&pool.as_str()));
        let remembered = others.filter_map(|(pool, (_, medium))| {
            let superblock = layout::witness_superblock(|area| {
                let mut bytes = vec![0; area.blocks as usize * BLOCK_BYTES];
                medium.latest(area.lba(Lba::ZERO, 0), &mut bytes);
                Some(bytes)
            });
            let superblock = superblock.ok()?;
            Some(Remembered {
                file: pool.into(),
                pool: superblock.label,
                volumes: superblock
                    .volumes
                    .volumes()
                    .into_iter()
                    .map(|volume| volume.name)
                    .collect(),
            })
        });
        Ok(remembered.collect())
    }

    async fn identity(&self, place: &str) -> DeviceIdentity {
        let known = self.machine.identities.borrow().get(place).cloned();
        known.unwrap_or_else(|| DeviceIdentity::new(place))
    }

    async fn place(&self, device: &config::Device) -> control::place::BasePlace {
        control::place::BasePlace::said(device)
    }

    async fn size(&self, place: &str) -> Option<u64> {
        let place = self.machine.places.get(place)?;
        (!place.away.get()).then(|| place.sectors.get().bytes())
    }

    fn host(&self) -> String {
        "simulated".into()
    }

    fn time_of_day(&self) -> u64 {
        let span = self.local.env().timer.now();
        BEGAN + Duration::from_nanos(span.0).as_secs()
    }

    fn clock(&self) -> Nanos {
        Nanos::from_secs(BEGAN) + self.local.env().timer.now()
    }

    fn uuid(&self) -> u128 {
        let mut names = self.machine.names.borrow_mut();
        u128::from(names.bits()) << 64 | u128::from(names.bits())
    }

    fn room(&self, _: u64) -> Option<MemoryRoom> {
        self.machine.memory.get().map(|bytes| MemoryRoom {
            bytes,
            limit: "the machine",
        })
    }

    fn process(&self) -> UserProcess {
        UserProcess::default()
    }

    fn event(&self, event: NodeEvent) {
        self.machine.events.borrow_mut().push(event);
    }
}
