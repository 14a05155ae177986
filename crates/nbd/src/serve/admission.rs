//! Bounds on the requests of a connection, and its place.
//!
//! Invariants:
//!     `requests` counts from parsing until the last answer has been sent
//!     the account counts the memory of those requests
//!     a connection whose peer has closed its end has no place any more, though its
//!     requests are still carried out

use super::credit::{Account, Credits};
use super::limits::ServerLimits;
use crate::outbox::SendLoad;
use block::{PAGE_BYTES, Signal};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// The longest piece.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// The receiver of counts given back.
pub(super) trait Release {
    /// Subtracts the count of an answer that was sent, or never will be.
    fn release(&self, load: SendLoad);
}

/// Count of a request that has no job yet; subtracted when dropped.
pub(super) struct Admitted<'a, L: Release> {
    link: &'a L,
    load: SendLoad,
    /// The longest piece that may be carried out at once, in bytes.
    pub(super) piece: u32,
}

impl<L: Release> Admitted<'_, L> {
    /// The memory that was counted.
    pub(super) fn charge(&self) -> u32 {
        self.load.charge
    }

    /// Keeps the count: the answer to the request gives it back.
    pub(super) fn keep(mut self) {
        self.load = SendLoad::default();
    }
}

impl<L: Release> Drop for Admitted<'_, L> {
    fn drop(&mut self) {
        if self.load != SendLoad::default() {
            self.link.release(self.load);
        }
    }
}

/// The longest piece of a request with so much memory: one that is off the blocks takes
/// a buffer for itself and one of twice its size to be merged in.
fn piece(bytes: usize) -> u32 {
    let third = (bytes / 3).clamp(PAGE_BYTES, PIECE_BYTES_MAX);
    1 << third.ilog2()
}

/// Requests within their limits; `P` is a place.
pub(super) struct Admission<P> {
    pub(super) requests_max: u32,
    pub(super) account: Account,
    requests: Cell<u32>,
    pub(super) room: Signal,
    /// The reader of requests waits for room.
    waits: Cell<bool>,
    place: RefCell<Option<P>>,
    /// True when the peer has closed its end.
    peer_closed: RefCell<Option<Box<dyn Fn() -> bool>>>,
}

impl<P> Admission<P> {
    pub(super) fn new(limits: &ServerLimits, credits: &Rc<Credits>) -> Admission<P> {
        Admission {
            requests_max: limits.requests_max,
            account: credits.account(),
            requests: Cell::new(0),
            room: Signal::default(),
            waits: Cell::new(false),
            place: RefCell::default(),
            peer_closed: RefCell::default(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.get() == 0
    }

    /// Subtracts the count of an answer that was sent, or never will be.
    pub(super) fn release(&self, load: SendLoad) {
        self.requests.set(self.requests.get() - load.requests);
        self.account.release(load.charge as usize);
        self.room.notify();
    }

    /// Ends the connection's account: no request is left.
    pub(super) fn end(&self) {
        self.account.close();
        self.place.take();
        self.peer_closed.take();
    }

    /// True if the peer has closed its end unseen, since the reader waits for room.
    pub(super) fn is_closed_unseen(&self) -> bool {
        let closed = self.peer_closed.borrow();
        self.is_waiting() && closed.as_ref().is_some_and(|closed| closed())
    }

    /// True if the reader waits for room.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits.get()
    }

    /// Gives the connection its place, and buffers of `fixed` bytes.
    pub(super) fn enter(&self, place: P, fixed: usize, peer_closed: Box<dyn Fn() -> bool>) {
        *self.place.borrow_mut() = Some(place);
        *self.peer_closed.borrow_mut() = Some(peer_closed);
        self.account.enter(fixed);
    }

    /// Gives the place back to others: the peer sends no more requests.
    pub(super) fn leave(&self) {
        if self.place.borrow().is_some() && self.account.leave() {
            self.place.take();
        }
    }

    /// Counts one more request, if that is within the limits.
    #[inline]
    pub(super) fn try_admit<'a, L: Release>(
        &self,
        link: &'a L,
        charge: impl Fn(u32) -> u32,
    ) -> Option<Admitted<'a, L>> {
        if self.requests.get() == self.requests_max {
            return None;
        }
        let mut admitted = self.try_charge(link, charge)?;
        self.requests.set(self.requests.get() + 1);
        admitted.load.requests = 1;
        Some(admitted)
    }

    /// Waits until `take` finds room.
    pub(super) async fn when_room<T>(&self, take: impl Fn() -> Option<T>) -> T {
        poll_fn(|cx| {
            let taken = take();
            self.waits.set(taken.is_none());
            if let Some(taken) = taken {
                return Poll::Ready(taken);
            }
            self.room.register(cx.waker());
            self.account.register(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Counts memory: for long pieces, or else for such as there always is memory for.
    #[inline]
    pub(super) fn try_charge<'a, L: Release>(
        &self,
        link: &'a L,
        charge: impl Fn(u32) -> u32,
    ) -> Option<Admitted<'a, L>> {
        let account = &self.account;
        for piece in [piece(account.limit()), piece(account.sure())] {
            let charge = charge(piece);
            if account.try_charge(charge as usize) {
                return Some(Admitted {
                    link,
                    load: SendLoad {
                        requests: 0,
                        charge,
                        frames: 0,
                    },
                    piece,
                });
            }
        }
        None
    }
}
