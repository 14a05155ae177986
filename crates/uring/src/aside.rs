//! What may wait for a device and is no operation of a ring, such as to open a file:
//! done on a thread of its own, which a shard does not wait for.
//!
//! A future that is dropped leaves its thread to end by itself, and what that has made
//! is dropped with it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::Builder;

/// Work on a thread of its own, to be awaited.
pub(crate) struct Aside<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    output: Option<T>,
    waker: Option<Waker>,
}

/// Begins `work`.
pub(crate) fn begin<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Aside<T>> {
    let state = Arc::new(Mutex::new(State {
        output: None,
        waker: None,
    }));
    let weak = Arc::downgrade(&state);
    let work = move || {
        let output = work();
        let Some(state) = weak.upgrade() else { return };
        let mut state = state.lock().expect("no panic under this lock");
        state.output = Some(output);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    };
    Builder::new().name(name.into()).spawn(work)?;
    Ok(Aside(state))
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
