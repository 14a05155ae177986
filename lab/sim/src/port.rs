//! Ports: a kernel's queue of a block device that a shard serves.
//!
//! Invariants:
//!     a request is with the queue, with one tag, or answered      (`SimTagStage`)
//!     a tag gets a request only while waiting for one
//!     a shard that dies or closes its port leaves the requests of its tags to the next boot;
//!     its answers reach the client all the same
//!
//! The queue gives requests out in any order, to any waiting tag: a client that needs an
//! order waits for answers. As with disks, the operations that an earlier boot left in flight
//! on disks have ended before a port is served again.

use crate::fault::FaultStrike;
use crate::flight::{FlightId, SimOperation};
use crate::rng::SimRng;
use crate::service::ServiceSpan;
use crate::trace_hash::{TraceEvent, ends};
use crate::verb::SimVerb;
use crate::world::{self, SimTarget, SimWorld};
use block::{
    Answer, DriverOp, IoError, IoErrorKind, IoResult, Nanos, Payload, Request, Tag, TargetId, Token,
};
use std::collections::BTreeMap;

/// A request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortRequest {
    /// The client's name for the request.
    pub id: u64,
    /// The request.
    pub request: Request,
    /// The bytes of a write.
    pub data: Vec<u8>,
}

/// A client of a port. Outlives the shards that serve the port.
pub trait PortClient {
    /// The next request, if there is one now.
    fn ask(&mut self, now: Nanos) -> Option<PortRequest>;

    /// Takes the answer to a request: success or the kind of its error, and the bytes of a read.
    fn answered(&mut self, id: u64, result: Result<(), IoErrorKind>, data: Vec<u8>);
}

/// Description of a new port.
pub struct PortSpec {
    /// Number of requests given out at one time.
    pub tags: u16,
    /// Latency of a request, of a write's bytes and of an answer.
    pub latency: ServiceSpan,
    /// The client.
    pub client: Box<dyn PortClient>,
}

/// A port event that will happen.
#[derive(Clone, Copy)]
pub(crate) enum PortEvent {
    /// A request reaches a tag.
    Given(FlightId),
    /// The bytes of a write do.
    Taken(FlightId),
    /// An answer reaches the client.
    Answered { port: u32, number: u64 },
}

/// An answer before it reaches its client.
struct Answered {
    id: u64,
    result: Result<(), IoErrorKind>,
    data: Vec<u8>,
}

/// Stage of a tag.
enum SimTagStage {
    New,
    Waiting(FlightId),
    Coming(FlightId, PortRequest),
    Holds(PortRequest),
    Taking(PortRequest),
    Taken(PortRequest),
}

pub(crate) struct SimPort {
    target: TargetId,
    latency: ServiceSpan,
    client: Box<dyn PortClient>,
    queue: Vec<PortRequest>,
    tags: Vec<SimTagStage>,
    /// Answers not yet at their clients, by their order.
    answers: BTreeMap<u64, Answered>,
    answered: u64,
    open: bool,
    rng: SimRng,
}

impl SimPort {
    pub(crate) fn tags(&self) -> u16 {
        self.tags.len() as u16
    }

    fn invalid(what: &'static str) -> IoError {
        IoError::new(IoErrorKind::Invalid, what)
    }

    /// Checks that `op` is allowed for its tag; see `block::SimPort`.
    fn check(&self, op: &DriverOp) -> IoResult<Tag> {
        let (DriverOp::Next(tag, _) | DriverOp::Take(tag, _)) = op else {
            return Err(SimPort::invalid("not an operation of a port"));
        };
        let Some(stage) = self.tags.get(usize::from(tag.0)) else {
            return Err(SimPort::invalid("it has no such tag"));
        };
        if !self.open {
            return Err(gone());
        }
        let is_right = match (op, stage) {
            (DriverOp::Next(_, None), SimTagStage::New) => true,
            (DriverOp::Next(_, Some(answer)), SimTagStage::Holds(asked)) => {
                asked.request.is_answered_by(answer, false)
            }
            (DriverOp::Next(_, Some(_)), SimTagStage::Taken(_)) => true,
            (DriverOp::Take(_, buf), SimTagStage::Holds(asked)) => {
                matches!(asked.request, Request::Write(..)) && buf.len() == asked.request.bytes()
            }
            _ => false,
        };
        match is_right {
            true => Ok(*tag),
            false => Err(SimPort::invalid("not what its tag waits for")),
        }
    }

