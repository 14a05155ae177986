//! A ring with the best setup that the kernel allows, and the one way to enter it.

use block::{IoError, IoErrorKind, IoResult, Nanos, PAGE_BYTES};
use io_uring::{EnterFlags, IoUring, types};
use std::io;

/// Ways for completions to reach the ring, best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompletionMode {
    /// Only while the shard is inside the kernel, in batches (Linux 6.1).
    Deferred,
    /// Completions come on the shard's next entry into the kernel (Linux 5.19).
    Cooperative,
    /// Completions come at any time, by interrupting the shard.
    Interrupting,
}

impl CompletionMode {
    pub(crate) const ALL: [CompletionMode; 3] = [
        CompletionMode::Deferred,
        CompletionMode::Cooperative,
        CompletionMode::Interrupting,
    ];

    /// Fails with `EINVAL` if the kernel does not know this mode.
    fn build(self, entries: u32) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        // The kernel's largest ring varies.
        builder.setup_clamp();
        if self != CompletionMode::Interrupting {
            builder.setup_submit_all();
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        if self == CompletionMode::Deferred {
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        let io = builder.build(entries)?;
        // Old kernels have a fixed number of them.
        let _ = io
            .submitter()
            .register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
        if io.params().is_feature_ext_arg() && io.params().is_feature_nodrop() {
            Ok(io)
        } else {
            Err(io::Error::from_raw_os_error(libc::ENOSYS))
        }
    }
}

/// Worker threads of the kernel that may wait for disks in a ring's stead. An unresponsive disk
/// holds one for each operation in flight: with the default, four for a processor, none would be
/// left to flush the others.
const WORKERS_MAX: u32 = 4096;

/// The fewest entries that a shard can do with.
const ENTRIES_MIN: u32 = 8;

/// Time limit of `enter`.
pub(crate) enum Wait {
    No,
    For(Nanos),
    Forever,
}

pub(crate) struct KernelRing {
    pub(crate) io: IoUring,
    /// Count of entries into the kernel.
    pub(crate) enters: u64,
}

impl KernelRing {
    /// A ring of `entries` in the first of `modes` that the kernel knows, or of
    /// fewer where locked memory is capped. Belongs to the calling thread.
    pub(crate) fn new(entries: u32, modes: &[CompletionMode]) -> IoResult<KernelRing> {
        // SAFETY: no pointers are involved.
        check_pages(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })?;
        let mut entries = entries.max(ENTRIES_MIN);
        let mut refusal = io::Error::from_raw_os_error(libc::EINVAL);
        for mode in modes {
            loop {
                refusal = match mode.build(entries) {
                    Ok(io) => return Ok(KernelRing { io, enters: 0 }),
                    Err(error) => error,
                };
                if refusal.raw_os_error() != Some(libc::ENOMEM) || entries == ENTRIES_MIN {
                    break;
                }
                entries = (entries / 2).max(ENTRIES_MIN);
            }
            if refusal.raw_os_error() != Some(libc::EINVAL) {
                break;
            }
        }
        Err(explain(refusal))
    }

    /// Submits the queued entries, runs completion work, and waits for one completion, at most the
    /// time in `wait`. Ends early when interrupted.
    pub(crate) fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let queued = self.io.submission().len() as u32;
        let timespec;
        let mut args = types::SubmitArgs::new();
        let want = match wait {
            Wait::No => 0,
            Wait::Forever => 1,
            Wait::For(span) => {
                timespec = types::Timespec::new()
                    .sec(span.0 / 1_000_000_000)
                    .nsec((span.0 % 1_000_000_000) as u32);
                args = args.timespec(&timespec);
                1
            }
        };
        self.enters += 1;
        let flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits();
        // SAFETY: entries in the queue point at memory and descriptors that their slots own; `args`
        // has the form of EXT_ARG and outlives the call.
        settle(unsafe { self.io.submitter().enter(queued, want, flags, Some(&args)) })
    }

    /// Submits the queued entries, and nothing else.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        let queued = self.io.submission().len() as u32;
        self.enters += 1;
        let none = None::<&libc::sigset_t>;
        // SAFETY: as above; there are no arguments.
        settle(unsafe { self.io.submitter().enter(queued, 0, 0, none) })
    }
}

fn settle(entered: io::Result<usize>) -> io::Result<()> {
    match entered {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            // Out of time, interrupted, or completions must be taken first.
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}

/// Refuses a kernel with memory pages of another size than the buffers' and the queues' of ublk.
fn check_pages(bytes: libc::c_long) -> IoResult {
    if bytes == PAGE_BYTES as libc::c_long {
        return Ok(());
    }
    let what = "this kernel's memory pages are not of 4 KiB; boot a kernel whose pages are";
    Err(IoError::new(IoErrorKind::Unsupported, what))
}

fn explain(refusal: io::Error) -> IoError {
    let (kind, what) = match refusal.raw_os_error() {
        Some(libc::ENOSYS | libc::EINVAL) => (
            IoErrorKind::Unsupported,
            "this kernel lacks the io_uring that hotset needs; run Linux 5.13 or later",
        ),
        Some(libc::EPERM | libc::EACCES) => (
            IoErrorKind::Denied,
            "io_uring is forbidden here; set the sysctl kernel.io_uring_disabled to 0, \
             or let the container's seccomp profile pass io_uring_setup",
        ),
        Some(libc::EMFILE | libc::ENFILE) => (
            IoErrorKind::Other,
            "no descriptor is left for a ring; raise the limit of open files (ulimit -n)",
        ),
        Some(libc::ENOMEM) => (
            IoErrorKind::Other,
            "no memory for a ring; raise RLIMIT_MEMLOCK or grant CAP_IPC_LOCK",
        ),
        _ => (IoErrorKind::Other, "the kernel refused a ring"),
    };
    IoError::new(kind, what).because(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_ring_names_the_remedy() {
        let text = |errno| explain(io::Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::EPERM).contains("io_uring_disabled"));
        assert!(text(libc::ENOSYS).contains("Linux 5.13"));
        assert!(text(libc::EMFILE).contains("ulimit -n"));
    }

    #[test]
    fn a_kernel_with_larger_pages_is_refused() {
        assert!(check_pages(4096).is_ok());
        let why = check_pages(64 << 10).unwrap_err().to_string();
        assert!(why.contains("pages are not of 4 KiB"), "{why}");
    }
}
