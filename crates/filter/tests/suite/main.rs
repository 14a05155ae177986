//! Filters over a simulated disk.

mod checked;
mod common;
mod conformance;
mod delay;
mod faults;
mod profile;
mod swap;
mod watch;
