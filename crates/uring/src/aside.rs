//! Calls that may wait for a device but are no operation of a ring, such as opening a file:
//! done on a thread of their own. The shard does not wait for them.
//!
//! When a future is dropped, its thread ends by itself, and drops the result.

use crate::errno;
use crate::processors;
use block::IoResult;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::Builder;

/// Work on a thread of its own, to be awaited.
pub(crate) struct Aside<T>(Arc<Mutex<AsideState<T>>>);

struct AsideState<T> {
    output: Option<T>,
    waker: Option<Waker>,
}

/// Begins `work`.
pub(crate) fn begin<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Aside<T>> {
    let (aside, work) = prepare(work, false);
    Builder::new().name(name.into()).spawn(work)?;
    Ok(aside)
}

/// The future of `work`, and the call that does the work, unless that `may_lapse` and the future
/// was dropped.
fn prepare<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    may_lapse: bool,
) -> (Aside<T>, impl FnOnce() + Send + 'static) {
    let state = Arc::new(Mutex::new(AsideState {
        output: None,
        waker: None,
    }));
    let weak = Arc::downgrade(&state);
    let work = move || {
        processors::use_any();
        if may_lapse && weak.strong_count() == 0 {
            return;
        }
        let output = work();
        let Some(state) = weak.upgrade() else { return };
        let mut state = state.lock().expect("no panic under this lock");
        state.output = Some(output);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    };
    (Aside(state), work)
}

type Work = Box<dyn FnOnce() + Send>;

/// A thread that does the newest work first, and leaves out work if its future was dropped. The
/// thread ends with the last clone.
#[derive(Clone)]
pub struct AsideWorker(Arc<ThreadHandle>);

struct ThreadHandle(Arc<AsideQueue>);

struct AsideQueue {
    /// Pending work; `None` once the worker is to end.
    work: Mutex<Option<Vec<Work>>>,
    more: Condvar,
}

impl AsideWorker {
    /// Starts the thread.
    pub fn new(name: &str) -> IoResult<AsideWorker> {
        let queue = Arc::new(AsideQueue {
            work: Mutex::new(Some(Vec::new())),
            more: Condvar::new(),
        });
        let its = queue.clone();
        let started = Builder::new().name(name.into()).spawn(move || its.serve());
        let what = "no thread for work aside; raise the limit of processes (ulimit -u)";
        started.map_err(|cause| errno::error(cause, what))?;
        Ok(AsideWorker(Arc::new(ThreadHandle(queue))))
    }

    /// Does `work` there.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (aside, work) = prepare(work, true);
        let queue = &self.0.0;
        if let Some(all) = &mut *queue.work.lock().expect("no panic under this lock") {
            all.push(Box::new(work));
        }
        queue.more.notify_one();
        aside.await
    }
}

impl AsideQueue {
    fn serve(&self) {
        while let Some(work) = self.next() {
            work();
        }
    }

    fn next(&self) -> Option<Work> {
        let mut work = self.work.lock().expect("no panic under this lock");
        loop {
            match &mut *work {
                None => return None,
                Some(all) if !all.is_empty() => return all.pop(),
                Some(_) => work = self.more.wait(work).expect("no panic under this lock"),
            }
        }
    }
}

impl Drop for ThreadHandle {
    fn drop(&mut self) {
        self.0.work.lock().expect("no panic under this lock").take();
        self.0.more.notify_one();
    }
}

impl<T> Future for Aside<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock().expect("no panic under this lock");
        if let Some(output) = state.output.take() {
            return Poll::Ready(output);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::{Wake, Waker};
    use std::thread::Thread;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn wait<T>(mut future: Pin<&mut impl Future<Output = T>>) -> T {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return done;
            }
            std::thread::park();
        }
    }

    #[test]
    fn a_worker_does_the_newest_first_and_leaves_out_what_nobody_waits_for() {
        let worker = AsideWorker::new("test").unwrap();
        let (begin, begun) = mpsc::channel::<()>();
        let (done, order) = mpsc::channel();
        let work = |number: u32| {
            let done = done.clone();
            worker.run(move || done.send(number).unwrap())
        };
        let blocked = worker.run(move || begun.recv().unwrap());
        let (mut blocked, mut old, mut new) =
            (Box::pin(blocked), Box::pin(work(1)), Box::pin(work(3)));
        let mut abandoned = Box::pin(work(2));
        let mut idle = Context::from_waker(Waker::noop());
        assert!(blocked.as_mut().poll(&mut idle).is_pending());
        // The thread has taken the first work.
        while !worker.0.0.work.lock().unwrap().as_ref().unwrap().is_empty() {
            std::thread::yield_now();
        }
        for future in [&mut old, &mut abandoned, &mut new] {
            assert!(future.as_mut().poll(&mut idle).is_pending());
        }
        drop(abandoned);
        begin.send(()).unwrap();
        wait(old.as_mut());
        wait(new.as_mut());
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [3, 1]);
    }
}
