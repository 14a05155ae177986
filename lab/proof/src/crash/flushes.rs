//! The results of an origin's flushes, against the model.

use super::back_end::Since;
use super::bench::CrashBench;
use super::report::Class;
use crate::model::ModelFlushMark;
use crate::model::Space;
use block::{IoResult, Lba, SECTOR_BYTES};
use sim::Medium;
use std::ops::Range;

/// From now on only the content of the origin may be read.
pub(super) fn settle_model(bench: &CrashBench, volume: usize) {
    for (start, bytes) in windows(bench, volume, Medium::latest) {
        let held = bench.models[volume].borrow_mut().settle(start, &bytes);
        if let Err(what) = held {
            bench.violate(format!("the origin of volume {volume} by itself: {what}"));
        }
    }
}

/// A flush that began at `mark` was acknowledged: the origin holds the covered writes durably.
pub(super) fn flushed(bench: &CrashBench, volume: usize, mark: ModelFlushMark) {
    bench.models[volume].borrow_mut().end_flush(mark);
    for (start, bytes) in windows(bench, volume, Medium::durable) {
        let held = bench.models[volume]
            .borrow_mut()
            .holds_durably(start, &bytes);
        if let Err(what) = held {
            bench.violate(format!("after a flush of volume {volume}: {what}"));
        }
    }
}

/// A write with forced unit access was acknowledged.
pub(super) fn forced(bench: &CrashBench, volume: usize, sectors: &Range<u64>) {
    let mut bytes = vec![0; ((sectors.end - sectors.start) * SECTOR_BYTES) as usize];
    bench.back_end.media[volume].durable(Lba(sectors.start), &mut bytes);
    let held = bench.models[volume]
        .borrow_mut()
        .holds_durably(sectors.start, &bytes);
    if let Err(what) = held {
        bench.violate(format!("after a forced write of volume {volume}: {what}"));
    }
}

/// A flush of a client, or at the end of a daemon, has ended.
pub(super) fn end_flush(
    bench: &CrashBench,
    volume: usize,
    (mark, since): (ModelFlushMark, Since),
    result: IoResult,
) {
    let Err(error) = result else {
        return flushed(bench, volume, mark);
    };
    let away = bench.back_end.was_away(volume, since);
    if !excused(bench, volume, mark, since) {
        let what = "a flush failed, and its origin had no loss to report_loss of";
        return bench.violate(format!("{what}: {error}"));
    }
    bench.report.borrow_mut().meet(Class::LossReported);
    let settled = bench.models[volume].borrow_mut().report_loss(mark, away);
    // A restored origin's old bytes may stay cached until an invalidation.
    if settled && !bench.back_end.volumes[volume].restored.get() {
        settle_model(bench, volume);
    }
}

pub(super) fn begin_flush(bench: &CrashBench, volume: usize) -> (ModelFlushMark, Since) {
    let mark = bench.models[volume].borrow().begin_flush();
    (mark, bench.back_end.since(volume))
}

fn excused(bench: &CrashBench, volume: usize, mark: ModelFlushMark, since: Since) -> bool {
    bench.models[volume].borrow().may_fail(mark) || bench.back_end.was_away(volume, since)
}

/// The origin forgets, and goes on at once.
pub(super) fn forget(bench: &CrashBench, volume: usize) {
    bench.control.forget(bench.origins[volume]);
    bench.models[volume].borrow_mut().forget();
}

/// The bytes of each window of a volume's origin, with their first sector.
fn windows(
    bench: &CrashBench,
    volume: usize,
    read: impl Fn(&Medium, Lba, &mut [u8]),
) -> Vec<(u64, Vec<u8>)> {
    let space: Space = bench.case.volumes[volume];
    let window = |number| {
        let sectors = space.window(number);
        let mut bytes = vec![0; (space.each * SECTOR_BYTES) as usize];
        read(
            &bench.back_end.media[volume],
            Lba(sectors.start),
            &mut bytes,
        );
        (sectors.start, bytes)
    };
    (0..space.windows).map(window).collect()
}
