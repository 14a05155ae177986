//! One simulated world: its clock, its disks, streams and ports, and its events to come.
//!
//! Invariants:
//!     the same seed and the same calls give the same events   (`trace_hash`)
//!     time moves only when the host or a parked driver lets it
//!     each operation of a live shard completes exactly once
//!
//! Not here: the choice of the running shard (`host`), the begin and end of operations
//! (`operation`, `stream`, `port`), their effect on a disk (`disk`), the possible faults
//! (`fault`) and their execution (`power`).

use crate::clockwork::Clockwork;
use crate::control::WorldControl;
use crate::disk::{DiskSpec, SimDisk};
use crate::fault::{Domain, FaultClass, FaultPlan, FaultTally};
use crate::flight::{FlightId, SimOperations};
use crate::heap::EventHeap;
use crate::ledger::BufferLedger;
use crate::medium::Medium;
use crate::plan::PlanAgenda;
use crate::port::SimPort;
use crate::rng::SimRng;
use crate::service::ModelId;
use crate::stream::{LinkSpec, SimStreams};
use crate::trace_hash::{TraceEvent, TraceLog, WorldTrace};
use block::{
    Address, Completion, Geometry, IoError, IoResult, Lba, Nanos, Sectors, ShardId, TargetId,
    Unpark,
};
use drives::{Completed, DriveModel};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The kind of a target, and its index among those of its kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SimTarget {
    Disk(u32),
    Listener(u32),
    /// One end of a connection.
    End(u32),
    Port(u32),
}

/// An event to come.
#[derive(Clone, Copy)]
pub(crate) enum WorldEvent {
    /// A disk operation has been served.
    Served(FlightId),
    /// A service-time model asks to be advanced.
    Model(u32),
    /// A disk operation that was delayed or stuck continues.
    Released(FlightId),
    /// The plan acts.
    Act(u32),
    /// A stream event.
    Stream(crate::stream::StreamEvent),
    /// A port event.
    Port(crate::port::PortEvent),
}

/// A shard's place in the world. Every boot takes new seats: operations that an earlier boot left
/// in flight then find their shard dead.
pub(crate) struct Seat {
    pub shard: ShardId,
    pub domain: Domain,
    pub live: bool,
    pub ready: Vec<Completion>,
    pub unparked: Arc<Flag>,
    /// The shard runs no turn before.
    pub busy_until: Nanos,
}

impl Seat {
    /// Keeps the shard busy for `span` more.
    pub fn occupy(&mut self, now: Nanos, span: Nanos) {
        self.busy_until = self.busy_until.max(now) + span;
    }
}

/// Notification of a shard: set if unparked since the last park.
#[derive(Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub fn take(&self) -> bool {
        self.is_set() && self.0.swap(false, Relaxed)
    }
}

impl Unpark for Flag {
    fn unpark(&self) {
        self.0.store(true, Relaxed);
    }
}

/// The simulated world.
pub struct SimWorld {
    seed: u64,
    pub(crate) ledger: BufferLedger,
    pub(crate) heap: EventHeap<WorldEvent>,
    pub(crate) flights: SimOperations,
    pub(crate) targets: Vec<SimTarget>,
    pub(crate) disks: Vec<SimDisk>,
    pub(crate) streams: SimStreams,
    pub(crate) ports: Vec<SimPort>,
    pub(crate) seats: Vec<Seat>,
    /// The first seat of the latest boot.
    pub(crate) boot: usize,
    domains: Vec<(ShardId, Domain)>,
    pub(crate) agenda: PlanAgenda,
    pub(crate) control: WorldControl,
    /// Order of the events of one instant, and of shards.
    pub(crate) order: SimRng,
    pub(crate) clockwork: Clockwork,
    /// While no shard runs, or ran.
    pub(crate) paused: Range<Nanos>,
    /// Kept to be used again.
    pub(crate) served: Vec<Completed>,
    pub(crate) submitted: u64,
    pub(crate) steps: u64,
}

impl SimWorld {
    /// An empty world.
    pub fn new(seed: u64) -> SimWorld {
        SimWorld {
            seed,
            ledger: BufferLedger {
                now: Nanos::ZERO,
                trace: WorldTrace::new(),
                tally: FaultTally::default(),
                rng: SimRng::fork(seed, 1),
            },
            heap: EventHeap::new(),
            flights: SimOperations::default(),
            targets: Vec::new(),
            disks: Vec::new(),
            streams: SimStreams::new(SimRng::fork(seed, 2)),
            ports: Vec::new(),
            seats: Vec::new(),
            boot: 0,
            domains: Vec::new(),
            agenda: PlanAgenda::default(),
            control: WorldControl::default(),
            order: SimRng::fork(seed, 3),
            clockwork: Clockwork::new(SimRng::fork(seed, 4)),
            paused: Nanos::ZERO..Nanos::ZERO,
            served: Vec::new(),
            submitted: 0,
            steps: 0,
        }
    }

