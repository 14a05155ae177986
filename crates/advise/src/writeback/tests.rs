use super::*;

/// The origin takes 100 blocks a second.
fn collected(records: &[TraceRecord]) -> WriteBackGain {
    let mut collector = Collector::new(&OriginTakes::Rate(409_600)).unwrap();
    records.iter().for_each(|record| collector.add(record));
    collector.finish()
}

fn access(ms: u64, op: RecordOp, block: u64, blocks: u32) -> TraceRecord {
    TraceRecord {
        time: Nanos::from_millis(7000 + ms),
        op,
        offset_bytes: block * BLOCK,
        len_bytes: blocks * 4096,
        ..TraceRecord::default()
    }
}

fn write(ms: u64, block: u64, blocks: u32) -> TraceRecord {
    access(ms, RecordOp::Write, block, blocks)
}

fn flush(ms: u64) -> TraceRecord {
    TraceRecord::flush(Nanos::from_millis(7000 + ms), 0)
}

fn log<'a>(write_back: &'a WriteBackGain, name: &str) -> (&'a ModeGain, &'a LogGain) {
    let mut modes = write_back.modes.iter();
    let mode = modes.find(|mode| mode.mode == name).unwrap();
    (mode, mode.log.as_ref().unwrap())
}

/// A database that writes its journal and flushes, ten times within 5 s of 10.
fn database() -> Vec<TraceRecord> {
    let mut records = Vec::new();
    for i in 0..10 {
        records.push(write(500 * i, 7, 1));
        records.push(write(500 * i + 1, 100 + 2 * i, 1));
        records.push(flush(500 * i + 2));
    }
    records.push(access(10_000, RecordOp::Read, 0, 8));
    records
}

#[test]
fn rates_intervals_and_modes_by_hand() {
    let found = collected(&database());
    assert_eq!(
        (found.requests, found.writes, found.flushes, found.seconds),
        (21, 20, 10, 10.0)
    );
    assert_eq!(
        (found.mean.writes_per_second, found.mean.bytes_per_second),
        (2.0, 8192.0)
    );
    assert_eq!(found.busiest_second.writes_per_second, 4.0);
    // All of the 10 s.
    assert_eq!(found.busiest_30_seconds.writes_per_second, 2.0);
    let intervals = found.intervals.unwrap();
    assert_eq!(
        (
            intervals.count,
            intervals.blocks_median,
            intervals.blocks_mean
        ),
        (10, 2, 2.0)
    );
    // Block 7 but for the last time.
    assert!((found.overwritten_share.unwrap() - 9.0 / 20.0).abs() < 1e-12);
    let through = &found.modes[0];
    assert_eq!(
        (
            through.mode,
            through.origin_writes_per_second,
            through.origin_flushes_per_second
        ),
        ("write-through", 2.0, 1.0)
    );
    // Each interval by itself: two places, 20 ms and a flush.
    let (mode, ordered) = log(&found, "ordered");
    assert_eq!(
        (
            mode.origin_writes_per_second,
            mode.origin_flushes_per_second
        ),
        (2.0, 1.0)
    );
    assert_eq!(
        (ordered.unpaced_share, ordered.absorbed_share),
        (1.0, Some(0.0))
    );
    assert!((ordered.origin_busy - 0.02).abs() < 1e-9);
    assert!((ordered.origin_bytes_per_second_max - 409_600.0).abs() < 1.0);
    // A segment's header, 20 records of two blocks and 10 notes in 10 s.
    let day = f64::from((1 + 40 + 10) * 4096) * 8640.0;
    assert!((ordered.device_bytes_per_day - day).abs() < 1.0);
    assert_eq!(ordered.device_bytes, 9 << 20);
    // Windows from 0 and from 4 s, of 8 and 2 intervals: block 7 once in each.
    let (mode, coalesced) = log(&found, "coalesced");
    assert_eq!(
        (
            mode.origin_writes_per_second,
            mode.origin_flushes_per_second
        ),
        (1.2, 0.2)
    );
    assert!((coalesced.absorbed_share.unwrap() - 8.0 / 20.0).abs() < 1e-12);
    let (mode, journaled) = log(&found, "journaled");
    let journal = journaled.journal.unwrap();
    assert_eq!(journal.bytes_per_second, 12.0 * 4096.0 / 10.0);
    assert_eq!(
        journal.flushes_per_second,
        2.0 * mode.origin_flushes_per_second
    );
}

