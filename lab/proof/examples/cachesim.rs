//! Runs the simulation campaign of the cache engine; exits with 1 on a violation, or if many runs
//! left a class unmet.
//!
//! `cachesim --seeds N --start S --threads T --first --json`

use proof::arguments::Arguments;
use proof::cachesim::CacheCampaign;
use proof::campaign::example;
use std::process::ExitCode;

fn main() -> ExitCode {
    Arguments::run(300, &[], |asked| example(&CacheCampaign, asked))
}
