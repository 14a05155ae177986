//! Causes for which a volume has no device, with their remedies.

use crate::uapi::UblkCommand;
use block::{Nanos, plain};
use std::fmt;
use std::io;

/// Time limit for a dead server to release its device: an unresponsive disk keeps its I/O.
pub const RELEASE_MAX: Nanos = Nanos::from_secs(60);

/// The reason of a missing device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachRefusal {
    /// The driver lacks a needed feature.
    TooOld,
    /// This process has no permission.
    Denied,
    /// Another process serves the device.
    InUse {
        /// The device.
        id: u32,
        /// The process.
        pid: i32,
    },
    /// The dead server of the device still has I/O in flight.
    NotReleased(u32),
    /// A device of that name has another origin.
    OtherOrigin(u32),
    /// A device of that name has no record of its origin.
    Unmarked(u32),
    /// The existing device has another shape.
    Reshaped(u32, ShapeDifference),
    /// The driver refused a command for another reason.
    Failed(UblkCommand, i32),
}

/// Differences that keep an existing device from serving its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShapeDifference {
    /// The volume is smaller.
    Shrunk,
    /// The volume is larger, and the driver cannot enlarge devices.
    Grown,
    /// The volume has another logical block.
    Block,
    /// The volume takes no writes.
    Writable,
    /// The kernel keeps flushes to itself.
    Unflushed,
    /// The driver's answer cannot be decoded.
    Unknown,
}

impl fmt::Display for ShapeDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShapeDifference::Shrunk => "the volume has shrunk since",
            ShapeDifference::Grown => {
                "the volume has grown on a kernel before 6.16, which keeps devices as they are"
            }
            ShapeDifference::Block => "the volume has another logical block now",
            ShapeDifference::Writable => "the volume is read-only now, and the device takes writes",
            ShapeDifference::Unflushed => {
                "the device was made without a write cache, so that no flush would reach the volume"
            }
            ShapeDifference::Unknown => "its shape cannot be read",
        })
    }
}

impl fmt::Display for AttachRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachRefusal::TooOld => f.write_str(
                "this kernel's ublk is too old: it needs Linux 6.5 or later, best 6.12; \
                 until then reach the volume over NBD",
            ),
            AttachRefusal::Denied => f.write_str(
                "ublk needs CAP_SYS_ADMIN, which this process has not; run it as root, or reach \
                 the volume over NBD",
            ),
            AttachRefusal::InUse { id, pid } => write!(
                f,
                "/dev/ublkb{id} of its origin is served by process {pid}; stop that first"
            ),
            AttachRefusal::NotReleased(id) => write!(
                f,
                "the dead server of /dev/ublkb{id} still has I/O in flight after {} s; see to its \
                 disks: the attachment is tried again",
                RELEASE_MAX.0 / 1_000_000_000
            ),
            AttachRefusal::OtherOrigin(id) => write!(
                f,
                "/dev/ublkb{id} is of a volume of that name with another origin, and was left alone; \
                 start the daemon that has that origin, and unmount and detach the device there, or \
                 give up what waits in it by `hotset detach --force`"
            ),
            AttachRefusal::Unmarked(id) => write!(
                f,
                "/dev/ublkb{id} was made by an earlier release, which did not note its origin, and was \
                 left alone; start that release to unmount and detach it, or give up what waits in \
                 it by `hotset detach --force`"
            ),
            AttachRefusal::Reshaped(id, difference) => write!(
                f,
                "/dev/ublkb{id} is left from a server that died, and was left alone: {difference}; give \
                 the volume its former shape to unmount and detach the device, or give up what waits \
                 in it by `hotset detach --force`"
            ),
            AttachRefusal::Failed(command, number) => write!(
                f,
                "the kernel's ublk refused to {command} ({}); see its log (dmesg), or reach the \
                 volume over NBD",
                plain(io::Error::from_raw_os_error(*number))
            ),
        }
    }
}
