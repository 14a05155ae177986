//! Recognises the requests of sequential streams.
//!
//! A request is sequential once its stream has moved `cutoff` bytes before it. Beside such a stream
//! a quarter of that suffices: a backup may read at several places. Slow storage serves long streams
//! well, and their lines would displace those that it serves badly. The cutoff and its default are
//! bcache's (`sequential_cutoff`), counted for each volume, since a block frontend does not know its
//! clients' tasks.
//!
//! A stream begins as a [`Chain`]: small requests, each of which starts at the end of another. At
//! [`GRAIN_BYTES`] a chain becomes a [`SequentialStream`], and a request of that length is one at once. A
//! stream takes requests in any order and of any length within a window about its end, since a
//! frontend cuts long requests into pieces and carries out many at a time. A bitmap has the grains
//! of the window that were moved:
//!     a grain moved for the first time lengthens the stream
//!     a grain moved again shortens it: a hot region is not a stream
//!     a request is sequential if the grains before it were moved, or most of the window
//!     a stream with a stalled end is none: requests in random order come to its end soon
//!
//! An announced request, which comes in pieces, is judged once, as a whole.
//!
//! A stream with a second request that ends at the start of the first runs backwards, and is kept
//! mirrored.
//!
//! Not here: backward streams of requests shorter than a grain; streams with more than half of a
//! window in flight, a part of which is taken for random; several readers of the same range, which
//! looks like a hot region; files shorter than the cutoff.

use crate::lines::BLOCK_BYTES;
use std::ops::Range;

/// Chains remembered; 4 KiB. With a hundred random requests between two of a chain, the chain is
/// displaced about once in fifteen times.
const CHAINS: usize = 256;

/// Streams remembered; 7 KiB.
const STREAMS: usize = 32;

/// Requests in pieces that are remembered; 1 KiB.
const DIVIDED: usize = 32;

/// Unit of a stream's bitmap.
const GRAIN_BYTES: u64 = 64 << 10;
const GRAIN_BLOCKS: u64 = GRAIN_BYTES / BLOCK_BYTES as u64;

/// The window: `qemu-img` has 16 requests of 2 MiB in flight at its most, and a frontend that is
/// short of memory cuts them into pieces. A window is twice that.
const WINDOW_GRAINS: u64 = 64 * WINDOW_WORDS as u64;
const WINDOW_WORDS: usize = 16;
/// The window of requests shorter than a grain, in requests, and its least length. A hot set beside
/// a stream is not to stall the stream.
const WINDOW_REQUESTS: u64 = 192;
const WINDOW_BLOCKS_MIN: u64 = 4 * GRAIN_BLOCKS;

/// A request goes on with its stream if this many times its length was moved before it, and as many
/// grains.
const LENGTHS_BEFORE: u64 = 4;

/// Limit of a stream's requests while its end stalls, for requests shorter than a grain. They are
/// late by their number in flight.
const STILL_MAX: u32 = 32;
/// The same for longer requests. Pieces of a long request come behind the end: of 16 of 2 MiB, in
/// pieces of 256 KiB, 112 at a time.
const STILL_PIECES_MAX: u32 = 128;

/// Beside a stream past the cutoff this part of it suffices: `nbdcopy` reads at four places, each
/// for 128 MiB.
const BESIDE: u64 = 4;

/// Such a stream goes on until as many requests came after its last.
const BESIDE_REQUESTS: u32 = 256;

/// A stream is forgotten after as many requests of others.
const IDLE_REQUESTS: u32 = 16_384;

#[derive(Clone, Copy, Default)]
struct Chain {
    /// The block at which the chain goes on; 0 for no chain.
    next: u64,
    bytes: u32,
    /// Was passed over once by a shorter chain.
    spared: bool,
}

/// The first grain that starts in or after `block`.
fn grain(block: u64) -> u64 {
    block.div_ceil(GRAIN_BLOCKS)
}

struct SequentialStream {
    /// The block after the last one moved, and its grain.
    next: u64,
    end: u64,
    /// Grains since the beginning, at most a window.
    span: u64,
    /// Bit `g % WINDOW_GRAINS`: grain `g` of the window that ends at `end` was moved.
    moved: [u64; WINDOW_WORDS],
    /// Bits that are set.
    dense: u64,
    /// Bytes moved once less twice the bytes moved again.
    bytes: u64,
    /// Its requests since its end last went on.
    still: u32,
    /// Time of its last request, in requests of the volume.
    seen: u32,
    /// Start of its only request.
    only: Option<u64>,
    backward: bool,
}

