//! The memory of a pool, and the return of allocations from any thread.

use crate::buddy::{Lists, NIL};
use std::alloc::{Layout, dealloc};
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// The alignment of every buffer, and the smallest allocation.
pub const PAGE_BYTES: usize = 4096;

pub(crate) struct Arena {
    /// The allocator's memory; `base` is the first page inside.
    pub(super) allocated: NonNull<u8>,
    pub(super) base: NonNull<u8>,
    pub(super) pages: u32,
    pub(super) owner: u64,
    pub(super) heads: Box<[Head]>,
    pub(super) lists: UnsafeCell<Lists>,
    pub(super) freed_elsewhere: AtomicU32,
    pub(super) waiting: AtomicUsize,
    pub(super) waiters: Mutex<VecDeque<(u64, Waker)>>,
    pub(super) tickets: AtomicU64,
    /// Bytes that the system gave beside the arena, and the most by which bytes handed out ever
    /// exceeded the arena.
    pub(super) beside: AtomicUsize,
    pub(super) over_max: AtomicUsize,
    /// Bytes set aside for reserves.
    pub(super) reserved: AtomicUsize,
    /// The arena that this one, of a single buffer, stands beside.
    pub(super) beside_of: Option<Arc<Arena>>,
}

pub(super) struct Head {
    pub(super) refs: AtomicU32,
    pub(super) order: AtomicU32,
    pub(super) next: AtomicU32,
}

// SAFETY: `lists` is reached only through `Arena::lists`, which checks that the
// calling thread is the owner; everything else is atomic, locked or immutable.
unsafe impl Send for Arena {}

// SAFETY: as above.
unsafe impl Sync for Arena {}

#[inline]
pub(super) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static TOKEN: Cell<u64> = const { Cell::new(0) });
    TOKEN.with(|token| {
        if token.get() == 0 {
            token.set(NEXT.fetch_add(1, Relaxed));
        }
        token.get()
    })
}

/// Aligned by hand, with a page to spare: an allocator writes all bytes of aligned zeroes, and
/// otherwise takes untouched ones from the system.
pub(super) fn arena_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes + PAGE_BYTES, 1).expect("a valid arena layout")
}

impl Arena {
    #[inline]
    pub(crate) fn refs(&self, page: u32) -> &AtomicU32 {
        &self.heads[page as usize].refs
    }

    /// # Safety
    /// No other reference from an earlier call may be alive.
    #[allow(
        clippy::mut_from_ref,
        reason = "the owner check makes the access exclusive"
    )]
    #[inline]
    pub(super) unsafe fn lists(&self) -> &mut Lists {
        assert_eq!(
            self.owner,
            this_thread(),
            "a pool allocates on its own thread"
        );
        // SAFETY: one thread, and no other borrow by this function's contract.
        unsafe { &mut *self.lists.get() }
    }

    /// Gives back the allocation at `page`, which has lost its last reference, and one strong count
    /// of the arena.
    ///
    /// # Safety
    ///
    /// `arena` came from `Pool::allocate`, and this is the only release of `page`.
    #[inline]
    pub(crate) unsafe fn release(arena: NonNull<Arena>, page: u32) {
        // SAFETY: the allocation owned this count.
        let arena = unsafe { Arc::from_raw(arena.as_ptr().cast_const()) };
        if arena.owner == this_thread() {
            let order = arena.heads[page as usize].order.load(Relaxed) as usize;
            // SAFETY: `lists` checks the thread; the borrow ends with the statement.
            unsafe { arena.lists() }.give(page, order);
            // Waiters are on this thread too, so their state needs no fence.
        } else {
            let next = &arena.heads[page as usize].next;
            let mut top = arena.freed_elsewhere.load(Relaxed);
            loop {
                next.store(top, Relaxed);
                match arena
                    .freed_elsewhere
                    .compare_exchange_weak(top, page, AcqRel, Relaxed)
                {
                    Ok(_) => break,
                    Err(now) => top = now,
                }
            }
            // Pairs with the fence in `Get::wait`, which looks for room again after its
            // announcement.
            fence(SeqCst);
        }
        if arena.waiting.load(Relaxed) != 0 {
            arena.wake_first();
        }
    }

    pub(super) fn collect_freed_elsewhere(&self) {
        if self.freed_elsewhere.load(Relaxed) == NIL {
            return;
        }
        let mut page = self.freed_elsewhere.swap(NIL, AcqRel);
        while page != NIL {
            let head = &self.heads[page as usize];
            let next = head.next.load(Relaxed);
            // SAFETY: `lists` checks the thread; the borrow ends with the statement.
            unsafe { self.lists() }.give(page, head.order.load(Relaxed) as usize);
            page = next;
        }
    }

    pub(super) fn wake_first(&self) {
        let waiters = self.waiters.lock().expect("no panic under this lock");
        let first = waiters.front().map(|(_, waker)| waker.clone());
        drop(waiters);
        if let Some(waker) = first {
            waker.wake();
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some(arena) = &self.beside_of {
            let bytes = self.pages as usize * PAGE_BYTES;
            arena.beside.fetch_sub(bytes, Relaxed);
        }
        // SAFETY: allocated in `Pool::new` with this layout; no buffer is left,
        // for each holds a strong count.
        unsafe {
            dealloc(
                self.allocated.as_ptr(),
                arena_layout(self.pages as usize * PAGE_BYTES),
            )
        }
    }
}
