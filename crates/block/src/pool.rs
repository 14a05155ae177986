//! The bounded, page-aligned memory that I/O buffers of one shard come from.
//!
//! One arena, allocated once (so that a driver can register it with the kernel), handed out by a
//! buddy allocator in powers of two of a page.
//!
//! Invariants:
//!     bytes handed out + bytes free = arena size          (`Pool::free_bytes`)
//!     refs(allocation) = number of its `Buf`s and `SharedBuf`s
//!     the free lists are touched by the owning thread alone
//!     the server of a request never waits for memory      (`Pool::take`)
//!
//! A buffer dropped on another thread goes onto a lock-free stack that the owner empties when
//! memory is short. Waiters are served in order of arrival.
//!
//! Memory is bounded by credits, never by a wait of a task that holds some. Frontends hold at most
//! half of the pool for their requests; layers that need more than one further buffer of a
//! request's size have a [`crate::Reserve`]; background work takes free buffers (`try_get`). Memory
//! kept by a device that does not answer is beyond that. If the arena has no room then, the system
//! gives the memory, and takes it back when the buffer is dropped.

pub(crate) mod arena;
#[cfg(test)]
mod tests;

pub use arena::PAGE_BYTES;

use crate::buddy::{Lists, NIL, ORDERS};
use crate::buf::Buf;
use crate::error::{IoError, IoErrorKind, IoResult};
use arena::{Arena, Head, arena_layout, this_thread};
use std::alloc::{alloc_zeroed, handle_alloc_error};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// The largest buffer: 4 MiB.
pub const BUF_BYTES_MAX: usize = PAGE_BYTES << (ORDERS - 1);

/// A handle to a shard's buffer memory; clones are the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Arena>);

impl Pool {
    /// A pool of `bytes`, owned by the calling thread: rounded up to 4 MiB, or
    /// below that to a power of two, which is then also its largest buffer.
    pub fn new(bytes: usize) -> Pool {
        Pool::try_new(bytes).unwrap_or_else(|_| handle_alloc_error(arena_layout(bytes)))
    }

    /// As [`Pool::new`]; the error names the remedy if there is no memory.
    pub fn try_new(bytes: usize) -> IoResult<Pool> {
        let small = bytes.max(PAGE_BYTES).next_power_of_two();
        let bytes = small.min(bytes.max(1).next_multiple_of(BUF_BYTES_MAX));
        Pool::with(bytes, None).ok_or_else(|| {
            let what = format!(
                "no memory for {} MiB of buffers; lower `buffers`, or raise the limit of address \
                 space (ulimit -v)",
                bytes.div_ceil(1 << 20)
            );
            IoError::new(IoErrorKind::Other, what)
        })
    }

    fn with(bytes: usize, beside_of: Option<Arc<Arena>>) -> Option<Pool> {
        let layout = arena_layout(bytes);
        // SAFETY: the layout is not empty.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) })?;
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
        Some(Pool(Arc::new(Arena {
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
        })))
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
        let one = Pool::with(bytes, Some(self.0.clone()))
            .unwrap_or_else(|| handle_alloc_error(arena_layout(bytes)));
        one.allocate(len).expect("made to fit it")
    }

    /// The bytes of the pool that a buffer of `len` bytes takes.
    pub const fn footprint(len: usize) -> usize {
        len.div_ceil(PAGE_BYTES).next_power_of_two() * PAGE_BYTES
    }

    /// A buffer of `len` bytes (1 to [`BUF_BYTES_MAX`]), or `None` if there is no room now or
    /// others are waiting.
    ///
    /// The bytes are those of the last user.
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

    /// Bytes that the system gave beside the full arena.
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

impl Buf {
    /// One buffer with the bytes of `parts`, one after the other: rejoined where all are
    /// neighbours, else copied into new memory.
    ///
    /// For parts that devices were handed apart, since a read may give back another buffer (see
    /// [`crate::Device::read`]).
    pub fn join(parts: Vec<Buf>, pool: &Pool) -> Buf {
        let are_neighbours = parts.windows(2).all(|pair| pair[0].is_before(&pair[1]));
        if are_neighbours {
            let whole = parts.into_iter().reduce(|whole, part| {
                let whole = Buf::rejoin(whole, part);
                whole.unwrap_or_else(|_| unreachable!("they are neighbours"))
            });
            return whole.expect("there is a part");
        }
        let mut whole = pool.take(parts.iter().map(|part| part.len()).sum());
        let mut rest = &mut whole[..];
        for part in parts {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(&part);
            rest = after;
        }
        whole
    }
}

#[inline]
fn order_of(len: usize) -> usize {
    len.div_ceil(PAGE_BYTES)
        .next_power_of_two()
        .trailing_zeros() as usize
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
