//! The command: campaigns and their output.

use super::CrashCampaign;
use super::case::CrashCase;
use super::draw::Length;
use super::shrink::shrink;
use super::sweep::sweep;
use crate::campaign::{self, CampaignRequest};

/// Runs the cases and prints the report. A case that fails alone is printed made smaller. The error
/// describes the failure.
pub fn command(request: &CampaignRequest) -> Result<(), String> {
    let done = campaign::command(&CrashCampaign, request);
    if done.is_err() && request.cases == 1 {
        let (case, how) = shrink(&CrashCase::new(request.seed, Length::Long));
        println!("made smaller: {case:#?}\n{how}");
    }
    done
}

/// Cuts short cases at every boundary, and prints the number of cuts. The error describes the
/// failure.
pub fn boundaries(request: &CampaignRequest) -> Result<(), String> {
    let mut cuts = 0;
    for seed in request.seeds() {
        let swept = sweep(seed, 1, request.threads);
        cuts += swept.cuts;
        if let Some((case, _)) = swept.failed {
            let (case, how) = shrink(&case);
            return Err(format!("seed {seed}: {how}\n{case:#?}"));
        }
    }
    if request.json {
        println!("{{\"cases\": {}, \"boundaries\": {cuts}}}", request.cases);
    } else {
        println!("{} short cases cut at {cuts} boundaries", request.cases);
    }
    Ok(())
}
