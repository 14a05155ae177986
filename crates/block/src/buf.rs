//! Aligned buffers: `Buf` is written by one holder, `SharedBuf` read by many.
//!
//! Both are views of one pool allocation. A `Buf` splits into disjoint parts
//! that rejoin; a `SharedBuf` is cloned and sliced freely. Neither ever copies.
//!
//! Invariants:
//!     no two live `Buf`s overlap, and no `Buf` overlaps a `SharedBuf`
//!     the allocation returns to its pool when its last view is dropped

use crate::pool::arena::Arena;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::fence;

struct View {
    ptr: NonNull<u8>,
    len: u32,
    page: u32,
    arena: NonNull<Arena>,
}

// SAFETY: the bytes are reached exclusively (`Buf`) or only read (`SharedBuf`);
// the count is atomic, and the arena accepts releases from any thread.
unsafe impl Send for View {}
// SAFETY: through `&View` bytes are only read.
unsafe impl Sync for View {}

impl View {
    fn bytes(&self) -> &[u8] {
        // SAFETY: inside the arena, initialised (zeroed at first), and by the
        // invariants not written through another view while this one lives.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len as usize) }
    }

    #[inline]
    fn part(&self, range: Range<usize>) -> View {
        assert!(
            range.start <= range.end && range.end <= self.len as usize,
            "range {range:?}"
        );
        // SAFETY: the arena lives as long as this view.
        unsafe { self.arena.as_ref() }
            .refs(self.page)
            .fetch_add(1, Relaxed);
        View {
            // SAFETY: within this view by the check above.
            ptr: unsafe { self.ptr.add(range.start) },
            len: (range.end - range.start) as u32,
            page: self.page,
            arena: self.arena,
        }
    }

    fn is_sole(&self) -> bool {
        // SAFETY: the arena lives as long as this view.
        unsafe { self.arena.as_ref() }.refs(self.page).load(Acquire) == 1
    }
}

impl Drop for View {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the arena lives as long as this view.
        let refs = unsafe { self.arena.as_ref() }.refs(self.page);
        // A sole holder needs no atomic read-modify-write.
        if refs.load(Acquire) != 1 && refs.fetch_sub(1, Release) != 1 {
            return;
        }
        fence(Acquire);
        // SAFETY: the count fell to zero here, and only here.
        unsafe { Arena::release(self.arena, self.page) }
    }
}

/// An aligned buffer with one holder, the only writer.
pub struct Buf(View);

impl Buf {
    /// # Safety
    /// `ptr .. ptr+len` is the start of the fresh allocation at `page`, with a
    /// count of one, and `arena` carries a strong count for it.
    pub(crate) unsafe fn from_raw(
        ptr: NonNull<u8>,
        len: usize,
        page: u32,
        arena: NonNull<Arena>,
    ) -> Buf {
        Buf(View {
            ptr,
            len: len as u32,
            page,
            arena,
        })
    }

    /// Two disjoint buffers: the first `at` bytes, and the rest.
    pub fn split_at(self, at: usize) -> (Buf, Buf) {
        let tail = self.0.part(at..self.0.len as usize);
        let mut head = self;
        head.0.len = at as u32;
        (head, Buf(tail))
    }

    /// Undoes [`Buf::split_at`]; gives both back if they are not neighbours.
    pub fn rejoin(head: Buf, tail: Buf) -> Result<Buf, (Buf, Buf)> {
        if !head.is_before(&tail) {
            return Err((head, tail));
        }
        let mut whole = head;
        whole.0.len += tail.0.len;
        Ok(whole)
    }

    /// True if `tail` begins where this ends.
    pub(crate) fn is_before(&self, tail: &Buf) -> bool {
        self.0.arena == tail.0.arena
            && self.0.page == tail.0.page
            // SAFETY: one past the end of a view is at most one past the arena.
            && unsafe { self.0.ptr.add(self.0.len as usize) } == tail.0.ptr
    }

