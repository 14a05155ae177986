//! The engine on simulated disks. One program, since each would compile the engine again.

mod absent;
mod allocation;
mod common;
mod durable;
mod engine;
mod explain;
mod faults;
mod forgetful;
mod former;
mod late_writes;
mod limits;
mod located;
mod lost_writes;
mod memory;
mod place;
mod properties;
mod readmitted;
mod reopened;
mod side_by_side;
mod standstill;
mod untrusted;
