//! Runs the campaign of the crash laboratory, with `--first` of cases and then of flips; exits with 1
//! on a violation, or if many cases left a situation unmet.
//!
//! `crash --seeds N --start S --threads T --first --json`

use proof::arguments::Arguments;
use proof::campaign::example;
use proof::crash::{CrashCampaign, flips};
use std::process::ExitCode;

fn main() -> ExitCode {
    Arguments::run(1000, &[], |asked| {
        example(&CrashCampaign, asked)?;
        if !asked.has("first") {
            return Ok(());
        }
        match flips(0..asked.seeds).violations.first() {
            Some((seed, what)) => Err(format!("flip {seed}: {what}")),
            None => Ok(()),
        }
    })
}
