//! Where locked memory is capped the driver runs without registered buffers.

use crate::common::{directory, file, host};
use block::conformance::{self, DriverRig};
use std::os::unix::process::CommandExt;
use testbed::alone::runs_alone;
use uring::{DiskOptions, Options, Uring};

/// Less than the pool and less than the ring that is asked for, since newer
/// kernels count rings too.
const CAP_BYTES: libc::rlim_t = 256 << 10;
const ENTRIES: u32 = 8192;
const CAP_IPC_LOCK: libc::c_ulong = 14;

#[test]
fn capped_memory_is_done_without() {
    let capped = runs_alone("locked_memory::capped_memory_is_done_without", |alone| {
        // SAFETY: only system calls are made between fork and exec.
        unsafe { alone.pre_exec(cap_locked_memory) };
    });
    if capped.unwrap() {
        conforms_unregistered();
    }
}

/// Takes the privilege to lock memory from a process.
fn cap_locked_memory() -> std::io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: CAP_BYTES,
        rlim_max: CAP_BYTES,
    };
    // SAFETY: `limit` is readable. Processes without privileges to drop are refused the first call.
    let result = unsafe {
        libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit)
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn conforms_unregistered() {
    let dir = directory();
    let host = Uring::new(Options {
        entries: ENTRIES,
        ..Options::default()
    });
    let host = host.unwrap();
    let path = file(&dir, 4 << 20);
    let (disk, _) = host.open_disk(path, &DiskOptions::default()).unwrap();
    let driver = host.driver().unwrap();
    assert!(!driver.memory_is_registered());
    let rig = DriverRig {
        disk,
        listener: None,
    };
    conformance::run(conformance::driver(driver, rig, 1));
}

#[test]
fn uncapped_memory_is_registered() {
    // SAFETY: no pointers are involved.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root is sure to lock memory without a cap");
        return;
    }
    assert!(host().driver().unwrap().memory_is_registered());
}
