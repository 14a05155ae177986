//! The common parts of the command lines of `hotset` and `hotset-lab`: the ends of a command,
//! tables, configurations and traces as arguments, the arguments and output of drills, and the
//! manual.
//!
//! Not here: commands.

#![deny(clippy::print_stdout)]

pub mod configuration;
pub mod convert;
pub mod drill;
mod failure;
pub mod manual;
pub mod table;
pub mod traces;

pub use failure::{
    CommandFailure, EXIT_STATUSES, FAILED, FOUND, MISUSED, NEEDS_RESTART, exit, print, print_line,
};

/// The commit that this program was built from, with `-modified` if its sources differed;
/// [`UNKNOWN_COMMIT`] without a checkout.
pub const COMMIT: &str = env!("HOTSET_COMMIT");
/// The commit of a program that was built without a checkout.
pub const UNKNOWN_COMMIT: &str = "unknown";
