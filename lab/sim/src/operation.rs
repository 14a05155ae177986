//! Disk operations from submission to completion.
//!
//! Invariants:
//!     each submission and each completion of a disk operation is one step; one
//!     that is refused at once is a single step
//!     an operation takes effect at its completion, in `Disk::perform`

use crate::clockwork::Wake;
use crate::fault::{FaultClass, FaultStrike};
use crate::flight::{FlightId, SimOperation};
use crate::trace_hash::{TraceEvent, ends};
use crate::verb::SimVerb;
use crate::world::{SimTarget, SimWorld, WorldEvent};
use block::{
    Completion, DriverOp, Extent, Fua, IoError, IoErrorKind, IoResult, Nanos, Payload,
    SECTOR_BYTES, Sectors, TargetId, Token,
};

impl SimWorld {
    /// Begins an operation for the shard in `seat`.
    #[inline]
    pub(crate) fn submit(&mut self, seat: usize, token: Token, target: TargetId, op: DriverOp) {
        self.obey();
        if !self.seats[seat].live {
            return;
        }
        let number = self.submitted;
        self.submitted += 1;
        match self.targets.get(target.0 as usize) {
            Some(SimTarget::Disk(disk)) => {
                let disk = *disk;
                self.submit_to_disk(seat, token, disk, number, op);
            }
            Some(SimTarget::Port(port)) => {
                let port = *port;
                self.submit_to_port(seat, token, port, number, op);
            }
            _ => self.submit_to_stream(seat, token, target, number, op),
        }
    }

    fn submit_to_disk(&mut self, seat: usize, token: Token, unit: u32, number: u64, op: DriverOp) {
        let disk = &mut self.disks[unit as usize];
        let (verb, checked) = (SimVerb::of(&op), disk.check(&op));
        let extent = *checked.as_ref().unwrap_or(&Extent::default());
        self.ledger.record(TraceEvent::Submit {
            op: number,
            shard: self.seats[seat].shard,
            target: disk.target,
            verb,
            start: extent.start.0,
            len: extent.len.0,
        });
        if let DriverOp::Write(_, data, _) = &op {
            let ends = ends(data);
            self.ledger.record(TraceEvent::Data { op: number, ends });
        }
        let refused = match checked {
            Ok(_) if disk.is_up() => None,
            Ok(_) => Some(
                disk.geometry
                    .error(IoErrorKind::Gone, "the disk is gone")
                    .at(extent),
            ),
            Err(error) => Some(error),
        };
        if let Some(error) = refused {
            self.step();
            self.complete(seat, number, token, Err(error), op.into_payload());
            return;
        }
        let strike = match disk.rules.is_empty() {
            true => FaultStrike::NONE,
            false => disk.judge(verb, &op, extent, &mut self.ledger.rng),
        };
        let (service, fua) = (disk.service, fua_of(&op));
        let id = self.flights.insert(SimOperation {
            shard: seat as u32,
            unit,
            token,
            number,
            op,
            strike,
            covers: disk.contents.as_ref().map_or(0, |c| c.get().acknowledged()),
            answered: false,
        });
        if matches!(verb, SimVerb::Write | SimVerb::Zero) {
            disk.begin_write(id, extent, &self.flights);
        }
        match self
            .clockwork
            .begin(service, verb, fua, extent, id, self.ledger.now)
        {
            Wake::Served(at) => self.push(at, WorldEvent::Served(id)),
            Wake::Model(at, model) => self.push(at, WorldEvent::Model(model)),
            Wake::Nothing => {}
        }
        self.step();
    }

    /// Advances a model at an event of its own.
    pub(crate) fn advance_model(&mut self, model: u32) {
        let mut served = std::mem::take(&mut self.served);
        let wake = self.clockwork.advance(model, self.ledger.now, &mut served);
        if let Some(at) = wake {
            self.push(at, WorldEvent::Model(model));
        }
        for id in served.drain(..) {
            self.served(FlightId::unpack(id.id));
        }
        self.served = served;
    }

    /// Ends a disk operation that has been served, unless a fault holds it.
    #[inline]
    pub(crate) fn served(&mut self, id: FlightId) {
        if let Some(at) = self.after_pause() {
            return self.push(at, WorldEvent::Served(id));
        }
        let Some(flight) = self.flights.get(id) else {
            return;
        };
        let mut strike = flight.strike;
        strike.stick |= self.disks[flight.unit as usize].hung;
        if strike.delay != Nanos::ZERO || strike.stick {
            self.hold(id, strike);
        } else if let Some(later) = strike.late {
            self.answer_early(id, later);
        } else {
            self.finish_disk(id);
        }
    }

