use super::super::origin;
use super::*;
use proptest::prelude::*;

/// An origin that takes so many blocks a second.
fn lane_of(takes: BatchTakes, blocks: u64) -> CleanerLane {
    let origin = CleanedOrigin::new(&origin::OriginTakes::Rate(4096 * blocks)).unwrap();
    CleanerLane::new(takes, origin)
}

fn lane(takes: BatchTakes) -> CleanerLane {
    lane_of(takes, 1)
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Four writes and a flush after the second.
fn by_hand(takes: BatchTakes) -> (LaneSums, Nanos) {
    let mut lane = lane(takes);
    lane.write(ms(0), 0..2, false);
    lane.write(ms(500), 1..3, false);
    lane.flush();
    lane.write(ms(700), 10..11, false);
    lane.write(ms(5000), 20..21, false);
    lane.finish()
}

#[test]
fn an_interval_is_carried_by_itself_once_it_has_gathered() {
    let (sums, end) = by_hand(BatchTakes::Interval);
    // From 1 to 4 s blocks 0 to 2, from 4 to 5 s block 10, from 6 to 7 s block 20.
    let expected = LaneSums {
        asked: 4,
        answered: 4,
        changed: 6,
        carried: 5,
        writes: 3,
        flushes: 3,
        busy: ms(5000),
        behind: ms(0),
        log_written: 1 + (3 + 3 + 2 + 2) + 3,
        log_dirty_max: (1 + 3 + 3) + 1 + 2,
        log_batch_max: 1 + 3 + 3,
    };
    assert_eq!((sums, end), (expected, ms(7000)));
}

#[test]
fn a_window_carries_several_intervals_at_once() {
    let (sums, end) = by_hand(BatchTakes::Window);
    // From 3.75 to 7.75 s all but the last, which follows from 8.75 to 9.75 s.
    assert_eq!((sums.carried, sums.writes, sums.flushes), (5, 3, 2));
    assert_eq!((sums.busy, end), (ms(5000), ms(9750)));
    assert_eq!(sums.log_batch_max, 1 + 3 + 3 + 2);
    assert_eq!(sums.log_written, 1 + (3 + 3 + 2 + 2) + 2);
}

#[test]
fn writes_beyond_half_of_what_the_origin_takes_in_time_are_held_back() {
    let mut lane = lane(BatchTakes::Interval);
    for block in 0..40 {
        lane.write(ms(0), block..block + 1, true);
    }
    // Block i ends at 2 + i s, so that the 16th finds the origin busy for 16 s.
    assert_eq!((lane.sums.asked, lane.sums.answered), (40, 15));
    // A header, a record each, and a note each but for the last.
    let dirty = 1 + 40 * 2 + 39;
    assert_eq!(lane.sums.log_dirty_max, dirty);
    // The oldest is 31 s old: this write would be stopped, and the log need not hold it.
    lane.write(ms(31_000), 99..199, true);
    assert_eq!((lane.sums.answered, lane.sums.log_dirty_max), (15, dirty));
    let (sums, end) = lane.finish();
    assert_eq!((sums.busy, end), (ms(140_000), ms(141_000)));
    // From 15 s to the end of block 39 at 41 s, and from 46 s on.
    assert_eq!(sums.behind, ms((41_000 - 15_000) + (141_000 - 46_000)));
}

#[test]
fn a_write_longer_than_a_record_has_several_and_leaves_a_segment_with_a_gap() {
    let mut lane = lane(BatchTakes::Window);
    lane.write(ms(0), 0..300, false);
    // Two records of 128 blocks do not fit in a segment of 256 with its header.
    assert_eq!(lane.sums.log_written, (1 + 129) + 1 + (1 + 129) + 45);
    assert_eq!(lane.segment_used, 1 + 129 + 45);
    // A window has 256 blocks until the origin's rate is known.
    assert_eq!(lane.sums.log_batch_max, 1 + 129 + 126 + 1);
    let (sums, _) = lane.finish();
    assert_eq!((sums.carried, sums.writes, sums.flushes), (300, 2, 2));
}

#[test]
fn dirty_batches_stay_in_bounded_memory() {
    let mut lane = lane(BatchTakes::Interval);
    for block in 0..20_000u64 {
        lane.write(ms(block / 100), block..block + 1, true);
        assert!(lane.dirty.len() <= ENTRIES_MAX);
    }
    let kept: u64 = lane.dirty.iter().map(|dirty| dirty.log_blocks).sum();
    assert_eq!(lane.dirty_blocks, kept);
    assert!(
        lane.dirty
            .iter()
            .zip(lane.dirty.iter().skip(1))
            .all(|(a, b)| a.ends < b.ends)
    );
}

/// An event at a time.
#[derive(Clone, Debug)]
enum Event {
    Write(Range<u64>, bool),
    Flush,
}

/// A record with its segment and its interval.
struct Kept {
    at: Nanos,
    blocks: Range<u64>,
    segment: u64,
    interval: u64,
}

/// The same from a list of all records, for an origin that takes `rate` blocks a second.
/// `flushes` if they close intervals.
fn by_list(events: &[(Nanos, Event)], takes: BatchTakes, rate: u64, flushes: bool) -> LaneSums {
    let (mut records, mut interval) = (Vec::new(), 0);
    let (mut segment, mut used) = (0, 1);
    for (at, event) in events {
        let (blocks, closes) = match event {
            Event::Write(blocks, forced) => (blocks.clone(), *forced),
            Event::Flush => (0..0, true),
        };
        for start in blocks.clone().step_by(128) {
            let part = start..blocks.end.min(start + 128);
            let count = part.end - part.start + 1;
            if used + count > 256 {
                (segment, used) = (segment + 1, 1);
            }
            used += count;
            records.push(Kept {
                at: *at,
                blocks: part,
                segment,
                interval,
            });
        }
        interval += u64::from(closes && flushes);
    }
    let gather = match takes {
        BatchTakes::Interval => ms(1000),
        BatchTakes::Window => ms(3750),
    };
    let (mut sums, mut free, mut from) = (LaneSums::default(), Nanos::ZERO, 0);
    while let Some(first) = records.get(from) {
        let begins = free.max(first.at + gather);
        let seconds = sums.busy.as_secs_f64();
        let measured = if seconds > 0.0 {
            sums.carried as f64 / seconds
        } else {
            0.0
        };
        let most = ((measured * 30.0) as u64 / 4).clamp(256, 16_384) as usize;
        let (mut blocks, mut to) = (BTreeSet::new(), from);
        while let Some(next) = records.get(to).filter(|next| next.at < begins) {
            let turns = to > from && records[to - 1].segment != next.segment;
            let fits = match takes {
                BatchTakes::Interval => !turns && next.interval == first.interval,
                BatchTakes::Window => !turns || blocks.len() + 256 <= most,
            };
            if !fits {
                break;
            }
            blocks.extend(next.blocks.clone());
            sums.changed += next.blocks.end - next.blocks.start;
            to += 1;
        }
        let starts = blocks
            .iter()
            .filter(|block| !blocks.contains(&(*block - 1)));
        let run = |start: &u64| (*start..).take_while(|block| blocks.contains(block));
        let writes = starts.map(|start| run(start).count().div_ceil(256) as u64);
        sums.writes += writes.sum::<u64>();
        sums.carried += blocks.len() as u64;
        sums.flushes += 1;
        let took = Nanos(blocks.len() as u64 * 1_000_000_000 / rate);
        (sums.busy, free) = (sums.busy + took, begins + took);
        from = to;
    }
    sums
}

fn by_lane(events: &[(Nanos, Event)], takes: BatchTakes, rate: u64) -> LaneSums {
    let mut lane = lane_of(takes, rate);
    for (at, event) in events {
        match event {
            Event::Write(blocks, forced) => lane.write(*at, blocks.clone(), *forced),
            Event::Flush => lane.flush(),
        }
    }
    let sums = lane.finish().0;
    LaneSums {
        changed: sums.changed,
        carried: sums.carried,
        writes: sums.writes,
        flushes: sums.flushes,
        busy: sums.busy,
        ..LaneSums::default()
    }
}

fn events() -> impl Strategy<Value = Vec<(Nanos, Event)>> {
    let event = prop_oneof![
        6 => (1u64..200, 1u64..20, any::<bool>())
            .prop_map(|(at, count, forced)| Event::Write(at..at + count, forced)),
        1 => (1u64..200, 100u64..300).prop_map(|(at, count)| Event::Write(at..at + count, false)),
        2 => Just(Event::Flush),
    ];
    let step = prop_oneof![Just(0u64), 1u64..500, 1000u64..200_000];
    prop::collection::vec((step, event), 0..80).prop_map(|steps| {
        let mut now = Nanos::ZERO;
        let timed = steps.into_iter().map(|(step, event)| {
            now += ms(step);
            (now, event)
        });
        timed.collect()
    })
}

proptest! {
    #[test]
    fn the_origin_gets_what_a_list_of_all_records_says(events in events()) {
        for (takes, rate) in [
            (BatchTakes::Interval, 1),
            (BatchTakes::Window, 1),
            (BatchTakes::Interval, 128),
            (BatchTakes::Window, 128),
        ] {
            prop_assert_eq!(by_lane(&events, takes, rate), by_list(&events, takes, rate, true));
        }
    }
}

#[test]
fn canary_a_flush_that_closes_nothing_is_noticed() {
    let write = |at, block| (ms(at), Event::Write(block..block + 1, false));
    let events = [write(0, 1), (ms(1), Event::Flush), write(2, 1)];
    let lane = by_lane(&events, BatchTakes::Interval, 1);
    assert_eq!(lane, by_list(&events, BatchTakes::Interval, 1, true));
    assert_ne!(lane, by_list(&events, BatchTakes::Interval, 1, false));
}
