//! Byte streams: listeners, connections, and the two pipes of each connection.
//!
//! Invariants, for each pipe:
//!     bytes received are the bytes sent, in order, none twice
//!     sent and not yet received <= the link's buffer; a send waits for room
//!     a receive returns at least one byte, and how many more is drawn by seed
//!
//! End `2n` of connection `n` is the one that connected, `2n+1` the one that
//! accepted; end `e` sends into pipe `e` and receives from pipe `e ^ 1`.
//!
//! A connection that is closed delivers what was sent before, then its end; the
//! other end's sends fail once it has heard. Closing never loses bytes in
//! flight, as a TCP reset can; a cut connection ([`crate::StreamEffect`]) does.

use crate::disk::Span;
use crate::fault::{Class, Direction, StreamEffect, StreamRule};
use crate::flight::{Flight, FlightId};
use crate::plan::check_span;
use crate::rng::Rng;
use crate::trace_hash::{Event, Verb, ends};
use crate::world::{self, Target, World, is_disk_op, payload_of, unknown};
use block::{Address, IoError, IoResult, Kind, Nanos, Op, TargetId, Token};
use std::collections::VecDeque;

/// How the connections of a listener carry bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkSpec {
    /// The time from one end to the other, drawn for each piece; pieces do not
    /// overtake each other.
    pub latency: Span,
    /// Each way.
    pub bytes_per_sec: u64,
    /// The bytes that each way holds: in flight, or arrived and not received.
    pub buffer_bytes: u32,
    /// The probability that a transfer moves less than it could.
    pub split: f64,
}

