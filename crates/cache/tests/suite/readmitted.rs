//! A pool device that was late is bypassed, and comes back with the lines that are right.

use crate::place::{LINE, Place, Rig};
use block::{IoErrorKind, Nanos};
use cache::{Counter, DeviceFault, DeviceState};
use sim::RunOutcome;

/// Lines that [`Rig::fill`] reads.
const LINES: u64 = 16;

fn state(rig: &Rig, at: usize) -> DeviceState {
    rig.cache.devices()[at].state
}

/// A line that is not among them: a region that is written first after a pause.
const ELSEWHERE: u64 = 300;

/// Makes the device `at` answer nothing until the cache ejects it for that: a write waits for its
/// bitmap.
async fn late(rig: &Rig, at: usize) {
    rig.sleep(200).await;
    rig.control.hang(rig.pool[at]);
    rig.write(ELSEWHERE * LINE, 8, 3).await;
    assert_eq!(state(rig, at), DeviceState::Ejected(DeviceFault::Late));
}

/// Takes the device `at` back, once the device answers.
async fn back(rig: &Rig, at: usize) -> u64 {
    rig.control.release(rig.pool[at]);
    rig.sleep(10).await;
    let id = rig.cache.devices()[at].id;
    let lines = rig.cache.readmit(id).await.unwrap();
    assert_eq!(state(rig, at), DeviceState::Online);
    rig.cache.check();
    lines
}

#[test]
fn it_is_back_with_all_lines_if_nothing_was_written() {
    let ended = Place::new(1, 1).run(&[0], |rig| async move {
        rig.fill().await;
        late(&rig, 0).await;
        assert_eq!(rig.cache.lines(), (0, 0));
        assert_eq!(back(&rig, 0).await, LINES);
        let missed = rig.count(Counter::ReadsMissed);
        for line in 0..LINES {
            rig.expect(line * LINE, LINE, 0).await;
        }
        assert_eq!(rig.count(Counter::ReadsMissed), missed, "all are hits");
        assert_eq!(rig.count(Counter::DevicesReturned), 1);
        rig.agrees().await;
    });
    assert_eq!(ended, RunOutcome::Done);
}

#[test]
fn what_was_written_meanwhile_is_no_hit_and_the_rest_is() {
    let ended = Place::new(2, 1).run(&[0], |rig| async move {
        rig.fill().await;
        late(&rig, 0).await;
        // A block of one line, and two lines whole.
        rig.write(3 * LINE + 8, 8, 7).await;
        rig.write(5 * LINE, 2 * LINE, 8).await;
        assert_eq!(back(&rig, 0).await, LINES - 2);
        rig.expect(3 * LINE + 8, 8, 7).await;
        rig.expect(5 * LINE, 2 * LINE, 8).await;
        rig.agrees().await;
    });
    assert_eq!(ended, RunOutcome::Done);
}

#[test]
fn lines_of_a_volume_that_was_changed_by_others_do_not_come_back() {
    let ended = Place::new(3, 2).run(&[0, 1], |rig| async move {
        rig.fill().await;
        late(&rig, 0).await;
        rig.volume.invalidate().await.unwrap();
        assert_eq!(back(&rig, 0).await, 0);
        rig.agrees().await;
    });
    assert_eq!(ended, RunOutcome::Done);
}

#[test]
fn a_line_that_was_cached_again_elsewhere_stays_there() {
    let ended = Place::new(4, 2).run(&[0, 1], |rig| async move {
        rig.fill().await;
        late(&rig, 0).await;
        for line in (0..LINES).chain(0..LINES) {
            rig.expect(line * LINE, LINE, 0).await;
        }
        rig.sleep(100).await;
        rig.write(0, 8, 9).await;
        back(&rig, 0).await;
        let lines = u64::from(rig.cache.lines().0);
        assert!(lines == LINES || lines == LINES + 1, "{lines}");
        rig.expect(0, 8, 9).await;
        rig.agrees().await;
    });
    assert_eq!(ended, RunOutcome::Done);
}

#[test]
fn one_that_does_not_answer_stays_out_and_may_be_tried_again() {
    let ended = Place::new(5, 1).run(&[0], |rig| async move {
        rig.fill().await;
        late(&rig, 0).await;
        let id = rig.cache.devices()[0].id;
        // Earlier requests to the device may land later: that counts, whatever the device answers
        // besides.
        let refused = rig.cache.readmit(id).await.unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::Timeout, "{refused}");
        let why = refused.to_string();
        assert!(why.contains("has not answered all"), "{why}");
        rig.control.release(rig.pool[0]);
        rig.sleep(10).await;
        rig.control.hang(rig.pool[0]);
        // The device answered all, and is unresponsive again.
        let refused = rig.cache.readmit(id).await.unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::Timeout, "{refused}");
        let why = refused.to_string();
        assert!(why.contains("does not answer in time"), "{why}");
        assert_eq!(state(&rig, 0), DeviceState::Ejected(DeviceFault::Late));
        assert_eq!(back(&rig, 0).await, LINES);
        let served = rig.cache.readmit(id).await.unwrap_err();
        assert_eq!(served.kind(), IoErrorKind::Invalid, "it serves: {served}");
        rig.agrees().await;
    });
    assert_eq!(ended, RunOutcome::Done);
}

#[test]
fn it_may_be_late_again_and_again() {
    let ended = Place::new(6, 2).run(&[0, 1], |rig| async move {
        rig.fill().await;
        for round in 1..6 {
            late(&rig, 0).await;
            rig.write(round * LINE, 8, round as u8).await;
            back(&rig, 0).await;
            rig.sleep(50 * round).await;
        }
        for round in 1..6 {
            rig.expect(round * LINE, 8, round as u8).await;
        }
        assert!(rig.cache.lines().0 > 8, "most lines stayed");
        rig.agrees().await;
    });
    assert_eq!(ended, RunOutcome::Done);
}

/// Power cuts at moments all along a return: the bytes served then are the origin's.
#[test]
fn a_cut_at_any_moment_of_a_return_leaves_nothing_stale() {
    let mut found = 0;
    for moment in 0..60 {
        let mut place = Place::new(100 + moment, 2);
        place.cut(&[0, 1], move |rig| async move {
            rig.fill().await;
            rig.sleep(60).await;
            late(&rig, 0).await;
            rig.write(2 * LINE, LINE, 5).await;
            rig.control.release(rig.pool[0]);
            rig.sleep(10).await;
            let control = rig.control.clone();
            let timer = rig.env.timer.clone();
            rig.env.spawn.spawn(async move {
                timer.sleep(Nanos(moment * moment * 50_000)).await;
                control.cut_power(None);
            });
            let id = rig.cache.devices()[0].id;
            rig.cache.readmit(id).await.unwrap();
            rig.write(4 * LINE, 8, 6).await;
            rig.sleep(1000).await;
        });
        let lines = std::rc::Rc::new(std::cell::Cell::new(0));
        let seen = lines.clone();
        let again = place.run(&[0, 1], move |rig| {
            let seen = seen.clone();
            async move {
                rig.cache.warmed().await;
                seen.set(rig.count(Counter::LinesRestored));
                rig.agrees().await;
            }
        });
        assert_eq!(again, RunOutcome::Done, "{moment}");
        found += lines.get();
    }
    assert!(found > 60 * 4, "lines came back after cuts: {found}");
}
