//! The effect of write-back on a running volume, from the counters of its daemon.
//!
//! The speed of an origin is the speed that it has shown. Let `c` be the mean number of requests in
//! flight while the origin is busy (the sum of all latencies by the busy time: Little's law). A
//! byte written takes its part of the latencies of writes by `c`, and a flush its latency by `c`.
//! From these follow, for each mode, the bytes a second that the origin takes with that mode's
//! flushes, and the dirty data (`policy::written`).
//!
//! Left out, as the daemon does not count these: how soon blocks are overwritten, so that none is
//! absorbed; where blocks are, so that no writes are merged; the gain of sorting by address.

use super::found::{LogGain, ModeGain, WriteBackGain};
use super::rates::{Intervals, Rate};
use super::{
    BLOCK, DAY_SECONDS, PACED, SEGMENT_BYTES, WINDOWS, device_bytes, journaled, lane, verdict,
};
use control::observed::{Observed, ObservedKind};
use policy::written::{Backlog, WriteLoad, WrittenFigures};

/// The mode that is a log already.
const WRITE_BACK: &str = "write-back";
const NOT_KNOWN: &str = "what write-back would bring is not known: the origin has answered no \
                         write yet; come back once it was in use for a while";

/// The speed that the origin has shown.
struct OriginFigures {
    /// Requests in flight while there is one.
    in_flight: f64,
    seconds_a_byte: f64,
    seconds_a_flush: f64,
}

/// Requests of one kind, and their latencies together, in seconds.
fn latency_s(kind: &ObservedKind) -> f64 {
    kind.requests as f64 * kind.latency_us_mean / 1e6
}

impl OriginFigures {
    /// Returns `None` if the origin was not written.
    fn of(observed: &Observed) -> Option<OriginFigures> {
        let origin = &observed.origin;
        let (writes, flushes) = (&origin.writes, &origin.flushes);
        let all: f64 = [&origin.reads, writes, flushes].map(latency_s).iter().sum();
        let busy = origin.busy * origin.span_s;
        let in_flight = if busy > 0.0 {
            (all / busy).max(1.0)
        } else {
            1.0
        };
        (writes.bytes > 0 && writes.latency_us_mean > 0.0).then(|| OriginFigures {
            in_flight,
            seconds_a_byte: latency_s(writes) / in_flight / writes.bytes as f64,
            seconds_a_flush: flushes.latency_us_mean / 1e6 / in_flight,
        })
    }
}

/// The effect of write-back; none if the daemon does not count writes.
pub(crate) fn of_volume(observed: &Observed) -> Option<WriteBackGain> {
    let written = observed.written.as_ref()?;
    let shown = OriginFigures::of(observed).filter(|_| written.writes > 0 && written.seconds > 0.0);
    let modes = shown.as_ref().map(|shown| modes(written, shown));
    let rate = |load: WriteLoad| Rate {
        writes_per_second: load.writes_per_second,
        bytes_per_second: load.bytes_per_second,
    };
    let intervals = (written.intervals > 0).then(|| Intervals {
        count: written.intervals,
        blocks_median: written.interval_blocks_median,
        blocks_mean: written.interval_blocks as f64 / written.intervals as f64,
    });
    let mut write_back = WriteBackGain {
        verdict: String::new(),
        seconds: written.seconds,
        requests: observed.read_total.requests + observed.write_total.requests,
        writes: written.writes,
        forced_writes: written.forced_writes,
        flushes: written.flushes,
        mean: mean(written),
        busiest_second: rate(written.busiest_second),
        busiest_30_seconds: rate(written.busiest_30_seconds),
        intervals,
        overwritten_share: None,
        modes: modes.unwrap_or_default(),
        notes: notes(observed, written, shown.as_ref()),
    };
    write_back.verdict = match write_back.modes.is_empty() && written.writes > 0 {
        true => NOT_KNOWN.into(),
        false => verdict::of(&write_back),
    };
    Some(write_back)
}

fn mean(written: &WrittenFigures) -> Rate {
    let a_second = |count: u64| match written.seconds > 0.0 {
        true => count as f64 / written.seconds,
        false => 0.0,
    };
    Rate {
        writes_per_second: a_second(written.writes),
        bytes_per_second: a_second(written.bytes),
    }
}

fn modes(written: &WrittenFigures, shown: &OriginFigures) -> Vec<ModeGain> {
    let mean = mean(written);
    let closed = (written.flushes + written.forced_writes) as f64;
    let through = ModeGain {
        mode: "write-through",
        origin_writes_per_second: mean.writes_per_second,
        origin_bytes_per_second: mean.bytes_per_second,
        origin_flushes_per_second: closed / written.seconds,
        log: None,
    };
    let ordered = mode("ordered", lane::BatchTakes::Interval, written, shown);
    let coalesced = mode("coalesced", lane::BatchTakes::Window, written, shown);
    let journaled = journaled(&coalesced);
    vec![through, ordered, journaled, coalesced]
}

