//! Mounts that end with the processes that use them.
//!
//! A FUSE file system whose server was killed answers every call with an error,
//! which tools that look at all mounts of the machine take for their own. In a mount
//! namespace nobody else meets it, and the kernel takes it down with the last process.

use std::io;
use std::ptr::null;

/// Gives the calling thread a mount namespace of its own, and all threads and
/// processes that it starts from now on. What others mount or unmount later is seen
/// in it too.
///
/// # Errors
/// Without the capability to mount.
pub fn enter() -> Result<(), String> {
    let flags = libc::MS_SLAVE | libc::MS_REC;
    // SAFETY: the path ends with a zero; what is null is not read for a change of
    // propagation.
    let entered = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(null(), c"/".as_ptr(), null(), flags, null()) == 0
    };
    if entered {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(format!("no mount namespace can be made: {error}"))
}
