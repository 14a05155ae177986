//! A driver in memory with a clock of its own, sound or with one flaw.

use super::wire::{self, Try, Wire};
use crate::conformance::rng::SuiteRng;
use crate::{
    Address, Completion, Driver, DriverOp, Fua, Geometry, IoError, IoErrorKind, IoResult, Lba,
    Nanos, Payload, Pool, SECTOR_BYTES, Sectors, SharedBuf, TargetId, Token, Unpark,
};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// The fault of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    None,
    CompletesTwice,
    LosesACompletion,
    InventsACompletion,
    SwapsBuffers,
    DropsBufferOnError,
    KeepsABuffer,
    ClockGoesBack,
    OversleepsDeadlines,
    ForgetsUnpark,
    IgnoresBounds,
    WritesBeforeChecking,
    ServesUnknownTargets,
    CountsDiskBytes,
    Spins,
    Wire(wire::Flaw),
}

pub(super) const DISK: TargetId = TargetId(7);
pub(super) const LISTENER: TargetId = TargetId(8);
/// Stream ends are numbered from here.
const FIRST_END: u32 = 100;

pub(super) fn address() -> Address {
    Address::Tcp("queue:1".into())
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Unpark for Flag {
    fn unpark(&self) {
        self.0.store(true, Release);
    }
}

struct InFlight {
    token: Token,
    target: TargetId,
    op: DriverOp,
    due: Nanos,
    sent: usize,
}

pub(super) struct Queue {
    flaw: Flaw,
    now: Nanos,
    calls: Cell<u64>,
    pool: Pool,
    geometry: Geometry,
    bytes: Vec<u8>,
    in_flight: Vec<InFlight>,
    wire: Wire,
    unparked: Arc<Flag>,
    rng: SuiteRng,
    finished: u64,
}

impl Queue {
    pub(super) fn new(block: u64, flaw: Flaw) -> Queue {
        let sectors = Sectors::from_mib(4);
        let wire = match flaw {
            Flaw::Wire(flaw) => flaw,
            _ => wire::Flaw::None,
        };
        Queue {
            flaw,
            now: Nanos::from_secs(1),
            calls: Cell::new(0),
            pool: Pool::new(4 << 20),
            geometry: Geometry::new("queue", sectors, Sectors(block)),
            bytes: vec![0x77; sectors.bytes() as usize],
            in_flight: Vec::new(),
            wire: Wire::new(wire),
            unparked: Arc::default(),
            rng: SuiteRng::new(3),
            finished: 0,
        }
    }

    /// Tries an operation; `None` if the operation has to wait.
    fn attempt(&mut self, flight: &mut InFlight) -> Option<IoResult<u64>> {
        let InFlight {
            target, op, sent, ..
        } = flight;
        let end = target.0.checked_sub(FIRST_END).map(|end| end as usize);
        let end = end.filter(|&end| end < 1000);
        let disk = *target == DISK
            || (self.flaw == Flaw::ServesUnknownTargets && target.0 > u32::MAX - 10);
        let tried = match (op, end) {
            (DriverOp::Read(at, buf), _) if disk => {
                return Some(self.transfer(*at, buf.len()).map(|at| {
                    let len = buf.len();
                    buf.copy_from_slice(&self.bytes[at..at + len]);
                    self.count(len)
                }));
            }
            (DriverOp::Write(at, data, _), _) if disk => return Some(self.write(*at, data)),
            (DriverOp::Zero(extent) | DriverOp::Discard(extent), _) if disk => {
                return Some(self.geometry.check(*extent).map(|()| {
                    let start = extent.start.byte() as usize;
                    self.bytes[start..start + extent.len.bytes() as usize].fill(0);
                    0
                }));
            }
            (DriverOp::Flush, _) if disk => return Some(Ok(0)),
            (DriverOp::Connect(to), _) => numbered(self.wire.connect(*to == address())),
            (DriverOp::Accept, _) if *target == LISTENER => numbered(self.wire.accept()),
            (DriverOp::Recv(buf), Some(end)) => match self.wire.recv(end, buf) {
                Try::Done(len) => Try::Done(len as u64),
                Try::Wait => Try::Wait,
                Try::Closed => Try::Closed,
            },
            (DriverOp::Send(parts), Some(end)) => self.send(end, parts, sent),
            (_, _) => return Some(Err(IoError::new(IoErrorKind::Invalid, "no such target"))),
        };
        match tried {
            Try::Done(value) => Some(Ok(value)),
            Try::Wait => None,
            Try::Closed => Some(Err(IoError::new(IoErrorKind::Stream, "closed"))),
        }
    }

    fn transfer(&self, at: Lba, bytes: usize) -> IoResult<usize> {
        if self.flaw == Flaw::IgnoresBounds && bytes > 0 {
            let most = self.bytes.len() - bytes.min(self.bytes.len());
            return Ok((at.0.saturating_mul(SECTOR_BYTES) as usize).min(most));
        }
        self.geometry.transfer(at, bytes)?;
        Ok(at.byte() as usize)
    }

    fn write(&mut self, at: Lba, data: &SharedBuf) -> IoResult<u64> {
        let start = at.0.wrapping_mul(SECTOR_BYTES) as usize;
        if self.flaw == Flaw::WritesBeforeChecking && start < self.bytes.len() {
            let len = data.len().min(self.bytes.len() - start);
            self.bytes[start..start + len].copy_from_slice(&data[..len]);
        }
        let at = self.transfer(at, data.len())?;
        self.bytes[at..at + data.len()].copy_from_slice(data);
        Ok(self.count(data.len()))
    }

    fn count(&self, bytes: usize) -> u64 {
        if self.flaw == Flaw::CountsDiskBytes {
            bytes as u64
        } else {
            0
        }
    }

    fn send(&mut self, end: usize, parts: &mut Vec<SharedBuf>, sent: &mut usize) -> Try<u64> {
        if self.wire.flaw == wire::Flaw::SwapsParts && *sent == 0 && parts.len() > 2 {
            parts.swap(0, 1);
        }
        while let Some(part) = parts.first() {
            match self.wire.send(end, &part[*sent..]) {
                Try::Done(len) => *sent += len,
                Try::Wait => return Try::Wait,
                Try::Closed => {
                    parts.clear();
                    return Try::Closed;
                }
            }
            if *sent == part.len() {
                parts.remove(0);
                *sent = 0;
            }
        }
        Try::Done(0)
    }

    fn finish(
        &mut self,
        token: Token,
        result: IoResult<u64>,
        op: DriverOp,
        done: &mut Vec<Completion>,
    ) {
        self.finished += 1;
        let now_and_then = self.finished.is_multiple_of(20);
        let failed = result.is_err();
        let payload = match op {
            DriverOp::Read(..) if self.flaw == Flaw::DropsBufferOnError && failed => Payload::None,
            DriverOp::Read(_, buf) if self.flaw == Flaw::SwapsBuffers => {
                Payload::Buf(self.pool.try_get(buf.len()).unwrap_or(buf))
            }
            DriverOp::Read(_, buf) | DriverOp::Recv(buf) => Payload::Buf(buf),
            DriverOp::Send(mut parts) => {
                parts.clear();
                Payload::Parts(parts)
            }
            DriverOp::Write(_, data, Fua::Yes) if self.flaw == Flaw::KeepsABuffer => {
                std::mem::forget(data.slice(0..0));
                Payload::None
            }
            _ => Payload::None,
        };
        let copies = match self.flaw {
            Flaw::CompletesTwice if now_and_then => 2,
            Flaw::LosesACompletion if now_and_then => 0,
            _ => 1,
        };
        if self.flaw == Flaw::InventsACompletion && now_and_then {
            done.push(completion(Token(u64::MAX), Ok(0), Payload::None));
        }
        if copies == 2 {
            done.push(completion(token, Ok(0), Payload::None));
        }
        if copies > 0 {
            done.push(completion(token, result, payload));
        }
    }
}

fn numbered(end: Try<usize>) -> Try<u64> {
    match end {
        Try::Done(end) => Try::Done(u64::from(FIRST_END) + end as u64),
        Try::Wait => Try::Wait,
        Try::Closed => Try::Closed,
    }
}

fn completion(token: Token, result: IoResult<u64>, payload: Payload) -> Completion {
    Completion {
        token,
        result,
        payload,
    }
}

impl Driver for Queue {
    fn now(&self) -> Nanos {
        let calls = self.calls.replace(self.calls.get() + 1);
        if self.flaw == Flaw::ClockGoesBack && calls % 50 == 49 {
            return self.now - Nanos(1);
        }
        self.now
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn submit(&mut self, token: Token, target: TargetId, op: DriverOp) {
        let due = self.now + Nanos::from_micros(5 + self.rng.below(95));
        self.in_flight.push(InFlight {
            token,
            target,
            op,
            due,
            sent: 0,
        });
    }

    fn park(&mut self, deadline: Nanos, done: &mut Vec<Completion>) {
        if self.flaw == Flaw::Spins {
            return;
        }
        loop {
            for mut flight in std::mem::take(&mut self.in_flight) {
                if flight.due > self.now {
                    self.in_flight.push(flight);
                } else if let Some(result) = self.attempt(&mut flight) {
                    self.finish(flight.token, result, flight.op, done);
                } else {
                    flight.due = self.now + Nanos::from_micros(50);
                    self.in_flight.push(flight);
                }
            }
            let unparked = self.unparked.0.swap(false, Acquire);
            let woken = unparked && self.flaw != Flaw::ForgetsUnpark;
            if !done.is_empty() || woken || self.now >= deadline {
                return;
            }
            let next = self.in_flight.iter().map(|flight| flight.due).min();
            self.now = match next.filter(|&due| due < deadline) {
                Some(due) => due,
                None if self.flaw == Flaw::OversleepsDeadlines => deadline + Nanos::from_secs(60),
                None => deadline,
            };
        }
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        self.unparked.clone()
    }

    fn geometry(&self, target: TargetId) -> Option<Geometry> {
        (target == DISK).then(|| self.geometry.clone())
    }

    fn peer_closed(&self, target: TargetId) -> bool {
        target.0 >= FIRST_END && self.wire.peer_closed((target.0 - FIRST_END) as usize)
    }

    fn close(&mut self, target: TargetId) {
        if target == LISTENER {
            self.wire.listening = false;
        } else {
            self.wire.close((target.0 - FIRST_END) as usize);
        }
    }
}
