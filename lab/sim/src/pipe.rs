//! Movement of bytes through the pipes of connections, with faults.
//!
//! Invariants, for each pipe:
//!     bytes received are the bytes sent, in order, none twice
//!     sent and not yet received <= the link's buffer; a send waits for room
//!     a receive returns at least one byte; the number of further bytes is drawn by seed
//!
//! Not here: the begin and end of connections (`stream`).

use crate::fault::{FaultClass, StreamEffect};
use crate::flight::FlightId;
use crate::stream::{LinkSpec, SimStreams, StreamEvent, stream_error};
use crate::trace_hash::TraceEvent;
use crate::world::{self, SimWorld};
use block::{DriverOp, IoError, IoErrorKind, Nanos};
use std::collections::VecDeque;

/// Progress of a send.
#[derive(Clone, Copy)]
pub(crate) struct PipeSend {
    pub id: FlightId,
    pub part: usize,
    pub byte: usize,
}

#[derive(Default)]
pub(crate) struct Pipe {
    /// Sent and not received; the first `arrived` can be received.
    pub bytes: VecDeque<u8>,
    pub arrived: usize,
    pub sent: u64,
    pub received: u64,
    /// Times at which the line is free to carry more, and at which its present bytes arrive.
    pub free_at: Nanos,
    pub arrives_at: Nanos,
    /// Faults to come, by byte; the first is the next.
    pub faults: VecDeque<(u64, StreamEffect)>,
    /// Places that no receive may span.
    pub splits: VecDeque<u64>,
    pub stalled: bool,
    pub breaking: bool,
    pub broken: bool,
    /// The sender has closed; true once the receiver has been notified.
    pub closing: bool,
    pub ended: bool,
    pub deaf: bool,
}

impl SimStreams {
    /// Number of bytes, of at most `most`, that a transfer moves.
    fn piece(&mut self, most: usize, split: f64) -> usize {
        if most > 1 && self.rng.chance(split) {
            return self.rng.between(1, most as u64) as usize;
        }
        most
    }
}

impl SimWorld {
    pub(crate) fn begin_recv(&mut self, id: FlightId, end: u32) {
        let it = &mut self.streams.ends[end as usize];
        if it.closed {
            self.end(id, Err(stream_error("the stream is closed")));
        } else if it.receiving.is_some() {
            let what = "a second receive on one stream";
            self.end(id, Err(IoError::new(IoErrorKind::Invalid, what)));
        } else {
            it.receiving = Some(id);
            self.receive(end);
        }
    }

    /// Completes the receive that waits at `end`, if possible.
    pub(crate) fn receive(&mut self, end: u32) {
        let pipe = (end ^ 1) as usize;
        let Some(id) = self.streams.ends[end as usize].receiving else {
            return;
        };
        let split = self.streams.ends[end as usize].link.split;
        let Some(flight) = self.flights.get_mut(id) else {
            self.streams.ends[end as usize].receiving = None;
            return;
        };
        let DriverOp::Recv(buf) = &mut flight.op else {
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
            let (first, second) = state.bytes.as_slices();
            let (to_first, to_second) = buf[..len].split_at_mut(len.min(first.len()));
            to_first.copy_from_slice(&first[..to_first.len()]);
            to_second.copy_from_slice(&second[..to_second.len()]);
            state.bytes.drain(..len);
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

    pub(crate) fn begin_send(&mut self, id: FlightId, end: u32) {
        let it = &mut self.streams.ends[end as usize];
        if it.closed {
            self.end(id, Err(stream_error("the stream is closed")));
        } else if it.sending.is_some() {
            let what = "a second send on one stream";
            self.end(id, Err(IoError::new(IoErrorKind::Invalid, what)));
        } else {
            it.sending = Some(PipeSend {
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

    /// Moves bytes of the send that waits at `end` into its pipe, as far as there is room.
    pub(crate) fn pump(&mut self, end: u32) {
        while let Some(sending) = self.streams.ends[end as usize].sending {
            let Some(flight) = self.flights.get(sending.id) else {
                self.streams.ends[end as usize].sending = None;
                return;
            };
            let DriverOp::Send(parts) = &flight.op else {
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
            self.streams.ends[end as usize].sending = Some(PipeSend {
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
        self.push(
            at,
            world::WorldEvent::Stream(StreamEvent::Arrive { pipe, bytes }),
        );
    }

    pub(crate) fn arrive(&mut self, pipe: u32, bytes: u32) {
        let stream = self.streams.ends[(pipe ^ 1) as usize].target;
        let state = &mut self.streams.pipes[pipe as usize];
        if state.broken {
            return;
        }
        self.ledger.record(TraceEvent::Arrive {
            stream,
            bytes: u64::from(bytes),
        });
        state.arrived += bytes as usize;
        if state.deaf {
            state.bytes.drain(..state.arrived);
            state.received += state.arrived as u64;
            state.arrived = 0;
            state.bytes.shrink_to_fit();
            self.pump(pipe);
        } else {
            self.receive(pipe ^ 1);
        }
    }

    /// Lets the faults that wait at the byte a pipe has reached take effect.
    pub(crate) fn strike_pipe(&mut self, pipe: u32) {
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
                    self.ledger.strike(FaultClass::StreamSplit, target, byte);
                }
                StreamEffect::Cut => {
                    state.breaking = true;
                    let at = state.arrives_at.max(self.ledger.now);
                    self.ledger.strike(FaultClass::StreamCut, target, byte);
                    // After the bytes before the cut, which are due by then.
                    let at = at + Nanos(1);
                    self.push(at, world::WorldEvent::Stream(StreamEvent::Break { pipe }));
                }
                StreamEffect::Stall(span) => {
                    state.stalled = true;
                    self.ledger.strike(FaultClass::StreamStalled, target, byte);
                    if let Some(span) = span {
                        self.later(span, StreamEvent::Resume { pipe });
                    }
                }
            }
        }
    }

    pub(crate) fn resume(&mut self, pipe: u32) {
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

    pub(crate) fn fail_send(&mut self, end: u32, what: &'static str) {
        if let Some(sending) = self.streams.ends[end as usize].sending.take() {
            self.end(sending.id, Err(stream_error(what)));
        }
    }

    /// Breaks both ways of the connection of `end`. Arrived bytes can still be received.
    pub(crate) fn break_pipes(&mut self, end: u32) {
        for pipe in [end, end ^ 1] {
            let state = &mut self.streams.pipes[pipe as usize];
            state.broken = true;
            state.bytes.truncate(state.arrived);
            self.fail_send(pipe, "the connection is broken");
        }
        self.receive(end);
        self.receive(end ^ 1);
    }

    /// Signals to the receiving end, after all that was sent, that no more will come.
    pub(crate) fn announce_end(&mut self, pipe: u32) {
        let latency = self.latency(self.streams.ends[pipe as usize].link);
        let state = &self.streams.pipes[pipe as usize];
        if !state.stalled {
            let at = state.arrives_at.max(self.ledger.now + latency) + Nanos(1);
            self.push(at, world::WorldEvent::Stream(StreamEvent::Fin { pipe }));
        }
    }
}
