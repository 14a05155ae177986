//! Reports each request, when it has ended, to a sink.
//!
//! Not here: files and formats. A sink does a bounded amount of work a record
//! and never waits; [`Last`] is one that keeps the latest.

use crate::access::Access;
use crate::watch::{Ending, Watch, Watched};
use block::{Nanos, Timer};
use std::cell::RefCell;
use std::collections::VecDeque;

/// One request that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When it began.
    pub at: Nanos,
    /// How long it took, waiting included.
    pub took: Nanos,
    /// What was asked.
    pub access: Access,
    /// How it ended.
    pub ending: Ending,
}

/// Takes records, in the order in which requests end.
pub trait Sink: 'static {
    /// Takes one; must not block.
    fn record(&mut self, record: Record);
}

/// A device whose requests go to the sink `S`.
pub type Traced<D, S> = Watched<D, Tracer<S>>;

/// The observer of [`Traced`].
pub struct Tracer<S>(RefCell<S>);

impl<D, S: Sink> Traced<D, S> {
    /// Reports the requests on `inner` to `sink`.
    pub fn to_sink(inner: D, sink: S, timer: Timer) -> Traced<D, S> {
        Watched::new(inner, Tracer(RefCell::new(sink)), timer)
    }

    /// Looks at the sink, or empties it.
    pub fn with_sink<T>(&self, f: impl FnOnce(&mut S) -> T) -> T {
        f(&mut self.watch().0.borrow_mut())
    }
}

impl<S: Sink> Watch for Tracer<S> {
    fn begin(&self, _: Nanos, _: &Access) {}

    fn end(&self, now: Nanos, access: &Access, began: Nanos, ending: Ending) {
        self.0.borrow_mut().record(Record {
            at: began,
            took: now - began,
            access: *access,
            ending,
        });
    }
}

/// A sink that keeps the latest records and counts those it dropped.
#[derive(Clone, Debug)]
pub struct Last {
    records: VecDeque<Record>,
    most: usize,
    dropped: u64,
}

impl Last {
    /// Keeps `most` records (at least one).
    pub fn new(most: usize) -> Last {
        assert!(most > 0, "a sink that keeps no record");
        Last {
            records: VecDeque::with_capacity(most),
            most,
            dropped: 0,
        }
    }

    /// Takes out what is kept, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = Record> + '_ {
        self.records.drain(..)
    }

    /// How many were dropped to make room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Sink for Last {
    fn record(&mut self, record: Record) {
        if self.records.len() == self.most {
            self.records.pop_front();
            self.dropped += 1;
        }
        self.records.push_back(record);
    }
}
