//! Control commands of ublk, each on a ring of its own. They are few, may wait long, and have
//! entries of twice the usual length.

use crate::errno;
use block::{IoError, IoErrorKind, IoResult};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use ublk::uapi::{CONTROL, character_device};
use ublk::{DeviceInfo, IoCommand, UblkControl};

/// Checks that this machine has ublk and lets this process use it; the error has the cause and the
/// remedy.
pub fn ublk_available() -> IoResult {
    open().map(drop)
}

/// Gives ublk's driver a command and waits for its answer: the command's buffer, or the
/// number of its error.
pub fn ublk_control(mut command: UblkControl) -> IoResult<Result<Vec<u8>, i32>> {
    let file = open()?;
    let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().build(2);
    let mut ring = ring.map_err(|cause| errno::error(cause, "no ring to speak to ublk with"))?;
    let address = command.buffer.as_mut_ptr() as u64;
    let mut bytes = [0; 80];
    bytes[..UblkControl::BYTES].copy_from_slice(&command.encode(address));
    let entry = opcode::UringCmd80::new(types::Fd(file.as_raw_fd()), command.command.op())
        .cmd(bytes)
        .build();
    // SAFETY: the buffer and the file live until the answer below.
    unsafe { ring.submission().push(&entry) }.expect("the ring is empty");
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => break,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => panic!("a ring of one entry failed: {cause}"),
        }
    }
    let answer = ring.completion().next().expect("waited for");
    Ok(match answer.result() {
        0.. => Ok(command.buffer),
        error => Err(-error),
    })
}

/// Waits by one system call for a request with every tag of a device, as far as the driver lets
/// this process. It answers none: the device waits for another server when this process ends.
///
/// `Busy` if another process has the device open.
pub fn ublk_ready(info: &DeviceInfo) -> IoResult {
    let path = character_device(info.id);
    let opened = OpenOptions::new().read(true).write(true).open(&path);
    let opened = opened.map_err(|cause| errno::error(cause, "cannot be opened").on(path));
    let file = ManuallyDrop::new(opened?);
    let tags = u32::from(info.queues) * u32::from(info.depth);
    let ring = IoUring::<squeue::Entry, cqueue::Entry>::builder().build(tags);
    let ring = ring.map_err(|cause| errno::error(cause, "no ring to ready its queues with"))?;
    let mut ring = ManuallyDrop::new(ring);
    for queue in 0..info.queues {
        for tag in 0..info.depth {
            let fetch = IoCommand::encode(queue, tag, 0, 0);
            let entry = opcode::UringCmd16::new(types::Fd(file.as_raw_fd()), IoCommand::Fetch.op());
            // SAFETY: the file stays open; the driver writes nothing for this command.
            unsafe { ring.submission().push(&entry.cmd(fetch).build()) }.expect("one for each tag");
        }
    }
    let submitted = ring.submit();
    submitted.map_err(|cause| errno::error(cause, "its queues cannot be readied"))?;
    Ok(())
}

fn open() -> IoResult<File> {
    let opened = OpenOptions::new().read(true).write(true).open(CONTROL);
    opened.map_err(|cause| {
        let (kind, what) = match cause.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => (
                IoErrorKind::Unsupported,
                "this kernel has no ublk loaded: `modprobe ublk_drv` (Linux 6.5 or later; Debian 12 \
                 has it in backports), or reach volumes over NBD",
            ),
            Some(libc::EACCES | libc::EPERM) => (
                IoErrorKind::Denied,
                "ublk is for root: run hotset as root, or reach volumes over NBD",
            ),
            _ => (IoErrorKind::Other, "ublk cannot be spoken to; volumes can be reached over NBD"),
        };
        IoError::new(kind, what).on(CONTROL).because(cause)
    })
}
