//! The course of a life: clients at work, and the end in which all is checked.

use super::chaos::ArrayChaos;
use super::client;
use super::life::{ArrayLife, ArrayOutside};
use super::report::Class;
use super::trouble::ArrayTrouble;
use block::{Boundary, Nanos};
use futures_util::future::join_all;
use shard::Local;
use sim::{RunOutcome, SimDriver, SimHost, SimRng};
use simnode::run_alone;
use std::rc::Rc;

/// Longest rest of an array before the power goes.
pub(super) const REST_MAX: Nanos = Nanos::from_secs(2 * 3600);

/// Longest time that an array may be at work on members that do not answer.
const LETTING_GO_MAX: Nanos = Nanos::from_secs(10);

/// Longest time that a member hangs while an array becomes whole.
const RELEASE_AFTER: Nanos = Nanos::from_millis(200);

/// Comparisons of an array at the end if a slow member is lost meanwhile.
const SCRUBS: u32 = 10;

/// Runs `work` on a shard. Returns true if a loss of power ended the work.
pub(super) fn drive(
    sim: &mut SimHost,
    outside: &Rc<ArrayOutside>,
    work: impl AsyncFnOnce(Rc<ArrayOutside>, Local<SimDriver>) + 'static,
) -> bool {
    let run = outside.clone();
    let (outcome, _) = run_alone(sim, async move |local| work(run, local).await);
    outside.inner.borrow_mut().clear();
    match outcome {
        RunOutcome::Done => false,
        RunOutcome::PowerCut => true,
        other => {
            let what = format!("the run did not end: {other:?}");
            outside.report.borrow_mut().violate(what);
            false
        }
    }
}

/// The clients do their operations.
pub(super) async fn work(life: &Rc<ArrayLife>) {
    let clients = (0..life.scenario.clients).map(|i| client::work(life.clone(), i));
    join_all(clients).await;
    life.over.set(true);
}

/// Revives members, too many of which were lost: their writes that were not flushed may be gone.
pub(super) async fn come_back(life: &ArrayLife) {
    let releasing = Box::pin(life.array.release());
    if life
        .env
        .timer
        .timeout(LETTING_GO_MAX, releasing)
        .await
        .is_none()
    {
        return life.violate("it never releases its members".into());
    }
    let width = life.refusals.count.get().min(1) * life.stripe.get();
    life.model.borrow_mut().cut(width);
    life.revive_all();
}

/// Lets the array mend itself, and checks everything.
pub(super) async fn finish(life: &Rc<ArrayLife>, chaos: &mut ArrayChaos) {
    life.refusals.disarm();
    life.disks()
        .iter()
        .for_each(|disk| life.control.release(*disk));
    if life.scenario.trouble == ArrayTrouble::Hangs {
        // A member that hangs from here on hangs only for a while, since the array may need that
        // member.
        let (timer, control, disks) = (life.env.timer.clone(), life.control.clone(), life.disks());
        life.env.spawn.spawn(async move {
            for _ in 0..10_000 {
                timer.sleep(RELEASE_AFTER).await;
                disks.iter().for_each(|disk| control.release(*disk));
            }
        });
    }
    chaos.give_back().await;
    chaos.take_back().await;
    // A reshaped member stays out.
    let whole = life.reshaped.get().is_none();
    for scrubs in 1..=SCRUBS {
        if !settle(life, chaos, whole).await {
            return;
        }
        read_all(life).await;
        if !(life.scenario.level.is_redundant() && whole) {
            break;
        }
        match life.array.scrub(false).await {
            Ok(found) if found.mismatches == 0 => life.meet(Class::Scrub),
            Ok(found) => life.violate(format!("a scrub finds {found:?}")),
            // A slow member was evicted meanwhile.
            Err(_) if life.scenario.trouble == ArrayTrouble::Hangs && scrubs < SCRUBS => continue,
            Err(error) => life.violate(format!("a scrub fails: {error}")),
        }
        break;
    }
    if life.scenario.trouble == ArrayTrouble::Idles && !life.is_last() {
        return idle(life).await;
    }
    match life.scenario.trouble {
        ArrayTrouble::Rots if !life.is_last() => chaos.leave_stale().await,
        ArrayTrouble::Images if !life.is_last() => chaos.leave_image().await,
        _ => {}
    }
    if let Err(error) = life.array.close().await {
        life.violate(format!("it cannot be closed: {error}"));
    }
    if let Err(what) = life.outside.end_inner(&life.env).await {
        life.violate(what);
    }
    life.look();
    life.rested.set(life.sound.get());
}

/// Waits until an array that can be whole is whole. Returns false after a violation.
async fn settle(life: &ArrayLife, chaos: &mut ArrayChaos, whole: bool) -> bool {
    for look in 1..=20_000 {
        // A member that answered late was evicted again.
        if life.scenario.trouble == ArrayTrouble::Hangs && look % 100 == 0 {
            chaos.take_back().await;
        }
        if !whole || life.array.is_settled() || life.report.borrow().violation.is_some() {
            break;
        }
        life.look();
        life.env.timer.sleep(Nanos::from_millis(5)).await;
    }
    let well = life.report.borrow().violation.is_none();
    if well && whole && !life.array.is_settled() {
        life.violate(format!("it never settles: {:?}", life.array.report()));
        return false;
    }
    well
}

async fn read_all(life: &Rc<ArrayLife>) {
    for start in (0..life.sectors).step_by(64) {
        client::read(life, start..(start + 64).min(life.sectors)).await;
    }
    let members = life.array.report().members;
    if members.iter().any(|member| member.counts.repaired > 0) {
        life.meet(Class::LatentError);
    }
}

/// The array rests for hours; then the power goes.
async fn idle(life: &ArrayLife) {
    let mark = life.model.borrow_mut().flush();
    if let Err(error) = life.gate.flush().await {
        return life.violate(format!("a flush fails: {error}"));
    }
    life.model.borrow_mut().flushed(mark);
    let span = SimRng::fork(life.scenario.seed, 64).between(REST_MAX.0 / 20, REST_MAX.0);
    life.env.timer.sleep(Nanos(span)).await;
    life.look();
    life.idled.set(true);
    life.meet(Class::IdleCut);
    life.control.cut_power(None);
    life.env.timer.sleep(Nanos::from_secs(1)).await;
}
