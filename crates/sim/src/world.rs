//! One simulated world: its clock, its disks and streams, and what is to come.
//!
//! Invariants:
//!     the same seed and the same calls give the same events   (`trace_hash`)
//!     time moves only when the host or a parked driver lets it
//!     each operation of a live shard completes exactly once
//!
//! Not here: which shard runs (`host`), what an operation does to a disk
//! (`disk`) or a stream (`stream`), what can go wrong (`fault`).

use crate::clockwork::{Clockwork, Wake};
use crate::control::{Command, Control};
use crate::disk::{Disk, DiskSpec, ModelId};
use crate::fault::{Class, Domain, Plan, Strike, Tally};
use crate::flight::{Flight, FlightId, Flights};
use crate::heap::EventHeap;
use crate::ledger::Ledger;
use crate::model::{Completed, Model};
use crate::plan::{Action, Agenda};
use crate::rng::Rng;
use crate::stream::{LinkSpec, Streams};
use crate::trace_hash::{Event, Log, Trace, Verb, ends};
use block::{
    Address, Completion, Extent, Fua, Geometry, IoError, IoResult, Kind, Lba, Nanos, Op, Payload,
    ShardId, TargetId, Token, Unpark,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a target is, and its index among its sort.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Disk(u32),
    Listener(u32),
    /// One end of a connection.
    End(u32),
}

/// Something that will happen.
#[derive(Clone, Copy)]
pub(crate) enum Due {
    /// A disk operation has been served.
    Served(FlightId),
    /// A service-time model wants to be advanced.
    Model(u32),
    /// A disk operation that was delayed or stuck goes on.
    Released(FlightId),
    /// The plan acts.
    Act(u32),
    /// A stream event.
    Stream(crate::stream::Due),
}

/// A shard's place in the world. Every boot takes new seats, so that what an
/// earlier boot left in flight finds its shard dead.
pub(crate) struct Seat {
    pub shard: ShardId,
    pub domain: Domain,
    pub live: bool,
    pub ready: Vec<Completion>,
    pub unparked: Arc<Flag>,
}

/// Whether a shard has been unparked since it last parked.
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
pub struct World {
    seed: u64,
    pub(crate) ledger: Ledger,
    pub(crate) heap: EventHeap<Due>,
    pub(crate) flights: Flights,
    pub(crate) targets: Vec<Target>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) streams: Streams,
    pub(crate) seats: Vec<Seat>,
    /// The first seat of the latest boot.
    pub(crate) boot: usize,
    domains: Vec<(ShardId, Domain)>,
    agenda: Agenda,
    control: Control,
    /// Orders what happens at one instant, and shards.
    pub(crate) order: Rng,
    clockwork: Clockwork,
    /// Kept to be used again.
    served: Vec<Completed>,
    submitted: u64,
    steps: u64,
}

impl World {
    /// An empty world.
    pub fn new(seed: u64) -> World {
        World {
            seed,
            ledger: Ledger {
                now: Nanos::ZERO,
                trace: Trace::new(),
                tally: Tally::default(),
                rng: Rng::fork(seed, 1),
            },
            heap: EventHeap::new(),
            flights: Flights::default(),
            targets: Vec::new(),
            disks: Vec::new(),
            streams: Streams::new(Rng::fork(seed, 2)),
            seats: Vec::new(),
            boot: 0,
            domains: Vec::new(),
            agenda: Agenda::default(),
            control: Control::default(),
            order: Rng::fork(seed, 3),
            clockwork: Clockwork::new(Rng::fork(seed, 4)),
            served: Vec::new(),
            submitted: 0,
            steps: 0,
        }
    }

    /// Adds a service-time model, for one disk or for several behind one
    /// controller or link. Each unit must be as large as its disk.
    pub fn add_model(&mut self, model: impl Model + 'static) -> ModelId {
        self.clockwork.add(Box::new(model))
    }

    /// Adds a disk. `Invalid` if its service time is no span, or of no model.
    pub fn add_disk(&mut self, spec: DiskSpec) -> IoResult<TargetId> {
        let named = |e: IoError| e.on(spec.geometry.name.to_string());
        self.clockwork.check(&spec.service).map_err(named)?;
        let target = self.add_target(Target::Disk(self.disks.len() as u32));
        self.disks.push(Disk::new(target, spec));
        Ok(target)
    }

    /// Adds a listener at `address`, behind links like `link`. It is open anew at
    /// every boot. `Invalid` if the address is taken or the link impossible.
    pub fn listen(&mut self, address: Address, link: LinkSpec) -> IoResult<TargetId> {
        self.streams.check(&address, &link)?;
        let target = self.add_target(Target::Listener(self.streams.next_listener()));
        self.streams.add_listener(target, address, link);
        Ok(target)
    }

