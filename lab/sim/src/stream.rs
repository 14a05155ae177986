//! Byte streams: listeners, and connections from their beginning to their end.
//!
//! End `2n` of connection `n` is the one that connected, `2n+1` the one that
//! accepted; end `e` sends into pipe `e` and receives from pipe `e ^ 1`.
//!
//! A closed connection delivers the bytes sent before, then its end; the
//! other end's sends fail once the close has arrived there. Closing never loses bytes in
//! flight, as a TCP reset can; a cut connection ([`crate::StreamEffect`]) does.
//! A shard that loses its power breaks its connections: its peers need no
//! timeout to notice.
//!
//! Not here: the movement of bytes (`pipe`).

use crate::fault::{Direction, FaultClass, StreamRule};
use crate::flight::{FlightId, SimOperation};
use crate::operation::{is_disk_op, unknown};
use crate::pipe::{Pipe, PipeSend};
use crate::plan::check_span;
use crate::rng::SimRng;
use crate::service::ServiceSpan;
use crate::trace_hash::{TraceEvent, ends};
use crate::verb::SimVerb;
use crate::world::{self, SimTarget, SimWorld};
use block::{Address, DriverOp, IoError, IoErrorKind, IoResult, Nanos, TargetId, Token};
use std::collections::VecDeque;

/// Properties of the connections of a listener.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkSpec {
    /// The time from one end to the other, drawn for each piece; pieces do not
    /// overtake each other.
    pub latency: ServiceSpan,
    /// Each way.
    pub bytes_per_sec: u64,
    /// The bytes that each way holds: in flight, or arrived and not received.
    pub buffer_bytes: u32,
    /// The probability that a transfer moves fewer bytes than possible.
    pub split: f64,
}

impl LinkSpec {
    /// 10 to 30 microseconds, 10 Gbit/s, 64 KiB each way, one transfer in four
    /// in pieces.
    pub fn local() -> LinkSpec {
        LinkSpec {
            latency: ServiceSpan {
                min: Nanos::from_micros(10),
                max: Nanos::from_micros(30),
            },
            bytes_per_sec: 1_250_000_000,
            buffer_bytes: 64 << 10,
            split: 0.25,
        }
    }
}

/// A stream event that will happen.
#[derive(Clone, Copy)]
pub(crate) enum StreamEvent {
    /// A connection request reaches the listener, or where one might be.
    Knock { connect: FlightId, listener: u32 },
    /// The answer reaches the end that connects.
    Answer { connect: FlightId, end: Option<u32> },
    /// Bytes reach the receiving end.
    Arrive { pipe: u32, bytes: u32 },
    /// The receiving end learns that no more will come.
    Fin { pipe: u32 },
    /// The sending end learns that its peer no longer receives.
    Reset { pipe: u32 },
    /// A stalled pipe continues.
    Resume { pipe: u32 },
    /// A connection breaks.
    Break { pipe: u32 },
}

const NO_LISTENER: u32 = u32::MAX;
/// Connections that wait to be accepted; more are refused. Linux's default for
/// `listen` in most servers.
const BACKLOG_MAX: usize = 128;

pub(crate) struct SimListener {
    target: TargetId,
    address: Address,
    link: LinkSpec,
    open: bool,
    accepting: VecDeque<FlightId>,
    /// Ends that wait to be accepted.
    backlog: VecDeque<u32>,
}

pub(crate) struct StreamEnd {
    pub target: TargetId,
    /// The end's holder; none while the end waits to be accepted.
    seat: Option<usize>,
    pub link: LinkSpec,
    pub receiving: Option<FlightId>,
    pub sending: Option<PipeSend>,
    pub closed: bool,
}

pub(crate) struct SimStreams {
    listeners: Vec<SimListener>,
    pub ends: Vec<StreamEnd>,
    pub pipes: Vec<Pipe>,
    pub rules: Vec<StreamRule>,
    pub rng: SimRng,
}

impl SimStreams {
    pub fn new(rng: SimRng) -> SimStreams {
        SimStreams {
            listeners: Vec::new(),
            ends: Vec::new(),
            pipes: Vec::new(),
            rules: Vec::new(),
            rng,
        }
    }

    pub fn next_listener(&self) -> u32 {
        self.listeners.len() as u32
    }

