//! ublk without I/O: block devices of Linux that a program in user space serves.
//!
//! [`uapi`] has the driver's commands and structures and their bytes. [`life`] has the sequences of
//! commands that make a device, recover the device of a dead server, and remove a device.
//!
//! Not here: sending commands (`uring`), serving requests (`port`), zoned devices, zero copy (a
//! server could not verify checksums).

#![deny(clippy::print_stderr)]

pub mod life;
pub mod uapi;

pub use life::{
    Attach, AttachEvent, AttachRefusal, AttachStep, Found, RELEASE_MAX, WantedDevice, choose,
    is_marked, mark, mark_of_name,
};
pub use uapi::{
    Descriptor, DeviceInfo, IoCommand, Params, UblkCommand, UblkControl, UblkFeatures, UblkState,
};
