//! Runs the campaign of nodes, or of their write-back volumes; exits with 1 on a violation. With
//! `--first` the campaign ends at the first violation; mutations are tried so.
//!
//! `node --seeds N --start S --threads T --first --json --write-back`

use proof::arguments::Arguments;
use proof::campaign::is_violated;
use proof::mutants::VIOLATION;
use proof::nodesim::{self, CampaignRequest, write_back};
use std::process::ExitCode;

fn main() -> ExitCode {
    let asked = match Arguments::get(1000, &["threads=", "first", "json", "write-back"]) {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    let logged = asked.has("write-back");
    let run = |seed| match logged {
        true => write_back::run(seed).violation,
        false => nodesim::run(seed).violation,
    };
    if asked.has("first") {
        return match is_violated(asked.range(), run) {
            true => ExitCode::from(VIOLATION as u8),
            false => ExitCode::SUCCESS,
        };
    }
    let request = CampaignRequest {
        cases: asked.seeds,
        seed: asked.start,
        threads: asked.threads(),
        json: asked.has("json"),
    };
    let done = match logged {
        true => write_back::command(&request),
        false => nodesim::command(&request),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::from(VIOLATION as u8)
        }
    }
}