    #[cold]
    fn hold(&mut self, id: FlightId, strike: FaultStrike) {
        let flight = self.flights.get_mut(id).expect("in flight");
        let disk = &mut self.disks[flight.unit as usize];
        let place = place_of(&flight.op);
        flight.strike.delay = Nanos::ZERO;
        if strike.delay != Nanos::ZERO {
            self.ledger.strike(FaultClass::Delay, disk.target, place);
            self.push(self.ledger.now + strike.delay, WorldEvent::Served(id));
            return;
        }
        if strike.stick {
            self.ledger.strike(FaultClass::Stuck, disk.target, place);
        }
        disk.stuck.push(id);
        if let Some(until) = strike.stick_until {
            self.push(until.max(self.ledger.now), WorldEvent::Released(id));
        }
    }

    /// A write fails now, and lands `later`.
    #[cold]
    fn answer_early(&mut self, id: FlightId, later: Nanos) {
        let flight = self.flights.get_mut(id).expect("in flight");
        flight.strike.late = None;
        flight.answered = true;
        let (seat, number, token) = (flight.shard as usize, flight.number, flight.token);
        let disk = &mut self.disks[flight.unit as usize];
        disk.end_write(id);
        let place = place_of(&flight.op);
        self.ledger
            .strike(FaultClass::LateWrite, disk.target, place);
        let error = disk
            .geometry
            .error(IoErrorKind::Timeout, "no answer in time");
        self.complete(seat, number, token, Err(error), Payload::None);
        self.push(self.ledger.now + later, WorldEvent::Released(id));
        self.step();
    }

    #[inline]
    pub(crate) fn finish_disk(&mut self, id: FlightId) {
        let Some(flight) = self.flights.remove(id) else {
            return;
        };
        let disk = &mut self.disks[flight.unit as usize];
        disk.end_write(id);
        let (seat, number, token) = (flight.shard as usize, flight.number, flight.token);
        let answered = flight.answered;
        let (result, payload) = disk.perform(flight, &self.flights, &mut self.ledger);
        if !answered {
            self.complete(seat, number, token, result, payload);
        }
        self.step();
    }

    /// Ends an operation that did nothing but fail, or that a stream carried out.
    pub(crate) fn end(&mut self, id: FlightId, result: IoResult<u64>) {
        if let Some(flight) = self.flights.remove(id).filter(|f| !f.answered) {
            let seat = flight.shard as usize;
            self.complete(
                seat,
                flight.number,
                flight.token,
                result,
                flight.op.into_payload(),
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
            Ok(value) => TraceEvent::Complete {
                op: number,
                value: *value,
            },
            Err(error) => TraceEvent::Fail {
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

    /// Counts a disk step, and carries out the plan's actions at that step.
    #[inline]
    fn step(&mut self) {
        self.steps += 1;
        while let Some(action) = self.agenda.at_step(self.steps) {
            self.act(action);
        }
    }
}

/// True if the operation is one of a disk.
pub(crate) fn is_disk_op(op: &DriverOp) -> bool {
    matches!(
        op,
        DriverOp::Read(..)
            | DriverOp::Write(..)
            | DriverOp::Zero(_)
            | DriverOp::Flush
            | DriverOp::Discard(_)
    )
}

fn fua_of(op: &DriverOp) -> Fua {
    match op {
        DriverOp::Write(_, _, fua) => *fua,
        _ => Fua::No,
    }
}

/// The sectors that a write or a zeroing changes; of others, none.
pub(crate) fn extent_of(op: &DriverOp) -> Extent {
    match op {
        DriverOp::Write(at, data, _) => Extent::new(*at, Sectors(data.len() as u64 / SECTOR_BYTES)),
        DriverOp::Zero(extent) => *extent,
        _ => Extent::default(),
    }
}

/// The first sector that an operation of a disk is about.
pub(crate) fn place_of(op: &DriverOp) -> u64 {
    match op {
        DriverOp::Read(at, _) | DriverOp::Write(at, _, _) => at.0,
        DriverOp::Zero(extent) | DriverOp::Discard(extent) => extent.start.0,
        _ => 0,
    }
}

/// The error of an operation on a target that does not exist.
pub(crate) fn unknown(target: TargetId) -> IoError {
    IoError::new(
        IoErrorKind::Invalid,
        format!("no such target: {}", target.0),
    )
}