/// Backward streams count blocks down from here.
const TOP: u64 = 1 << 52;

impl SequentialStream {
    /// The stream that has moved `blocks`, at most a window of them.
    fn new(blocks: &Range<u64>, seen: u32) -> SequentialStream {
        let mut stream = SequentialStream::empty(blocks, seen, false);
        stream.take(blocks, u64::MAX);
        stream.only = Some(blocks.start);
        stream
    }

    /// The stream that goes on with `blocks`.
    fn empty(blocks: &Range<u64>, seen: u32, backward: bool) -> SequentialStream {
        let mut stream = SequentialStream {
            next: 0,
            end: 0,
            span: 0,
            moved: [0; WINDOW_WORDS],
            dense: 0,
            bytes: 0,
            still: 0,
            seen,
            only: None,
            backward,
        };
        stream.next = stream.along(blocks).start;
        stream.end = grain(stream.next);
        stream
    }

    /// The blocks in the order of the stream.
    fn along(&self, blocks: &Range<u64>) -> Range<u64> {
        match self.backward {
            false => blocks.clone(),
            true => TOP - blocks.end..TOP - blocks.start,
        }
    }

    /// Blocks between the stream's end and a request for `blocks`, if within the window.
    fn distance(&self, blocks: &Range<u64>) -> Option<u64> {
        let window = match blocks.end - blocks.start {
            GRAIN_BLOCKS.. => WINDOW_GRAINS * GRAIN_BLOCKS,
            few => (WINDOW_REQUESTS * few).max(WINDOW_BLOCKS_MIN),
        };
        let distance = self.next.abs_diff(self.along(blocks).start);
        (distance <= window).then_some(distance)
    }

    /// True if a request for `blocks`, within the window, is sequential.
    fn is_past(&self, cutoff: u64, blocks: &Range<u64>) -> bool {
        let start = grain(self.along(blocks).start);
        let before = LENGTHS_BEFORE * grain(blocks.end - blocks.start);
        let goes_on = || (1..=before).all(|n| self.is_marked(start.wrapping_sub(n)));
        let is_dense = 16 * self.dense >= 9 * self.span;
        let still_max = match blocks.end - blocks.start {
            GRAIN_BLOCKS.. => STILL_PIECES_MAX,
            _ => STILL_MAX,
        };
        self.bytes >= cutoff && self.still < still_max && (is_dense || goes_on())
    }

    fn take(&mut self, blocks: &Range<u64>, cutoff: u64) {
        // Its grains lie before its beginning: the first two requests had changed places.
        if self.backward && self.dense > 2 * self.span {
            *self = SequentialStream::empty(blocks, self.seen, false);
        }
        if let Some(start) = self.only.take_if(|start| *start == blocks.end) {
            let first = start..self.next;
            *self = SequentialStream::empty(&first, self.seen, true);
            self.take(&first, cutoff);
        }
        self.only = None;
        let blocks = self.along(blocks);
        // Requests shorter than a block share one.
        if blocks.start + 1 >= self.next && blocks.end <= self.next {
            return;
        }
        let grains = grain(blocks.start)..grain(blocks.end);
        for skipped in self.end..grains.start {
            self.mark(skipped, false);
        }
        // The sum is bounded, so that a region that has become hot is soon no stream.
        let most = cutoff.saturating_mul(2);
        for moved in grains.clone() {
            let again = moved < self.end && self.is_marked(moved);
            self.mark(moved, true);
            self.bytes = match again {
                false => most.min(self.bytes + GRAIN_BYTES),
                true => self.bytes.saturating_sub(2 * GRAIN_BYTES),
            };
        }
        let end = self.end.max(grains.end);
        self.still = match end > self.end {
            true => 0,
            false => self.still.saturating_add(1),
        };
        self.span = WINDOW_GRAINS.min(self.span + end - self.end);
        self.end = end;
        self.next = self.next.max(blocks.end);
    }

