//! Runs the campaign of write-back; exits with 1 on a violation, or if many cases left a situation
//! unmet.
//!
//! `writeback --seeds N --start S --threads T --first --json --journaled --coalesced`

use proof::arguments::Arguments;
use proof::campaign::example;
use proof::writeback::WriteBackCampaign;
use std::process::ExitCode;
use writelog::Cleaning;

fn main() -> ExitCode {
    Arguments::run(1000, &["journaled", "coalesced"], |asked| {
        let named = |cleaning: &Cleaning| asked.has(cleaning.name());
        let other = [Cleaning::Journaled, Cleaning::Coalesced];
        let cleaning = other.into_iter().find(named).unwrap_or(Cleaning::Ordered);
        example(&WriteBackCampaign(cleaning), asked)
    })
}
