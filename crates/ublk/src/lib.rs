//! ublk without I/O: block devices of Linux that a program in user space serves.
//!
//! [`uapi`] has the words of the driver and their bytes, [`life`] what is asked of the
//! driver to make a device, to take over that of a dead server, and to remove one.
//!
//! Not here: asking (`uring`), serving requests (`port`), zoned devices, zero copy (a
//! server could not verify checksums).

#![deny(clippy::print_stderr)]

pub mod life;
pub mod uapi;

pub use life::{
    Attach, Event, Found, Refusal, Step, Wanted, choose, is_marked, mark, mark_of_name,
};
pub use uapi::{Command, Control, Descriptor, DeviceInfo, Features, IoCommand, Params, State};
