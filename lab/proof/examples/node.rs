//! Runs the campaign of nodes, or of their write-back volumes; exits with 1 on a violation.
//!
//! `node --seeds N --start S --threads T --first --json --write-back`

use proof::arguments::Arguments;
use proof::campaign::example;
use proof::nodesim::NodeCampaign;
use proof::nodesim::write_back::LivesCampaign;
use std::process::ExitCode;

fn main() -> ExitCode {
    Arguments::run(1000, &["write-back"], |asked| {
        match asked.has("write-back") {
            true => example(&LivesCampaign, asked),
            false => example(&NodeCampaign, asked),
        }
    })
}
