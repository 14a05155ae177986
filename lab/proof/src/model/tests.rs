//! Histories that the reference allows, and histories that it refuses.

use super::*;
use crate::stamp::ZERO;

const ONE: Space = Space {
    windows: 1,
    each: 1,
};

fn bytes(sector: u64, value: Value) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    if value != ZERO {
        stamp::stamp(&mut bytes, sector, value);
    }
    bytes
}

fn write(model: &mut VolumeModel, value: Value, durable: bool) {
    model.begin(&(0..1), value);
    model.end(&(0..1), value, true, durable);
}

fn reads(model: &mut VolumeModel, value: Value) -> bool {
    let id = model.begin_read(&(0..1));
    model.end_read(id, Some(&bytes(0, value))).is_ok()
}

#[test]
fn a_flush_saves_what_came_before_it_alone() {
    for (flushed, lost) in [(false, true), (true, true), (true, false)] {
        let mut model = VolumeModel::new(ONE);
        write(&mut model, 7, false);
        let mark = model.begin_flush();
        write(&mut model, 8, false);
        if flushed {
            model.end_flush(mark);
        }
        model.cut(lost);
        let allowed: Vec<_> = [ZERO, 7, 8]
            .into_iter()
            .filter(|v| model.sectors[0].allows(Some(*v)))
            .collect();
        match (flushed, lost) {
            (false, _) => assert_eq!(allowed, [ZERO, 7, 8]),
            (true, true) => assert_eq!(allowed, [7, 8]),
            (true, false) => assert_eq!(allowed, [8]),
        }
    }
}

#[test]
fn forced_writes_are_durable_at_once() {
    let mut model = VolumeModel::new(ONE);
    write(&mut model, 7, true);
    model.cut(true);
    assert!(!reads(&mut model, ZERO) && reads(&mut model, 7));
}

#[test]
fn what_was_seen_after_a_cut_stays() {
    let mut model = VolumeModel::new(ONE);
    write(&mut model, 7, false);
    model.begin(&(0..1), 8);
    model.cut(true);
    assert!(reads(&mut model, 7));
    assert!(!reads(&mut model, 8) && !reads(&mut model, ZERO));
    model.cut(true);
    assert!(!reads(&mut model, ZERO) && reads(&mut model, 7));
}

#[test]
fn what_the_origin_holds_is_checked_and_seen() {
    let mut model = VolumeModel::new(ONE);
    write(&mut model, 7, false);
    model.cut(true);
    assert!(model.origin_holds(0, &bytes(0, 9)).is_err());
    model.origin_holds(0, &bytes(0, ZERO)).unwrap();
    assert!(!reads(&mut model, 7) && reads(&mut model, ZERO));
}

#[test]
fn a_read_sees_what_was_written_meanwhile() {
    let mut model = VolumeModel::new(ONE);
    let early = model.begin_read(&(0..1));
    write(&mut model, 7, false);
    assert!(model.end_read(early, Some(&bytes(0, 7))).is_ok());
    let late = model.begin_read(&(0..1));
    assert!(model.end_read(late, Some(&bytes(0, ZERO))).is_err());
}

fn held(model: &mut VolumeModel, value: Value) -> bool {
    model.settle(0, &bytes(0, value)).is_ok()
}

#[test]
fn what_an_origin_forgot_is_read_until_it_is_reported_to_a_client() {
    let mut model = VolumeModel::new(ONE);
    write(&mut model, 7, true);
    write(&mut model, 8, false);
    let early = model.begin_read(&(0..1));
    model.forget();
    assert!(reads(&mut model, 7) && reads(&mut model, 8) && !reads(&mut model, ZERO));
    assert!(model.end_read(early, Some(&bytes(0, 7))).is_ok());
    let mark = model.begin_flush();
    assert!(model.may_fail(mark) && model.report_loss(mark, false));
    assert!(held(&mut model, 7));
    assert!(reads(&mut model, 7) && !reads(&mut model, 8));
    let again = model.begin_flush();
    assert!(!model.may_fail(again));
    model.end_flush(again);
    assert!(model.holds_durably(0, &bytes(0, 7)).is_ok());
}

