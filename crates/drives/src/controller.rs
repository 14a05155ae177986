//! A storage controller in front of its units: command time, write-back cache.
//!
//! The controller takes each command in turn. With a cache it acknowledges a
//! write that fits, and destages the write (writes it to its unit) as soon as that unit
//! has a slot. Destaging sweeps over the unit's addresses upwards, and joins adjacent
//! writes into one. A write that does not fit waits, and with it the
//! writes behind it. A read that the dirty data cover comes from the cache.
//!
//! Invariants: dirty bytes are counted from acknowledgement until they are on
//! the unit, and exceed the cache only by a single write larger than the cache; after a
//! flush of a cache that forgets, everything acknowledged before is on its unit.
//!
//! Left out: a read cache, the data path between host and controller, parity.

use super::agenda::{Agenda, SerialResource};
use super::{Completed, DriveModel, DriveOp, DriveRequest, Figure, nanos};
use block::{Extent, Fua, IoResult, Lba, Nanos, Sectors};
use rangemap::RangeSet;
use slab::Slab;
use std::collections::VecDeque;

/// A controller's description. MB are 10^6 bytes.
#[derive(Clone, Debug)]
pub struct ControllerParameters {
    /// The model's name.
    pub name: &'static str,
    /// Time to handle a command; commands take turns.
    pub command_us: Figure,
    /// Time to acknowledge a request that the cache serves.
    pub cache_ack_us: Figure,
    /// The size of the write-back cache; 0 for write-through.
    pub cache_mb: Figure,
    /// Destaging writes in flight to one unit.
    pub destage_depth: Figure,
    /// The cache outlives a power cut, by battery or flash.
    pub cache_survives: bool,
}

impl ControllerParameters {
    /// Every number under its name, in the order of the fields.
    pub fn figures(&self) -> [(&'static str, Figure); 4] {
        [
            ("command_us", self.command_us),
            ("cache_ack_us", self.cache_ack_us),
            ("cache_mb", self.cache_mb),
            ("destage_depth", self.destage_depth),
        ]
    }
}

/// The longest write that destaging makes of adjacent data: long enough to stream,
/// short enough that the writes in flight leave most of a cache to gather more.
const DESTAGE_MAX: Sectors = Sectors(512);

/// A controller and the units behind it.
#[derive(Debug)]
pub struct Controller<M> {
    command: Nanos,
    cache_ack: Nanos,
    cache_bytes: u64,
    destage_depth: usize,
    cache_survives: bool,
    front: SerialResource,
    units: Vec<ControllerUnit<M>>,
    flights: Slab<ControllerRequest>,
    agenda: Agenda<ControllerEvent>,
    /// Writes that wait for room and flushes that wait for destaging, in order.
    waiting: VecDeque<usize>,
    dirty_bytes: u64,
    /// Requests that a unit just completed; empty between calls.
    from_unit: Vec<Completed>,
}

#[derive(Debug)]
struct ControllerUnit<M> {
    model: M,
    /// Acknowledged sectors that are not yet being destaged.
    dirty: RangeSet<u64>,
    /// End of the last destaging write.
    swept_to: u64,
    destaging: usize,
}

#[derive(Clone, Copy, Debug)]
enum ControllerRequest {
    /// A request of the host's.
    Host(DriveRequest),
    /// Dirty data being destaged to a unit.
    Destage { unit: usize, bytes: u64 },
}

#[derive(Clone, Copy, Debug)]
enum ControllerEvent {
    /// The controller has taken the command.
    Decoded(usize),
    /// The cache has served the request.
    Done(usize),
}

impl<M: DriveModel> Controller<M> {
    /// A controller in front of `units`; [`DriveRequest::unit`] is an index into them,
    /// and reaches the unit itself as 0.
    ///
    /// `Err` names the parameter that no controller can have, its range and the
    /// remedy.
    pub fn new(parameters: &ControllerParameters, units: Vec<M>) -> IoResult<Controller<M>> {
        let check = |name, figure: Figure, least: f64, most: f64, remedy| {
            figure.within(parameters.name, name, least..=most, remedy)
        };
        let command_us = check(
            "command_us",
            parameters.command_us,
            0.0,
            10_000.0,
            "give the time per command in microseconds",
        )?;
        let cache_ack_us = check(
            "cache_ack_us",
            parameters.cache_ack_us,
            0.0,
            10_000.0,
            "give the time to acknowledge from the cache in microseconds",
        )?;
        let cache_mb = check(
            "cache_mb",
            parameters.cache_mb,
            0.0,
            1e6,
            "give the write-back cache in MB, 0 for write-through",
        )?;
        let destage_depth = check(
            "destage_depth",
            parameters.destage_depth,
            1.0,
            1_024.0,
            "give the destaging writes in flight per unit",
        )?;
        Ok(Controller {
            command: nanos(command_us * 1e3),
            cache_ack: nanos(cache_ack_us * 1e3),
            cache_bytes: (cache_mb * 1e6) as u64,
            destage_depth: destage_depth as usize,
            cache_survives: parameters.cache_survives,
            front: SerialResource::default(),
            units: units.into_iter().map(ControllerUnit::new).collect(),
            flights: Slab::new(),
            agenda: Agenda::new(),
            waiting: VecDeque::new(),
            dirty_bytes: 0,
            from_unit: Vec::new(),
        })
    }

