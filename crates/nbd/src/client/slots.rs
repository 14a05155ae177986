//! Requests in flight and the waiter of each.
//!
//! Invariants:
//!   - a cookie is used for one request, so a late or repeated reply is noticed;
//!   - a buffer stays in its slot until the request has ended, even if its waiter
//!     has gone.

use crate::protocol::coverage::Coverage;
use crate::protocol::errno::Errno;
use crate::protocol::replies::{PendingCookie, ReplyEvent, Violation, Wants};
use crate::protocol::request::WireRequest;
use crate::protocol::wire::{cmd, cmd_flag};
use block::{Buf, IoError, SharedBuf};
use std::task::{Context, Poll, Waker};

/// Extents kept of one answer; the rest is asked for again.
const EXTENTS_MAX: usize = 4096;

/// A request and its data.
pub(super) struct SlotRequest {
    cmd: u16,
    flags: u16,
    offset: u64,
    len: u32,
    /// Filled by a read.
    pub(super) buf: Option<Buf>,
    /// Sent by a write.
    pub(super) payload: Option<SharedBuf>,
    /// The request fails if its connection is lost.
    pub(super) once: bool,
}

impl SlotRequest {
    pub(super) fn new(cmd: u16, flags: u16, offset: u64, len: u32) -> SlotRequest {
        SlotRequest {
            cmd,
            flags,
            offset,
            len,
            buf: None,
            payload: None,
            once: false,
        }
    }

    /// The request in the form of the wire.
    pub(super) fn request(&self, cookie: u64) -> WireRequest {
        WireRequest {
            flags: self.flags,
            cmd: self.cmd,
            cookie,
            offset: self.offset,
            len: self.len,
        }
    }

    fn is_change(&self) -> bool {
        matches!(self.cmd, cmd::WRITE | cmd::WRITE_ZEROES | cmd::TRIM)
    }

    fn is_volatile_change(&self) -> bool {
        self.flags & cmd_flag::FUA == 0 && self.is_change()
    }

    fn pending(&self) -> PendingCookie {
        let wants = match self.cmd {
            cmd::READ => Wants::Data,
            cmd::BLOCK_STATUS => Wants::Extents,
            _ => Wants::Nothing,
        };
        PendingCookie {
            wants,
            offset: self.offset,
            len: self.len,
        }
    }
}

/// Reason for the failure of a request.
pub(super) enum RequestFailure {
    /// The connection ended first: the request may or may not have been carried out.
    Lost,
    /// The request was answered, or given up, with this error.
    Reported(IoError),
}

/// A request and its outcome.
pub(super) struct SlotAnswer {
    pub(super) ask: SlotRequest,
    pub(super) extents: Vec<(u32, u32)>,
    pub(super) outcome: Result<(), RequestFailure>,
}

struct SlotInFlight {
    ask: SlotRequest,
    coverage: Coverage,
    extents: Vec<(u32, u32)>,
    error: Option<IoError>,
    outcome: Option<Result<(), RequestFailure>>,
    waker: Option<Waker>,
    abandoned: bool,
}

#[derive(Default)]
struct ClientSlot {
    uses: u32,
    in_flight: Option<SlotInFlight>,
}

/// The requests of one connection after the other.
pub(super) struct ClientSlots {
    slots: Vec<ClientSlot>,
    free: Vec<u32>,
    acknowledged: u64,
}

impl ClientSlots {
    pub(super) fn new(n: u32) -> ClientSlots {
        ClientSlots {
            slots: (0..n).map(|_| ClientSlot::default()).collect(),
            free: (0..n).rev().collect(),
            acknowledged: 0,
        }
    }

    /// Changes that were acknowledged and that only a flush makes durable.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Requests that have not ended.
    pub(super) fn in_flight(&self) -> usize {
        let waiting = |s: &&ClientSlot| s.in_flight.as_ref().is_some_and(|i| i.outcome.is_none());
        self.slots.iter().filter(waiting).count()
    }

    /// True while changes without a waiter are in flight.
    pub(super) fn has_abandoned_changes(&self) -> bool {
        let mut in_flight = self.slots.iter().filter_map(|s| s.in_flight.as_ref());
        in_flight.any(|i| i.abandoned && i.ask.is_change())
    }

    /// Keeps `ask` until its answer; returns the cookie for its request.
    pub(super) fn begin(&mut self, ask: SlotRequest) -> u64 {
        let index = self.free.pop().expect("the caller waits for a free slot");
        let slot = &mut self.slots[index as usize];
        slot.uses = slot.uses.wrapping_add(1);
        slot.in_flight = Some(SlotInFlight {
            ask,
            coverage: Coverage::default(),
            extents: Vec::new(),
            error: None,
            outcome: None,
            waker: None,
            abandoned: false,
        });
        u64::from(slot.uses) << 32 | u64::from(index)
    }

