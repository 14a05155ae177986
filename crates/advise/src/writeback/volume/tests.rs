//! The advice of a volume beside that of a trace of the same writes, and by hand.

use super::*;
use crate::writeback::{Collector, OriginTakes};
use block::Nanos;
use control::observed::ServiceReport;
use control::status::Total;
use policy::written::WriteGatherer;
use trace::{RecordOp, TraceRecord};

/// An origin that takes 4 KiB in 10 ms, one at a time, and a flush in no time.
const RATE: u64 = 409_600;

fn kind(requests: u64, bytes: u64, ms: f64) -> ObservedKind {
    ObservedKind {
        requests,
        bytes,
        latency_us_mean: ms * 1e3,
        latency_us: Vec::new(),
    }
}

fn observed(written: WrittenFigures, origin: ServiceReport) -> Observed {
    Observed {
        volume: "v".into(),
        pool: "p".into(),
        policy: "lru".into(),
        mode: "write-through".into(),
        volumes_in_pool: 1,
        pool_bytes: 0,
        profile: Default::default(),
        written: Some(written),
        blocks_hit: 0,
        blocks_missed: 0,
        blocks_streamed: 0,
        promoted_bytes: 0,
        updated_bytes: 0,
        read_total: Total::default(),
        write_total: Total::default(),
        origin,
        cache: ServiceReport::default(),
    }
}

/// The advice of the volume and of the trace, for so many writes of a block each second, for that
/// many seconds, and a flush each second.
fn both(seconds: u64, writes_per_s: impl Fn(u64) -> u64) -> (WriteBackGain, WriteBackGain) {
    let mut writes = WriteGatherer::default();
    let mut collector = Collector::new(&OriginTakes::Rate(RATE)).unwrap();
    writes.tick(Nanos::ZERO);
    let mut block = 0;
    for second in 0..seconds {
        let count = writes_per_s(second);
        for number in 0..count {
            let time = Nanos(second * 1_000_000_000 + number * 1_000_000_000 / count);
            block += 7;
            collector.add(&TraceRecord {
                time,
                op: RecordOp::Write,
                offset_bytes: block * 4096,
                len_bytes: 4096,
                volume: 0,
                forced: false,
            });
            writes.write(4096, false);
            if number + 1 == count {
                collector.add(&TraceRecord::flush(time, 0));
                writes.flush();
            }
        }
        writes.tick(Nanos::from_secs(second + 1));
    }
    let written = writes.written();
    let origin = ServiceReport {
        writes: kind(written.writes, written.bytes, 10.0),
        busy: written.writes as f64 * 0.01 / written.seconds,
        span_s: written.seconds,
        ..ServiceReport::default()
    };
    let found = of_volume(&observed(written, origin)).unwrap();
    (found, collector.finish())
}

fn log<'a>(found: &'a WriteBackGain, name: &str) -> &'a LogGain {
    let mode = found.modes.iter().find(|mode| mode.mode == name);
    mode.unwrap().log.as_ref().unwrap()
}

#[test]
fn a_volume_and_a_trace_of_the_same_writes_have_the_same_verdict() {
    for (writes_per_s, verdict) in [
        (
            20,
            "`ordered` would answer 100% of writes in the log's time; log of",
        ),
        (
            300,
            "no gain: writes come faster than the origin takes them for",
        ),
    ] {
        let (volume, trace) = both(300, |_| writes_per_s);
        for found in [&volume, &trace] {
            assert!(found.verdict.starts_with(verdict), "{}", found.verdict);
        }
        assert_eq!(
            (volume.writes, volume.flushes),
            (trace.writes, trace.flushes)
        );
        let near = |one: f64, other: f64| (one - other).abs() < 0.1 * other.max(0.1);
        let (ours, theirs) = (log(&volume, "ordered"), log(&trace, "ordered"));
        assert!(
            near(ours.origin_bytes_per_second_max, RATE as f64),
            "{ours:?}"
        );
        assert!(
            near(ours.behind_share, theirs.behind_share),
            "{ours:?} {theirs:?}"
        );
        assert!(
            near(ours.unpaced_share, theirs.unpaced_share),
            "{ours:?} {theirs:?}"
        );
        let (mean, busiest) = (volume.mean.writes_per_second, volume.busiest_30_seconds);
        assert!(near(mean, trace.mean.writes_per_second));
        assert!(near(
            busiest.bytes_per_second,
            trace.busiest_30_seconds.bytes_per_second
        ));
    }
}

