//! A lane: requests from one shard to another, and their answers.
//!
//! Invariants:
//!     a request is answered once, or its shard has ended
//!     a request is carried out to its end, even if the future that asked is dropped
//!     the other shard is woken once for all requests, or answers, that it has not seen yet
//!
//! Nothing is allocated for a request once as many have been in flight before: its place, its worker
//! and the queues' blocks are used again.
//!
//! Not here: a bound. The asking side bounds its requests in flight, for only a frontend knows its
//! memory.

use block::Env;
use crossbeam_queue::SegQueue;
use futures_util::task::AtomicWaker;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::task::{Poll, Waker};

struct LaneShared<Q, A> {
    requests: SegQueue<(u32, Q)>,
    answers: SegQueue<(u32, A)>,
    /// Wakes the shard that answers, and the one that asks.
    server: AtomicWaker,
    asker: AtomicWaker,
    /// An end is gone: nobody asks any more, or nobody answers.
    unasked: AtomicBool,
    unserved: AtomicBool,
}

/// The end that answers, on its way to its shard.
pub struct LaneServer<Q, A>(Arc<LaneShared<Q, A>>);

impl<Q, A> Drop for LaneServer<Q, A> {
    fn drop(&mut self) {
        self.0.unserved.store(true, SeqCst);
        self.0.asker.wake();
    }
}

/// The end that asks, on its way to its shard.
pub struct LaneEnd<Q, A>(Arc<LaneShared<Q, A>>);

impl<Q, A> Drop for LaneEnd<Q, A> {
    fn drop(&mut self) {
        self.0.unasked.store(true, SeqCst);
        self.0.server.wake();
        self.0.asker.wake();
    }
}

/// The end that asks; clones are the same.
pub struct LaneAsker<Q, A>(Rc<LaneRequests<Q, A>>);

impl<Q, A> Clone for LaneAsker<Q, A> {
    fn clone(&self) -> Self {
        LaneAsker(self.0.clone())
    }
}

struct LaneRequests<Q, A> {
    end: LaneEnd<Q, A>,
    places: RefCell<Vec<LanePlace<A>>>,
    free: RefCell<Vec<u32>>,
}

/// The place of a request in flight.
enum LanePlace<A> {
    Free,
    Waiting(Option<Waker>),
    Answered(A),
    /// Its future was dropped.
    Abandoned,
}

/// Makes a lane: one end for the shard that asks, the other for the shard that answers.
pub fn lane<Q: Send + 'static, A: Send + 'static>() -> (LaneEnd<Q, A>, LaneServer<Q, A>) {
    let shared = Arc::new(LaneShared {
        requests: SegQueue::new(),
        answers: SegQueue::new(),
        server: AtomicWaker::new(),
        asker: AtomicWaker::new(),
        unasked: AtomicBool::new(false),
        unserved: AtomicBool::new(false),
    });
    (LaneEnd(shared.clone()), LaneServer(shared))
}

impl<Q: Send + 'static, A: Send + 'static> LaneEnd<Q, A> {
    /// Begins to ask, from the calling shard.
    pub fn begin(self, env: &Env) -> LaneAsker<Q, A> {
        let shared = self.0.clone();
        let asker = Rc::new(LaneRequests {
            end: self,
            places: RefCell::default(),
            free: RefCell::default(),
        });
        let weak = Rc::downgrade(&asker);
        env.spawn.spawn(receive_answers(weak, shared));
        LaneAsker(asker)
    }
}

/// Hands answers to the futures that wait, until the asker is gone.
async fn receive_answers<Q, A>(asker: Weak<LaneRequests<Q, A>>, shared: Arc<LaneShared<Q, A>>) {
    poll_fn(|cx| {
        shared.asker.register(cx.waker());
        let Some(asker) = asker.upgrade() else {
            return Poll::Ready(());
        };
        while let Some((place, answer)) = shared.answers.pop() {
            asker.answered(place, answer);
        }
        if shared.unserved.load(SeqCst) {
            asker.wake_all();
        }
        Poll::Pending
    })
    .await
}

impl<Q, A> LaneRequests<Q, A> {
    fn take_place(&self) -> u32 {
        let mut places = self.places.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            places.push(LanePlace::Free);
            u32::try_from(places.len() - 1).expect("under 2^32 requests")
        });
        places[place as usize] = LanePlace::Waiting(None);
        place
    }

    fn answered(&self, place: u32, answer: A) {
        let at = &mut self.places.borrow_mut()[place as usize];
        match std::mem::replace(at, LanePlace::Answered(answer)) {
            LanePlace::Waiting(waker) => waker.into_iter().for_each(Waker::wake),
            LanePlace::Abandoned => {
                *at = LanePlace::Free;
                self.free.borrow_mut().push(place);
            }
            LanePlace::Free | LanePlace::Answered(_) => unreachable!("a request is answered once"),
        }
    }

    fn wake_all(&self) {
        for place in self.places.borrow_mut().iter_mut() {
            if let LanePlace::Waiting(waker) = place {
                waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }
}

/// A request in flight; abandoned when dropped before its answer.
struct PendingRequest<'a, Q, A> {
    asker: &'a LaneRequests<Q, A>,
    place: u32,
}

