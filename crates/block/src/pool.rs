//! The bounded, page-aligned memory that I/O buffers of one shard come from.
//!
//! One arena, allocated once (so that a driver can register it with the
//! kernel), handed out by a buddy allocator in powers of two of a page.
//!
//! Invariants:
//!     bytes handed out + bytes free = arena size          (`Pool::free_bytes`)
//!     refs(allocation) = number of `Buf`s and `Shared`s on it
//!     the free lists are touched by the owning thread alone
//!     whoever serves a request never waits for memory      (`Pool::take`)
//!
//! A buffer dropped on another thread goes onto a lock-free stack that the
//! owner empties when it runs short. Waiters are served in order of arrival.
//!
//! Memory is bounded by credits, never by waiting for it while holding some:
//! frontends hold at most half of the pool for their requests, layers that need
//! more than one further buffer of a request's size have a [`crate::Reserve`],
//! and background work takes what is free (`try_get`). What a device that does
//! not answer keeps is beyond that: if the arena has no room then, the system
//! gives the memory, and takes it back when the buffer is dropped.

#[cfg(test)]
mod tests;

use crate::buddy::{Lists, NIL, ORDERS};
use crate::buf::Buf;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// The alignment of every buffer, and the smallest allocation.
pub const PAGE_BYTES: usize = 4096;
/// The largest buffer: 4 MiB.
pub const BUF_BYTES_MAX: usize = PAGE_BYTES << (ORDERS - 1);

/// A handle to a shard's buffer memory; clones are the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Arena>);

pub(crate) struct Arena {
    /// What the allocator gave; `base` is the first page inside.
    allocated: NonNull<u8>,
    base: NonNull<u8>,
    pages: u32,
    owner: u64,
    heads: Box<[Head]>,
    lists: UnsafeCell<Lists>,
    freed_elsewhere: AtomicU32,
    waiting: AtomicUsize,
    waiters: Mutex<VecDeque<(u64, Waker)>>,
    tickets: AtomicU64,
    /// Bytes that the system gave beside the arena, and the most by which bytes
    /// handed out ever exceeded it.
    beside: AtomicUsize,
    over_max: AtomicUsize,
    /// Bytes set aside for reserves.
    reserved: AtomicUsize,
    /// The arena that this one, of a single buffer, stands beside.
    beside_of: Option<Arc<Arena>>,
}

struct Head {
    refs: AtomicU32,
    order: AtomicU32,
    next: AtomicU32,
}

// SAFETY: `lists` is reached only through `Arena::lists`, which checks that the
// calling thread is the owner; everything else is atomic, locked or immutable.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

#[inline]
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static TOKEN: Cell<u64> = const { Cell::new(0) });
    TOKEN.with(|token| {
        if token.get() == 0 {
            token.set(NEXT.fetch_add(1, Relaxed));
        }
        token.get()
    })
}

impl Pool {
    /// A pool of `bytes`, owned by the calling thread: rounded up to 4 MiB, or
    /// below that to a power of two, which is then also its largest buffer.
    pub fn new(bytes: usize) -> Pool {
        let small = bytes.max(PAGE_BYTES).next_power_of_two();
        let bytes = small.min(bytes.max(1).next_multiple_of(BUF_BYTES_MAX));
        Pool::with(bytes, None)
    }

    fn with(bytes: usize, beside_of: Option<Arc<Arena>>) -> Pool {
        let layout = arena_layout(bytes);
        // SAFETY: the layout is not empty.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) })
            .unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: less than the page that the layout has to spare.
        let base = unsafe { allocated.add(allocated.align_offset(PAGE_BYTES)) };
        let pages = u32::try_from(bytes / PAGE_BYTES).expect("a pool is under 16 TiB");
        let heads = (0..pages)
            .map(|_| Head {
                refs: AtomicU32::new(0),
                order: AtomicU32::new(0),
                next: AtomicU32::new(NIL),
            })
            .collect();
        Pool(Arc::new(Arena {
            allocated,
            base,
            pages,
            owner: this_thread(),
            heads,
            lists: UnsafeCell::new(Lists::new(pages)),
            freed_elsewhere: AtomicU32::new(NIL),
            waiting: AtomicUsize::new(0),
            waiters: Mutex::new(VecDeque::new()),
            tickets: AtomicU64::new(0),
            beside: AtomicUsize::new(0),
            over_max: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            beside_of,
        }))
    }