    /// Adds a service-time model, for one disk or for several behind one
    /// controller or link. Each unit must be as large as its disk.
    pub fn add_model(&mut self, model: impl DriveModel + 'static) -> ModelId {
        self.clockwork.add(Box::new(model))
    }

    /// Adds a disk. `Invalid` if its service time is no span, or of no model.
    pub fn add_disk(&mut self, spec: DiskSpec) -> IoResult<TargetId> {
        let named = |e: IoError| e.on(spec.geometry.name.to_string());
        self.clockwork.check(&spec.service).map_err(named)?;
        let target = self.add_target(SimTarget::Disk(self.disks.len() as u32));
        self.disks.push(SimDisk::new(target, spec));
        Ok(target)
    }

    /// Another disk with the bytes of `disk`: a disk unplugged and plugged in again, as seen by the
    /// holder of the first. Only one of the two is to be plugged in at a time.
    pub fn add_again(&mut self, disk: TargetId) -> Option<TargetId> {
        let index = self.disk_index(disk)?;
        let target = self.add_target(SimTarget::Disk(self.disks.len() as u32));
        let again = self.disks[index].again(target);
        self.disks.push(again);
        Some(target)
    }

    /// Adds a listener at `address`, behind links like `link`. The listener is open again at every
    /// boot. `Invalid` if the address is taken or the link impossible.
    pub fn listen(&mut self, address: Address, link: LinkSpec) -> IoResult<TargetId> {
        self.streams.check(&address, &link)?;
        let target = self.add_target(SimTarget::Listener(self.streams.next_listener()));
        self.streams.add_listener(target, address, link);
        Ok(target)
    }

    /// Puts a shard into a power domain; those not placed are in the first.
    pub fn place(&mut self, shard: ShardId, domain: Domain) {
        self.domains.retain(|(s, _)| *s != shard);
        self.domains.push((shard, domain));
    }

    /// Sets the faults from now on, in place of an earlier plan. Latent sectors stay until written.
    ///
    /// `Invalid`, and nothing changes, if the plan is impossible.
    pub fn set_plan(&mut self, plan: FaultPlan) -> IoResult {
        crate::plan::check(&plan, self)?;
        for disk in &mut self.disks {
            disk.rules.clear();
        }
        for rule in &plan.rules {
            let disk = self.disk_index(rule.disk).expect("checked");
            self.disks[disk]
                .rules
                .push(crate::fault::ActiveRule::new(*rule));
        }
        for (target, extent) in &plan.latent {
            let disk = self.disk_index(*target).expect("checked");
            let latent = &mut self.disks[disk].latent;
            latent.insert(extent.start.0..extent.end().0);
        }
        self.agenda.replace(&plan);
        for (at, action) in self.agenda.timed() {
            self.push(at, WorldEvent::Act(action));
        }
        self.streams.rules = plan.streams;
        Ok(())
    }

    /// A handle by which a test program acts on the world while shards run.
    pub fn control(&self) -> WorldControl {
        self.control.clone()
    }

