//! Which requests are part of a sequential stream.
//!
//! A stream is a chain of requests each of which starts where another ended. A
//! request is sequential once its stream has moved `cutoff` bytes before it:
//! slow storage serves long runs well, and they would push out what it serves
//! badly. The rule and its default are bcache's (`sequential_cutoff`), counted
//! for each volume, since a block frontend does not know its clients' tasks.
//!
//! Streams live in a table indexed by a hash of where they are to go on. A
//! stream displaced by another is forgotten, but the shorter of two has to come
//! twice: random requests, which are streams of one, do not wash out a long one.

use crate::lines::BLOCK_BYTES;
use std::ops::Range;

/// Places for streams; 4 KiB of table. With a hundred random requests between
/// two of a stream, it is displaced about once in fifteen times.
const STREAMS: usize = 256;

#[derive(Clone, Copy, Default)]
struct Stream {
    /// The block at which the stream goes on; 0 for no stream.
    next: u64,
    bytes: u32,
    /// Was passed over once by a shorter stream.
    spared: bool,
}

impl Stream {
    /// The bytes that it has moved, if it goes on at `start`.
    fn before(&self, start: u64) -> Option<u32> {
        (self.next == start && start != 0).then_some(self.bytes)
    }
}

pub(crate) struct Sequential {
    streams: Box<[Stream; STREAMS]>,
    cutoff: Option<u64>,
}

/// Multiplicative hashing by the golden ratio (Knuth, TAOCP 3, 6.4).
fn place(block: u64) -> usize {
    (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % STREAMS
}

impl Sequential {
    pub(crate) fn new(cutoff: Option<u64>) -> Sequential {
        Sequential {
            streams: Box::new([Stream::default(); STREAMS]),
            cutoff,
        }
    }

    /// Whether a request would continue a stream past the cutoff.
    #[inline]
    pub(crate) fn would_continue(&self, start: u64) -> bool {
        let reaches = |cutoff| {
            let before = self.streams[place(start)].before(start);
            before.is_some_and(|bytes| u64::from(bytes) >= cutoff)
        };
        self.cutoff.is_some_and(reaches)
    }

    /// Hears of a request; true if it continues a stream past the cutoff.
    #[inline]
    pub(crate) fn observe(&mut self, blocks: &Range<u64>) -> bool {
        let Some(cutoff) = self.cutoff else {
            return false;
        };
        let entry = &mut self.streams[place(blocks.start)];
        let before = entry.before(blocks.start);
        if before.is_some() {
            *entry = Stream::default();
        }
        let len = (blocks.end - blocks.start) * BLOCK_BYTES as u64;
        let stream = Stream {
            next: blocks.end,
            bytes: before
                .unwrap_or(0)
                .saturating_add(u32::try_from(len).unwrap_or(u32::MAX)),
            spared: false,
        };
        let entry = &mut self.streams[place(stream.next)];
        if entry.bytes > stream.bytes && !entry.spared && entry.next != stream.next {
            entry.spared = true;
        } else {
            *entry = stream;
        }
        before.is_some_and(|bytes| u64::from(bytes) >= cutoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_sequential_past_its_cutoff_only() {
        let mut detector = Sequential::new(Some(1 << 20));
        let answers: Vec<bool> = (0..10)
            .map(|i| detector.observe(&(i * 64..i * 64 + 64)))
            .collect();
        assert_eq!(answers, [[false; 4].as_slice(), &[true; 6]].concat());
        assert!(
            !detector.observe(&(5000..5064)),
            "elsewhere is another stream"
        );
        assert!(detector.observe(&(640..641)), "and the first goes on");
    }

    #[test]
    fn random_requests_are_never_sequential() {
        let mut detector = Sequential::new(Some(1 << 20));
        let mut x = 1u64;
        for _ in 0..100_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (x >> 33) % 1_000_000;
            assert!(!detector.observe(&(block..block + 1)));
        }
    }

    #[test]
    fn streams_survive_among_random_requests() {
        let mut detector = Sequential::new(Some(1 << 20));
        let (mut x, mut found) = (1u64, 0);
        for i in 0..1000u64 {
            for stream in 0..8u64 {
                let at = (stream << 30) + i * 32;
                found += u32::from(detector.observe(&(at..at + 32)));
            }
            for _ in 0..8 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                detector.observe(&((x >> 20)..(x >> 20) + 1));
            }
        }
        assert!(found > 7000, "{found} of 8000 requests recognised");
    }

    #[test]
    fn no_cutoff_means_nothing_is_sequential() {
        let mut detector = Sequential::new(None);
        assert!((0..100).all(|i| !detector.observe(&(i * 1024..(i + 1) * 1024))));
    }
}
