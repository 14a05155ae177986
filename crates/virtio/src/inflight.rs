//! Requests in flight, marked in memory that the monitor keeps for the next daemon, in the layout
//! of the vhost-user protocol for split rings ("Inflight I/O tracking").
//!
//! Invariants:
//!     a head was taken from the ring and its answer is not visible ⟹ the head is marked
//!     the daemon died between an answer and its mark ⟹ `last` names that head and
//!     `used` lags by one                                                (`recover`)
//!
//! The monitor can write that memory too: every value read back is checked.

use crate::fault::MappingWatch;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering::*};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// A ring's header: features (8 bytes), version, length, last head, used index (2 each).
const HEADER_BYTES: usize = 16;
const VERSION_AT: usize = 8;
const LEN_AT: usize = 10;
const LAST_AT: usize = 12;
const USED_AT: usize = 14;
/// A descriptor's entry: a mark (1 byte), padding, and a counter (at 8).
const ENTRY_BYTES: usize = 16;
const COUNTER_AT: usize = 8;
/// Alignment of rings.
const ALIGN: usize = 64;
const VERSION: u16 = 1;

/// Bytes of a ring of `len` descriptors.
pub(crate) const fn ring_bytes(len: u16) -> usize {
    (HEADER_BYTES + len as usize * ENTRY_BYTES).next_multiple_of(ALIGN)
}

