//! Mounts that end with the processes that use them.
//!
//! A FUSE file system with a killed server answers every call with an error. Tools that look at all
//! mounts of the machine take the error for their own. In a mount namespace no other process meets
//! the mount, and the kernel takes the mount down with the last process.

use std::io;
use std::ptr::null;

/// Gives the calling thread, and all threads and processes that it starts from now on, a mount
/// namespace of their own. Later mounts and unmounts of other processes are seen there too.
///
/// # Errors
/// Without the capability to mount.
pub fn enter() -> Result<(), String> {
    let flags = libc::MS_SLAVE | libc::MS_REC;
    // SAFETY: the path ends with a zero; a change of propagation does not read the null arguments.
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