    /// A buffer of `len` bytes (1 to [`BUF_BYTES_MAX`]) at once, whoever waits: for
    /// work on a request, which others wait for in turn. Its caller answers for the
    /// bound: the request's own memory, one in place of a buffer that a device keeps,
    /// or a few pages for a whole device.
    ///
    /// The bytes are whatever the last user left.
    #[inline]
    pub fn take(&self, len: usize) -> Buf {
        match self.allocate(len) {
            Some(buf) => buf,
            None => self.take_beside(len),
        }
    }

    #[cold]
    fn take_beside(&self, len: usize) -> Buf {
        let bytes = Pool::footprint(len);
        let beside = self.0.beside.fetch_add(bytes, Relaxed) + bytes;
        let over = beside.saturating_sub(self.free_bytes());
        self.0.over_max.fetch_max(over, Relaxed);
        let one = Pool::with(bytes, Some(self.0.clone()));
        one.allocate(len).expect("made to fit it")
    }

    /// What a buffer of `len` bytes takes of the pool.
    pub const fn footprint(len: usize) -> usize {
        len.div_ceil(PAGE_BYTES).next_power_of_two() * PAGE_BYTES
    }

    /// A buffer of `len` bytes (1 to [`BUF_BYTES_MAX`]), or `None` if there is
    /// no room now or others are waiting for it.
    ///
    /// The bytes are whatever the last user left.
    #[inline]
    pub fn try_get(&self, len: usize) -> Option<Buf> {
        if self.0.waiting.load(Acquire) != 0 {
            return None;
        }
        self.allocate(len)
    }

    /// A buffer of `len` bytes (1 to [`BUF_BYTES_MAX`]); waits its turn for room. For
    /// sources of requests, which hold none while they wait.
    #[inline]
    pub fn get(&self, len: usize) -> Get<'_> {
        let largest = self.total_bytes().min(BUF_BYTES_MAX);
        assert!((1..=largest).contains(&len), "buffer of {len} bytes");
        Get {
            pool: self,
            len,
            ticket: None,
        }
    }

    /// Bytes not handed out.
    pub fn free_bytes(&self) -> usize {
        self.0.collect_freed_elsewhere();
        // SAFETY: `lists` checks the thread; the borrow ends here.
        unsafe { self.0.lists() }.free_pages as usize * PAGE_BYTES
    }

    /// Bytes that the system gave beside the arena, while it had no room.
    pub fn beside_bytes(&self) -> usize {
        self.0.beside.load(Relaxed)
    }

    /// The most by which bytes handed out ever exceeded the arena: zero as long as
    /// devices answer and everyone keeps to their credits.
    pub fn over_bytes_max(&self) -> usize {
        self.0.over_max.load(Relaxed)
    }

    /// Bytes in all.
    pub fn total_bytes(&self) -> usize {
        self.0.pages as usize * PAGE_BYTES
    }

    /// Bytes set aside for [`crate::Reserve`]s.
    pub(crate) fn reserved(&self) -> &AtomicUsize {
        &self.0.reserved
    }

    /// The whole arena, for a driver to register: address and length.
    pub fn arena(&self) -> (NonNull<u8>, usize) {
        (self.0.base, self.total_bytes())
    }

    #[inline]
    fn allocate(&self, len: usize) -> Option<Buf> {
        assert!((1..=BUF_BYTES_MAX).contains(&len), "buffer of {len} bytes");
        let order = order_of(len);
        // SAFETY: `lists` checks the thread; the borrow ends with the statement.
        let page = unsafe { self.0.lists() }.take(order).or_else(|| {
            self.0.collect_freed_elsewhere();
            // SAFETY: as above.
            let lists = unsafe { self.0.lists() };
            lists.merge_quick();
            lists.take(order)
        })?;
        let head = &self.0.heads[page as usize];
        head.refs.store(1, Relaxed);
        head.order.store(order as u32, Relaxed);
        // SAFETY: `page` is inside the arena and was free; the allocation owns
        // one strong count of the arena until `Arena::release`.
        unsafe {
            let ptr = self.0.base.add(page as usize * PAGE_BYTES);
            let arena = NonNull::new_unchecked(Arc::into_raw(self.0.clone()).cast_mut());
            Some(Buf::from_raw(ptr, len, page, arena))
        }
    }
}

