//! Memory that the kernel reads and writes: the registered arena, and bounce buffers for bytes at
//! addresses that direct I/O cannot use.

use block::{PAGE_BYTES, Pool};
use io_uring::Submitter;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The most the kernel takes as one registered buffer. A multiple of the
/// largest pool allocation, so that no buffer crosses from one into the next.
const REGISTERED_BYTES_MAX: usize = 1 << 30;

/// A shard's arena, as registered with its ring.
pub(crate) struct RegisteredArena {
    base: usize,
    /// Zero if the memory is not registered, so that nothing lies inside.
    bytes: usize,
}

impl RegisteredArena {
    /// Registers the pool's arena, unless asked not to or the kernel refuses
    /// (old kernel, or locked memory capped by `RLIMIT_MEMLOCK`).
    pub(crate) fn register(
        pool: &Pool,
        wanted: bool,
        submitter: &Submitter<'_>,
    ) -> RegisteredArena {
        let (base, bytes) = pool.arena();
        let chunks: Vec<libc::iovec> = (0..bytes)
            .step_by(REGISTERED_BYTES_MAX)
            .map(|at| libc::iovec {
                // SAFETY: `at` is inside the arena.
                iov_base: unsafe { base.as_ptr().add(at) }.cast(),
                iov_len: (bytes - at).min(REGISTERED_BYTES_MAX),
            })
            .collect();
        // SAFETY: the driver holds the pool until the ring is gone.
        let registered = wanted && unsafe { submitter.register_buffers(&chunks) }.is_ok();
        RegisteredArena {
            base: base.as_ptr() as usize,
            bytes: if registered { bytes } else { 0 },
        }
    }

    /// The registered buffer that holds the bytes at `ptr`, if any.
    pub(crate) fn index_of(&self, ptr: *const u8) -> Option<u16> {
        let at = (ptr as usize).wrapping_sub(self.base);
        (at < self.bytes).then_some((at / REGISTERED_BYTES_MAX) as u16)
    }

    /// Address of the arena's first byte.
    pub(crate) fn address(&self) -> u64 {
        self.base as u64
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.bytes != 0
    }
}

/// A page-aligned copy of bytes that lie off the alignment of direct I/O.
pub(crate) struct Bounce {
    ptr: NonNull<u8>,
    len: usize,
}

impl Bounce {
    pub(crate) fn new(len: usize) -> Bounce {
        assert!(len > 0);
        let layout = Bounce::layout(len);
        // SAFETY: the layout is not empty.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) })
            .unwrap_or_else(|| handle_alloc_error(layout));
        Bounce { ptr, len }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, PAGE_BYTES).expect("a buffer is under 4 MiB")
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated with this length, initialised, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.ptr.as_ptr(), Bounce::layout(self.len)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_arena_is_several_registered_buffers() {
        let base = 64 * PAGE_BYTES;
        let bytes = 2 * REGISTERED_BYTES_MAX + PAGE_BYTES;
        let arena = RegisteredArena { base, bytes };
        let index = |at: usize| arena.index_of(base.wrapping_add(at) as *const u8);
        assert_eq!(index(0), Some(0));
        assert_eq!(index(REGISTERED_BYTES_MAX - 1), Some(0));
        assert_eq!(index(REGISTERED_BYTES_MAX), Some(1));
        assert_eq!(index(bytes - 1), Some(2));
        assert_eq!(index(bytes), None);
        assert_eq!(index(0usize.wrapping_sub(1)), None);
        let unregistered = RegisteredArena { base, bytes: 0 };
        assert_eq!(unregistered.index_of(base as *const u8), None);
    }
}
