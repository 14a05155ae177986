//! Runs the seam's campaign; exits with 1 on a violation. Of one seed alone each step is printed.
//!
//! `seam --seeds N --start S --threads T --first --json --sabotage skip-flush|skip-lock|ignore-error`

use proof::arguments::Arguments;
use proof::campaign::example;
use proof::seam::Sabotage;
use proof::seam::campaign::{SeamCampaign, run_seed};
use std::process::ExitCode;

fn main() -> ExitCode {
    Arguments::run(10_000, &["sabotage="], |asked| {
        let sabotage = match asked.value("sabotage") {
            None => Sabotage::None,
            Some("skip-flush") => Sabotage::SkipFlush,
            Some("skip-lock") => Sabotage::SkipLock,
            Some("ignore-error") => Sabotage::IgnoreError,
            Some(other) => return Err(format!("unknown sabotage {other}")),
        };
        if asked.seeds == 1 {
            let one = run_seed(asked.start, sabotage);
            println!("trace hash {:016x}", one.trace_hash);
            one.story.iter().for_each(|line| println!("{line}"));
        }
        example(&SeamCampaign(sabotage), asked)
    })
}
