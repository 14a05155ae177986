//! A volume's operations on its origin in flight.
//!
//! Invariants:
//!     a write to b was in flight at any time of an origin read of b
//!         ⟹ the read is overwritten: it is not promoted
//!     a read is joinable ⟹ it is in flight and not overwritten, so its result
//!         is no older than the moment of joining
//!
//! A read's entry lasts until its promotion has ended, so that a write can still overtake that.

use crate::lines::{BLOCK_BYTES, bytes_of, overlap};
use block::{Buf, InFlight};
use futures_channel::oneshot;
use slab::Slab;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

#[derive(Default)]
pub(crate) struct OriginOpsInFlight {
    reads: RefCell<Slab<OriginRead>>,
    writes: RefCell<Slab<Range<u64>>>,
    /// Writes in flight.
    pub(crate) writing: InFlight,
}

struct OriginRead {
    blocks: Range<u64>,
    in_flight: bool,
    overwritten: bool,
    joiners: Vec<Joiner>,
}

struct Joiner {
    blocks: Range<u64>,
    buf: Buf,
    reply: oneshot::Sender<(Buf, bool)>,
}

impl OriginRead {
    fn is_joinable(&self) -> bool {
        self.in_flight && !self.overwritten
    }
}

impl OriginOpsInFlight {
    /// Splits missing `blocks` into runs that join a read in flight (`true`) and
    /// runs that must be read.
    pub(crate) fn split(&self, blocks: Range<u64>, mut run: impl FnMut(Range<u64>, bool)) {
        let reads = self.reads.borrow();
        let mut at = blocks.start;
        while at < blocks.end {
            let joinable = || reads.iter().map(|(_, r)| r).filter(|r| r.is_joinable());
            let (end, join) = match joinable().find(|r| r.blocks.contains(&at)) {
                Some(read) => (read.blocks.end.min(blocks.end), true),
                None => {
                    let next = joinable().map(|r| r.blocks.start).filter(|s| *s > at).min();
                    (next.unwrap_or(blocks.end).min(blocks.end), false)
                }
            };
            run(at..end, join);
            at = end;
        }
    }

    /// Waits for a read in flight that covers `blocks`; gives `buf` back if none does. The answer
    /// is true if the buffer was filled.
    pub(crate) fn join(
        &self,
        blocks: Range<u64>,
        buf: Buf,
    ) -> Result<oneshot::Receiver<(Buf, bool)>, Buf> {
        let mut reads = self.reads.borrow_mut();
        let covers = |r: &OriginRead| {
            r.is_joinable() && r.blocks.start <= blocks.start && blocks.end <= r.blocks.end
        };
        let Some((_, read)) = reads.iter_mut().find(|(_, r)| covers(r)) else {
            return Err(buf);
        };
        let (reply, answer) = oneshot::channel();
        read.joiners.push(Joiner { blocks, buf, reply });
        Ok(answer)
    }

    /// An origin read of `blocks` begins.
    pub(crate) fn begin_read(self: &Rc<Self>, blocks: Range<u64>) -> ReadFlight {
        let overwritten = self
            .writes
            .borrow()
            .iter()
            .any(|(_, w)| overlap(w, &blocks));
        let id = self.reads.borrow_mut().insert(OriginRead {
            blocks,
            in_flight: true,
            overwritten,
            joiners: Vec::new(),
        });
        ReadFlight {
            flights: self.clone(),
            id,
        }
    }

    /// A client's change of `blocks` begins.
    pub(crate) fn begin_write(self: &Rc<Self>, blocks: Range<u64>) -> WriteFlight {
        for (_, read) in self.reads.borrow_mut().iter_mut() {
            read.overwritten |= overlap(&read.blocks, &blocks);
        }
        self.writing.begin();
        WriteFlight {
            id: self.writes.borrow_mut().insert(blocks),
            flights: self.clone(),
        }
    }
}

/// An origin read from its start to the end of its promotion. Dropped while in flight, it sends its
/// joiners to the origin themselves.
pub(crate) struct ReadFlight {
    flights: Rc<OriginOpsInFlight>,
    id: usize,
}

