//! Starts an array, and decides which starts may fail. Only a start may fail in which a member that
//! cannot be read or written could have carried the array on without the others.

use super::life::ArrayOutside;
use super::refuse::ANYWHERE;
use super::report::Class;
use super::trouble::ArrayTrouble;
use block::{Env, Extent, IoError, IoResult, Lba, Nanos, Sectors};
use raid::{Array, ArrayStart, Level, MemberCandidate, MemberState, assemble, examine};
use shard::Local;
use sim::{SimDriver, SimRng};

/// No start takes longer, whatever a member does not answer.
const START_MAX: Nanos = Nanos::from_secs(100);
/// Attempts to start an array with members that cannot be read now and then.
const TRIES: u32 = 10;

/// Assembles the array from `units`. Those that belong to no array are left out,
/// as the daemon does.
pub(super) async fn begin(
    outside: &ArrayOutside,
    local: &Local<SimDriver>,
    units: &[usize],
    degraded: bool,
) -> IoResult<Array> {
    let env = local.env();
    let mut candidates = Vec::new();
    for unit in units {
        let Some(candidate) = outside.candidate(local, *unit) else {
            continue;
        };
        let sorted = outside.scenario.extra > 0 || outside.scenario.trouble == ArrayTrouble::Rots;
        if sorted && matches!(examine(&env, &candidate.device).await, Ok(None)) {
            continue;
        }
        candidates.push(candidate);
    }
    assemble_soon(&env, candidates, degraded, outside).await
}

async fn assemble_soon(
    env: &Env,
    candidates: Vec<MemberCandidate>,
    degraded: bool,
    outside: &ArrayOutside,
) -> IoResult<Array> {
    let start = ArrayStart::by_hand(degraded);
    let (fresh, options) = (outside.fresh(), outside.options());
    let starting = assemble(env, Some("array"), fresh, candidates, start, options);
    if outside.scenario.trouble != ArrayTrouble::Hangs {
        return starting.await;
    }
    let starting = Box::pin(starting);
    let ended = env.timer.timeout(START_MAX, starting).await;
    ended.unwrap_or_else(|| {
        let what = "it is not known in time whether it starts";
        outside.violate(what.into());
        Err(IoError::new(block::IoErrorKind::Timeout, what))
    })
}

/// Starts the array of life `number`. Returns `None` if the life is over, with a violation or not.
pub(super) async fn start(
    outside: &ArrayOutside,
    local: &Local<SimDriver>,
    number: u64,
) -> Option<Array> {
    let env = local.env();
    // Changes of plugs and power take effect now.
    env.timer.sleep(Nanos(1)).await;
    let mut order: Vec<usize> = (0..outside.units.len()).collect();
    outside.rng.borrow_mut().shuffle(&mut order);
    if let Err(error) = outside.start_inner(local).await {
        outside.violate(format!("what is within does not start: {error}"));
        return None;
    }
    if outside.is_nested() {
        outside.meet(Class::Nested);
    }
    let mut degraded = !outside.dead.borrow().is_empty() && outside.reshaped.get().is_none();
    let (rested, idled) = (outside.rested.take(), outside.idled.take());
    let sure = outside.sound.get();
    let could = sure && outside.scenario.level.is_redundant();
    let refused = arm(outside, number);
    if outside.refusals.is_armed() {
        // Whatever the outcome of this start, the start may evict a member.
        outside.sound.set(false);
    }
    let mut array = begin(outside, local, &order, degraded).await;
    outside.refusals.disarm();
    let mut excused = false;
    if outside.refusals.count.get() > refused {
        outside.meet(Class::RefusedInStart);
        outside.rotten.set(true);
        excused = !could;
    }
    for _ in 0..TRIES {
        let Err(error) = &array else { break };
        if !(excused || may_fail(outside)) {
            break;
        }
        outside.hear(error);
        if outside.scenario.trouble == ArrayTrouble::Hangs {
            outside.release_present();
        }
        // An administrator may leave out a member that is known to be of no use.
        degraded |= outside.is_mirror() && is_known(outside);
        // A journal cannot be read and a member is missing: the data of its entries may be lost.
        degraded |= outside.scenario.level == Level::Raid5 && !sure;
        array = begin(outside, local, &order, degraded).await;
    }
    match array {
        Ok(array) => {
            outside.started.set(true);
            guess(outside, &array);
            check(outside, &array, rested, idled);
            Some(array)
        }
        Err(_) if is_lost(outside) => None,
        Err(error) => {
            let now = env.timer.now();
            outside.violate(format!(
                "it does not start in life {number} at {now}: {error}"
            ));
            None
        }
    }
}

