//! A number of bytes that may be in hand at one time; who finds too few left waits in
//! order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// The bytes that are left.
pub(crate) struct Credit {
    total: usize,
    left: Cell<usize>,
    /// Who waits, in order; who has gone keeps a place until it is reached.
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    next: Cell<u64>,
}

/// Bytes in hand, until dropped.
pub(crate) struct Held<'a> {
    credit: &'a Credit,
    bytes: usize,
}

/// A place in the queue.
struct Place<'a> {
    credit: &'a Credit,
    number: Option<u64>,
}

impl Credit {
    pub(crate) fn new(total: usize) -> Credit {
        Credit {
            total,
            left: Cell::new(total),
            waiting: RefCell::default(),
            next: Cell::new(0),
        }
    }

    /// Waits for `bytes`, or for all of them if there are fewer.
    pub(crate) async fn take(&self, bytes: usize) -> Held<'_> {
        let bytes = bytes.min(self.total);
        let mut place = Place {
            credit: self,
            number: None,
        };
        poll_fn(|cx| {
            let mut waiting = self.waiting.borrow_mut();
            let is_first = match place.number {
                None => waiting.is_empty(),
                Some(number) => waiting.front().is_some_and(|(first, _)| *first == number),
            };
            if is_first && self.left.get() >= bytes {
                self.left.set(self.left.get() - bytes);
                return Poll::Ready(());
            }
            match place.number {
                None => {
                    let number = self.next.get();
                    self.next.set(number + 1);
                    place.number = Some(number);
                    waiting.push_back((number, cx.waker().clone()));
                }
                Some(number) => {
                    let mine = waiting.iter_mut().find(|(other, _)| *other == number);
                    mine.expect("kept while it waits").1 = cx.waker().clone();
                }
            }
            Poll::Pending
        })
        .await;
        drop(place);
        Held {
            credit: self,
            bytes,
        }
    }

    fn wake_first(&self) {
        let first = self.waiting.borrow().front().map(|(_, w)| w.clone());
        if let Some(waker) = first {
            waker.wake();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut waiting = self.credit.waiting.borrow_mut();
            waiting.retain(|(other, _)| *other != number);
            drop(waiting);
            self.credit.wake_first();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.credit.left.set(self.credit.left.get() + self.bytes);
        self.credit.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn the_large_are_not_overtaken_and_who_leaves_blocks_nobody() {
        let credit = Credit::new(10);
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = |future: std::pin::Pin<&mut dyn Future<Output = _>>| future.poll(&mut cx);
        let mut first = pin!(credit.take(6));
        let Poll::Ready(held) = poll(first.as_mut()) else {
            panic!("nothing is taken yet")
        };
        let mut large = Box::pin(credit.take(20));
        assert!(poll(large.as_mut()).is_pending());
        let mut small = pin!(credit.take(1));
        assert!(poll(small.as_mut()).is_pending(), "it overtook the large");
        drop(large);
        let Poll::Ready(one) = poll(small.as_mut()) else {
            panic!("nobody is before it")
        };
        let mut all = pin!(credit.take(20));
        assert!(poll(all.as_mut()).is_pending());
        drop((held, one));
        assert!(poll(all.as_mut()).is_ready());
    }
}
