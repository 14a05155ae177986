//! The memory of a process that the kernel may write to in order to make memory free.

/// Of Linux's `include/uapi/linux/prctl.h`.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
/// Of Linux's `include/uapi/linux/capability.h`: locks memory without a limit.
const CAP_IPC_LOCK: u32 = 14;

/// Keeps this process from waiting for a write to its own devices: the kernel frees no memory for
/// the process by such a write, and swaps none of its memory out. A process without the right is
/// refused either, and can do without.
pub fn keep() {
    // SAFETY: no pointers are involved.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    // Under a limit, memory that is needed later would be refused.
    if locks_without_limit() {
        let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
        // SAFETY: no pointers are involved.
        unsafe { libc::mlockall(flags) };
    }
}

fn locks_without_limit() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is writable.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    known && limit.rlim_cur == libc::RLIM_INFINITY || has_capability()
}

fn has_capability() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let bits = lines.find_map(|line| line.strip_prefix("CapEff:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits & 1 << CAP_IPC_LOCK != 0)
}