/// Possibly has a member refuse writes while the array starts. Returns the number of writes that
/// were refused before.
fn arm(outside: &ArrayOutside, number: u64) -> u64 {
    let mut refusing = SimRng::fork(outside.scenario.seed, 800 + number);
    let refused = outside.refusals.count.get();
    if outside.scenario.refusals && refusing.chance(0.3) {
        let disk = refusing.below(outside.units.len() as u64) as usize;
        outside
            .refusals
            .arm(disk, refusing.between(1, 3), ANYWHERE, 0);
    }
    refused
}

/// True if a start may fail and the next one succeed: metadata cannot be read now and then, of a
/// member that is needed or that could have diverged.
fn may_fail(outside: &ArrayOutside) -> bool {
    let needed = outside.is_mirror() || !outside.sound.get();
    match outside.scenario.trouble {
        ArrayTrouble::Metadata => needed,
        // A second member does not answer, or the only one.
        ArrayTrouble::Hangs => needed || !outside.scenario.level.is_redundant(),
        ArrayTrouble::Spoils => !outside.sound.get(),
        ArrayTrouble::Rots | ArrayTrouble::Reshapes | ArrayTrouble::Images => outside.is_mirror(),
        // A record that was refused may be one that cannot be read.
        _ => outside.refusals.count.get() > 0 && needed,
    }
}

/// True if a member of no use is known to hold no newer data.
fn is_known(outside: &ArrayOutside) -> bool {
    outside.rotten.get() || outside.reshaped.get().is_some()
}

/// True if nothing can start as things are: a level that needs every member lacks one.
fn is_lost(outside: &ArrayOutside) -> bool {
    outside.reshaped.get().is_some() && !outside.scenario.level.is_redundant()
}

/// Marks the data of a missing member as guessed, after a start that was confirmed although a
/// journal cannot be read.
fn guess(outside: &ArrayOutside, array: &Array) {
    let unknown = |event: &raid::ArrayEvent| event.what.contains("check what was written last");
    if !array.events().0.iter().any(unknown) {
        return;
    }
    let (shape, report) = (array.shape(), array.report());
    let is_lost = |at| {
        let piece = shape.first_piece(Extent::new(Lba(at), Sectors(1)));
        report.members[piece.legs()[0].member].state != MemberState::InSync
    };
    outside
        .model
        .borrow_mut()
        .guess(outside.stripe.get(), is_lost);
}

/// Checks the start's report of the life before.
fn check(outside: &ArrayOutside, array: &Array, rested: bool, idled: bool) {
    let events = array.events().0;
    let replayed = events
        .iter()
        .any(|event| event.what.contains("done again from the journal"));
    if replayed {
        outside.meet(Class::Replay);
    }
    // Reads or writes of a member that failed at this start have to be written to the member again.
    let heard = !matches!(
        outside.scenario.trouble,
        ArrayTrouble::Metadata | ArrayTrouble::Hangs
    );
    let calm = outside.dead.borrow().is_empty() && !outside.rotten.take() && heard;
    if !calm || !outside.scenario.level.is_redundant() || !(rested || idled) {
        return;
    }
    let how = if idled {
        "hours of rest"
    } else {
        "an orderly end"
    };
    if replayed || !array.is_settled() {
        let report = array.report();
        outside.violate(format!("after {how} something is left to do: {report:?}"));
    } else if rested {
        outside.meet(Class::CleanStart);
    }
}