    /// Refuses a second listener at an address, and an impossible link.
    pub fn check(&self, address: &Address, link: &LinkSpec) -> IoResult {
        let invalid = |what| {
            Err(IoError::new(
                IoErrorKind::Invalid,
                format!("{address:?}: {what}"),
            ))
        };
        if self.listeners.iter().any(|l| l.address == *address) {
            return invalid("taken by another listener; choose another address");
        }
        if link.bytes_per_sec == 0 || link.buffer_bytes == 0 {
            return invalid("a link without bandwidth or buffer; give it some");
        }
        if !(0.0..=1.0).contains(&link.split) {
            return invalid("splits are a probability; use a number from 0 to 1");
        }
        check_span(link.latency, "a link's latency")
    }

    /// The target of a waiting operation, for people.
    pub fn describe(&self, op: &DriverOp, unit: u32) -> String {
        match op {
            DriverOp::Accept => format!("{:?}", self.listeners[unit as usize].address),
            DriverOp::Connect(address) => format!("{address:?}"),
            DriverOp::Next(tag, _) | DriverOp::Take(tag, _) => format!("tag {} of a port", tag.0),
            _ => format!("stream {}", self.ends[unit as usize].target.0),
        }
    }

    pub fn add_listener(&mut self, target: TargetId, address: Address, link: LinkSpec) {
        self.listeners.push(SimListener {
            target,
            address,
            link,
            open: true,
            accepting: VecDeque::new(),
            backlog: VecDeque::new(),
        });
    }
}

pub(crate) fn stream_error(what: &'static str) -> IoError {
    IoError::new(IoErrorKind::Stream, what)
}

impl SimWorld {
    pub(crate) fn submit_to_stream(
        &mut self,
        seat: usize,
        token: Token,
        target: TargetId,
        number: u64,
        op: DriverOp,
    ) {
        let verb = SimVerb::of(&op);
        let len = match &op {
            DriverOp::Recv(buf) => buf.len() as u64,
            DriverOp::Send(parts) => parts.iter().map(|p| p.len() as u64).sum(),
            _ => 0,
        };
        self.ledger.record(TraceEvent::Submit {
            op: number,
            shard: self.seats[seat].shard,
            target,
            verb,
            start: 0,
            len,
        });
        if let DriverOp::Send(parts) = &op {
            for part in parts {
                let ends = ends(part);
                self.ledger.record(TraceEvent::Data { op: number, ends });
            }
        }
        let unit = match (&op, self.targets.get(target.0 as usize)) {
            (DriverOp::Connect(_), None) if target == TargetId::NONE => Ok(0),
            (DriverOp::Accept, Some(SimTarget::Listener(listener))) => Ok(*listener),
            (DriverOp::Recv(buf), Some(SimTarget::End(end))) if !buf.is_empty() => Ok(*end),
            (DriverOp::Send(_), Some(SimTarget::End(end))) => Ok(*end),
            (_, None) => Err(unknown(target)),
            _ => Err(IoError::new(
                IoErrorKind::Invalid,
                "an operation that its target has not",
            )),
        };
        let unit = match unit {
            Ok(unit) => unit,
            Err(error) => {
                self.complete(seat, number, token, Err(error), op.into_payload());
                return;
            }
        };
        let address = match &op {
            DriverOp::Connect(address) => Some(address.clone()),
            _ => None,
        };
        let id = self.flights.insert(SimOperation {
            shard: seat as u32,
            unit,
            token,
            number,
            op,
            strike: crate::fault::FaultStrike::NONE,
            covers: 0,
            answered: false,
        });
        match (verb, address) {
            (_, Some(address)) => self.connect(id, &address),
            (SimVerb::Accept, _) => self.accept(id, unit),
            (SimVerb::Recv, _) => self.begin_recv(id, unit),
            _ => self.begin_send(id, unit),
        }
    }

    pub(crate) fn stream_event(&mut self, due: StreamEvent) {
        match due {
            StreamEvent::Knock { connect, listener } => self.knock(connect, listener),
            StreamEvent::Answer { connect, end } => self.answer(connect, end),
            StreamEvent::Arrive { pipe, bytes } => self.arrive(pipe, bytes),
            StreamEvent::Fin { pipe } => {
                self.streams.pipes[pipe as usize].ended = true;
                self.receive(pipe ^ 1);
            }
            StreamEvent::Reset { pipe } => {
                self.streams.pipes[pipe as usize].broken = true;
                self.fail_send(pipe, "the other end has closed the stream");
            }
            StreamEvent::Resume { pipe } => self.resume(pipe),
            StreamEvent::Break { pipe } => self.break_pipes(pipe),
        }
    }