    /// The seed of the world.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.ledger.now
    }

    /// The hash of all events so far.
    pub fn trace_hash(&self) -> u64 {
        self.ledger.trace.hash()
    }

    /// Number of events so far.
    pub fn events(&self) -> u64 {
        self.ledger.trace.events()
    }

    /// Number of disk steps so far; see [`crate::RunMoment::Step`].
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The faults that struck.
    pub fn tally(&self) -> &FaultTally {
        &self.ledger.tally
    }

    /// Remembers the last `events` events from now on; none at first.
    pub fn keep_log(&mut self, events: usize) {
        self.ledger.trace.keep_last(events);
    }

    /// The events remembered.
    pub fn log(&self) -> TraceLog<'_> {
        self.ledger.trace.log()
    }

    /// Count of writes submitted while another over the same sectors of this disk was in flight: a
    /// bug of the submitter. Counted for disks that keep bytes.
    pub fn overlaps(&self, disk: TargetId) -> u64 {
        self.disk_index(disk).map_or(0, |d| self.disks[d].overlaps)
    }

    /// The bytes that a disk would read from `at` now, without its faults;
    /// zeroes for a disk that keeps none. The range lies inside the disk.
    pub fn peek(&self, disk: TargetId, at: Lba, out: &mut [u8]) {
        let disk = self.disk_index(disk).expect("a disk of this world");
        let geometry = &self.disks[disk].geometry;
        assert!(at.byte() + out.len() as u64 <= geometry.sectors.bytes());
        match &self.disks[disk].contents {
            Some(contents) => contents.latest(at, out),
            None => out.fill(0),
        }
    }

    /// Changes one bit of sector `at` at rest: bit `bit` of its 4096.
    pub fn flip_bit(&mut self, disk: TargetId, at: Lba, bit: u64) {
        let index = self.disk_index(disk).expect("a disk of this world");
        let disk = &mut self.disks[index];
        assert!(at < disk.geometry.extent().end() && bit < 8 * block::SECTOR_BYTES);
        if let Some(contents) = &disk.contents {
            contents.get_mut().flip_bit(at, bit);
            self.ledger.strike(FaultClass::Rot, disk.target, at.0);
        }
    }

    /// Gives a disk another size and another logical block from now on, as of a disk that fails or
    /// was reformatted. Bytes beyond the end are there again if the disk grows. Between runs only.
    pub fn reshape(&mut self, disk: TargetId, sectors: Sectors, block: Sectors) {
        let index = self.disk_index(disk).expect("a disk of this world");
        self.disks[index].reshape(sectors, block);
    }

    /// The bytes of a disk, to be read and changed behind its driver; `None` if the disk keeps
    /// none.
    pub fn medium(&self, disk: TargetId) -> Option<Medium> {
        self.disks[self.disk_index(disk)?].contents.clone()
    }

    /// The shape of a disk.
    pub fn geometry(&self, target: TargetId) -> Option<Geometry> {
        let disk = self.disk_index(target)?;
        Some(self.disks[disk].geometry.clone())
    }

    pub(crate) fn disk_index(&self, target: TargetId) -> Option<usize> {
        match self.targets.get(target.0 as usize) {
            Some(SimTarget::Disk(disk)) => Some(*disk as usize),
            _ => None,
        }
    }

    pub(crate) fn has_domain(&self, domain: Domain) -> bool {
        domain == Domain(0)
            || self.disks.iter().any(|d| d.domain == domain)
            || self.domains.iter().any(|(_, d)| *d == domain)
    }

    pub(crate) fn add_target(&mut self, target: SimTarget) -> TargetId {
        self.targets.push(target);
        TargetId(self.targets.len() as u32 - 1)
    }

    #[inline]
    pub(crate) fn push(&mut self, at: Nanos, due: WorldEvent) {
        let random = self.order.bits();
        self.heap.push(at, random, due);
    }

    /// Takes seats for a boot of `shards` shards. The power is on again. Operations that earlier
    /// shards left in flight on disks have ended: an operating system allows no new process before.
    pub(crate) fn boot(&mut self, shards: u32) {
        self.obey();
        self.seats.iter_mut().for_each(|s| s.live = false);
        self.settle_orphans();
        // The shards that would get the error of lost writes are gone.
        self.disks.iter_mut().for_each(|d| d.lost_writes = false);
        self.ledger.record(TraceEvent::Boot { shards });
        let mut dark: Vec<Domain> = Vec::new();
        dark.extend(self.disks.iter().filter(|d| !d.powered).map(|d| d.domain));
        dark.sort_unstable();
        dark.dedup();
        for domain in dark {
            self.power_on(domain);
        }
        self.reset_streams();
        self.reset_ports();
        self.boot = self.seats.len();
        for shard in (0..shards).map(ShardId) {
            self.add_seat(shard);
        }
    }

    /// Adds a seat for `shard`; returns its index.
    pub(crate) fn add_seat(&mut self, shard: ShardId) -> usize {
        let place = self.domains.iter().find(|(s, _)| *s == shard);
        self.seats.push(Seat {
            shard,
            domain: place.map_or(Domain(0), |(_, d)| *d),
            live: true,
            ready: Vec::new(),
            unparked: Arc::default(),
            busy_until: Nanos::ZERO,
        });
        self.seats.len() - 1
    }

    /// Time of the next event.
    #[inline]
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        self.heap.next_at()
    }

    /// Carries out the first event that is due; false if there was none.
    #[inline]
    pub(crate) fn happen(&mut self) -> bool {
        match self.heap.pop_due(self.ledger.now) {
            None => return false,
            Some(WorldEvent::Served(id)) => self.served(id),
            Some(WorldEvent::Model(model)) => self.advance_model(model),
            Some(WorldEvent::Released(id)) => self.finish_disk(id),
            Some(WorldEvent::Act(action)) => {
                if let Some(action) = self.agenda.at_time(action) {
                    self.act(action);
                }
            }
            Some(WorldEvent::Stream(due)) => self.stream_event(due),
            Some(WorldEvent::Port(due)) => self.port_event(due),
        }
        true
    }
}
