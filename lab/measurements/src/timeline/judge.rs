//! Verdict on a timeline: no violations, and all effects are visible.

use super::{MeasuredTimeline, TimelineStretch};

/// Longest gap between answered writes while the origin answers, but for the write-back of dirty
/// data at a loss.
const GAP_MS_MAX: f64 = 1000.0;
/// Least dirty data of a burst, as a multiple of a quiet load's.
const BURST_TIMES: f64 = 4.0;
/// Seconds until the log slows a burst down, and the burst's least speed until then as a multiple
/// of the origin's.
const HEAD_S: f64 = 2.0;
const HEAD_TIMES: f64 = 1.5;
/// Seconds at the end of a burst, surely after the slow-down.
const TAIL_S: f64 = 5.0;
/// Writes that are slowed down go at the origin's speed, within a factor.
const PACED_TIMES: f64 = 1.3;

/// A sentence for each violation.
pub(super) fn judge(timeline: &MeasuredTimeline) -> Vec<String> {
    let mut all = Vec::new();
    let mut ask = |is_so: bool, otherwise: String| {
        if !is_so {
            all.push(otherwise);
        }
    };
    let none = |count: u64, what: &str| (count == 0, format!("{count} {what}"));
    for (is_so, otherwise) in [
        none(timeline.errors, "requests failed"),
        none(
            timeline.not_at_origin,
            "writes were answered without a log, and not at the origin",
        ),
        none(
            timeline.lost_blocks,
            "blocks are not at the origin in the end",
        ),
    ] {
        ask(is_so, otherwise);
    }
    for sample in &timeline.samples {
        let (lag_s, at_s) = (sample.lag_s, sample.at_s);
        let what = format!("a lag of {lag_s:.1} s at {at_s:.2} s is over `max_lag`");
        ask(lag_s <= timeline.max_lag_s, what);
    }
    for phase in &timeline.phases {
        let most = match phase.stretch {
            TimelineStretch::Restart => continue,
            TimelineStretch::Loss => timeline.max_lag_s * 1e3,
            _ => GAP_MS_MAX,
        };
        let what = format!(
            "no write is answered for {:.0} ms ({})",
            phase.longest_gap_ms,
            phase.stretch.name()
        );
        ask(phase.longest_gap_ms <= most, what);
    }
    let dirty = timeline.samples.last().map(|sample| sample.dirty_bytes);
    ask(
        dirty == Some(0),
        format!("{dirty:?} bytes are dirty in the end"),
    );
    if let Some(missing) = missing(timeline) {
        ask(false, missing);
    }
    all
}

/// The first effect that is not visible, if there is one.
fn missing(timeline: &MeasuredTimeline) -> Option<String> {
    let phase = |stretch| timeline.phase(stretch);
    let (Some(quiet), Some(burst), Some(one), Some(through), Some(detach), Some(load)) = (
        phase(TimelineStretch::Quiet),
        phase(TimelineStretch::Burst),
        phase(TimelineStretch::OneDevice),
        phase(TimelineStretch::WriteThrough),
        phase(TimelineStretch::Detach),
        phase(TimelineStretch::Load),
    ) else {
        return Some("a part of it was not run".into());
    };
    let mean = |from: f64, to: f64| {
        let here = timeline.samples.iter();
        let here: Vec<_> = here.filter(|s| s.at_s > from && s.at_s <= to).collect();
        let count = here.len().max(1) as f64;
        let writes: f64 = here.iter().map(|sample| sample.writes_per_s).sum();
        let origin: f64 = here.iter().map(|sample| sample.origin_blocks_per_s).sum();
        (writes / count, origin / count)
    };
    let (head, _) = mean(burst.from_s, burst.from_s + HEAD_S);
    let (paced, takes) = mean(burst.to_s - TAIL_S, burst.to_s);
    let near = |rate: f64, other: f64| rate < PACED_TIMES * other && other < PACED_TIMES * rate;
    let shown = [
        (
            burst.dirty_bytes_max as f64 > BURST_TIMES * quiet.dirty_bytes_max as f64,
            "the burst leaves no more dirty than the quiet load",
        ),
        (
            head > HEAD_TIMES * takes,
            "the log takes the burst no faster than the origin would",
        ),
        (
            near(paced, takes),
            "the burst is not slowed down to what the origin takes",
        ),
        (
            load.copies == 2 && one.copies == 1,
            "no device of the log is lost",
        ),
        (
            near(one.writes_per_s, one.origin_blocks_per_s),
            "the origin does not answer writes",
        ),
        (detach.dirty_bytes_max > 0, "nothing is dirty at the detach"),
        (through.copies == 0, "the log is not given up"),
    ];
    let missing = shown.into_iter().find(|(is_so, _)| !is_so);
    missing.map(|(_, what)| format!("{what}: this shows nothing"))
}
