use super::*;
use crate::member::MemberCandidate;
use block::{
    BoxDevice, Buf, Content, Env, Executor, Extent, Fua, Geometry, IoResult, Lba, Pool, Sectors,
    SharedBuf, TimerKey,
};
use layout::Uuid;
use std::pin::Pin;
use std::task::Waker;

/// An executor that starts nothing.
struct Idle;

impl Executor for Idle {
    fn spawn(&self, _: Pin<Box<dyn Future<Output = ()>>>) {
        unreachable!()
    }
    fn now(&self) -> Nanos {
        unreachable!()
    }
    fn set_timer(&self, _: Nanos, _: Waker) -> TimerKey {
        unreachable!()
    }
    fn cancel_timer(&self, _: TimerKey) {
        unreachable!()
    }
}

struct Still(Geometry);

impl Device for Still {
    fn geometry(&self) -> &Geometry {
        &self.0
    }
    async fn read(&self, _: Lba, _: Buf) -> (Buf, IoResult) {
        unreachable!()
    }
    async fn write(&self, _: Lba, _: SharedBuf, _: Fua) -> IoResult {
        unreachable!()
    }
    async fn zero(&self, _: Extent) -> IoResult {
        unreachable!()
    }
    async fn flush(&self) -> IoResult {
        unreachable!()
    }
    async fn discard(&self, _: Extent) -> IoResult {
        unreachable!()
    }
    async fn extents(&self, _: Extent, _: &mut Vec<(Extent, Content)>) -> IoResult {
        unreachable!()
    }
}

/// State of a leg.
#[derive(Clone, Copy, Default)]
struct Stand {
    in_flight: u32,
    reading_bytes: u64,
    head: u64,
    millis: u64,
}

const AT: Lba = Lba(1000);

/// Returns the leg that serves read number `turn` of sector 1000.
fn chosen(rotational: bool, turn: u64, stands: &[Stand]) -> Option<usize> {
    chosen_at(AT, rotational, turn, stands)
}

fn chosen_at(at: Lba, rotational: bool, turn: u64, stands: &[Stand]) -> Option<usize> {
    let legs = stands.iter().enumerate().map(|(member, stand)| {
        let mut geometry = Geometry::new("disk", Sectors(1 << 20), Sectors(1));
        geometry.rotational = rotational;
        let candidate = MemberCandidate::new(BoxDevice::new(Still(geometry)), "domain");
        let env = Env::new(Rc::new(Idle), Pool::new(4096));
        let disk = ArrayMember::new(candidate, Uuid::default(), Sectors(0), None, env);
        disk.in_flight.set(stand.in_flight);
        disk.reading_bytes.set(stand.reading_bytes);
        disk.head.set(Lba(stand.head));
        disk.read_time.set(Nanos::from_millis(stand.millis));
        (Leg { member, at }, Rc::new(disk))
    });
    choose(&legs.collect::<Vec<_>>(), turn)
}

#[test]
fn legs_that_are_alike_take_turns() {
    let legs = [Stand::default(); 3];
    let turns: Vec<_> = (1..7).map(|turn| chosen(false, turn, &legs)).collect();
    assert_eq!(turns, [1, 2, 0, 1, 2, 0].map(Some));
    assert_eq!(chosen(false, 1, &legs[..1]), Some(0));
    assert_eq!(chosen(false, 1, &[]), None);
}

#[test]
fn the_shorter_queue_serves_and_then_the_nearer_head() {
    let busy = Stand {
        in_flight: 2,
        head: 990,
        ..Stand::default()
    };
    let idle = Stand {
        in_flight: 1,
        head: 5000,
        ..Stand::default()
    };
    let near = Stand {
        in_flight: 1,
        ..busy
    };
    for turn in 1..5 {
        assert_eq!(chosen(true, turn, &[busy, idle]), Some(1), "turn {turn}");
        assert_eq!(chosen(true, turn, &[near, idle]), Some(0), "turn {turn}");
        assert_eq!(chosen(true, turn, &[idle, near]), Some(1), "turn {turn}");
    }
    let nowhere: Vec<_> = (1..3)
        .map(|turn| chosen(false, turn, &[near, idle]))
        .collect();
    assert_eq!(
        nowhere,
        [Some(1), Some(0)],
        "where nothing moves they take turns"
    );
}

/// Eight requests ahead, or 4 MiB on disks that turn, are not too many yet.
#[test]
fn a_stream_stays_on_its_leg_until_that_leads_too_far() {
    let stream = |in_flight, reading_bytes| Stand {
        in_flight,
        reading_bytes,
        head: AT.0,
        millis: 0,
    };
    let other = Stand {
        in_flight: 3,
        reading_bytes: 1 << 20,
        head: 7,
        millis: 0,
    };
    let lead = STREAM_LEAD_BYTES + (1 << 20);
    for (rotational, leg, stays) in [
        (false, stream(3 + STREAM_LEAD, u64::MAX / 2), true),
        (false, stream(4 + STREAM_LEAD, 0), false),
        (true, stream(1000, lead), true),
        (true, stream(1000, lead + 1), false),
    ] {
        for turn in 1..5 {
            let chosen = chosen(rotational, turn, &[other, leg]);
            assert_eq!(chosen, Some(usize::from(stays)), "turn {turn}");
        }
    }
}

/// At the beginning of an array every head may be there by chance.
#[test]
fn no_stream_goes_on_at_the_first_sector() {
    let leg = Stand {
        in_flight: 1,
        ..Stand::default()
    };
    assert_eq!(
        chosen_at(Lba::ZERO, false, 1, &[leg, Stand::default()]),
        Some(1)
    );
    assert_eq!(
        chosen_at(Lba::ZERO, false, 2, &[leg, Stand::default()]),
        Some(1)
    );
}

/// More than four times the quickest, and more than two milliseconds.
#[test]
fn a_slow_leg_is_spared_and_asked_now_and_then() {
    let takes = |millis, head| Stand {
        millis,
        head,
        ..Stand::default()
    };
    for (quick, slow, is_slow) in [(1, 5, true), (1, 4, false), (0, 2, false), (0, 3, true)] {
        let legs = [takes(slow, 7), takes(quick, 7)];
        let first: Vec<_> = (1..PROBE)
            .filter(|turn| chosen(false, *turn, &legs) == Some(0))
            .collect();
        assert_eq!(first.is_empty(), is_slow, "{slow} ms beside {quick} ms");
        // The slow leg is asked when its turn to be probed comes, though the other is free.
        assert_eq!(chosen(false, PROBE, &legs), Some(0));
        assert_eq!(chosen(false, 2 * PROBE, &legs), Some(0));
    }
    // Not for a stream either, but for a probe.
    let legs = [takes(9, AT.0), takes(1, 7)];
    assert_eq!(chosen(false, 2, &legs), Some(1));
    assert_eq!(chosen(false, PROBE, &legs), Some(0));
}

#[test]
fn more_bytes_may_take_longer() {
    let second = Nanos::from_secs(1);
    assert_eq!(limit(second, 0), second);
    assert_eq!(limit(second, 2 * RATE_MIN), Nanos::from_secs(3));
    assert_eq!(limit(second, u64::MAX), Nanos::MAX);
}
