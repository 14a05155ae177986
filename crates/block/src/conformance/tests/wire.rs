//! Byte pipes with one listener, in memory, sound or with one flaw.

use std::collections::VecDeque;

/// Bytes a pipe holds before its sender has to wait.
const WINDOW: usize = 16 << 10;

/// The fault of the streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    None,
    SwapsParts,
    LosesTheTail,
    NeverEnds,
    SendsAfterTheEnd,
    AnyoneAnswers,
    ListensForEver,
    KeepsABuffer,
}

/// One end of a connection: the bytes that have arrived there, and its peer's number.
struct End {
    arrived: VecDeque<u8>,
    peer: usize,
    closed: bool,
}

pub(super) struct Wire {
    pub(super) flaw: Flaw,
    ends: Vec<End>,
    backlog: VecDeque<usize>,
    pub(super) listening: bool,
}

/// The result of an attempt.
pub(super) enum Try<T> {
    Done(T),
    Wait,
    Closed,
}

impl Wire {
    pub(super) fn new(flaw: Flaw) -> Wire {
        Wire {
            flaw,
            ends: Vec::new(),
            backlog: VecDeque::new(),
            listening: true,
        }
    }

    pub(super) fn connect(&mut self, known: bool) -> Try<usize> {
        if !self.listening || !(known || self.flaw == Flaw::AnyoneAnswers) {
            return Try::Closed;
        }
        let here = self.ends.len();
        for peer in [here + 1, here] {
            self.ends.push(End {
                arrived: VecDeque::new(),
                peer,
                closed: false,
            });
        }
        self.backlog.push_back(here + 1);
        Try::Done(here)
    }

    pub(super) fn accept(&mut self) -> Try<usize> {
        match self.backlog.pop_front() {
            Some(end) => Try::Done(end),
            None if self.listening || self.flaw == Flaw::ListensForEver => Try::Wait,
            None => Try::Closed,
        }
    }

    pub(super) fn send(&mut self, end: usize, bytes: &[u8]) -> Try<usize> {
        let peer = self.ends[end].peer;
        let closed = self.ends[end].closed || self.ends[peer].closed;
        if closed && self.flaw != Flaw::SendsAfterTheEnd {
            return Try::Closed;
        }
        let arrived = &mut self.ends[peer].arrived;
        let room = WINDOW.saturating_sub(arrived.len()).min(bytes.len());
        if closed {
            return Try::Done(bytes.len());
        }
        if room == 0 && !bytes.is_empty() {
            return Try::Wait;
        }
        arrived.extend(&bytes[..room]);
        Try::Done(room)
    }

    pub(super) fn recv(&mut self, end: usize, bytes: &mut [u8]) -> Try<usize> {
        let peer = self.ends[end].peer;
        let ended = self.ends[peer].closed && self.flaw != Flaw::NeverEnds;
        if self.ends[end].closed {
            return Try::Closed;
        }
        let arrived = &mut self.ends[end].arrived;
        let len = arrived.len().min(bytes.len());
        for (byte, from) in bytes.iter_mut().zip(arrived.drain(..len)) {
            *byte = from;
        }
        if len == 0 && !ended {
            Try::Wait
        } else {
            Try::Done(len)
        }
    }

    pub(super) fn peer_closed(&self, end: usize) -> bool {
        self.ends[self.ends[end].peer].closed && self.flaw != Flaw::NeverEnds
    }

    pub(super) fn close(&mut self, end: usize) {
        let peer = self.ends[end].peer;
        if self.flaw == Flaw::LosesTheTail && !self.ends[end].closed {
            let arrived = &mut self.ends[peer].arrived;
            arrived.truncate(arrived.len() / 2);
        }
        self.ends[end].closed = true;
    }
}
