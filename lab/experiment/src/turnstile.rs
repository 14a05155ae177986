//! Lets so many through at a time; the rest wait, in order or in the order of a kernel's I/O
//! scheduler.
//!
//! The elevator with fairness has a queue for each process. The queues take turns, and each goes
//! upwards from the position of the heads, then begins again at its lowest request.
//!
//! Left out: slices of time, and waiting for a process that may soon ask nearby.

use futures_channel::oneshot;
use std::cell::{Cell, RefCell};

/// Order of the waiting requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueOrder {
    /// First come, first served.
    Fifo,
    /// The next process in turn, and of its requests the next upwards.
    Elevator,
}

/// A waiting request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TurnRequest {
    /// The process.
    pub process: u32,
    /// Place on the device.
    pub at: u64,
}

/// A queue in front of so many places.
pub struct Turnstile {
    order: QueueOrder,
    free: Cell<u32>,
    waiting: RefCell<Vec<(TurnRequest, oneshot::Sender<()>)>>,
    /// The request let through last.
    last: Cell<TurnRequest>,
}

/// A place inside, until dropped.
pub struct TurnstilePlace<'a>(&'a Turnstile);

impl Turnstile {
    /// Creates a turnstile for `places` at a time, in order.
    pub fn new(places: u32) -> Turnstile {
        Turnstile::ordered(places, QueueOrder::Fifo)
    }

    /// Creates a turnstile for `places` at a time.
    pub fn ordered(places: u32, order: QueueOrder) -> Turnstile {
        Turnstile {
            order,
            free: Cell::new(places),
            waiting: RefCell::default(),
            last: Cell::default(),
        }
    }

    /// Waits for a place, where all are alike.
    pub async fn pass(&self) -> TurnstilePlace<'_> {
        self.pass_for(TurnRequest::default()).await
    }

    /// Waits for a place.
    pub async fn pass_for(&self, ask: TurnRequest) -> TurnstilePlace<'_> {
        match self.free.get() {
            0 => {
                let (called, call) = oneshot::channel();
                self.waiting.borrow_mut().push((ask, called));
                let result = call.await;
                result.expect("who waits is called before the turnstile goes");
            }
            free => {
                self.free.set(free - 1);
                self.last.set(ask);
            }
        }
        TurnstilePlace(self)
    }

    /// Removes the next request from those that wait.
    fn next(&self) -> Option<oneshot::Sender<()>> {
        let mut waiting = self.waiting.borrow_mut();
        let last = self.last.get();
        let key = |ask: TurnRequest| match self.order {
            QueueOrder::Fifo => Default::default(),
            QueueOrder::Elevator => (
                (ask.process <= last.process, ask.process),
                (ask.at < last.at, ask.at),
            ),
        };
        // Of equal ones the first.
        let (place, _) = (waiting.iter().enumerate()).min_by_key(|(_, (ask, _))| key(*ask))?;
        let (ask, next) = waiting.remove(place);
        self.last.set(ask);
        Some(next)
    }
}

impl Drop for TurnstilePlace<'_> {
    /// Passes the place on, or frees it.
    fn drop(&mut self) {
        loop {
            let Some(next) = self.0.next() else {
                return self.0.free.set(self.0.free.get() + 1);
            };
            if next.send(()).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use std::pin::pin;

    /// Lets these requests wait behind one inside; returns the order in which they pass.
    fn served(order: QueueOrder, asks: &[(u32, u64)]) -> Vec<(u32, u64)> {
        let turnstile = Turnstile::ordered(1, order);
        let inside = turnstile.pass().now_or_never().expect("it is free");
        let passed = RefCell::new(Vec::new());
        let pass = async |&(process, at): &(u32, u64)| {
            let _turn = turnstile.pass_for(TurnRequest { process, at }).await;
            passed.borrow_mut().push((process, at));
        };
        let mut all = pin!(join_all(asks.iter().map(pass)));
        assert!(all.as_mut().now_or_never().is_none());
        drop(inside);
        while all.as_mut().now_or_never().is_none() {}
        passed.take()
    }

    #[test]
    fn fifo_keeps_to_the_order_and_the_elevator_takes_turns_and_goes_upwards() {
        let asks = [(2, 50), (2, 10), (1, 90), (2, 70), (1, 20)];
        assert_eq!(served(QueueOrder::Fifo, &asks), asks);
        let sorted = [(1, 20), (2, 50), (1, 90), (2, 10), (2, 70)];
        assert_eq!(served(QueueOrder::Elevator, &asks), sorted);
    }
}