    fn find(&self, cookie: u64) -> Option<&SlotInFlight> {
        let slot = self.slots.get(cookie as u32 as usize)?;
        let current = u64::from(slot.uses) == cookie >> 32;
        slot.in_flight
            .as_ref()
            .filter(|i| current && i.outcome.is_none())
    }

    fn slot(&mut self, cookie: u64) -> &mut SlotInFlight {
        let slot = &mut self.slots[cookie as u32 as usize];
        slot.in_flight.as_mut().expect("a request in flight")
    }

    fn free(&mut self, cookie: u64) -> SlotInFlight {
        let index = cookie as u32;
        self.free.push(index);
        let slot = &mut self.slots[index as usize];
        slot.in_flight.take().expect("a request in flight")
    }

    /// The request under a cookie, for [`crate::protocol::replies`].
    pub(super) fn pending(&self, cookie: u64) -> Option<PendingCookie> {
        self.find(cookie).map(|i| i.ask.pending())
    }

    /// Takes a part of an answer. True if the server is ending.
    pub(super) fn take(&mut self, event: ReplyEvent<'_>) -> Result<bool, Violation> {
        match event {
            ReplyEvent::Data { cookie, at, bytes } => {
                self.cover(cookie, at, bytes.len())?.copy_from_slice(bytes);
            }
            ReplyEvent::Hole { cookie, at, len } => self.cover(cookie, at, len as usize)?.fill(0),
            ReplyEvent::Extent {
                cookie, len, flags, ..
            } => {
                let extents = &mut self.slot(cookie).extents;
                if extents.len() < EXTENTS_MAX {
                    extents.push((len, flags));
                }
            }
            ReplyEvent::Error {
                cookie,
                code,
                message,
            } => {
                let errno = Errno::from_code(code);
                let what = if message.is_empty() {
                    format!("the NBD server answered with error {code}; see its log")
                } else {
                    format!("the NBD server answered with error {code}: {message}; see its log")
                };
                let error = IoError::new(errno.kind(), what);
                self.slot(cookie).error.get_or_insert(error);
                return Ok(errno == Errno::Shutdown);
            }
            ReplyEvent::End { cookie } => {
                let slot = self.slot(cookie);
                let changes = slot.error.is_none() && slot.ask.is_volatile_change();
                let outcome = match slot.error.take() {
                    Some(error) => Err(RequestFailure::Reported(error)),
                    None => slot.check_whole().map(|()| Ok(()))?,
                };
                self.acknowledged += u64::from(changes);
                self.end(cookie, outcome);
            }
        }
        Ok(false)
    }

    /// The place for `len` bytes of a read, which nothing has filled yet.
    fn cover(&mut self, cookie: u64, at: u32, len: usize) -> Result<&mut [u8], Violation> {
        let slot = self.slot(cookie);
        slot.coverage
            .add(at, len as u32)
            .map_err(|_| "pieces of a read that overlap or are too scattered")?;
        let buf = slot.ask.buf.as_mut().expect("a read has a buffer");
        Ok(&mut buf[at as usize..][..len])
    }

    fn end(&mut self, cookie: u64, outcome: Result<(), RequestFailure>) {
        let slot = self.slot(cookie);
        if slot.abandoned {
            self.free(cookie);
            return;
        }
        slot.outcome = Some(outcome);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }

    /// Ends all requests in flight: the connection is gone.
    pub(super) fn lose(&mut self) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let cookie = u64::from(slot.uses) << 32 | index as u64;
            if self.find(cookie).is_some() {
                self.end(cookie, Err(RequestFailure::Lost));
            }
        }
    }

    /// The answer, once there is one; the slot is then free.
    pub(super) fn poll(&mut self, cookie: u64, cx: &mut Context<'_>) -> Poll<SlotAnswer> {
        let slot = self.slot(cookie);
        if slot.outcome.is_none() {
            slot.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let ended = self.free(cookie);
        Poll::Ready(SlotAnswer {
            ask: ended.ask,
            extents: ended.extents,
            outcome: ended.outcome.expect("checked above"),
        })
    }

    /// Marks a request as having no waiter.
    pub(super) fn abandon(&mut self, cookie: u64) {
        let slot = self.slot(cookie);
        if slot.outcome.is_some() {
            self.free(cookie);
        } else {
            slot.abandoned = true;
        }
    }
}

impl SlotInFlight {
    fn check_whole(&self) -> Result<(), Violation> {
        let whole = match self.ask.pending().wants {
            Wants::Data => self.coverage.is_whole(self.ask.len),
            Wants::Extents => !self.extents.is_empty(),
            Wants::Nothing => true,
        };
        if whole {
            Ok(())
        } else {
            Err("an answer that claims success and leaves out a part")
        }
    }
}