    fn stage(&mut self, tag: Tag) -> &mut SimTagStage {
        &mut self.tags[usize::from(tag.0)]
    }

    /// Returns all unanswered requests to the queue.
    fn reissue(&mut self) {
        for stage in &mut self.tags {
            match std::mem::replace(stage, SimTagStage::New) {
                SimTagStage::Coming(_, asked)
                | SimTagStage::Holds(asked)
                | SimTagStage::Taking(asked)
                | SimTagStage::Taken(asked) => self.queue.push(asked),
                SimTagStage::New | SimTagStage::Waiting(_) => {}
            }
        }
    }

    /// Draws a request to give out, and the tag that gets it.
    fn match_one(&mut self) -> Option<(FlightId, Nanos)> {
        let waiting = |stage: &SimTagStage| matches!(stage, SimTagStage::Waiting(_));
        let free = self.tags.iter().filter(|stage| waiting(stage)).count() as u64;
        if free == 0 || self.queue.is_empty() {
            return None;
        }
        let nth = self.rng.below(free) as usize;
        let asked = self.rng.below(self.queue.len() as u64) as usize;
        let asked = self.queue.swap_remove(asked);
        let stage = self
            .tags
            .iter_mut()
            .filter(|stage| waiting(stage))
            .nth(nth)?;
        let SimTagStage::Waiting(id) = *stage else {
            return None;
        };
        *stage = SimTagStage::Coming(id, asked);
        Some((id, self.latency.draw(&mut self.rng)))
    }
}

fn gone() -> IoError {
    IoError::new(IoErrorKind::Gone, "the port has ended")
}

impl SimWorld {
    /// Adds a port. `Invalid` if `spec` has no tags.
    pub fn add_port(&mut self, spec: PortSpec) -> IoResult<TargetId> {
        if spec.tags == 0 {
            return Err(SimPort::invalid("a port without tags; give it some"));
        }
        let number = self.ports.len() as u32;
        let target = self.add_target(SimTarget::Port(number));
        let rng = SimRng::fork(self.seed(), 0x706f_7274 + u64::from(number));
        self.ports.push(SimPort {
            target,
            latency: spec.latency,
            client: spec.client,
            queue: Vec::new(),
            tags: (0..spec.tags).map(|_| SimTagStage::New).collect(),
            answers: BTreeMap::new(),
            answered: 0,
            open: true,
            rng,
        });
        Ok(target)
    }

    pub(crate) fn port(&self, target: TargetId) -> Option<&SimPort> {
        match self.targets.get(target.0 as usize) {
            Some(SimTarget::Port(port)) => Some(&self.ports[*port as usize]),
            _ => None,
        }
    }

    pub(crate) fn submit_to_port(
        &mut self,
        seat: usize,
        token: Token,
        unit: u32,
        number: u64,
        mut op: DriverOp,
    ) {
        let port = &mut self.ports[unit as usize];
        let checked = port.check(&op);
        self.ledger.record(TraceEvent::Submit {
            op: number,
            shard: self.seats[seat].shard,
            target: port.target,
            verb: SimVerb::of(&op),
            start: checked.as_ref().map_or(0, |tag| u64::from(tag.0)),
            len: 0,
        });
        let tag = match checked {
            Ok(tag) => tag,
            Err(error) => {
                self.complete(seat, number, token, Err(error), op.into_payload());
                return;
            }
        };
        if let DriverOp::Next(_, answer) = &mut op
            && let Some(answer) = answer.take()
        {
            self.answer_request(unit, tag, number, answer);
        }
        let takes = matches!(op, DriverOp::Take(..));
        let id = self.flights.insert(SimOperation {
            shard: seat as u32,
            unit,
            token,
            number,
            op,
            strike: FaultStrike::NONE,
            covers: 0,
            answered: false,
        });
        let port = &mut self.ports[unit as usize];
        let stage = port.stage(tag);
        if takes {
            let SimTagStage::Holds(asked) = std::mem::replace(stage, SimTagStage::New) else {
                unreachable!("checked")
            };
            *stage = SimTagStage::Taking(asked);
            let after = port.latency.draw(&mut port.rng);
            self.push(
                self.ledger.now + after,
                world::WorldEvent::Port(PortEvent::Taken(id)),
            );
        } else {
            *stage = SimTagStage::Waiting(id);
            self.pull();
        }
    }