fn mode(
    name: &'static str,
    takes: lane::BatchTakes,
    written: &WrittenFigures,
    shown: &OriginFigures,
) -> ModeGain {
    let bytes = written.bytes as f64;
    let gather_s = takes.gather().as_secs_f64();
    let gathered = written.active_seconds.max(1.0) / gather_s;
    let (batches, batch_bytes) = match takes {
        lane::BatchTakes::Interval => {
            (gathered.max(written.intervals as f64), SEGMENT_BYTES as f64)
        }
        lane::BatchTakes::Window => (gathered, lane::WINDOW_BYTES as f64),
    };
    let batches = batches.max(bytes / batch_bytes).max(1.0);
    let busy_s = bytes * shown.seconds_a_byte + batches * shown.seconds_a_flush;
    let rate = bytes / busy_s;
    let backlog = backlog(&written.backlogs, rate);
    // A header for each record, and one for each segment.
    let records = written.writes as f64 * BLOCK as f64;
    let logged = (1.0 + records / bytes) * (1.0 + BLOCK as f64 / SEGMENT_BYTES as f64);
    let gathers = match takes {
        // The backlog includes the second in which writes gather.
        lane::BatchTakes::Interval => 0.0,
        lane::BatchTakes::Window => gather_s * written.busiest_second.bytes_per_second,
    };
    let held = (backlog.dirty_bytes_max + gathers) * logged;
    let (parts, batch_max) = match takes {
        lane::BatchTakes::Interval => (PACED, SEGMENT_BYTES as f64),
        lane::BatchTakes::Window => {
            let in_time = rate * lane::MAX_LAG.as_secs_f64() / WINDOWS as f64;
            (WINDOWS, batch_bytes.min(in_time).max(SEGMENT_BYTES as f64))
        }
    };
    let a_day = (bytes * logged + batches * BLOCK as f64) / written.seconds * DAY_SECONDS;
    ModeGain {
        mode: name,
        origin_writes_per_second: mean(written).writes_per_second,
        origin_bytes_per_second: mean(written).bytes_per_second,
        origin_flushes_per_second: batches / written.seconds,
        log: Some(LogGain {
            unpaced_share: 1.0 - backlog.paced_share,
            behind_share: backlog.behind_share,
            origin_busy: (busy_s / written.seconds).min(1.0),
            origin_bytes_per_second_max: rate,
            absorbed_share: None,
            held_bytes_max: held as u64,
            device_bytes: device_bytes(held as u64, batch_max.min(held) as u64, parts),
            device_bytes_per_day: a_day,
            journal: None,
        }),
    }
}

/// Backlog of the greatest rate that is no more than `rate`, or else of the least rate.
fn backlog(backlogs: &[Backlog], rate: f64) -> Backlog {
    let slower = backlogs.iter().rfind(|backlog| backlog.rate <= rate);
    slower.or(backlogs.first()).copied().unwrap_or_default()
}

fn notes(
    observed: &Observed,
    written: &WrittenFigures,
    shown: Option<&OriginFigures>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if written.writes == 0 {
        return notes;
    }
    let ms = |kind: &ObservedKind| kind.latency_us_mean / 1e3;
    if let Some(shown) = shown {
        let origin = &observed.origin;
        let flushes = match origin.flushes.requests {
            0 => "and was not flushed, so that flushes are taken to cost nothing".to_owned(),
            _ => format!("and flushes in {:.2} ms", ms(&origin.flushes)),
        };
        notes.push(format!(
            "the origin answered writes in {:.2} ms on average, with {:.1} requests in flight while there was one, {flushes}",
            ms(&origin.writes), shown.in_flight
        ));
    }
    if observed.cache.writes.requests > 0 && observed.write_total.requests > 0 {
        let total = &observed.write_total;
        notes.push(format!(
            "clients' writes take {:.2} ms on average in {}, and those of the pool's devices {:.2} ms",
            total.latency_s * 1e3 / total.requests as f64,
            observed.mode,
            ms(&observed.cache.writes)
        ));
    }
    notes.push(match observed.mode.as_str() {
        WRITE_BACK => "the volume is write-back: what the origin gets comes from its log, and writes may have \
                       waited"
            .to_owned(),
        mode => format!(
            "clients wait for the origin in {mode}, and may write faster than this once they do not"
        ),
    });
    notes.push(
        "how soon blocks are overwritten is not known of a running volume, so that none is taken to be absorbed; \
         `hotset trace record` keeps what it takes to find out"
            .to_owned(),
    );
    if written.flushes + written.forced_writes == 0 {
        notes.push(
            "no flush or forced write came: if clients send any, `ordered` gives the origin more \
             writes and flushes than this"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests;
