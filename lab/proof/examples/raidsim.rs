//! Runs the simulation campaign of the arrays; exits with 1 on a violation, or if many runs left a
//! class unmet.
//!
//! `raidsim --seeds N --start S --threads T --first --json --plain --only TROUBLE`: `--plain` runs no
//! trouble but losses, refusals and unreadable data, and `--only` the seeds with this trouble alone.

use proof::arguments::Arguments;
use proof::campaign::example;
use proof::raidsim::ArrayCampaign;
use std::process::ExitCode;

fn main() -> ExitCode {
    Arguments::run(1000, &["plain", "only="], |asked| {
        let campaign = ArrayCampaign {
            plain: asked.has("plain"),
            only: asked.value("only").map(String::from),
        };
        example(&campaign, asked)
    })
}