    /// Sends the server's answer to the request that `tag` holds.
    fn answer_request(&mut self, unit: u32, tag: Tag, number: u64, answer: Answer) {
        let port = &mut self.ports[unit as usize];
        let (SimTagStage::Holds(asked) | SimTagStage::Taken(asked)) =
            std::mem::replace(port.stage(tag), SimTagStage::New)
        else {
            unreachable!("checked")
        };
        let (result, data) = match answer {
            Ok(data) => (Ok(()), data.map_or(Vec::new(), |data| data.to_vec())),
            Err(error) => (Err(error.kind()), Vec::new()),
        };
        let ends = ends(&data);
        let answered = port.answered;
        port.answered += 1;
        let id = asked.id;
        port.answers.insert(answered, Answered { id, result, data });
        let after = port.latency.draw(&mut port.rng);
        self.ledger.record(TraceEvent::Data { op: number, ends });
        let due = PortEvent::Answered {
            port: unit,
            number: answered,
        };
        self.push(self.ledger.now + after, world::WorldEvent::Port(due));
    }

    /// Takes in requests of clients, and gives requests out to waiting tags.
    pub(crate) fn pull(&mut self) {
        let now = self.ledger.now;
        for unit in 0..self.ports.len() {
            let port = &mut self.ports[unit];
            while port.queue.len() < 4 * port.tags.len()
                && let Some(asked) = port.client.ask(now)
            {
                port.queue.push(asked);
            }
            while let Some((id, after)) = self.ports[unit].match_one() {
                self.push(now + after, world::WorldEvent::Port(PortEvent::Given(id)));
            }
        }
    }

    pub(crate) fn port_event(&mut self, due: PortEvent) {
        match due {
            PortEvent::Answered { port, number } => {
                let port = &mut self.ports[port as usize];
                let answer = port.answers.remove(&number).expect("answered once");
                let Answered { id, result, data } = answer;
                port.client.answered(id, result, data);
                self.pull();
            }
            PortEvent::Given(id) | PortEvent::Taken(id) => self.deliver(id),
        }
    }

    /// Gives a request, or a write's bytes, to the waiting shard, if alive.
    fn deliver(&mut self, id: FlightId) {
        let Some(flight) = self.flights.remove(id) else {
            return;
        };
        let port = &mut self.ports[flight.unit as usize];
        let (DriverOp::Next(tag, _) | DriverOp::Take(tag, _)) = &flight.op else {
            unreachable!("an operation of a port")
        };
        let stage = port.stage(*tag);
        let payload = match (std::mem::replace(stage, SimTagStage::New), flight.op) {
            (SimTagStage::Coming(_, asked), DriverOp::Next(..)) => {
                let request = asked.request;
                *stage = SimTagStage::Holds(asked);
                Payload::Request(request)
            }
            (SimTagStage::Taking(asked), DriverOp::Take(_, mut buf)) => {
                buf.copy_from_slice(&asked.data);
                *stage = SimTagStage::Taken(asked);
                Payload::Buf(buf)
            }
            _ => unreachable!("a tag has one operation at a time"),
        };
        let seat = flight.shard as usize;
        self.complete(seat, flight.number, flight.token, Ok(0), payload);
    }

    /// Closes a port for its holder: tags that wait for a request end.
    pub(crate) fn close_port(&mut self, unit: u32) {
        let port = &mut self.ports[unit as usize];
        if !std::mem::replace(&mut port.open, false) {
            return;
        }
        let target = port.target;
        let ends = port.tags.iter().filter_map(|stage| match stage {
            SimTagStage::Waiting(id) | SimTagStage::Coming(id, _) => Some(*id),
            _ => None,
        });
        let ends: Vec<FlightId> = ends.collect();
        self.ledger.record(TraceEvent::Close { target });
        for id in ends {
            self.end(id, Err(gone()));
        }
    }

    /// Every port is open again, for the shards of a new boot.
    pub(crate) fn reset_ports(&mut self) {
        for port in &mut self.ports {
            port.reissue();
            port.open = true;
        }
    }
}