    /// Gives up writing, so that several may read.
    pub fn share(self) -> SharedBuf {
        SharedBuf(self.0)
    }

    /// Address of the bytes, for a driver that hands them to the kernel.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.ptr.as_ptr()
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: this `Buf` alone covers these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.ptr.as_ptr(), self.0.len as usize) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.0.len)
    }
}

/// A read-only view of a buffer, cheap to clone and slice.
pub struct SharedBuf(View);

impl SharedBuf {
    /// A view of a part of this one.
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> SharedBuf {
        SharedBuf(self.0.part(range))
    }

    /// The buffer back for writing, if no other view of its allocation is left.
    pub fn unshare(self) -> Result<Buf, SharedBuf> {
        if self.0.is_sole() {
            let this = ManuallyDrop::new(self);
            // SAFETY: `this` is never used or dropped again, so the view moves.
            Ok(Buf(unsafe { std::ptr::read(&this.0) }))
        } else {
            Err(self)
        }
    }
}

impl Clone for SharedBuf {
    fn clone(&self) -> SharedBuf {
        self.slice(0..self.0.len as usize)
    }
}

impl Deref for SharedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} bytes)", self.0.len)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Buf, Pool};

    #[test]
    fn parts_rejoin_in_order_only() {
        let pool = Pool::new(1 << 20);
        let mut buf = pool.try_get(4096).unwrap();
        buf.fill(7);
        let (a, b) = buf.split_at(1024);
        let (b, c) = b.split_at(512);
        assert_eq!((a.len(), b.len(), c.len()), (1024, 512, 2560));
        let (c, a) = Buf::rejoin(c, a).unwrap_err();
        let ab = Buf::rejoin(a, b).unwrap();
        let whole = Buf::rejoin(ab, c).unwrap();
        assert!(whole.len() == 4096 && whole.iter().all(|&x| x == 7));
        drop(whole);
        assert_eq!(pool.free_bytes(), pool.total_bytes());
    }

    #[test]
    fn neighbours_from_two_allocations_do_not_join() {
        let pool = Pool::new(1 << 20);
        let mut bufs: Vec<_> = (0..8).map(|_| pool.try_get(4096).unwrap()).collect();
        bufs.sort_by_key(|b| b.as_ptr());
        let b = bufs.remove(1);
        assert!(Buf::rejoin(bufs.remove(0), b).is_err());
    }

    #[test]
    fn parts_join_whichever_buffers_they_are() {
        let pool = Pool::new(1 << 20);
        let part = |len: usize, byte: u8| {
            let mut buf = pool.try_get(len).unwrap();
            buf.fill(byte);
            buf
        };
        let (head, tail) = part(4096, 3).split_at(1024);
        let (mid, tail) = tail.split_at(1024);
        let at = head.as_ptr();
        let whole = Buf::join(vec![head, mid, tail], &pool);
        assert_eq!((whole.as_ptr(), whole.len()), (at, 4096), "not copied");
        let (head, tail) = whole.split_at(512);
        let strangers = Buf::join(vec![head, part(512, 1), part(1024, 2), tail], &pool);
        let bytes: Vec<u8> = strangers.chunks(512).map(|c| c[0]).collect();
        assert_eq!(bytes, [3, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3]);
        assert!(strangers.chunks(512).all(|c| c.iter().all(|b| *b == c[0])));
    }

    #[test]
    fn sharing_copies_nothing_and_ends_when_the_last_view_goes() {
        let pool = Pool::new(1 << 20);
        let mut buf = pool.try_get(8192).unwrap();
        buf[4096] = 9;
        let at = buf.as_ptr();
        let shared = buf.share();
        let half = shared.slice(4096..8192);
        assert_eq!((half[0], half.as_ptr()), (9, at.wrapping_add(4096)));
        let shared = shared.unshare().unwrap_err();
        drop(half);
        let buf = shared.unshare().unwrap();
        assert_eq!(buf.as_ptr(), at);
        drop(buf);
        assert_eq!(pool.free_bytes(), pool.total_bytes());
    }
}
