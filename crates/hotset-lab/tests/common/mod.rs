//! What tests of `hotset` have, and the laboratory's program.

#[path = "../../../hotset/tests/common/mod.rs"]
mod hotset_tests;

pub use hotset_tests::*;
use std::process::Command;

/// The laboratory's program; the daemons that it starts are of the `hotset` beside it, unless
/// `HOTSET` names another.
pub fn lab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotset-lab"));
    command.env("HOTSET", hotset().get_program());
    command
}