    pub(crate) fn later(&mut self, span: Nanos, due: StreamEvent) {
        self.push(self.ledger.now + span, world::WorldEvent::Stream(due));
    }

    pub(crate) fn latency(&mut self, link: LinkSpec) -> Nanos {
        link.latency.draw(&mut self.streams.rng)
    }

    fn connect(&mut self, connect: FlightId, address: &Address) {
        let listeners = &self.streams.listeners;
        let listener = listeners.iter().position(|l| l.address == *address);
        let link = listener.map_or(LinkSpec::local(), |l| listeners[l].link);
        let span = self.latency(link);
        let listener = listener.map_or(NO_LISTENER, |l| l as u32);
        self.later(span, StreamEvent::Knock { connect, listener });
    }

    fn knock(&mut self, connect: FlightId, index: u32) {
        if self.flights.get(connect).is_none() {
            return;
        }
        let listener = self.streams.listeners.get(index as usize);
        let open = listener.is_some_and(|l| l.open && l.backlog.len() < BACKLOG_MAX);
        let link = listener.map_or(LinkSpec::local(), |l| l.link);
        let end = open.then(|| {
            let client = self.add_connection(link);
            let listener = &mut self.streams.listeners[index as usize];
            listener.backlog.push_back(client + 1);
            client
        });
        let span = self.latency(link);
        self.later(span, StreamEvent::Answer { connect, end });
        if open {
            self.match_accepts(index);
        }
    }

    fn answer(&mut self, connect: FlightId, end: Option<u32>) {
        let Some(flight) = self.flights.get(connect) else {
            // The shard that asked is dead.
            if let Some(end) = end {
                self.break_pipes(end);
            }
            return;
        };
        let Some(end) = end else {
            let error = stream_error("connection refused: nobody listens, or too many wait");
            self.end(connect, Err(error));
            return;
        };
        let seat = flight.shard as usize;
        let target = self.streams.ends[end as usize].target;
        self.streams.ends[end as usize].seat = Some(seat);
        self.end(connect, Ok(u64::from(target.0)));
    }

    /// A new connection; the end that connects.
    fn add_connection(&mut self, link: LinkSpec) -> u32 {
        let client = self.streams.ends.len() as u32;
        for end in [client, client + 1] {
            let target = self.add_target(SimTarget::End(end));
            self.streams.ends.push(StreamEnd {
                target,
                seat: None,
                link,
                receiving: None,
                sending: None,
                closed: false,
            });
            let direction = match end == client {
                true => Direction::ToListener,
                false => Direction::FromListener,
            };
            let number = u64::from(client / 2);
            let here = |r: &&StreamRule| {
                r.direction == direction && r.connection.is_none_or(|c| c == number)
            };
            let rules = self.streams.rules.iter().filter(here);
            let mut faults: Vec<_> = rules.map(|r| (r.byte, r.effect)).collect();
            faults.sort_by_key(|(byte, _)| *byte);
            self.streams.pipes.push(Pipe {
                faults: faults.into(),
                ..Pipe::default()
            });
        }
        self.strike_pipe(client);
        self.strike_pipe(client + 1);
        client
    }

    fn accept(&mut self, id: FlightId, listener: u32) {
        if !self.streams.listeners[listener as usize].open {
            self.end(id, Err(stream_error("the listener is closed")));
            return;
        }
        let accepting = &mut self.streams.listeners[listener as usize].accepting;
        accepting.push_back(id);
        self.match_accepts(listener);
    }

    fn match_accepts(&mut self, listener: u32) {
        loop {
            let listener = &mut self.streams.listeners[listener as usize];
            let flights = &self.flights;
            listener.accepting.retain(|id| flights.get(*id).is_some());
            let (Some(&id), Some(&end)) = (listener.accepting.front(), listener.backlog.front())
            else {
                return;
            };
            listener.accepting.pop_front();
            listener.backlog.pop_front();
            let seat = self.flights.get(id).expect("retained").shard as usize;
            let accepted = &mut self.streams.ends[end as usize];
            accepted.seat = Some(seat);
            let target = accepted.target;
            self.end(id, Ok(u64::from(target.0)));
        }
    }