/// Aligned by hand, with a page to spare: an allocator asked for aligned zeroes
/// would write all of them, where it else gets untouched ones from the system.
fn arena_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes + PAGE_BYTES, 1).expect("a valid arena layout")
}

#[inline]
fn order_of(len: usize) -> usize {
    len.div_ceil(PAGE_BYTES)
        .next_power_of_two()
        .trailing_zeros() as usize
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
    unsafe fn lists(&self) -> &mut Lists {
        assert_eq!(
            self.owner,
            this_thread(),
            "a pool allocates on its own thread"
        );
        // SAFETY: one thread, and no other borrow by this function's contract.
        unsafe { &mut *self.lists.get() }
    }

    /// Gives back the allocation at `page`, whose last reference is gone, and
    /// with it one strong count of the arena.
    ///
    /// # Safety
    /// `arena` came from `Pool::allocate`, and this is the only release of `page`.
    #[inline]
    pub(crate) unsafe fn release(arena: NonNull<Arena>, page: u32) {
        // SAFETY: the allocation owned this count.
        let arena = unsafe { Arc::from_raw(arena.as_ptr().cast_const()) };
        if arena.owner == this_thread() {
            let order = arena.heads[page as usize].order.load(Relaxed) as usize;
            // SAFETY: `lists` checks the thread; the borrow ends with the statement.
            unsafe { arena.lists() }.give(page, order);
            // Who waits is on this thread too, so no fence is needed to see it.
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
            // Pairs with the fence in `Get::wait`, which looks for room again
            // after it has announced itself.
            fence(SeqCst);
        }
        if arena.waiting.load(Relaxed) != 0 {
            arena.wake_first();
        }
    }

    fn collect_freed_elsewhere(&self) {
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

    fn wake_first(&self) {
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

/// A wait for a buffer; see [`Pool::get`].
pub struct Get<'a> {
    pool: &'a Pool,
    len: usize,
    ticket: Option<u64>,
}

impl Future for Get<'_> {
    type Output = Buf;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Buf> {
        if self.ticket.is_none()
            && let Some(buf) = self.pool.try_get(self.len)
        {
            return Poll::Ready(buf);
        }
        self.wait(cx.waker())
    }
}

impl Get<'_> {
    /// Queues up, and looks for room if this is the first in the queue.
    #[cold]
    fn wait(&mut self, waker: &Waker) -> Poll<Buf> {
        let arena = &self.pool.0;
        let mut waiters = arena.waiters.lock().expect("no panic under this lock");
        let ticket = match self.ticket {
            None => {
                let ticket = arena.tickets.fetch_add(1, Relaxed);
                waiters.push_back((ticket, waker.clone()));
                arena.waiting.store(waiters.len(), SeqCst);
                // Pairs with the fence in `Arena::release`.
                fence(SeqCst);
                self.ticket = Some(ticket);
                ticket
            }
            Some(ticket) => {
                let mine = waiters.iter_mut().find(|(t, _)| *t == ticket);
                let (_, known) = mine.expect("a waiter stays queued until served");
                known.clone_from(waker);
                ticket
            }
        };
        let is_first = waiters.front().is_some_and(|(t, _)| *t == ticket);
        drop(waiters);
        if is_first && let Some(buf) = self.pool.allocate(self.len) {
            self.leave();
            return Poll::Ready(buf);
        }
        Poll::Pending
    }

    /// Gives up the place in the queue and lets the next waiter look.
    #[cold]
    fn leave(&mut self) {
        let ticket = self.ticket.take();
        let arena = &self.pool.0;
        let mut waiters = arena.waiters.lock().expect("no panic under this lock");
        waiters.retain(|(t, _)| Some(*t) != ticket);
        arena.waiting.store(waiters.len(), SeqCst);
        drop(waiters);
        arena.wake_first();
    }
}

impl Drop for Get<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.leave();
        }
    }
}
