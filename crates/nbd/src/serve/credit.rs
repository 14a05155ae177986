//! Memory for connections: each is guaranteed a little, and the rest is lent out in
//! shares that shrink as connections come.
//!
//! Invariants:
//!     memory used by all connections <= the memory of the server
//!     a connection with a place has its guaranteed memory, whatever others have borrowed
//!     a connection borrows an equal share at the most, and an eighth of all
//!
//! A connection that has given its place back borrows all memory that it uses. The
//! guaranteed memory is then free for the next one in the place.

use super::limits::{GUARANTEED_BYTES, ServerLimits};
use block::Signal;
use std::cell::Cell;
use std::rc::Rc;

/// A connection borrows this fraction of the lent memory, at the most.
const PART: usize = 8;

/// The memory of a server.
pub(super) struct Credits {
    /// Bytes that can be lent in all, and bytes that are.
    common: usize,
    lent: Cell<usize>,
    members: Cell<usize>,
    /// Bytes that one connection may borrow now.
    share: Cell<usize>,
    /// Notified when lent memory has come back, or shares have grown.
    returned: Signal,
}

/// Memory of one connection.
pub(super) struct Account {
    credits: Rc<Credits>,
    /// Size of the buffers, whatever the requests.
    fixed: Cell<usize>,
    used: Cell<usize>,
    has_place: Cell<bool>,
}

impl Credits {
    pub(super) fn new(limits: &ServerLimits) -> Rc<Credits> {
        let credits = Credits {
            common: limits.lent_bytes(),
            lent: Cell::new(0),
            members: Cell::new(0),
            share: Cell::new(0),
            returned: Signal::default(),
        };
        credits.share_out();
        Rc::new(credits)
    }

    fn share_out(&self) {
        self.share.set(self.common / self.members.get().max(PART));
        self.returned.notify();
    }

    /// An account with buffers of `fixed` bytes; without a place yet.
    pub(super) fn account(self: &Rc<Self>) -> Account {
        Account {
            credits: self.clone(),
            fixed: Cell::new(0),
            used: Cell::new(0),
            has_place: Cell::new(false),
        }
    }
}

impl Account {
    /// Gives the connection a place, and buffers of `fixed` bytes.
    pub(super) fn enter(&self, fixed: usize) {
        assert!(fixed < GUARANTEED_BYTES && !self.has_place.replace(true));
        self.fixed.set(fixed);
        let credits = &self.credits;
        credits.members.set(credits.members.get() + 1);
        credits.share_out();
    }

    /// Shrinks the buffers to `fixed` bytes.
    pub(super) fn shrink(&self, fixed: usize) {
        assert!(fixed <= self.fixed.get());
        self.lend(self.used.get(), fixed, self.has_place.get());
    }

    /// Gives the place back: all memory used is borrowed from then on. False, and the place stays,
    /// if that much cannot be borrowed.
    pub(super) fn leave(&self) -> bool {
        let credits = &self.credits;
        let more = self.borrowed(self.used.get(), self.fixed.get(), false)
            - self.borrowed(self.used.get(), self.fixed.get(), true);
        // The connection may go on with a small request at a time, as before.
        let enough = credits.common >= 2 * GUARANTEED_BYTES;
        if !enough || credits.lent.get() + more > credits.common {
            return false;
        }
        self.lend(self.used.get(), self.fixed.get(), false);
        credits.members.set(credits.members.get() - 1);
        credits.share_out();
        true
    }

    /// Memory for requests without borrowing.
    #[inline]
    fn own(&self, fixed: usize, has_place: bool) -> usize {
        match has_place {
            true => GUARANTEED_BYTES - fixed,
            false => 0,
        }
    }

    #[inline]
    fn borrowed(&self, used: usize, fixed: usize, has_place: bool) -> usize {
        match has_place {
            true => used.saturating_sub(self.own(fixed, true)),
            false => used + fixed,
        }
    }

    #[inline]
    fn lend(&self, used: usize, fixed: usize, has_place: bool) {
        let credits = &self.credits;
        let before = self.borrowed(self.used.get(), self.fixed.get(), self.has_place.get());
        let after = self.borrowed(used, fixed, has_place);
        credits.lent.set(credits.lent.get() + after - before);
        self.used.set(used);
        self.fixed.set(fixed);
        self.has_place.set(has_place);
        if after < before {
            credits.returned.notify();
        }
    }

