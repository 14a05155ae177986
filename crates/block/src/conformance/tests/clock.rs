//! A tiny executor with a clock that jumps to the next timer when nothing can run.

use crate::{Env, Executor, Nanos, Pool, TimerKey};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::task::{Context, Poll, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
struct Clock {
    now: Cell<u64>,
    tasks: RefCell<Vec<Task>>,
    spawned: RefCell<Vec<Task>>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    keys: Cell<u64>,
}

impl Executor for Clock {
    fn spawn(&self, task: Task) {
        self.spawned.borrow_mut().push(task);
    }
    fn now(&self) -> Nanos {
        Nanos(self.now.get())
    }
    fn set_timer(&self, at: Nanos, waker: Waker) -> TimerKey {
        let key = self.keys.replace(self.keys.get() + 1);
        self.timers.borrow_mut().insert((at.0, key), waker);
        TimerKey(key)
    }
    fn cancel_timer(&self, key: TimerKey) {
        self.timers.borrow_mut().retain(|&(_, k), _| k != key.0);
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `main` to its end with an environment of `pool_bytes` of buffers.
pub(super) fn block_on<F: Future>(pool_bytes: usize, main: impl FnOnce(Env) -> F) -> F::Output {
    let clock = Rc::new(Clock::default());
    let env = Env::new(clock.clone(), Pool::new(pool_bytes));
    let mut main = Box::pin(main(env));
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        while woken.0.swap(false, Relaxed) {
            if let Poll::Ready(value) = main.as_mut().poll(&mut cx) {
                return value;
            }
            let mut tasks = clock.tasks.borrow_mut();
            loop {
                tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
                let fresh = clock.spawned.take();
                if fresh.is_empty() {
                    break;
                }
                tasks.extend(fresh);
            }
        }
        let first = clock.timers.borrow_mut().pop_first();
        let ((at, _), waker) = first.expect("nothing can run and no timer is set");
        clock.now.set(clock.now.get().max(at));
        waker.wake();
    }
}
