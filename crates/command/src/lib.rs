//! What the command lines of `hotset` and `hotset-lab` share: how a command ends, tables,
//! configurations and traces as arguments, drills as they are asked for and shown, and their
//! manual.
//!
//! Not here: commands.

pub mod configuration;
pub mod convert;
pub mod drill;
mod failure;
pub mod manual;
pub mod table;
pub mod traces;

pub use failure::{Failure, exit, print};