#[test]
fn canary_without_the_flushes_the_figures_are_others() {
    let mut records = database();
    records.retain(|record| !record.is_flush());
    let (with, without) = (collected(&database()), collected(&records));
    assert_eq!((without.flushes, without.intervals), (0, None));
    assert_ne!(log(&with, "ordered"), log(&without, "ordered"));
    assert_ne!(with.modes[0], without.modes[0]);
    assert_eq!(log(&with, "coalesced"), log(&without, "coalesced"));
    assert!(without.notes.iter().any(|note| note.contains("no flush")));
    assert!(!with.notes.iter().any(|note| note.contains("no flush")));
}

#[test]
fn a_log_has_twice_the_room_of_the_largest_burst() {
    // 1000 writes of 8 blocks at once take 80 s at the origin.
    let mut records: Vec<_> = (0..1000).map(|i| write(0, 1000 * i, 8)).collect();
    records.push(access(100_000, RecordOp::Read, 0, 1));
    let found = collected(&records);
    let (_, ordered) = log(&found, "ordered");
    // 28 records of 9 blocks in each segment, of which 3 are left over; 35 notes.
    let blocks = 35 * 256 + (1 + 20 * 9) + 35;
    assert_eq!(ordered.held_bytes_max, blocks * 4096);
    let room = (2 * blocks * 4096).next_multiple_of(1 << 20);
    assert_eq!(ordered.device_bytes, room + (6 << 20));
    // Six segments of 224 blocks are at the origin after 14.4 s, seven after 16.7 s, and the
    // seventh is closed by the write that does not fit.
    assert!(
        (ordered.unpaced_share - 0.197).abs() < 1e-9,
        "{}",
        ordered.unpaced_share
    );
    assert!(
        found.verdict.starts_with("no gain: writes come faster"),
        "{}",
        found.verdict
    );
}

#[test]
fn verdicts() {
    let reads = collected(&[
        access(0, RecordOp::Read, 0, 1),
        access(1000, RecordOp::Read, 0, 1),
    ]);
    assert_eq!(reads.verdict, "nothing to gain: nothing is written");
    assert!(reads.modes.is_empty() && reads.notes.is_empty());
    let untimed = collected(&[write(0, 0, 1), write(0, 1, 1)]);
    assert!(untimed.verdict.contains("the trace has no times"));
    assert!(untimed.modes.is_empty());
    let found = collected(&database());
    assert_eq!(
        found.verdict,
        "`ordered` would answer 100% of writes in the log's time; log of 9 MiB on \
         each device; `journaled` or `coalesced` would spare the origin 40% of the blocks"
    );
    // One block 200 times a second, each time with a flush: twice the rate of the origin.
    let mut hot = Vec::new();
    for i in 0..20_000 {
        hot.push(TraceRecord {
            forced: true,
            ..write(5 * i, 3, 1)
        });
    }
    let found = collected(&hot);
    assert!(
        found.verdict.starts_with(
            "`journaled` or `coalesced` would answer 100% of writes in the log's \
             time, `ordered` "
        ),
        "{}",
        found.verdict
    );
    assert_eq!(found.forced_writes, 20_000);
    assert_eq!(
        found.modes[0].origin_flushes_per_second,
        20_000.0 / found.seconds
    );
}

#[test]
fn volumes_are_apart() {
    let other = |record: TraceRecord| TraceRecord {
        volume: 9,
        ..record
    };
    let found = collected(&[
        write(0, 0, 1),
        other(write(1, 1, 1)),
        other(write(2, 0, 1)),
        write(9000, 5, 1),
    ]);
    assert_eq!(found.overwritten_share, Some(0.0));
    assert!(found.notes.iter().any(|note| note.starts_with("2 volumes")));
    // Blocks 0 and 1 of the other volume are one run.
    let (mode, _) = log(&found, "coalesced");
    assert!((mode.origin_writes_per_second * 12.75 - 3.0).abs() < 0.1);
}