impl LinkSpec {
    /// 10 to 30 microseconds, 10 Gbit/s, 64 KiB each way, one transfer in four
    /// in pieces.
    pub fn local() -> LinkSpec {
        LinkSpec {
            latency: Span {
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
pub(crate) enum Due {
    /// A connection request reaches the listener, or where one might be.
    Knock { connect: FlightId, listener: u32 },
    /// The answer reaches the end that connects.
    Answer { connect: FlightId, end: Option<u32> },
    /// Bytes reach the receiving end.
    Arrive { pipe: u32, bytes: u32 },
    /// The receiving end learns that no more will come.
    Fin { pipe: u32 },
    /// The sending end learns that nobody receives.
    Reset { pipe: u32 },
    /// A stalled pipe goes on.
    Resume { pipe: u32 },
    /// A connection breaks.
    Break { pipe: u32 },
}

const NO_LISTENER: u32 = u32::MAX;
/// Connections that wait to be accepted; more are refused. Linux's default for
/// `listen` in most servers.
const BACKLOG_MAX: usize = 128;

struct Listener {
    target: TargetId,
    address: Address,
    link: LinkSpec,
    open: bool,
    accepting: VecDeque<FlightId>,
    /// Ends that wait to be accepted.
    backlog: VecDeque<u32>,
}

struct End {
    target: TargetId,
    /// Whose it is; none yet while it waits to be accepted.
    seat: Option<usize>,
    link: LinkSpec,
    receiving: Option<FlightId>,
    sending: Option<Sending>,
    closed: bool,
}

/// How far a send has come.
#[derive(Clone, Copy)]
struct Sending {
    id: FlightId,
    part: usize,
    byte: usize,
}

#[derive(Default)]
struct Pipe {
    /// Sent and not received; the first `arrived` can be received.
    bytes: VecDeque<u8>,
    arrived: usize,
    sent: u64,
    received: u64,
    /// When the line is free to carry more, and when what it carries arrives.
    free_at: Nanos,
    arrives_at: Nanos,
    /// Faults to come, by byte; the first is the next.
    faults: VecDeque<(u64, StreamEffect)>,
    /// Places that no receive may span.
    splits: VecDeque<u64>,
    stalled: bool,
    breaking: bool,
    broken: bool,
    /// The sender has closed; true once the receiver has been told.
    closing: bool,
    ended: bool,
    deaf: bool,
}

pub(crate) struct Streams {
    listeners: Vec<Listener>,
    ends: Vec<End>,
    pipes: Vec<Pipe>,
    pub rules: Vec<StreamRule>,
    rng: Rng,
}

impl Streams {
    pub fn new(rng: Rng) -> Streams {
        Streams {
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
        let invalid = |what| Err(IoError::new(Kind::Invalid, format!("{address:?}: {what}")));
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

    pub fn add_listener(&mut self, target: TargetId, address: Address, link: LinkSpec) {
        self.listeners.push(Listener {
            target,
            address,
            link,
            open: true,
            accepting: VecDeque::new(),
            backlog: VecDeque::new(),
        });
    }

    /// How many of `most` bytes a transfer moves.
    fn piece(&mut self, most: usize, split: f64) -> usize {
        if most > 1 && self.rng.chance(split) {
            return self.rng.between(1, most as u64) as usize;
        }
        most
    }
}

fn stream_error(what: &'static str) -> IoError {
    IoError::new(Kind::Stream, what)
}

impl World {
    pub(crate) fn submit_to_stream(
        &mut self,
        seat: usize,
        token: Token,
        target: TargetId,
        number: u64,
        op: Op,
    ) {
        let (verb, len) = match &op {
            Op::Accept => (Verb::Accept, 0),
            Op::Connect(_) => (Verb::Connect, 0),
            Op::Recv(buf) => (Verb::Recv, buf.len() as u64),
            Op::Send(parts) => (Verb::Send, parts.iter().map(|p| p.len() as u64).sum()),
            other if is_disk_op(other) => (Verb::Read, 0),
            _ => (Verb::Flush, 0),
        };
        self.ledger.record(Event::Submit {
            op: number,
            shard: self.seats[seat].shard,
            target,
            verb,
            start: 0,
            len,
        });
        if let Op::Send(parts) = &op {
            for part in parts {
                let ends = ends(part);
                self.ledger.record(Event::Data { op: number, ends });
            }
        }
        let unit = match (&op, self.targets.get(target.0 as usize)) {
            (Op::Connect(_), None) if target == TargetId::NONE => Ok(0),
            (Op::Accept, Some(Target::Listener(listener))) => Ok(*listener),
            (Op::Recv(buf), Some(Target::End(end))) if !buf.is_empty() => Ok(*end),
            (Op::Send(_), Some(Target::End(end))) => Ok(*end),
            (_, None) => Err(unknown(target)),
            _ => Err(IoError::new(
                Kind::Invalid,
                "an operation that its target has not",
            )),
        };
        let unit = match unit {
            Ok(unit) => unit,
            Err(error) => {
                self.complete(seat, number, token, Err(error), payload_of(op));
                return;
            }
        };
        let address = match &op {
            Op::Connect(address) => Some(address.clone()),
            _ => None,
        };
        let id = self.flights.insert(Flight {
            shard: seat as u32,
            unit,
            token,
            number,
            op,
            strike: crate::fault::Strike::NONE,
            covers: 0,
        });
        match (verb, address) {
            (_, Some(address)) => self.connect(id, &address),
            (Verb::Accept, _) => self.accept(id, unit),
            (Verb::Recv, _) => self.begin_recv(id, unit),
            _ => self.begin_send(id, unit),
        }
    }

    pub(crate) fn stream_event(&mut self, due: Due) {
        match due {
            Due::Knock { connect, listener } => self.knock(connect, listener),
            Due::Answer { connect, end } => self.answer(connect, end),
            Due::Arrive { pipe, bytes } => self.arrive(pipe, bytes),
            Due::Fin { pipe } => {
                self.streams.pipes[pipe as usize].ended = true;
                self.receive(pipe ^ 1);
            }
            Due::Reset { pipe } => {
                self.streams.pipes[pipe as usize].broken = true;
                self.fail_send(pipe, "the other end has closed the stream");
            }
            Due::Resume { pipe } => self.resume(pipe),
            Due::Break { pipe } => self.break_pipes(pipe),
        }
    }

    fn later(&mut self, span: Nanos, due: Due) {
        self.push(self.ledger.now + span, world::Due::Stream(due));
    }

    fn latency(&mut self, link: LinkSpec) -> Nanos {
        link.latency.draw(&mut self.streams.rng)
    }

    fn connect(&mut self, connect: FlightId, address: &Address) {
        let listeners = &self.streams.listeners;
        let listener = listeners.iter().position(|l| l.address == *address);
        let link = listener.map_or(LinkSpec::local(), |l| listeners[l].link);
        let span = self.latency(link);
        let listener = listener.map_or(NO_LISTENER, |l| l as u32);
        self.later(span, Due::Knock { connect, listener });
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
        self.later(span, Due::Answer { connect, end });
        if open {
            self.match_accepts(index);
        }
    }

    fn answer(&mut self, connect: FlightId, end: Option<u32>) {
        let Some(flight) = self.flights.get(connect) else {
            // Whoever asked is dead.
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
            let target = self.add_target(Target::End(end));
            self.streams.ends.push(End {
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

    fn begin_recv(&mut self, id: FlightId, end: u32) {
        let it = &mut self.streams.ends[end as usize];
        if it.closed {
            self.end(id, Err(stream_error("the stream is closed")));
        } else if it.receiving.is_some() {
            let what = "a second receive on one stream";
            self.end(id, Err(IoError::new(Kind::Invalid, what)));
        } else {
            it.receiving = Some(id);
            self.receive(end);
        }
    }

    /// Completes the receive that waits at `end`, if it can be.
    fn receive(&mut self, end: u32) {
        let pipe = (end ^ 1) as usize;
        let Some(id) = self.streams.ends[end as usize].receiving else {
            return;
        };
        let split = self.streams.ends[end as usize].link.split;
        let Some(flight) = self.flights.get_mut(id) else {
            self.streams.ends[end as usize].receiving = None;
            return;
        };
        let Op::Recv(buf) = &mut flight.op else {
            unreachable!("a receive");
        };
        let state = &mut self.streams.pipes[pipe];
        let result = if state.arrived > 0 {
            while state.splits.front().is_some_and(|s| *s <= state.received) {
                state.splits.pop_front();
            }
            let before_split = state
                .splits
                .front()
                .map_or(u64::MAX, |s| s - state.received);
            let most = state.arrived.min(buf.len()).min(before_split as usize);
            let len = self.streams.piece(most, split);
            let state = &mut self.streams.pipes[pipe];
            for (to, from) in buf.iter_mut().zip(state.bytes.drain(..len)) {
                *to = from;
            }
            state.arrived -= len;
            state.received += len as u64;
            Ok(len as u64)
        } else if state.broken || state.deaf {
            Err(stream_error("the connection is broken"))
        } else if state.ended {
            Ok(0)
        } else {
            return;
        };
        self.streams.ends[end as usize].receiving = None;
        self.end(id, result);
        self.pump(end ^ 1);
    }

    fn begin_send(&mut self, id: FlightId, end: u32) {
        let it = &mut self.streams.ends[end as usize];
        if it.closed {
            self.end(id, Err(stream_error("the stream is closed")));
        } else if it.sending.is_some() {
            let what = "a second send on one stream";
            self.end(id, Err(IoError::new(Kind::Invalid, what)));
        } else {
            it.sending = Some(Sending {
                id,
                part: 0,
                byte: 0,
            });
            if self.streams.pipes[end as usize].broken {
                self.fail_send(end, "the connection is broken");
            } else {
                self.pump(end);
            }
        }
    }

    /// Moves what it can of the send that waits at `end` into its pipe.
    fn pump(&mut self, end: u32) {
        while let Some(sending) = self.streams.ends[end as usize].sending {
            let Some(flight) = self.flights.get(sending.id) else {
                self.streams.ends[end as usize].sending = None;
                return;
            };
            let Op::Send(parts) = &flight.op else {
                unreachable!("a send");
            };
            let Some(part) = parts.get(sending.part) else {
                self.streams.ends[end as usize].sending = None;
                self.end(sending.id, Ok(0));
                return;
            };
            let link = self.streams.ends[end as usize].link;
            let pipe = &self.streams.pipes[end as usize];
            if pipe.stalled || pipe.breaking || pipe.broken {
                return;
            }
            let room = link.buffer_bytes as usize - pipe.bytes.len();
            let before_fault = pipe.faults.front().map_or(u64::MAX, |f| f.0 - pipe.sent);
            let rest = &part[sending.byte..];
            let most = rest.len().min(room).min(before_fault as usize);
            if most == 0 && !rest.is_empty() {
                return;
            }
            let len = self.streams.piece(most, link.split);
            let pipe = &mut self.streams.pipes[end as usize];
            pipe.bytes.extend(&rest[..len]);
            let next = match len == rest.len() {
                true => (sending.part + 1, 0),
                false => (sending.part, sending.byte + len),
            };
            self.streams.ends[end as usize].sending = Some(Sending {
                part: next.0,
                byte: next.1,
                ..sending
            });
            if len > 0 {
                self.carry(end, len, link);
                self.strike_pipe(end);
            }
        }
    }

    /// Puts `len` bytes onto the line.
    fn carry(&mut self, pipe: u32, len: usize, link: LinkSpec) {
        let now = self.ledger.now;
        let latency = self.latency(link);
        let state = &mut self.streams.pipes[pipe as usize];
        let ns = (len as u128 * 1_000_000_000).div_ceil(u128::from(link.bytes_per_sec));
        state.free_at = state.free_at.max(now) + Nanos(ns as u64);
        state.arrives_at = state.arrives_at.max(state.free_at + latency);
        state.sent += len as u64;
        let at = state.arrives_at;
        let bytes = len as u32;
        self.push(at, world::Due::Stream(Due::Arrive { pipe, bytes }));
    }

    fn arrive(&mut self, pipe: u32, bytes: u32) {
        let stream = self.streams.ends[(pipe ^ 1) as usize].target;
        let state = &mut self.streams.pipes[pipe as usize];
        if state.broken {
            return;
        }
        self.ledger.record(Event::Arrive {
            stream,
            bytes: u64::from(bytes),
        });
        state.arrived += bytes as usize;
        if state.deaf {
            state.bytes.drain(..state.arrived);
            state.received += state.arrived as u64;
            state.arrived = 0;
            self.pump(pipe);
        } else {
            self.receive(pipe ^ 1);
        }
    }

    /// Lets the faults that wait at the byte a pipe has reached take effect.
    fn strike_pipe(&mut self, pipe: u32) {
        let target = self.streams.ends[pipe as usize].target;
        loop {
            let state = &mut self.streams.pipes[pipe as usize];
            let Some(&(byte, effect)) = state.faults.front().filter(|f| f.0 <= state.sent) else {
                return;
            };
            if state.stalled {
                return;
            }
            state.faults.pop_front();
            match effect {
                StreamEffect::Split => {
                    state.splits.push_back(byte);
                    self.ledger.strike(Class::StreamSplit, target, byte);
                }
                StreamEffect::Cut => {
                    state.breaking = true;
                    let at = state.arrives_at.max(self.ledger.now);
                    self.ledger.strike(Class::StreamCut, target, byte);
                    // After the bytes before the cut, which are due by then.
                    let at = at + Nanos(1);
                    self.push(at, world::Due::Stream(Due::Break { pipe }));
                }
                StreamEffect::Stall(span) => {
                    state.stalled = true;
                    self.ledger.strike(Class::StreamStalled, target, byte);
                    if let Some(span) = span {
                        self.later(span, Due::Resume { pipe });
                    }
                }
            }
        }
    }

    fn resume(&mut self, pipe: u32) {
        let state = &mut self.streams.pipes[pipe as usize];
        if !std::mem::replace(&mut state.stalled, false) {
            return;
        }
        self.strike_pipe(pipe);
        self.pump(pipe);
        if self.streams.pipes[pipe as usize].closing {
            self.announce_end(pipe);
        }
    }

    fn fail_send(&mut self, end: u32, what: &'static str) {
        if let Some(sending) = self.streams.ends[end as usize].sending.take() {
            self.end(sending.id, Err(stream_error(what)));
        }
    }

    /// Breaks both ways of the connection of `end`. What has arrived can still
    /// be received.
    fn break_pipes(&mut self, end: u32) {
        for pipe in [end, end ^ 1] {
            let state = &mut self.streams.pipes[pipe as usize];
            state.broken = true;
            state.bytes.truncate(state.arrived);
            self.fail_send(pipe, "the connection is broken");
        }
        self.receive(end);
        self.receive(end ^ 1);
    }

    pub(crate) fn break_stream(&mut self, target: TargetId) {
        if let Some(Target::End(end)) = self.targets.get(target.0 as usize) {
            let end = *end;
            let sent = self.streams.pipes[end as usize].sent;
            self.ledger.strike(Class::StreamCut, target, sent);
            self.break_pipes(end);
        }
    }

    pub(crate) fn release_stream(&mut self, target: TargetId) {
        if let Some(Target::End(end)) = self.targets.get(target.0 as usize) {
            let end = *end;
            self.resume(end);
            self.resume(end ^ 1);
        }
    }

    /// The holder closes a stream or listener.
    pub(crate) fn close(&mut self, target: TargetId) {
        match self.targets.get(target.0 as usize) {
            Some(Target::Listener(listener)) => {
                let listener = *listener;
                self.close_listener(listener);
            }
            Some(Target::End(end)) => {
                let end = *end;
                self.close_end(end);
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
        self.ledger.record(Event::Close { target });
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
        self.ledger.record(Event::Close { target });
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
        let span = self.latency(link);
        self.later(span, Due::Reset { pipe: end ^ 1 });
        self.pump(end ^ 1);
    }

    /// Tells the receiving end, after all that was sent, that no more will come.
    fn announce_end(&mut self, pipe: u32) {
        let latency = self.latency(self.streams.ends[pipe as usize].link);
        let state = &self.streams.pipes[pipe as usize];
        if !state.stalled {
            let at = state.arrives_at.max(self.ledger.now + latency) + Nanos(1);
            self.push(at, world::Due::Stream(Due::Fin { pipe }));
        }
    }

    /// The streams of shards that have died break; their listeners fall silent.
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

    /// No stream outlives a boot; every listener is open anew.
    pub(crate) fn reset_streams(&mut self) {
        self.cut_dead_streams();
        for listener in 0..self.streams.listeners.len() as u32 {
            self.close_listener(listener);
            self.streams.listeners[listener as usize].open = true;
        }
    }
}