impl<Q, A> PendingRequest<'_, Q, A> {
    fn poll(&self, waker: &Waker) -> Poll<Option<A>> {
        let mut places = self.asker.places.borrow_mut();
        match &mut places[self.place as usize] {
            LanePlace::Waiting(_) if self.asker.end.0.unserved.load(SeqCst) => Poll::Ready(None),
            LanePlace::Waiting(Some(known)) => {
                known.clone_from(waker);
                Poll::Pending
            }
            LanePlace::Waiting(none) => {
                *none = Some(waker.clone());
                Poll::Pending
            }
            answered => match std::mem::replace(answered, LanePlace::Free) {
                LanePlace::Answered(answer) => Poll::Ready(Some(answer)),
                _ => unreachable!("polled until answered"),
            },
        }
    }
}

impl<Q, A> Drop for PendingRequest<'_, Q, A> {
    fn drop(&mut self) {
        let mut places = self.asker.places.borrow_mut();
        let at = &mut places[self.place as usize];
        match at {
            LanePlace::Waiting(_) => *at = LanePlace::Abandoned,
            _ => {
                let answer = std::mem::replace(at, LanePlace::Free);
                drop(places);
                self.asker.free.borrow_mut().push(self.place);
                drop(answer);
            }
        }
    }
}

impl<Q, A> LaneAsker<Q, A> {
    /// Sends `request` and waits for its answer; `None` if the shard that answers has ended.
    pub async fn ask(&self, request: Q) -> Option<A> {
        let asked = PendingRequest {
            asker: &self.0,
            place: self.0.take_place(),
        };
        self.0.end.0.requests.push((asked.place, request));
        self.0.end.0.server.wake();
        poll_fn(|cx| asked.poll(cx.waker())).await
    }

    /// Sends `request`; nobody waits for the answer.
    pub fn send(&self, request: Q) {
        let place = self.0.take_place();
        self.0.places.borrow_mut()[place as usize] = LanePlace::Abandoned;
        self.0.end.0.requests.push((place, request));
        self.0.end.0.server.wake();
    }
}

/// The tasks that carry out requests: as many as were ever in flight.
struct LaneWorkers<Q> {
    idle: RefCell<Vec<Rc<LaneWorker<Q>>>>,
    are_dismissed: Cell<bool>,
}

struct LaneWorker<Q> {
    /// The request handed to the worker.
    next: RefCell<Option<(u32, Q)>>,
    waker: RefCell<Option<Waker>>,
}

impl<Q> LaneWorker<Q> {
    fn hand(&self, request: (u32, Q)) {
        self.next.replace(Some(request));
        self.wake();
    }

    fn wake(&self) {
        let waker = self.waker.borrow();
        waker.as_ref().expect("set when idle").wake_by_ref();
    }
}

impl<Q> LaneWorkers<Q> {
    /// The next request of `worker`, or `None` once there will be no more.
    async fn next(&self, worker: &Rc<LaneWorker<Q>>) -> Option<(u32, Q)> {
        let mut is_idle = false;
        poll_fn(move |cx| {
            let next = worker.next.take();
            if next.is_some() || self.are_dismissed.get() {
                return Poll::Ready(next);
            }
            if !is_idle {
                is_idle = true;
                let mut waker = worker.waker.borrow_mut();
                waker.get_or_insert_with(|| cx.waker().clone());
                self.idle.borrow_mut().push(worker.clone());
            }
            Poll::Pending
        })
        .await
    }

    fn dismiss(&self) {
        self.are_dismissed.set(true);
        self.idle.take().iter().for_each(|worker| worker.wake());
    }
}

impl<Q: Send + 'static, A: Send + 'static> LaneServer<Q, A> {
    /// Answers each request by `at_once`, or else by `carry_out`, until nobody asks any more.
    pub async fn serve<F>(
        self,
        env: Env,
        at_once: impl Fn(&Q) -> Option<A>,
        carry_out: impl Fn(Q) -> F + 'static,
    ) where
        F: Future<Output = A> + 'static,
    {
        let carry_out = Rc::new(carry_out);
        let workers = Rc::new(LaneWorkers {
            idle: RefCell::default(),
            are_dismissed: Cell::new(false),
        });
        poll_fn(|cx| {
            self.0.server.register(cx.waker());
            while let Some(request) = self.0.requests.pop() {
                if let Some(answer) = at_once(&request.1) {
                    self.0.answers.push((request.0, answer));
                    self.0.asker.wake();
                    continue;
                }
                let idle = workers.idle.borrow_mut().pop();
                if let Some(worker) = idle {
                    worker.hand(request);
                    continue;
                }
                let (shared, workers) = (self.0.clone(), workers.clone());
                let carry_out = carry_out.clone();
                env.spawn.spawn(async move {
                    let worker = Rc::new(LaneWorker {
                        next: RefCell::new(Some(request)),
                        waker: RefCell::default(),
                    });
                    while let Some((place, request)) = workers.next(&worker).await {
                        let answer = carry_out(request).await;
                        shared.answers.push((place, answer));
                        shared.asker.wake();
                    }
                });
            }
            match self.0.unasked.load(SeqCst) && self.0.requests.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        workers.dismiss();
    }
}