    /// Puts a shard into a power domain; those not placed are in the first.
    pub fn place(&mut self, shard: ShardId, domain: Domain) {
        self.domains.retain(|(s, _)| *s != shard);
        self.domains.push((shard, domain));
    }

    /// Sets what will go wrong from now on, in place of an earlier plan. Latent
    /// sectors stay until they are written.
    ///
    /// `Invalid`, and nothing changes, if the plan is impossible.
    pub fn set_plan(&mut self, plan: Plan) -> IoResult {
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
            self.push(at, Due::Act(action));
        }
        self.streams.rules = plan.streams;
        Ok(())
    }

    /// A handle by which a test program acts on the world while shards run.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.ledger.now
    }

    /// A number that stands for everything that has happened.
    pub fn trace_hash(&self) -> u64 {
        self.ledger.trace.hash()
    }

    /// How many events there have been.
    pub fn events(&self) -> u64 {
        self.ledger.trace.events()
    }

    /// How many disk steps there have been; see [`crate::Point::Step`].
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The faults that struck.
    pub fn tally(&self) -> &Tally {
        &self.ledger.tally
    }

    /// Remembers the last `events` events from now on; none at first.
    pub fn keep_log(&mut self, events: usize) {
        self.ledger.trace.keep_last(events);
    }

    /// The events remembered.
    pub fn log(&self) -> Log<'_> {
        self.ledger.trace.log()
    }

    /// How often a write was submitted while another over the same sectors of
    /// this disk was in flight, which is a bug of whoever submitted it. Counted
    /// for disks that keep bytes.
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
            Some(contents) => contents.read(at, out),
            None => out.fill(0),
        }
    }

    /// The shape of a disk.
    pub fn geometry(&self, target: TargetId) -> Option<Geometry> {
        let disk = self.disk_index(target)?;
        Some(self.disks[disk].geometry.clone())
    }

    pub(crate) fn disk_index(&self, target: TargetId) -> Option<usize> {
        match self.targets.get(target.0 as usize) {
            Some(Target::Disk(disk)) => Some(*disk as usize),
            _ => None,
        }
    }

    pub(crate) fn has_domain(&self, domain: Domain) -> bool {
        domain == Domain(0)
            || self.disks.iter().any(|d| d.domain == domain)
            || self.domains.iter().any(|(_, d)| *d == domain)
    }

    pub(crate) fn add_target(&mut self, target: Target) -> TargetId {
        self.targets.push(target);
        TargetId(self.targets.len() as u32 - 1)
    }

    #[inline]
    pub(crate) fn push(&mut self, at: Nanos, due: Due) {
        let random = self.order.bits();
        self.heap.push(at, random, due);
    }

    /// Takes seats for a boot of `shards` shards. The power is on again.
    pub(crate) fn boot(&mut self, shards: u32) {
        self.obey();
        self.seats.iter_mut().for_each(|s| s.live = false);
        self.ledger.record(Event::Boot { shards });
        let mut dark: Vec<Domain> = Vec::new();
        dark.extend(self.disks.iter().filter(|d| !d.powered).map(|d| d.domain));
        dark.sort_unstable();
        dark.dedup();
        for domain in dark {
            self.power_on(domain);
        }
        self.reset_streams();
        self.boot = self.seats.len();
        for shard in (0..shards).map(ShardId) {
            self.add_seat(shard);
        }
    }

    /// A new seat for `shard`; its index.
    pub(crate) fn add_seat(&mut self, shard: ShardId) -> usize {
        let place = self.domains.iter().find(|(s, _)| *s == shard);
        self.seats.push(Seat {
            shard,
            domain: place.map_or(Domain(0), |(_, d)| *d),
            live: true,
            ready: Vec::new(),
            unparked: Arc::default(),
        });
        self.seats.len() - 1
    }

    /// Begins an operation for the shard in `seat`.
    #[inline]
    pub(crate) fn submit(&mut self, seat: usize, token: Token, target: TargetId, op: Op) {
        self.obey();
        if !self.seats[seat].live {
            return;
        }
        let number = self.submitted;
        self.submitted += 1;
        match self.targets.get(target.0 as usize) {
            Some(Target::Disk(disk)) => {
                let disk = *disk;
                self.submit_to_disk(seat, token, disk, number, op);
            }
            _ => self.submit_to_stream(seat, token, target, number, op),
        }
    }

    fn submit_to_disk(&mut self, seat: usize, token: Token, unit: u32, number: u64, op: Op) {
        let disk = &mut self.disks[unit as usize];
        let (verb, checked) = disk.check(&op);
        let extent = *checked.as_ref().unwrap_or(&Extent::default());
        self.ledger.record(Event::Submit {
            op: number,
            shard: self.seats[seat].shard,
            target: disk.target,
            verb,
            start: extent.start.0,
            len: extent.len.0,
        });
        if let Op::Write(_, data, _) = &op {
            let ends = ends(data);
            self.ledger.record(Event::Data { op: number, ends });
        }
        let refused = match checked {
            Ok(_) if disk.is_up() => None,
            Ok(_) => Some(
                disk.geometry
                    .error(Kind::Gone, "the disk is gone")
                    .at(extent),
            ),
            Err(error) => Some(error),
        };
        if let Some(error) = refused {
            self.step();
            self.complete(seat, number, token, Err(error), payload_of(op));
            return;
        }
        let strike = match disk.rules.is_empty() {
            true => Strike::NONE,
            false => disk.judge(verb, &op, extent, &mut self.ledger.rng),
        };
        let (service, fua) = (disk.service, is_fua(&op));
        let id = self.flights.insert(Flight {
            shard: seat as u32,
            unit,
            token,
            number,
            op,
            strike,
            covers: disk.contents.as_ref().map_or(0, |c| c.acknowledged()),
        });
        if matches!(verb, Verb::Write | Verb::Zero) {
            disk.begin_write(id, extent, &self.flights);
        }
        match self
            .clockwork
            .begin(service, verb, fua, extent, id, self.ledger.now)
        {
            Wake::Served(at) => self.push(at, Due::Served(id)),
            Wake::Model(at, model) => self.push(at, Due::Model(model)),
            Wake::Nothing => {}
        }
        self.step();
    }

    /// A model has something to decide or to complete.
    fn advance_model(&mut self, model: u32) {
        let mut served = std::mem::take(&mut self.served);
        let wake = self.clockwork.advance(model, self.ledger.now, &mut served);
        if let Some(at) = wake {
            self.push(at, Due::Model(model));
        }
        for id in served.drain(..) {
            self.served(FlightId::unpack(id.id));
        }
        self.served = served;
    }

    /// A disk operation has been served; unless a fault holds it, it ends.
    #[inline]
    fn served(&mut self, id: FlightId) {
        let Some(flight) = self.flights.get(id) else {
            return;
        };
        let strike = flight.strike;
        if strike.delay != Nanos::ZERO || strike.stick {
            self.hold(id, strike);
        } else {
            self.finish_disk(id);
        }
    }

    #[cold]
    fn hold(&mut self, id: FlightId, strike: Strike) {
        let flight = self.flights.get_mut(id).expect("in flight");
        let disk = &mut self.disks[flight.unit as usize];
        let place = crate::disk::place_of(&flight.op);
        flight.strike.delay = Nanos::ZERO;
        if strike.delay != Nanos::ZERO {
            self.ledger.strike(Class::Delay, disk.target, place);
            self.push(self.ledger.now + strike.delay, Due::Served(id));
            return;
        }
        self.ledger.strike(Class::Stuck, disk.target, place);
        disk.stuck.push(id);
        if let Some(until) = strike.stick_until {
            self.push(until.max(self.ledger.now), Due::Released(id));
        }
    }

    #[inline]
    fn finish_disk(&mut self, id: FlightId) {
        let Some(flight) = self.flights.remove(id) else {
            return;
        };
        let disk = &mut self.disks[flight.unit as usize];
        disk.end_write(id);
        let (seat, number, token) = (flight.shard as usize, flight.number, flight.token);
        let (result, payload) = disk.perform(flight, &self.flights, &mut self.ledger);
        self.complete(seat, number, token, result, payload);
        self.step();
    }

    /// Ends an operation that did nothing but fail, or that a stream carried out.
    pub(crate) fn end(&mut self, id: FlightId, result: IoResult<u64>) {
        if let Some(flight) = self.flights.remove(id) {
            let seat = flight.shard as usize;
            self.complete(
                seat,
                flight.number,
                flight.token,
                result,
                payload_of(flight.op),
            );
        }
    }

    #[inline]
    pub(crate) fn complete(
        &mut self,
        seat: usize,
        number: u64,
        token: Token,
        result: IoResult<u64>,
        payload: Payload,
    ) {
        self.ledger.record(match &result {
            Ok(value) => Event::Complete {
                op: number,
                value: *value,
            },
            Err(error) => Event::Fail {
                op: number,
                kind: error.kind(),
            },
        });
        let seat = &mut self.seats[seat];
        if seat.live {
            seat.ready.push(Completion {
                token,
                result,
                payload,
            });
        }
    }

    /// Counts a disk step and lets the plan act on it.
    #[inline]
    fn step(&mut self) {
        self.steps += 1;
        while let Some(action) = self.agenda.at_step(self.steps) {
            self.act(action);
        }
    }

    /// Whether anything is due now.
    #[inline]
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        self.heap.next_at()
    }

    /// Carries out the first event that is due; whether there was one.
    #[inline]
    pub(crate) fn happen(&mut self) -> bool {
        match self.heap.pop_due(self.ledger.now) {
            None => return false,
            Some(Due::Served(id)) => self.served(id),
            Some(Due::Model(model)) => self.advance_model(model),
            Some(Due::Released(id)) => self.finish_disk(id),
            Some(Due::Act(action)) => {
                if let Some(action) = self.agenda.at_time(action) {
                    self.act(action);
                }
            }
            Some(Due::Stream(due)) => self.stream_event(due),
        }
        true
    }

    /// Carries out what the test program has asked for.
    #[inline]
    pub(crate) fn obey(&mut self) {
        while let Some(command) = self.control.take() {
            match command {
                Command::Kill(disk) => self.act(Action::Gone(disk)),
                Command::Revive(disk) => self.act(Action::Back(disk)),
                Command::Cut(domain) => self.act(Action::Cut(domain)),
                Command::PowerOn(domain) => self.power_on(domain),
                Command::Release(target) => self.release(target),
                Command::Break(target) => self.break_stream(target),
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Gone(target) => self.unplug(target),
            Action::Back(target) => self.plug_in(target),
            Action::Cut(domain) => self.cut(domain),
        }
    }

    fn unplug(&mut self, target: TargetId) {
        let Some(unit) = self.disk_index(target) else {
            return;
        };
        if !std::mem::replace(&mut self.disks[unit].plugged, false) {
            return;
        }
        self.ledger.record(Event::Gone { target });
        self.ledger.strike(Class::DeviceGone, target, 0);
        self.lose_disk(unit);
    }

    fn plug_in(&mut self, target: TargetId) {
        let Some(unit) = self.disk_index(target) else {
            return;
        };
        if !std::mem::replace(&mut self.disks[unit].plugged, true) {
            self.ledger.record(Event::Back { target });
            self.ledger.strike(Class::DeviceBack, target, 0);
        }
    }

    /// A disk loses power: its cache settles, its operations in flight fail.
    fn lose_disk(&mut self, unit: usize) {
        let disk = &mut self.disks[unit];
        disk.lose_power(&self.flights, self.agenda.survival, &mut self.ledger);
        let flights = self.flights.iter();
        let on_it = flights.filter(|(_, f)| f.unit as usize == unit && is_disk_op(&f.op));
        let lost: Vec<FlightId> = on_it.map(|(id, _)| id).collect();
        for id in lost {
            let error = self.disks[unit]
                .geometry
                .error(Kind::Gone, "the disk is gone");
            self.end(id, Err(error));
        }
    }

    /// The power goes, of one domain or of all.
    fn cut(&mut self, domain: Option<Domain>) {
        let hit = |d: Domain| domain.is_none_or(|only| only == d);
        let number = domain.map_or(u32::MAX, |d| d.0);
        self.ledger.record(Event::PowerCut { domain: number });
        self.ledger
            .strike(Class::PowerCut, TargetId::NONE, u64::from(number));
        let dying = self.seats.iter_mut().filter(|s| s.live && hit(s.domain));
        for seat in dying {
            seat.live = false;
            seat.ready.clear();
        }
        for unit in 0..self.disks.len() {
            let disk = &mut self.disks[unit];
            if hit(disk.domain) && std::mem::replace(&mut disk.powered, false) {
                self.lose_disk(unit);
            }
        }
        self.cut_dead_streams();
    }

    fn power_on(&mut self, domain: Domain) {
        self.ledger.record(Event::PowerOn { domain: domain.0 });
        let here = self.disks.iter_mut().filter(|d| d.domain == domain);
        here.for_each(|d| d.powered = true);
    }

    /// Lets go what a fault holds.
    fn release(&mut self, target: TargetId) {
        match self.targets.get(target.0 as usize) {
            Some(Target::Disk(unit)) => {
                for id in std::mem::take(&mut self.disks[*unit as usize].stuck) {
                    self.finish_disk(id);
                }
            }
            _ => self.release_stream(target),
        }
    }
}

/// Whether the operation is one of a disk.
pub(crate) fn is_disk_op(op: &Op) -> bool {
    matches!(
        op,
        Op::Read(..) | Op::Write(..) | Op::Zero(_) | Op::Flush | Op::Discard(_)
    )
}

fn is_fua(op: &Op) -> Fua {
    match op {
        Op::Write(_, _, fua) => *fua,
        _ => Fua::No,
    }
}

/// What an operation gives back.
pub(crate) fn payload_of(op: Op) -> Payload {
    match op {
        Op::Read(_, buf) | Op::Recv(buf) => Payload::Buf(buf),
        Op::Send(mut parts) => {
            parts.clear();
            Payload::Parts(parts)
        }
        _ => Payload::None,
    }
}

/// The error of an operation on something that is not there.
pub(crate) fn unknown(target: TargetId) -> IoError {
    IoError::new(Kind::Invalid, format!("no such target: {}", target.0))
}
