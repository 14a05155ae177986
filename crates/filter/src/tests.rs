//! Filters over a simulated disk.

mod checked;
mod common;
mod conformance;
mod contract;
mod delay;
mod profile;
mod swap;
mod watch;
