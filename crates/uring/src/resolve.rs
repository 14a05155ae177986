//! Host names become addresses on threads of their own, because the system's
//! resolver blocks and a driver must not.

use crate::waker::Waker;
use block::Unpark;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex};

/// The addresses of a host, or the reason for their absence.
pub(crate) type Resolved = io::Result<Vec<SocketAddr>>;

pub(crate) struct Resolver {
    answers: Arc<Answers>,
}

struct Answers {
    list: Mutex<Vec<(usize, Resolved)>>,
    waiting: AtomicBool,
    waker: Arc<Waker>,
}

impl Resolver {
    pub(crate) fn new(waker: Arc<Waker>) -> Resolver {
        Resolver {
            answers: Arc::new(Answers {
                list: Mutex::default(),
                waiting: AtomicBool::new(false),
                waker,
            }),
        }
    }

    /// Begins to look up `host:port` for the operation in `slot`; unparks the shard when the answer
    /// is there.
    pub(crate) fn begin(&self, slot: usize, host: String) -> io::Result<()> {
        let answers = self.answers.clone();
        let look_up = move || {
            let resolved = host.to_socket_addrs().map(Iterator::collect);
            let mut list = answers.list.lock().expect("no panic under this lock");
            list.push((slot, resolved));
            answers.waiting.store(true, Release);
            drop(list);
            answers.waker.unpark();
        };
        std::thread::Builder::new()
            .name("resolve".into())
            .spawn(look_up)?;
        Ok(())
    }

    /// True if there are answers to take.
    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        self.answers.waiting.load(Acquire)
    }

    /// Takes the answers since the last call.
    pub(crate) fn take(&self) -> Vec<(usize, Resolved)> {
        self.answers.waiting.store(false, Release);
        std::mem::take(&mut *self.answers.list.lock().expect("no panic under this lock"))
    }
}