    pub(crate) fn break_stream(&mut self, target: TargetId) {
        if let Some(SimTarget::End(end)) = self.targets.get(target.0 as usize) {
            let end = *end;
            let sent = self.streams.pipes[end as usize].sent;
            self.ledger.strike(FaultClass::StreamCut, target, sent);
            self.break_pipes(end);
        }
    }

    pub(crate) fn release_stream(&mut self, target: TargetId) {
        if let Some(SimTarget::End(end)) = self.targets.get(target.0 as usize) {
            let end = *end;
            self.resume(end);
            self.resume(end ^ 1);
        }
    }

    /// True if the end at the other side of `target` has closed, as far as is known here.
    pub(crate) fn peer_closed(&self, target: TargetId) -> bool {
        let Some(SimTarget::End(end)) = self.targets.get(target.0 as usize) else {
            return false;
        };
        let incoming = &self.streams.pipes[(*end ^ 1) as usize];
        incoming.ended || incoming.broken
    }

    /// The holder closes a stream, listener or port.
    pub(crate) fn close(&mut self, target: TargetId) {
        match self.targets.get(target.0 as usize) {
            Some(SimTarget::Listener(listener)) => {
                let listener = *listener;
                self.close_listener(listener);
            }
            Some(SimTarget::End(end)) => {
                let end = *end;
                self.close_end(end);
            }
            Some(SimTarget::Port(port)) => {
                let port = *port;
                self.close_port(port);
            }
            _ => {}
        }
    }

    fn close_listener(&mut self, index: u32) {
        let listener = &mut self.streams.listeners[index as usize];
        if !std::mem::replace(&mut listener.open, false) {
            return;
        }
        let accepting = std::mem::take(&mut listener.accepting);
        let backlog = std::mem::take(&mut listener.backlog);
        let target = listener.target;
        self.ledger.record(TraceEvent::Close { target });
        for id in accepting {
            self.end(id, Err(stream_error("the listener is closed")));
        }
        for end in backlog {
            self.break_pipes(end);
        }
    }

    fn close_end(&mut self, end: u32) {
        let it = &mut self.streams.ends[end as usize];
        if std::mem::replace(&mut it.closed, true) {
            return;
        }
        let (target, link, receiving) = (it.target, it.link, it.receiving.take());
        self.ledger.record(TraceEvent::Close { target });
        if let Some(id) = receiving {
            self.end(id, Err(stream_error("the stream is closed")));
        }
        self.fail_send(end, "the stream is closed");
        self.streams.pipes[end as usize].closing = true;
        self.announce_end(end);
        let incoming = &mut self.streams.pipes[(end ^ 1) as usize];
        incoming.deaf = true;
        incoming.bytes.drain(..incoming.arrived);
        incoming.arrived = 0;
        incoming.bytes.shrink_to_fit();
        let span = self.latency(link);
        self.later(span, StreamEvent::Reset { pipe: end ^ 1 });
        self.pump(end ^ 1);
    }

    /// The streams of shards that have died break, and their operations vanish.
    pub(crate) fn cut_dead_streams(&mut self) {
        let dead: Vec<FlightId> = self
            .flights
            .iter()
            .filter(|(_, f)| !is_disk_op(&f.op) && !self.seats[f.shard as usize].live)
            .map(|(id, _)| id)
            .collect();
        for id in dead {
            self.flights.remove(id);
        }
        for end in 0..self.streams.ends.len() as u32 {
            let seat = self.streams.ends[end as usize].seat;
            let broken = self.streams.pipes[end as usize].broken;
            if !broken && seat.is_some_and(|s| !self.seats[s].live) {
                self.break_pipes(end);
            }
        }
    }

    /// No stream outlives a boot; every listener is open again.
    pub(crate) fn reset_streams(&mut self) {
        self.cut_dead_streams();
        for listener in 0..self.streams.listeners.len() as u32 {
            self.close_listener(listener);
            self.streams.listeners[listener as usize].open = true;
        }
    }
}
