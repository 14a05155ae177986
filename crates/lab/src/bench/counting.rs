//! The system's allocator, which counts the bytes that are given out: for a
//! program's `#[global_allocator]`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// An allocator that counts the bytes given out.
pub struct Counting(AtomicI64);

impl Counting {
    /// Nothing is given out yet.
    pub const fn new() -> Counting {
        Counting(AtomicI64::new(0))
    }

    /// Bytes that are given out now.
    pub fn live_bytes(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

impl Default for Counting {
    fn default() -> Counting {
        Counting::new()
    }
}

// SAFETY: forwards every call unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.0.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as above; `at` came from `System.alloc`.
        unsafe { System.dealloc(at, layout) }
    }
}
