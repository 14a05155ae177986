//! Runs the campaign of ports; exits with 1 on a violation. Mutations are tried with `--first`, since
//! a client with a lost request waits for long.
//!
//! `port --seeds N --start S --threads T --first --json`

use proof::arguments::Arguments;
use proof::campaign::example;
use proof::portsim::PortCampaign;
use std::process::ExitCode;

fn main() -> ExitCode {
    Arguments::run(1000, &[], |asked| example(&PortCampaign, asked))
}