impl ReadFlight {
    /// Notes that the read has returned `bytes`, and hands them to the joiners.
    pub(crate) fn deliver(&self, bytes: &[u8]) {
        let mut reads = self.flights.reads.borrow_mut();
        let read = &mut reads[self.id];
        read.in_flight = false;
        let (start, joiners) = (read.blocks.start, std::mem::take(&mut read.joiners));
        drop(reads);
        for Joiner {
            blocks,
            mut buf,
            reply,
        } in joiners
        {
            let from = (blocks.start - start) as usize * BLOCK_BYTES;
            buf.copy_from_slice(&bytes[from..from + bytes_of(&blocks)]);
            // A joiner may be gone.
            let _ = reply.send((buf, true));
        }
    }

    /// True if a write has overlapped the read or its promotion.
    pub(crate) fn is_overwritten(&self) -> bool {
        self.flights.reads.borrow()[self.id].overwritten
    }
}

impl Drop for ReadFlight {
    fn drop(&mut self) {
        let read = self.flights.reads.borrow_mut().remove(self.id);
        for joiner in read.joiners {
            // A joiner may be gone.
            let _ = joiner.reply.send((joiner.buf, false));
        }
    }
}

/// A client's change in flight.
pub(crate) struct WriteFlight {
    flights: Rc<OriginOpsInFlight>,
    id: usize,
}

impl Drop for WriteFlight {
    fn drop(&mut self) {
        self.flights.writes.borrow_mut().remove(self.id);
        self.flights.writing.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Pool;

    fn split(flights: &OriginOpsInFlight, blocks: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut runs = Vec::new();
        flights.split(blocks, |run, join| runs.push((run, join)));
        runs
    }

    #[test]
    fn missing_runs_join_what_is_in_flight() {
        let flights = Rc::new(OriginOpsInFlight::default());
        assert_eq!(split(&flights, 0..10), [(0..10, false)]);
        let a = flights.begin_read(4..6);
        let _b = flights.begin_read(8..20);
        let expected = [(0..4, false), (4..6, true), (6..8, false), (8..10, true)];
        assert_eq!(split(&flights, 0..10), expected);
        drop(a);
        assert_eq!(split(&flights, 0..10), [(0..8, false), (8..10, true)]);
    }

    #[test]
    fn a_write_ends_joining_and_promotion_however_they_overlap() {
        let flights = Rc::new(OriginOpsInFlight::default());
        let before = flights.begin_read(0..4);
        let beside = flights.begin_read(4..8);
        let write = flights.begin_write(3..4);
        let during = flights.begin_read(3..5);
        drop(write);
        let after = flights.begin_read(3..4);
        assert!(before.is_overwritten() && during.is_overwritten());
        assert!(!beside.is_overwritten() && !after.is_overwritten());
        assert_eq!(
            split(&flights, 0..5),
            [(0..3, false), (3..4, true), (4..5, true)]
        );
        assert!(flights.writing.is_idle());
    }

    #[test]
    fn those_who_join_get_the_bytes_or_their_buffer_back() {
        let pool = Pool::new(4 << 20);
        let flights = Rc::new(OriginOpsInFlight::default());
        let join = |blocks: Range<u64>| {
            let buf = pool.try_get(bytes_of(&blocks)).unwrap();
            flights.join(blocks, buf)
        };
        assert!(join(0..1).is_err());
        let read = flights.begin_read(0..4);
        let mut good = join(1..3).expect("covered");
        let mut bytes = vec![0; 4 * BLOCK_BYTES];
        bytes[BLOCK_BYTES..3 * BLOCK_BYTES].fill(7);
        read.deliver(&bytes);
        let (buf, filled) = good.try_recv().unwrap().expect("answered");
        assert!(filled && buf.len() == 2 * BLOCK_BYTES && buf.iter().all(|b| *b == 7));
        assert!(join(1..3).is_err(), "it has ended");
        let read = flights.begin_read(0..4);
        let mut lost = join(0..4).expect("covered");
        drop(read);
        assert!(!lost.try_recv().unwrap().expect("answered").1);
    }
}