    /// Bytes acknowledged that are not yet on their units.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    fn decoded(&mut self, now: Nanos, flight: usize, request: DriveRequest) {
        let through = self.cache_bytes == 0 || (request.fua == Fua::Yes && !self.cache_survives);
        match request.op {
            DriveOp::Read if self.units[request.unit as usize].holds(request.extent) => {
                self.agenda
                    .enter(now + self.cache_ack, ControllerEvent::Done(flight));
            }
            DriveOp::Flush if self.cache_survives => {
                self.agenda
                    .enter(now + self.cache_ack, ControllerEvent::Done(flight));
            }
            DriveOp::Write if !through => self.wait(now, flight),
            DriveOp::Flush => self.wait(now, flight),
            DriveOp::Read | DriveOp::Write | DriveOp::Discard => self.forward(now, flight, request),
        }
    }

    fn forward(&mut self, now: Nanos, flight: usize, request: DriveRequest) {
        let passed_on = DriveRequest {
            id: flight as u64,
            unit: 0,
            ..request
        };
        self.units[request.unit as usize]
            .model
            .arrive(now, passed_on);
    }

    fn wait(&mut self, now: Nanos, flight: usize) {
        self.waiting.push_back(flight);
        self.admit(now);
    }

    /// Lets in the waiting requests that may go, in order.
    fn admit(&mut self, now: Nanos) {
        while let Some(&flight) = self.waiting.front() {
            let ControllerRequest::Host(request) = self.flights[flight] else {
                unreachable!("only requests of the host's wait");
            };
            let bytes = request.extent.len.bytes();
            let clean = self.dirty_bytes == 0;
            match request.op {
                DriveOp::Write if clean || self.dirty_bytes + bytes <= self.cache_bytes => {
                    let unit = request.unit as usize;
                    self.dirty_bytes += self.units[unit].dirty(request.extent);
                    self.agenda
                        .enter(now + self.cache_ack, ControllerEvent::Done(flight));
                    self.destage(now, unit);
                }
                DriveOp::Flush if clean => self.forward(now, flight, request),
                _ => return,
            }
            self.waiting.pop_front();
        }
    }

    /// Keeps a unit's slots for destaging filled.
    fn destage(&mut self, now: Nanos, index: usize) {
        let unit = &mut self.units[index];
        while unit.destaging < self.destage_depth
            && let Some(extent) = unit.sweep()
        {
            let id = self.flights.insert(ControllerRequest::Destage {
                unit: index,
                bytes: extent.len.bytes(),
            });
            unit.destaging += 1;
            let write = DriveRequest {
                id: id as u64,
                unit: 0,
                op: DriveOp::Write,
                extent,
                fua: Fua::No,
            };
            unit.model.arrive(now, write);
        }
    }

    fn completed_by_unit(&mut self, at: Nanos, flight: usize, done: &mut Vec<Completed>) {
        match self.flights.remove(flight) {
            ControllerRequest::Host(request) => done.push(Completed { at, id: request.id }),
            ControllerRequest::Destage { unit, bytes } => {
                self.dirty_bytes -= bytes;
                self.units[unit].destaging -= 1;
                self.destage(at, unit);
                self.admit(at);
            }
        }
    }
}

impl<M> ControllerUnit<M> {
    fn new(model: M) -> ControllerUnit<M> {
        ControllerUnit {
            model,
            dirty: RangeSet::new(),
            swept_to: 0,
            destaging: 0,
        }
    }

    /// True if `extent` can be read from dirty data alone.
    fn holds(&self, extent: Extent) -> bool {
        let first = self.dirty.get(&extent.start.0);
        first.is_some_and(|range| range.end >= extent.end().0)
    }

    /// Marks `extent` dirty; returns the bytes that were not before.
    fn dirty(&mut self, extent: Extent) -> u64 {
        let range = extent.start.0..extent.end().0;
        let clean = self.dirty.gaps(&range).map(|gap| gap.end - gap.start);
        let grown = Sectors(clean.sum()).bytes();
        self.dirty.insert(range);
        grown
    }

    /// Takes out the next dirty sectors at or after the last ones, or the lowest.
    fn sweep(&mut self) -> Option<Extent> {
        let after = self.dirty.overlapping(self.swept_to..u64::MAX).next();
        let range = after.or_else(|| self.dirty.first())?;
        let start = range
            .start
            .max(if after.is_some() { self.swept_to } else { 0 });
        let end = range.end.min(start + DESTAGE_MAX.0);
        self.dirty.remove(start..end);
        self.swept_to = end;
        Some(Extent::new(Lba(start), Sectors(end - start)))
    }
}

impl<M: DriveModel> DriveModel for Controller<M> {
    fn arrive(&mut self, now: Nanos, request: DriveRequest) {
        let flight = self.flights.insert(ControllerRequest::Host(request));
        let at = self.front.serve(now, self.command);
        self.agenda.enter(at, ControllerEvent::Decoded(flight));
    }

    fn next_event(&self) -> Option<Nanos> {
        let units = self.units.iter().filter_map(|unit| unit.model.next_event());
        units.chain(self.agenda.next_at()).min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            for index in 0..self.units.len() {
                let mut completed = std::mem::take(&mut self.from_unit);
                self.units[index].model.advance(at, &mut completed);
                for Completed { at, id } in completed.drain(..) {
                    self.completed_by_unit(at, id as usize, done);
                }
                self.from_unit = completed;
            }
            while let Some((at, event)) = self.agenda.take_due(at) {
                let (ControllerEvent::Decoded(flight) | ControllerEvent::Done(flight)) = event;
                let ControllerRequest::Host(request) = self.flights[flight] else {
                    unreachable!("the agenda holds requests of the host's");
                };
                match event {
                    ControllerEvent::Decoded(_) => self.decoded(at, flight, request),
                    ControllerEvent::Done(_) => {
                        self.flights.remove(flight);
                        done.push(Completed { at, id: request.id });
                    }
                }
            }
        }
    }
}