#[test]
fn a_flush_that_succeeds_after_an_unreported_loss_is_seen() {
    for lost in [true, false] {
        let mut model = VolumeModel::new(ONE);
        write(&mut model, 8, false);
        model.forget();
        let mark = model.begin_flush();
        model.end_flush(mark);
        let durable = if lost { ZERO } else { 8 };
        let checked = model.holds_durably(0, &bytes(0, durable));
        assert_eq!(checked.is_err(), lost);
        assert!(reads(&mut model, 8) && !reads(&mut model, ZERO));
    }
}

#[test]
fn a_write_after_the_loss_is_neither_lost_nor_excused() {
    let mut model = VolumeModel::new(ONE);
    write(&mut model, 7, false);
    model.forget();
    write(&mut model, 8, false);
    assert!(reads(&mut model, 8) && !reads(&mut model, 7));
    let mark = model.begin_flush();
    model.report_loss(mark, false);
    assert!(held(&mut model, 8) && reads(&mut model, 8));
    let mark = model.begin_flush();
    model.end_flush(mark);
    assert!(model.holds_durably(0, &bytes(0, 7)).is_err());
}

#[test]
fn what_others_restored_is_the_truth_after_an_end_or_an_invalidation() {
    for ended in [true, false] {
        let mut model = VolumeModel::new(ONE);
        write(&mut model, 7, true);
        let saved = model.save();
        write(&mut model, 8, true);
        model.restore(&saved);
        assert!(reads(&mut model, 7) && reads(&mut model, 8));
        match ended {
            true => model.cut(false),
            false => assert!(held(&mut model, 7)),
        }
        assert!(reads(&mut model, 7) && !reads(&mut model, 8));
    }
}

#[test]
fn a_write_that_was_abandoned_may_land_until_the_daemon_ends() {
    let mut model = VolumeModel::new(ONE);
    model.begin(&(0..1), 7);
    model.abandon(&(0..1), 7);
    write(&mut model, 8, true);
    assert!(reads(&mut model, 7) && reads(&mut model, 8));
    assert!(model.holds_durably(0, &bytes(0, 7)).is_ok());
    model.cut(false);
    assert!(reads(&mut model, 7));
    assert!(!reads(&mut model, 8));
    write(&mut model, 9, false);
    assert!(!reads(&mut model, 7));
}

#[test]
fn a_write_whose_answer_was_on_its_way_may_be_lost_too() {
    let mut model = VolumeModel::new(ONE);
    model.begin(&(0..1), 7);
    model.forget();
    model.end(&(0..1), 7, true, false);
    assert!(reads(&mut model, ZERO) && reads(&mut model, 7));
    let mark = model.begin_flush();
    assert!(model.report_loss(mark, false) && held(&mut model, ZERO));
    assert!(!reads(&mut model, 7));
}

#[test]
fn a_write_that_failed_may_be_there_until_it_is_seen_or_written_again() {
    let failed = |seen: Value| {
        let mut model = VolumeModel::new(ONE);
        model.begin(&(0..1), 7);
        model.end(&(0..1), 7, false, true);
        assert!(reads(&mut model, seen));
        model
    };
    assert!(!reads(&mut failed(ZERO), 7) && !reads(&mut failed(7), ZERO));
    let mut model = failed(7);
    write(&mut model, 8, true);
    assert!(reads(&mut model, 8) && !reads(&mut model, 7) && !reads(&mut model, ZERO));
}

#[test]
fn what_was_discarded_is_anything_until_it_is_written() {
    let mut model = VolumeModel::new(ONE);
    write(&mut model, 7, true);
    write(&mut model, ANYTHING, true);
    assert!(reads(&mut model, 99) && reads(&mut model, 7));
    write(&mut model, 8, true);
    assert!(reads(&mut model, 8) && !reads(&mut model, 7));
}