    fn is_marked(&self, grain: u64) -> bool {
        let at = grain % WINDOW_GRAINS;
        self.moved[(at / 64) as usize] & 1 << (at % 64) != 0
    }

    fn mark(&mut self, grain: u64, moved: bool) {
        self.dense += u64::from(moved);
        self.dense -= u64::from(self.is_marked(grain));
        let at = grain % WINDOW_GRAINS;
        let word = &mut self.moved[(at / 64) as usize];
        *word = *word & !(1 << (at % 64)) | u64::from(moved) << (at % 64);
    }
}

/// A request that comes in pieces.
struct DividedRequest {
    blocks: Range<u64>,
    /// Blocks of the pieces to come.
    left: u64,
    is_sequential: bool,
}

pub(crate) struct Sequential {
    chains: Box<[Chain; CHAINS]>,
    streams: Vec<SequentialStream>,
    /// The oldest first.
    divided: Vec<DividedRequest>,
    requests: u32,
    cutoff: Option<u64>,
}

/// Multiplicative hashing by the golden ratio (Knuth, TAOCP 3, 6.4).
fn place(block: u64) -> usize {
    (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % CHAINS
}

impl Sequential {
    pub(crate) fn new(cutoff: Option<u64>) -> Sequential {
        Sequential {
            chains: Box::new([Chain::default(); CHAINS]),
            streams: Vec::with_capacity(STREAMS),
            divided: Vec::with_capacity(DIVIDED),
            requests: 0,
            cutoff,
        }
    }

    /// True if a request for `blocks` would be sequential.
    #[inline]
    pub(crate) fn is_sequential(&self, blocks: &Range<u64>) -> bool {
        let Some(cutoff) = self.cutoff else {
            return false;
        };
        if let Some(at) = self.whole(blocks) {
            return self.divided[at].is_sequential;
        }
        match self.stream(blocks, cutoff) {
            Some((is_sequential, _)) => is_sequential,
            None => u64::from(self.chain(blocks.start).map_or(0, |c| c.bytes)) >= cutoff,
        }
    }

    /// Notes a request for `blocks` that comes in pieces. One longer than the cutoff is judged by
    /// its pieces.
    pub(crate) fn announce(&mut self, blocks: Range<u64>) {
        let Some(cutoff) = self.cutoff else { return };
        let left = blocks.end - blocks.start;
        if left * BLOCK_BYTES as u64 > cutoff {
            return;
        }
        let is_sequential = self.note(&blocks, cutoff);
        if self.divided.len() == DIVIDED {
            self.divided.remove(0);
        }
        self.divided.push(DividedRequest {
            blocks,
            left,
            is_sequential,
        });
    }

    /// The place of the announced request that `blocks` are a piece of.
    fn whole(&self, blocks: &Range<u64>) -> Option<usize> {
        let has = |whole: &Range<u64>| whole.start <= blocks.start && blocks.end <= whole.end;
        self.divided.iter().position(|divided| has(&divided.blocks))
    }

    /// Takes a piece of an announced request; true if that is sequential.
    fn take_piece(&mut self, blocks: &Range<u64>) -> Option<bool> {
        let at = self.whole(blocks)?;
        let divided = &mut self.divided[at];
        divided.left = divided.left.saturating_sub(blocks.end - blocks.start);
        let (left, is_sequential) = (divided.left, divided.is_sequential);
        if left == 0 {
            self.divided.remove(at);
        }
        Some(is_sequential)
    }

    /// Notes a request; true if the request is sequential.
    #[inline]
    pub(crate) fn observe(&mut self, blocks: &Range<u64>) -> bool {
        self.cutoff.is_some_and(|cutoff| {
            let piece = self.take_piece(blocks);
            piece.unwrap_or_else(|| self.note(blocks, cutoff))
        })
    }

    fn note(&mut self, blocks: &Range<u64>, cutoff: u64) -> bool {
        self.requests = self.requests.wrapping_add(1);
        if !self.streams.is_empty()
            && let Some(answer) = self.observe_stream(blocks, cutoff)
        {
            return answer;
        }
        let len = (blocks.end - blocks.start) * BLOCK_BYTES as u64;
        let before = self.chain(blocks.start).map_or(0, |chain| chain.bytes);
        if before > 0 {
            self.chains[place(blocks.start)] = Chain::default();
        }
        let bytes = u64::from(before) + len;
        if bytes >= GRAIN_BYTES {
            self.begin(blocks.end - bytes / BLOCK_BYTES as u64..blocks.end, cutoff);
        } else {
            self.lengthen(Chain {
                next: blocks.end,
                bytes: bytes as u32,
                spared: false,
            });
        }
        u64::from(before) >= cutoff
    }

    /// The chain that goes on at `start`.
    fn chain(&self, start: u64) -> Option<Chain> {
        let chain = self.chains[place(start)];
        (chain.next == start && start != 0).then_some(chain)
    }

    /// A chain displaced by another is forgotten, but the shorter of two has to come twice:
    /// random requests, which are chains of one, do not wash out a long one.
    fn lengthen(&mut self, chain: Chain) {
        let entry = &mut self.chains[place(chain.next)];
        if entry.next == chain.next {
            entry.bytes = entry.bytes.max(chain.bytes);
        } else if entry.bytes > chain.bytes && !entry.spared {
            entry.spared = true;
        } else {
            *entry = chain;
        }
    }

    /// Returns the stream of `blocks`, and true if they are sequential: a stream past its cutoff,
    /// or the nearest.
    fn stream(&self, blocks: &Range<u64>, cutoff: u64) -> Option<(bool, usize)> {
        let near = self.streams.iter().enumerate().filter_map(|(at, stream)| {
            let distance = stream.distance(blocks)?;
            let cutoff = self.cutoff_of(stream, cutoff);
            Some(((!stream.is_past(cutoff, blocks), distance), at))
        });
        near.min().map(|((short, _), at)| (!short, at))
    }

    /// The cutoff of a stream, which is lower beside a stream past it.
    fn cutoff_of(&self, stream: &SequentialStream, cutoff: u64) -> u64 {
        let less = cutoff / BESIDE;
        let goes_on = |other: &SequentialStream| {
            other.bytes >= cutoff && self.requests.wrapping_sub(other.seen) < BESIDE_REQUESTS
        };
        match (less..cutoff).contains(&stream.bytes) && self.streams.iter().any(goes_on) {
            true => less,
            false => cutoff,
        }
    }

    /// For a request of a stream: returns true if the request is sequential.
    fn observe_stream(&mut self, blocks: &Range<u64>, cutoff: u64) -> Option<bool> {
        let now = self.requests;
        if now.is_multiple_of(IDLE_REQUESTS / 16) {
            self.streams
                .retain(|stream| now.wrapping_sub(stream.seen) < IDLE_REQUESTS);
        }
        let (sequential, at) = self.stream(blocks, cutoff)?;
        let stream = &mut self.streams[at];
        stream.seen = now;
        stream.take(blocks, cutoff);
        Some(sequential)
    }

    fn begin(&mut self, blocks: Range<u64>, cutoff: u64) {
        let now = self.requests;
        if self.streams.len() == STREAMS {
            // Long streams that have ended leave room for new ones.
            let is_short = |stream: &&SequentialStream| stream.bytes < cutoff;
            let crowded = self.streams.iter().filter(is_short).count() > STREAMS / 4;
            let age = |stream: &SequentialStream| {
                (crowded && is_short(&stream), now.wrapping_sub(stream.seen))
            };
            let oldest = (0..STREAMS).max_by_key(|at| age(&self.streams[*at]));
            self.streams.swap_remove(oldest.expect("there are streams"));
        }
        self.streams.push(SequentialStream::new(&blocks, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const CUTOFF: u64 = 4 << 20;
    const MIB: u64 = (1 << 20) / BLOCK_BYTES as u64;

    /// Bytes of `requests` that are not taken for sequential.
    fn entered(requests: impl IntoIterator<Item = Range<u64>>) -> u64 {
        let mut detector = Sequential::new(Some(CUTOFF));
        let missed = requests.into_iter().filter(|r| !detector.observe(r));
        missed.map(|r| (r.end - r.start) * BLOCK_BYTES as u64).sum()
    }

    /// Requests of `len` blocks, `depth` at a time, each carried out in pieces.
    fn in_flight(blocks: u64, len: u64, depth: u64, piece: u64) -> Vec<Range<u64>> {
        let (mut order, mut flying, mut next) = (Vec::new(), Vec::new(), 0);
        while next < blocks || !flying.is_empty() {
            while next < blocks && (flying.len() as u64) < depth {
                flying.push(next..next + len);
                next += len;
            }
            for request in &mut flying {
                let piece = piece.min(request.end - request.start);
                order.push(request.start..request.start + piece);
                request.start += piece;
            }
            flying.retain(|request| !request.is_empty());
        }
        order
    }

    /// A generator of Knuth's (MMIX).
    fn random(seed: u64) -> impl Iterator<Item = u64> {
        let step = |x: &u64| {
            Some(
                x.wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407),
            )
        };
        std::iter::successors(Some(seed), step)
            .skip(1)
            .map(|x| x >> 33)
    }

    #[test]
    fn a_stream_is_sequential_past_its_cutoff_only() {
        let mut detector = Sequential::new(Some(1 << 20));
        let answers: Vec<bool> = (0..10)
            .map(|i| detector.observe(&(i * 64..i * 64 + 64)))
            .collect();
        assert_eq!(answers, [[false; 4].as_slice(), &[true; 6]].concat());
        assert!(
            !detector.observe(&(50_000..50_064)),
            "elsewhere is another stream"
        );
        assert!(detector.is_sequential(&(640..641)), "the first goes on");
        assert!(detector.observe(&(640..641)));
    }

    #[test]
    fn a_backup_is_recognised_whatever_its_length_of_requests_and_depth() {
        // nbdcopy, dd, fio; then qemu-img; then requests of 4 and 32 MiB.
        let kinds = [
            (1, 1),
            (16, 1),
            (16, 32),
            (64, 8),
            (64, 64),
            (MIB, 4),
            (2 * MIB, 8),
            (4 * MIB, 4),
            (32 * MIB, 1),
            (32 * MIB, 2),
        ];
        for ((len, depth), piece) in kinds.into_iter().flat_map(|k| [(k, MIB), (k, MIB / 4)]) {
            let entered = entered(in_flight(1024 * MIB, len, depth, piece));
            // Most of a window is to be full first.
            let most = CUTOFF + 2 * depth * (len * BLOCK_BYTES as u64).max(1 << 20);
            assert!(
                entered <= most,
                "{len} blocks, {depth} at a time, pieces of {piece}: {entered}"
            );
        }
    }

    /// Requests of readers that each take the next `chunk` of `blocks`, `depth` requests of `len` at
    /// a time. A request is carried out in pieces, each of which takes another time.
    fn read_by(
        readers: usize,
        (blocks, chunk): (u64, u64),
        (len, depth): (u64, usize),
        piece: u64,
    ) -> Vec<Range<u64>> {
        let (mut order, mut random) = (Vec::new(), random(11));
        let (mut left, mut flying) = (vec![0..0; readers], BTreeMap::new());
        let mut chunks = (0..blocks).step_by(chunk as usize);
        let idle = (0..readers).cycle().take(readers * depth);
        flying.extend(
            idle.zip(0u64..)
                .map(|(reader, at)| ((0, at), (reader, 0..0))),
        );
        while let Some(((now, turn), (reader, mut request))) = flying.pop_first() {
            let after = random.next().expect("it is endless") % 20;
            if request.is_empty() {
                let rest = &mut left[reader];
                if rest.start == rest.end {
                    let Some(next) = chunks.next() else { continue };
                    *rest = next..next + chunk;
                }
                request = rest.start..rest.start + len;
                rest.start += len;
                flying.insert((now + after, turn), (reader, request));
                continue;
            }
            let end = request.end.min(request.start + piece);
            order.push(request.start..end);
            request.start = end;
            let slowness = if after < 2 { 4 } else { 1 };
            flying.insert((now + (40 + after) * slowness, turn), (reader, request));
        }
        order
    }

    #[test]
    fn a_backup_at_several_places_enters_by_two_percent_at_most() {
        let all = 8192 * MIB;
        for (readers, chunk, kind, piece) in [
            // `qemu-img convert -m 16 -W`, and the same with less and less memory.
            (1, all, (2 * MIB, 16), MIB),
            (1, all, (2 * MIB, 16), MIB / 4),
            (1, all, (2 * MIB, 16), MIB / 8),
            (1, all, (2 * MIB, 16), MIB / 16),
            // `nbdcopy` by one, two and four connections.
            (1, all, (MIB / 4, 64), MIB / 4),
            (1, all, (MIB / 4, 64), MIB / 16),
            (2, 128 * MIB, (MIB / 4, 64), MIB / 4),
            (4, 128 * MIB, (MIB / 4, 64), MIB / 4),
        ] {
            let entered = entered(read_by(readers, (all, chunk), kind, piece));
            let most = all * BLOCK_BYTES as u64 / 50;
            assert!(
                entered <= most,
                "{readers} readers, {kind:?}, {piece}: {}",
                entered >> 20
            );
        }
    }

    /// Bytes of announced requests that are not taken for sequential, a piece of each at a time.
    fn entered_in_pieces(len: u64, depth: u64, piece: u64) -> u64 {
        let mut detector = Sequential::new(Some(CUTOFF));
        let mut missed = 0;
        for first in (0..1024 * MIB).step_by((len * depth) as usize) {
            let wholes: Vec<_> = (0..depth).map(|n| first + n * len).collect();
            for start in &wholes {
                detector.announce(*start..start + len);
            }
            for at in (0..len).step_by(piece as usize) {
                for start in &wholes {
                    let blocks = start + at..(start + at + piece).min(start + len);
                    let is_sequential = detector.is_sequential(&blocks);
                    assert_eq!(detector.observe(&blocks), is_sequential);
                    missed += u64::from(!is_sequential) * (blocks.end - blocks.start);
                }
            }
        }
        assert!(detector.divided.is_empty());
        missed * BLOCK_BYTES as u64
    }

    #[test]
    fn announced_requests_are_sequential_whatever_their_pieces() {
        for piece in [1, 7, 8, MIB / 16, MIB] {
            let entered = entered_in_pieces(2 * MIB, 16, piece);
            assert!(entered <= CUTOFF, "pieces of {piece}: {entered}");
        }
    }

    #[test]
    fn announced_requests_whose_pieces_never_come_are_forgotten() {
        let mut detector = Sequential::new(Some(CUTOFF));
        for at in 0..1000 {
            detector.announce(at * 64 * MIB..at * 64 * MIB + 64);
        }
        assert_eq!(detector.divided.len(), DIVIDED);
        detector.announce(0..4 * MIB + 1);
        assert_eq!(detector.whole(&(0..1)), None, "longer than the cutoff");
    }

    #[test]
    fn new_streams_are_recognised_after_many_long_ones() {
        let mut detector = Sequential::new(Some(CUTOFF));
        for long in 0..STREAMS as u64 {
            for at in (0..16 * MIB).step_by(64) {
                detector.observe(&((long << 30) + at..(long << 30) + at + 64));
            }
        }
        let mut missed = 0;
        for at in (0..64 * MIB).step_by(64) {
            for new in 100..103 {
                missed +=
                    64 * u64::from(!detector.observe(&((new << 30) + at..(new << 30) + at + 64)));
            }
        }
        assert!(missed <= 3 * 5 * MIB, "{} MiB", missed / MIB);
    }

    #[test]
    fn a_backup_is_recognised_though_its_first_two_requests_change_places() {
        let mut requests = in_flight(64 * MIB, 64, 1, MIB);
        requests.swap(0, 1);
        let entered = entered(requests);
        assert!(entered <= 2 * CUTOFF, "{entered}");
    }

    #[test]
    fn a_backup_is_recognised_in_any_order_of_neighbours() {
        for seed in 1..20 {
            let requests = in_flight(1024 * MIB, 16, 1, MIB).into_iter().enumerate();
            let mut requests: Vec<_> = requests.zip(random(seed)).collect();
            requests.sort_by_key(|((at, _), late)| *at as u64 + late % 16);
            let entered = entered(requests.into_iter().map(|((_, request), _)| request));
            assert!(entered <= 4 * CUTOFF, "seed {seed}: {entered}");
        }
    }

    #[test]
    fn a_backup_that_runs_backwards_is_recognised() {
        let mut requests = in_flight(1024 * MIB, 16, 1, MIB);
        requests.reverse();
        assert_eq!(entered(requests), CUTOFF);
    }

    #[test]
    fn a_stream_is_recognised_whose_requests_have_several_lengths() {
        // Two of eight requests have little memory, and come to few blocks at a time.
        let (most, few) = (in_flight(512 * MIB, 2 * MIB, 8, MIB), 0..8 * MIB / 4);
        let few = few.map(|at| 100 * MIB + at * 4..100 * MIB + at * 4 + 4);
        let mixed = most.into_iter().zip(few.cycle()).flat_map(|(a, b)| [a, b]);
        let entered = entered(mixed);
        assert!(entered <= 32 << 20, "{entered}");
    }

    #[test]
    fn eight_backups_at_a_time_are_recognised_beside_a_hot_set() {
        let mut hot = random(3).map(|at| at % (96 * MIB));
        let mut detector = Sequential::new(Some(CUTOFF));
        let (mut backup, mut rejected) = (0, 0);
        for at in (0..1024 * MIB).step_by(32) {
            for reader in 1..=8 {
                let start = (reader << 30) + at;
                backup += 32 * u64::from(!detector.observe(&(start..start + 32)));
            }
            for at in hot.by_ref().take(16) {
                rejected += u32::from(detector.observe(&(at..at + 1)));
            }
        }
        assert!(backup <= 8 * 5 * MIB, "{} MiB entered", backup / MIB);
        assert_eq!(rejected, 0);
    }

    #[test]
    fn requests_shorter_than_a_block_make_a_stream() {
        let entered = entered((0..8 * 16 * MIB).map(|i| i / 8..i / 8 + 1));
        assert!(entered <= 9 * CUTOFF, "{entered}");
    }

    #[test]
    fn random_requests_are_not_sequential() {
        for (len, area) in [(1, 1_000_000), (1, MIB), (16, 4 * MIB), (16, 1_000_000)] {
            let requests = random(1).map(|at| at % (area / len) * len);
            let requests = requests.map(|at| at..at + len).take(100_000);
            let all = 100_000 * len * BLOCK_BYTES as u64;
            assert_eq!(entered(requests), all, "{len} blocks of {area}");
        }
    }

    #[test]
    fn requests_in_random_order_are_not_sequential_though_none_comes_twice() {
        for (area, len) in [
            (32, 16),
            (256, 16),
            (1024, 16),
            (32, 1),
            (256, 64),
            (1024, MIB),
        ] {
            let mut random = random(5);
            let passes = (0..6).flat_map(|_| {
                let mut order: Vec<(u64, u64)> = random.by_ref().zip(0..area * MIB / len).collect();
                order.sort_unstable();
                order.into_iter().map(|(_, at)| at * len..at * len + len)
            });
            let (entered, all) = (entered(passes), 6 * (area << 20));
            assert!(
                entered * 100 >= all * 90,
                "{area} MiB by {len} blocks: {entered} of {all}"
            );
        }
    }

    #[test]
    fn a_region_that_becomes_hot_is_a_stream_no_more() {
        let mut detector = Sequential::new(Some(CUTOFF));
        for at in in_flight(64 * MIB, MIB, 4, MIB) {
            detector.observe(&at);
        }
        let mut hot = random(7).map(|at| 56 * MIB + at % (8 * MIB / 16) * 16);
        let mut streamed = |at: u64| detector.observe(&(at..at + 16));
        hot.by_ref().take(1000).for_each(|at| {
            streamed(at);
        });
        let late = hot.take(1000).filter(|at| streamed(*at)).count();
        assert!(late < 20, "{late} of 1000 requests");
    }

    #[test]
    fn streams_survive_among_random_requests() {
        let (mut found, mut random) = (0, random(1));
        let mut detector = Sequential::new(Some(1 << 20));
        for i in 0..1000u64 {
            for stream in 0..8u64 {
                let at = (stream << 30) + i * 32;
                found += u32::from(detector.observe(&(at..at + 32)));
            }
            for at in random.by_ref().take(8) {
                detector.observe(&(at..at + 1));
            }
        }
        assert!(found > 7900, "{found} of 8000 requests recognised");
    }

    #[test]
    fn no_cutoff_means_nothing_is_sequential() {
        let mut detector = Sequential::new(None);
        assert!((0..100).all(|i| !detector.observe(&(i * 1024..(i + 1) * 1024))));
    }
}
