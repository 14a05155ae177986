//! Shared memory that is taken away in use: every access beyond the end of a file that was made
//! shorter raises SIGBUS.
//!
//! The signal's handler puts zeroes in the place of the whole mapping, and marks the mapping as
//! lost. The interrupted code goes on, and sees the mark.
//!
//! Invariants:
//!     a mapping is replaced only while it is watched; any other SIGBUS has its earlier effect
//!     zeroes of the handler are seen ⟹ the mapping is marked as lost
//!     a watch ends before its mapping does
//!     the handler takes no lock and allocates nothing

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// Most mappings watched at one time: a few for each virtual machine.
const WATCHED_MAX: usize = 1024;

struct FaultSlot {
    taken: AtomicBool,
    /// Beginning of the mapping; 0 while it is not watched.
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

static SLOTS: [FaultSlot; WATCHED_MAX] = [const {
    FaultSlot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; WATCHED_MAX];

/// Earlier handler of the signal.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that may be taken away, until dropped.
pub(crate) struct MappingWatch(&'static FaultSlot);

impl MappingWatch {
    /// Watches `len` bytes from `start` on.
    ///
    /// # Safety
    /// The bytes are a mapping of their own, which outlives the watch. No reference to the mapping
    /// exists, so that another may take its place at any time.
    pub(crate) unsafe fn begin(start: *mut u8, len: usize) -> io::Result<MappingWatch> {
        handle()?;
        let free = |slot: &&FaultSlot| {
            let taken = slot.taken.compare_exchange(false, true, Acquire, Relaxed);
            taken.is_ok()
        };
        let slot = SLOTS.iter().find(free).ok_or_else(|| {
            let what = "too many virtual machines have parts of memory here; stop some";
            io::Error::other(what)
        })?;
        slot.lost.store(false, Relaxed);
        slot.len.store(len, Relaxed);
        slot.start.store(start as usize, Release);
        Ok(MappingWatch(slot))
    }

    /// True if reads since the beginning may have given zeroes of the handler.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.lost.load(Acquire)
    }
}

impl Drop for MappingWatch {
    fn drop(&mut self) {
        self.0.start.store(0, Release);
        self.0.taken.store(false, Release);
    }
}

/// Installs the handler of the signal, once.
fn handle() -> io::Result<()> {
    static INSTALLED: OnceLock<i32> = OnceLock::new();
    let number = *INSTALLED.get_or_init(|| {
        let mut before = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: the pointers are to values that the calls read or fill in.
        unsafe {
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr()) != 0 {
                return io::Error::last_os_error().raw_os_error().unwrap_or(-1);
            }
            // Set before the handler exists, which reads the value.
            BEFORE.get_or_init(|| before.assume_init());
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(_, _, _) = on_signal;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            match libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) {
                0 => 0,
                _ => io::Error::last_os_error().raw_os_error().unwrap_or(-1),
            }
        }
    });
    match number {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

extern "C" fn on_signal(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel's; of a fault of memory it has the address.
    let at = unsafe { (*info).si_addr() } as usize;
    if !replace(at) {
        pass_on(signal, info, context);
    }
}

/// Replaces the mapping that `at` is in; false if none is watched there.
fn replace(at: usize) -> bool {
    for slot in &SLOTS {
        let start = slot.start.load(Acquire);
        let len = slot.len.load(Acquire);
        let is_whole = slot.start.load(Acquire) == start;
        if start == 0 || !is_whole || !(start..start + len).contains(&at) {
            continue;
        }
        slot.lost.store(true, SeqCst);
        let (read_write, zeroes) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
        );
        // SAFETY: the code that faulted uses the mapping, so that the mapping is watched and may be
        // replaced. The number of the last error belongs to the interrupted code.
        return unsafe {
            let number = *libc::__errno_location();
            let put = libc::mmap(start as *mut _, len, read_write, zeroes, -1, 0);
            *libc::__errno_location() = number;
            put != libc::MAP_FAILED
        };
    }
    false
}

/// Passes the signal on to its earlier handler.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // A fault cannot be ignored: the access faults again, and ends the process.
        // SAFETY: no handler of ours is named.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let takes_info = before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
    // SAFETY: the handler that was set, called as its flags say.
    unsafe {
        if takes_info {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};

    const LEN: usize = 1 << 20;

    /// A file in memory, which can be made shorter.
    pub(crate) fn file(bytes: usize) -> File {
        // SAFETY: the name is a C string, and the new descriptor has no other owner.
        let file = unsafe {
            let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        file.set_len(bytes as u64).unwrap();
        file
    }

    fn mapped() -> (File, *mut u8) {
        let file = file(LEN);
        // SAFETY: the kernel chooses where.
        unsafe {
            let read_write = libc::PROT_READ | libc::PROT_WRITE;
            let shared = libc::MAP_SHARED;
            let at = libc::mmap(
                std::ptr::null_mut(),
                LEN,
                read_write,
                shared,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            (file, at.cast())
        }
    }

    fn read(at: *mut u8, offset: usize) -> u8 {
        // SAFETY: inside a mapping of the test.
        unsafe { at.add(offset).read_volatile() }
    }

    fn unmap(at: *mut u8) {
        // SAFETY: a mapping of the test.
        unsafe { libc::munmap(at.cast(), LEN) };
    }

    #[test]
    fn what_is_taken_away_is_zeroes_and_lost_and_others_stay() {
        let ((first, a), (second, b)) = (mapped(), mapped());
        for at in [a, b] {
            // SAFETY: inside the mappings of the test.
            unsafe { at.write_bytes(7, LEN) };
        }
        // SAFETY: mappings of the test, which outlive them.
        let watches = unsafe {
            [
                MappingWatch::begin(a, LEN).unwrap(),
                MappingWatch::begin(b, LEN).unwrap(),
            ]
        };
        first.set_len(4096).unwrap();
        assert!(
            read(a, 0) == 7 && !watches[0].is_lost(),
            "what is left is there"
        );
        assert_eq!(read(a, LEN - 1), 0);
        assert!(watches[0].is_lost() && !watches[1].is_lost());
        assert_eq!((read(a, 0), read(b, LEN - 1)), (0, 7));
        drop(watches);
        // The same places serve again.
        // SAFETY: as above.
        let again = unsafe { MappingWatch::begin(b, LEN).unwrap() };
        assert!(!again.is_lost());
        second.set_len(0).unwrap();
        assert!(read(b, 0) == 0 && again.is_lost());
        drop(again);
        [a, b].into_iter().for_each(unmap);
    }

    #[test]
    fn a_fault_elsewhere_ends_the_process() {
        let ((watched, a), (file, b)) = (mapped(), mapped());
        // SAFETY: a mapping of the test, which outlives it.
        let watch = unsafe { MappingWatch::begin(a, LEN).unwrap() };
        watched.set_len(0).unwrap();
        file.set_len(0).unwrap();
        let mut status = 0;
        // SAFETY: the child calls nothing but `_exit`.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                a.read_volatile();
                b.read_volatile();
                libc::_exit(0);
            }
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
        assert!(libc::WIFSIGNALED(status), "{status}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGBUS);
        drop(watch);
        [a, b].into_iter().for_each(unmap);
    }
}