#[test]
fn a_burst_that_the_log_takes_asks_for_a_log_as_large_as_that() {
    // Six seconds at thrice the rate of the origin: 1200 blocks are dirty then.
    let (volume, trace) = both(600, |second| if second < 6 { 300 } else { 20 });
    for found in [&volume, &trace] {
        assert!(
            found.verdict.contains("`ordered` would answer 100%"),
            "{}",
            found.verdict
        );
    }
    let (ours, theirs) = (log(&volume, "ordered"), log(&trace, "ordered"));
    let times = ours.held_bytes_max as f64 / theirs.held_bytes_max as f64;
    assert!((0.7..1.5).contains(&times), "{ours:?} {theirs:?}");
    assert!(ours.device_bytes > 20 << 20, "{ours:?}");
}

#[test]
fn flushes_cost_ordered_more_than_windows() {
    let mut writes = WriteGatherer::default();
    writes.tick(Nanos::ZERO);
    for second in 1..=1000 {
        for _ in 0..40 {
            writes.write(4096, false);
            writes.flush();
        }
        writes.tick(Nanos::from_secs(second));
    }
    // Writes in no time to speak of, flushes in 50 ms: 20 a second, and 40 come.
    let origin = ServiceReport {
        writes: kind(40_000, 40_000 * 4096, 0.1),
        flushes: kind(20_000, 0, 50.0),
        busy: 1.0,
        span_s: 1000.0,
        ..ServiceReport::default()
    };
    let found = of_volume(&observed(writes.written(), origin)).unwrap();
    assert_eq!(found.intervals.unwrap().blocks_median, 1);
    assert!(log(&found, "ordered").unpaced_share < 0.2, "{found:?}");
    assert_eq!(log(&found, "coalesced").unpaced_share, 1.0);
    let verdict = "`journaled` or `coalesced` would answer 100% of writes in the log's time";
    assert!(found.verdict.starts_with(verdict), "{}", found.verdict);
}

#[test]
fn requests_side_by_side_take_their_part_of_the_time() {
    let mut writes = WriteGatherer::default();
    writes.tick(Nanos::ZERO);
    writes.write(4096, false);
    writes.tick(Nanos::from_secs(100));
    // 1000 writes of 80 ms within 10 s: eight at a time, 10 ms each.
    let origin = ServiceReport {
        writes: kind(1000, 4096 * 1000, 80.0),
        busy: 0.1,
        span_s: 100.0,
        ..ServiceReport::default()
    };
    let found = of_volume(&observed(writes.written(), origin)).unwrap();
    let takes = log(&found, "ordered").origin_bytes_per_second_max;
    assert!((takes - RATE as f64).abs() < 1.0, "{takes}");
    assert!(
        found.notes[0].contains("8.0 requests in flight"),
        "{:?}",
        found.notes
    );
}

#[test]
fn what_was_not_counted_or_not_written_is_said() {
    let idle = of_volume(&observed(
        WrittenFigures::default(),
        ServiceReport::default(),
    ))
    .unwrap();
    assert_eq!(idle.verdict, "nothing to gain: nothing is written");
    let mut writes = WriteGatherer::default();
    writes.tick(Nanos::ZERO);
    writes.write(4096, false);
    writes.tick(Nanos::from_secs(1));
    let early = of_volume(&observed(writes.written(), ServiceReport::default())).unwrap();
    assert_eq!(early.verdict, NOT_KNOWN);
    let mut older = observed(WrittenFigures::default(), ServiceReport::default());
    older.written = None;
    assert_eq!(of_volume(&older), None);
}