    /// Gives back all memory and the place.
    pub(super) fn close(&self) {
        self.lend(0, 0, self.has_place.get());
        if self.has_place.replace(false) {
            let credits = &self.credits;
            credits.members.set(credits.members.get() - 1);
            credits.share_out();
        }
    }

    /// Memory that the connection's requests may use now.
    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.own(self.fixed.get(), self.has_place.get()) + self.credits.share.get()
    }

    /// Memory that the requests may use in any case; a request for no more is taken once no other
    /// is in flight.
    #[inline]
    pub(super) fn sure(&self) -> usize {
        GUARANTEED_BYTES - self.fixed.get()
    }

    /// Counts `bytes` more, if that is within the limits.
    #[inline]
    pub(super) fn try_charge(&self, bytes: usize) -> bool {
        let (used, fixed, place) = (
            self.used.get() + bytes,
            self.fixed.get(),
            self.has_place.get(),
        );
        let own = self.own(fixed, place);
        if used > own {
            let credits = &self.credits;
            let more =
                self.borrowed(used, fixed, place) - self.borrowed(self.used.get(), fixed, place);
            let over = place && used > self.limit();
            if over || credits.lent.get() + more > credits.common {
                return false;
            }
        }
        self.lend(used, fixed, place);
        true
    }

    /// Gives `bytes` back.
    #[inline]
    pub(super) fn release(&self, bytes: usize) {
        let used = self.used.get() - bytes;
        self.lend(used, self.fixed.get(), self.has_place.get());
    }

    /// Wakes `waker` when memory has come back.
    pub(super) fn register(&self, waker: &std::task::Waker) {
        self.credits.returned.register(waker);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn credits(connections_max: u32, common: usize) -> Rc<Credits> {
        let mut limits = ServerLimits {
            connections_max,
            memory_bytes_max: 0,
            ..ServerLimits::default()
        };
        limits.memory_bytes_max = limits.reserved_bytes() + common;
        Credits::new(&limits)
    }

    fn enters(credits: &Rc<Credits>) -> Account {
        let account = credits.account();
        account.enter(64 * KIB);
        account
    }

    #[test]
    fn shares_shrink_as_connections_come_and_grow_as_they_go() {
        let credits = credits(100, 8000 * KIB);
        let first = enters(&credits);
        assert_eq!(first.limit(), (192 + 1000) * KIB, "an eighth");
        let mut others: Vec<_> = (1..100).map(|_| enters(&credits)).collect();
        assert_eq!(first.limit(), (192 + 80) * KIB);
        others.truncate(9);
        assert_eq!(first.limit(), (192 + 800) * KIB);
        drop(others);
        assert_eq!(first.limit(), (192 + 1000) * KIB);
    }

    #[test]
    fn what_is_guaranteed_is_there_whatever_others_hold() {
        let credits = credits(32, 1024 * KIB);
        let greedy: Vec<_> = (0..8).map(|_| enters(&credits)).collect();
        for one in &greedy {
            assert!(one.try_charge(one.limit()) && !one.try_charge(1));
        }
        assert_eq!(credits.lent.get(), credits.common);
        let late = enters(&credits);
        assert!(late.limit() > 192 * KIB);
        assert!(!late.try_charge(193 * KIB), "all is lent");
        assert!(late.try_charge(192 * KIB));
        greedy[0].release(100 * KIB);
        assert!(late.try_charge(50 * KIB));
        drop((greedy, late));
        assert_eq!((credits.lent.get(), credits.members.get()), (0, 0));
    }

    #[test]
    fn who_gives_its_place_back_borrows_all_that_it_uses() {
        let credits = credits(2, 512 * KIB);
        let gone = enters(&credits);
        assert!(gone.try_charge(100 * KIB));
        assert_eq!(credits.lent.get(), 0);
        assert!(gone.leave());
        assert_eq!(credits.lent.get(), 164 * KIB);
        gone.shrink(4 * KIB);
        assert_eq!(credits.lent.get(), 104 * KIB);
        let stays = enters(&credits);
        assert!(stays.try_charge(192 * KIB));
        gone.release(100 * KIB);
        assert_eq!(credits.lent.get(), 4 * KIB);
        drop(gone);
        assert_eq!(credits.lent.get(), 0);
        // One that holds more than can be lent keeps its place.
        let another = enters(&credits);
        assert!(another.try_charge(192 * KIB) && another.leave());
        assert!(stays.try_charge(KIB) && !stays.leave());
    }
}