/// Makes memory for `rings` rings of `len` descriptors, which no process can make shorter.
pub(crate) fn create(rings: u16, len: u16) -> io::Result<(File, usize)> {
    let bytes = usize::from(rings) * ring_bytes(len);
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"hotset-inflight".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and without another owner.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes as u64)?;
    let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: no pointers are involved.
    match unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } {
        0 => Ok((file, bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Mapped memory of a file. A file that is not from `create` may be made shorter.
struct Mapped {
    /// Dropped before the mapping.
    watch: MappingWatch,
    region: MmapRegion,
}

/// The marks of all rings.
#[derive(Clone)]
pub(crate) struct Marks {
    map: Arc<Mapped>,
    rings: u16,
    len: u16,
}

impl Marks {
    /// Maps a file of `create`, from this daemon or a previous one.
    pub(crate) fn map(file: File, offset: u64, rings: u16, len: u16) -> io::Result<Marks> {
        let bytes = usize::from(rings) * ring_bytes(len);
        let end = offset.checked_add(bytes as u64);
        if bytes == 0 || end.is_none_or(|end| end > file.metadata().map_or(0, |m| m.len())) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let region = MmapRegion::from_file(FileOffset::new(file, offset), bytes);
        let region = region.map_err(io::Error::other)?;
        // SAFETY: a mapping of its own, which outlives the watch and is reached by atomic
        // accesses alone.
        let watch = unsafe { MappingWatch::begin(region.as_ptr(), region.size()) }?;
        Ok(Marks {
            map: Arc::new(Mapped { watch, region }),
            rings,
            len,
        })
    }

    /// Returns the marks of one ring of `len` descriptors, if there is room for that ring.
    pub(crate) fn ring(&self, ring: u16, len: u16) -> Option<RingMarks> {
        (ring < self.rings && len <= self.len).then(|| RingMarks {
            map: self.map.clone(),
            at: usize::from(ring) * ring_bytes(self.len),
            len,
            counter: 0,
        })
    }
}

/// The marks of one ring.
pub(crate) struct RingMarks {
    map: Arc<Mapped>,
    at: usize,
    len: u16,
    counter: u64,
}

impl RingMarks {
    /// Returns the heads that the previous daemon has left unanswered, in the order in which they
    /// were taken. `used` is the ring's index of answers.
    pub(crate) fn recover(&mut self, used: u16) -> Vec<u16> {
        if self.short(VERSION_AT).load(Relaxed) != VERSION {
            self.short(LEN_AT).store(self.len, Relaxed);
            self.short(USED_AT).store(used, Relaxed);
            self.short(VERSION_AT).store(VERSION, Release);
            return Vec::new();
        }
        if self.short(USED_AT).load(Acquire) != used {
            let last = self.short(LAST_AT).load(Acquire);
            if last < self.len {
                self.mark(last).store(0, Relaxed);
            }
            self.short(USED_AT).store(used, Release);
        }
        let marked = (0..self.len).filter(|head| self.mark(*head).load(Acquire) != 0);
        let mut left: Vec<_> = marked
            .map(|head| (self.count(head).load(Relaxed), head))
            .collect();
        left.sort_unstable();
        self.counter = left.last().map_or(0, |(count, _)| count.wrapping_add(1));
        left.into_iter().map(|(_, head)| head).collect()
    }

    /// Number of descriptors with marks.
    pub(crate) fn len(&self) -> u16 {
        self.len
    }

    /// True if the memory of the marks was taken away.
    pub(crate) fn is_lost(&self) -> bool {
        self.map.watch.is_lost()
    }

    /// Marks `head` as taken from the ring.
    pub(crate) fn begin(&mut self, head: u16) {
        self.count(head).store(self.counter, Relaxed);
        self.counter = self.counter.wrapping_add(1);
        self.mark(head).store(1, Release);
    }

    /// Notes that the answer to `head` is about to be visible.
    pub(crate) fn ending(&self, head: u16) {
        self.short(LAST_AT).store(head, Release);
    }

    /// Removes the mark of `head`: its answer is visible, and the ring's index is `used` now.
    pub(crate) fn ended(&self, head: u16, used: u16) {
        self.mark(head).store(0, Release);
        self.short(USED_AT).store(used, Release);
    }

    fn short(&self, at: usize) -> &AtomicU16 {
        let place = self.map.region.get_atomic_ref(self.at + at);
        place.expect("inside the mapping, and aligned")
    }

    fn mark(&self, head: u16) -> &AtomicU8 {
        let place = self.map.region.get_atomic_ref(self.entry(head));
        place.expect("inside the mapping")
    }

    fn count(&self, head: u16) -> &AtomicU64 {
        let place = self
            .map
            .region
            .get_atomic_ref(self.entry(head) + COUNTER_AT);
        place.expect("inside the mapping, and aligned")
    }

    fn entry(&self, head: u16) -> usize {
        assert!(head < self.len, "head {head}");
        self.at + HEADER_BYTES + usize::from(head) * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(rings: u16, len: u16) -> Marks {
        let (file, _) = create(rings, len).unwrap();
        Marks::map(file, 0, rings, len).unwrap()
    }

    #[test]
    fn the_next_daemon_finds_what_is_left_in_order() {
        let marks = marks(2, 8);
        let mut first = marks.ring(1, 8).unwrap();
        assert!(first.recover(65_534).is_empty());
        for head in [5, 2, 7] {
            first.begin(head);
        }
        first.ending(2);
        first.ended(2, 65_535);
        let mut next = marks.ring(1, 8).unwrap();
        assert_eq!(next.recover(65_535), [5u16, 7]);
        next.begin(0);
        assert_eq!(marks.ring(1, 8).unwrap().recover(65_535), [5u16, 7, 0]);
        assert!(marks.ring(0, 8).unwrap().recover(3).is_empty());
    }

    #[test]
    fn an_answer_that_was_seen_is_not_repeated_though_its_mark_is_left() {
        let marks = marks(1, 4);
        let mut first = marks.ring(0, 4).unwrap();
        first.recover(9);
        first.begin(1);
        first.begin(3);
        first.ending(3);
        // Killed after the ring's index was raised, and before the mark was removed.
        assert_eq!(marks.ring(0, 4).unwrap().recover(10), [1u16]);
        // Killed before the ring's index was raised.
        let mut other = marks.ring(0, 4).unwrap();
        other.begin(3);
        other.ending(3);
        assert_eq!(marks.ring(0, 4).unwrap().recover(10), [1u16, 3]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (file, bytes) = create(1, 4).unwrap();
        assert!(Marks::map(file.try_clone().unwrap(), 64, 1, 4).is_err());
        assert!(Marks::map(file.try_clone().unwrap(), u64::MAX, 1, 4).is_err());
        assert!(Marks::map(file.try_clone().unwrap(), 0, 2, 4).is_err());
        file.set_len(bytes as u64 - 1).unwrap_err();
        let marks = Marks::map(file, 0, 1, 4).unwrap();
        assert!(marks.ring(1, 4).is_none() && marks.ring(0, 8).is_none());
    }
}
