//! The common parts of `hotset`'s tests, and the laboratory's program.

#[path = "../../../../crates/hotset/tests/common/mod.rs"]
mod hotset_tests;

pub use hotset_tests::*;
use std::process::Command;

/// The laboratory's program; its daemons are those of the `hotset` beside the program, unless
/// `HOTSET` names another.
pub fn lab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotset-lab"));
    command.env("HOTSET", hotset().get_program());
    command
}
