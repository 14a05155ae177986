//! The effect of write-back, in a sentence.

use super::found::{LogGain, ModeGain, WriteBackGain};
use crate::page::bytes;

/// Share of writes at the log's time with which write-back serves its purpose.
const ENOUGH: f64 = 0.95;
/// Share of such writes below which write-back is no gain.
const SOME: f64 = 0.5;
/// Share of absorbed blocks from which on the verdict mentions them.
const ABSORBED: f64 = 0.25;

pub(super) fn of(write_back: &WriteBackGain) -> String {
    if write_back.writes == 0 {
        return "nothing to gain: nothing is written".into();
    }
    let find = |name: &str| {
        let mode = write_back.modes.iter().find(|mode| mode.mode == name);
        mode.and_then(|mode: &ModeGain| mode.log.as_ref())
    };
    let (Some(ordered), Some(coalesced)) = (find("ordered"), find("coalesced")) else {
        return "what write-back would bring is not known: the trace has no times".into();
    };
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    if ordered.unpaced_share >= ENOUGH {
        let absorbed = coalesced.absorbed_share.unwrap_or(0.0);
        let more = if absorbed >= ABSORBED {
            format!(
                "; `journaled` or `coalesced` would spare the origin {} of the blocks",
                percent(absorbed)
            )
        } else {
            String::new()
        };
        return format!(
            "`ordered` would answer {} of writes in the log's time; {}{more}",
            percent(ordered.unpaced_share),
            log(ordered)
        );
    }
    if coalesced.unpaced_share >= ENOUGH {
        return format!(
            "`journaled` or `coalesced` would answer {} of writes in the log's time, \
             `ordered` {} of them; {}",
            percent(coalesced.unpaced_share),
            percent(ordered.unpaced_share),
            log(coalesced)
        );
    }
    let (name, best) = match coalesced.unpaced_share > ordered.unpaced_share {
        true => ("`journaled` or `coalesced`", coalesced),
        false => ("`ordered`", ordered),
    };
    let faster = format!(
        "writes come faster than the origin takes them for {} of the time",
        percent(best.behind_share)
    );
    match best.unpaced_share >= SOME {
        true => format!(
            "{name} would answer {} of writes in the log's time; {faster}; {}",
            percent(best.unpaced_share),
            log(best)
        ),
        false => format!(
            "no gain: {faster}, and {} of them would wait for it",
            percent(1.0 - best.unpaced_share)
        ),
    }
}

fn log(log: &LogGain) -> String {
    format!("log of {} on each device", bytes(log.device_bytes as f64))
}
