//! A timeline keeps its promises, and a broken one is found.

use super::judge::judge;
use super::play::{run, run_dropping};
use super::{MeasuredTimeline, TimelineStretch, chart};

fn sound() -> MeasuredTimeline {
    let timeline = run(1).unwrap();
    assert_eq!(timeline.violations, Vec::<String>::new());
    timeline
}

#[test]
fn a_write_back_volume_keeps_its_promises_over_time() {
    let timeline = sound();
    let phase = |stretch| timeline.phase(stretch).unwrap();
    let (quiet, burst) = (phase(TimelineStretch::Quiet), phase(TimelineStretch::Burst));
    assert!(burst.dirty_bytes_max > 4 * quiet.dirty_bytes_max);
    assert!(
        timeline
            .samples
            .iter()
            .all(|s| s.lag_s <= timeline.max_lag_s)
    );
    assert!(phase(TimelineStretch::Loss).longest_gap_ms > 0.0);
    assert_eq!(timeline.samples.last().unwrap().dirty_bytes, 0);
    let drawn = chart(&timeline).unwrap();
    for what in ["burst ends", "log SSD lost", "detached", "max_lag = 24 s"] {
        assert!(drawn.contains(what), "{what}");
    }
    let again = run(1).unwrap();
    let text = |timeline: &MeasuredTimeline| serde_json::to_string(timeline).unwrap();
    assert!(
        text(&timeline) == text(&again),
        "the same seed is the same run"
    );
}

#[test]
fn canary_a_write_that_the_origin_loses_is_found() {
    let timeline = run_dropping(1, Some(10_000)).unwrap();
    assert!(timeline.lost_blocks > 0, "{timeline:#?}");
    assert!(!timeline.violations.is_empty());
}

#[test]
fn canary_each_breach_is_found_and_so_is_what_is_not_to_be_seen() {
    let timeline = sound();
    let found = |what: &str, alter: &dyn Fn(&mut MeasuredTimeline)| {
        let mut altered = timeline.clone();
        alter(&mut altered);
        let violations = judge(&altered);
        let named = violations.iter().any(|violation| violation.contains(what));
        assert!(named, "{what}: {violations:?}");
    };
    found("failed", &|t| t.errors = 1);
    found("not at the origin", &|t| t.not_at_origin = 1);
    found("in the end", &|t| t.lost_blocks = 1);
    found("over `max_lag`", &|t| {
        t.samples[9].lag_s = t.max_lag_s + 0.1
    });
    found("no write is answered", &|t| {
        t.phases[1].longest_gap_ms = 1001.0
    });
    found("dirty in the end", &|t| {
        t.samples.last_mut().unwrap().dirty_bytes = 1
    });
    found("not run", &|t| t.phases.truncate(9));
    found("no more dirty", &|t| t.phases[1].dirty_bytes_max = 0);
    found("no faster", &|t| {
        t.samples.iter_mut().for_each(|s| s.writes_per_s = 1.0)
    });
    found("not slowed down", &|t| {
        t.samples.iter_mut().for_each(|s| s.writes_per_s *= 2.0)
    });
    for (stretch, what) in [
        (TimelineStretch::Load, "is lost"),
        (TimelineStretch::OneDevice, "does not answer"),
        (TimelineStretch::Detach, "at the detach"),
        (TimelineStretch::WriteThrough, "not given up"),
    ] {
        found(what, &|t| {
            let mut phases = t.phases.iter_mut();
            let phase = phases.find(|phase| phase.stretch == stretch).unwrap();
            phase.writes_per_s = 0.0;
            phase.dirty_bytes_max = 0;
            phase.copies = if stretch == TimelineStretch::Load {
                1
            } else {
                phase.copies
            };
            phase.copies += u32::from(stretch == TimelineStretch::WriteThrough);
        });
    }
}
