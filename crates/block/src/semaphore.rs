//! Units that are in hand at one time: bytes, or operations.
//!
//! Invariants:
//!     units in hand + free units = all units
//!     a demand for more than the free units waits, in order of arrival; a small one overtakes no
//!     large one
//!     a demand that leaves the queue, or units given back, hold up no other demand
//!
//! Single-threaded, as a shard is.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Units to be taken and given back.
pub struct Semaphore {
    free: Cell<usize>,
    /// The tickets of waiting demands, in order, and their wakers.
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    tickets: Cell<u64>,
}

impl Semaphore {
    /// A semaphore with `units` units, all of them free.
    pub fn new(units: usize) -> Semaphore {
        Semaphore {
            free: Cell::new(units),
            waiting: RefCell::default(),
            tickets: Cell::new(0),
        }
    }

    /// The units that are free.
    pub fn free(&self) -> usize {
        self.free.get()
    }

    /// Asks for `units`: a future that ends with the units in hand. Dropping it gives them back.
    #[inline]
    pub fn permit(&self, units: usize) -> Permit<'_> {
        Permit {
            semaphore: self,
            units,
            stage: PermitStage::New,
        }
    }

    /// Takes `units` at once, until [`Semaphore::release`]. False: too few are free, or a demand
    /// waits.
    #[inline]
    pub fn try_take(&self, units: usize) -> bool {
        let takes = self.free.get() >= units && self.waiting.borrow().is_empty();
        if takes {
            self.free.set(self.free.get() - units);
        }
        takes
    }

    /// Waits for `units`.
    pub async fn take(&self, units: usize) -> Permit<'_> {
        let mut permit = self.permit(units);
        (&mut permit).await;
        permit
    }

    /// Gives back units of [`Semaphore::try_take`], or of a permit that was forgotten.
    #[inline]
    pub fn release(&self, units: usize) {
        self.free.set(self.free.get() + units);
        self.wake_first();
    }

    #[inline]
    fn wake_first(&self) {
        if let Some((_, waker)) = self.waiting.borrow().front() {
            waker.wake_by_ref();
        }
    }

    fn place(&self, ticket: u64) -> usize {
        let waiting = self.waiting.borrow();
        let place = waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket);
        place.expect("queued until served")
    }

    #[cold]
    fn queue(&self, stage: &mut PermitStage, waker: &Waker) {
        match *stage {
            PermitStage::Queued(ticket) => {
                let place = self.place(ticket);
                self.waiting.borrow_mut()[place].1.clone_from(waker);
            }
            _ => {
                let ticket = self.tickets.replace(self.tickets.get() + 1);
                self.waiting.borrow_mut().push_back((ticket, waker.clone()));
                *stage = PermitStage::Queued(ticket);
            }
        }
    }

    fn leave(&self, ticket: u64) {
        let place = self.place(ticket);
        self.waiting.borrow_mut().remove(place);
        if self.free.get() > 0 {
            self.wake_first();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PermitStage {
    New,
    Queued(u64),
    Held,
}

/// Requested units, in hand once awaited.
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    units: usize,
    stage: PermitStage,
}

impl Permit<'_> {
    /// True if the demand is in the queue.
    pub fn is_queued(&self) -> bool {
        matches!(self.stage, PermitStage::Queued(_))
    }

    /// Keeps the units in hand until [`Semaphore::release`].
    pub fn forget(mut self) {
        assert!(self.stage == PermitStage::Held, "awaited before");
        self.stage = PermitStage::New;
    }
}

impl Future for Permit<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let semaphore = self.semaphore;
        let first = semaphore
            .waiting
            .borrow()
            .front()
            .map(|(ticket, _)| *ticket);
        let is_next = match self.stage {
            PermitStage::New => first.is_none(),
            PermitStage::Queued(ticket) => first == Some(ticket),
            PermitStage::Held => return Poll::Ready(()),
        };
        let free = semaphore.free.get();
        if !is_next || free < self.units {
            semaphore.queue(&mut self.stage, cx.waker());
            return Poll::Pending;
        }
        semaphore.free.set(free - self.units);
        let stage = std::mem::replace(&mut self.stage, PermitStage::Held);
        if let PermitStage::Queued(ticket) = stage {
            semaphore.leave(ticket);
        }
        Poll::Ready(())
    }
}

impl Drop for Permit<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.stage {
            PermitStage::New => (),
            PermitStage::Queued(ticket) => self.semaphore.leave(ticket),
            PermitStage::Held => self.semaphore.release(self.units),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_held(permit: &mut Permit<'_>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(permit).poll(&mut cx).is_ready()
    }

    #[test]
    fn the_large_are_not_overtaken_and_who_leaves_holds_up_nobody() {
        let semaphore = Semaphore::new(10);
        let [mut first, mut large, mut gone, mut small] =
            [6, 8, 10, 1].map(|units| semaphore.permit(units));
        assert!(is_held(&mut first));
        assert!(!is_held(&mut large) && !is_held(&mut gone));
        assert!(!is_held(&mut small), "it overtook the large");
        drop(first);
        assert!(!is_held(&mut gone) && is_held(&mut large));
        assert!(!is_held(&mut small), "it overtook");
        drop(gone);
        assert!(is_held(&mut small) && is_held(&mut small));
        assert_eq!(semaphore.free(), 1);
        drop((large, small));
        assert_eq!(semaphore.free(), 10);
    }

    #[test]
    fn what_is_taken_at_once_overtakes_nobody() {
        let semaphore = Semaphore::new(10);
        assert!(semaphore.try_take(6) && !semaphore.try_take(5));
        let mut waiting = semaphore.permit(8);
        assert!(!is_held(&mut waiting) && !semaphore.try_take(1));
        semaphore.release(6);
        assert!(is_held(&mut waiting) && semaphore.try_take(2));
        assert_eq!(semaphore.free(), 0);
        drop(waiting);
        semaphore.release(2);
        assert_eq!(semaphore.free(), 10);
    }

    #[test]
    fn what_one_leaves_wakes_the_next() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
        struct Woken(AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Relaxed);
            }
        }
        let semaphore = Semaphore::new(2);
        let mut held = semaphore.permit(1);
        assert!(is_held(&mut held));
        let [mut gone, mut next] = [2, 1].map(|units| semaphore.permit(units));
        assert!(!is_held(&mut gone));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut next).poll(&mut cx).is_pending());
        drop(gone);
        assert!(woken.0.swap(false, Relaxed) && is_held(&mut next));
        next.forget();
        assert_eq!(semaphore.free(), 0);
        semaphore.release(1);
        assert_eq!(semaphore.free(), 1);
    }
}
