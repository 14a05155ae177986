//! Assembling arrays from the superblocks of their members.
//!
//! A device that is unresponsive, blank, of another array, too small or damaged counts as absent,
//! and is reported. Earlier operations of a member have ended before it is trusted (`member`). An
//! array starts without a member only if the unknown members could not have carried it on by
//! themselves: otherwise the present members may be old.
//!
//! Not here: the format of superblocks (`superblock`), the newest superblock and the data that
//! members lack (`membership`), the start of the members (`start`), making arrays (`create`).

use crate::array::Array;
use crate::core::ArrayCore;
use crate::levels::ArrayShape;
use crate::member::{ArrayMember, MemberCandidate, ended_on};
use crate::members::{ArrayParts, Meta, Options, Past, Roster};
use crate::membership::{self, ArrayMembership, KnownMember, invalid, unusable};
pub use crate::start::ArrayStart;
use crate::start::{Returned, activate};
use crate::superblock::{ArraySuperblock, HISTORY_MAX, MemberEntry, MemberState};

use block::{BoxDevice, Device, Env, IoError, IoResult};
use futures_util::future::join_all;
use layout::Uuid;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A device that belongs to an array.
struct FoundMember {
    candidate: MemberCandidate,
    known: KnownMember,
    /// Reason why the device cannot be a member, whatever its superblock says.
    late: Option<String>,
}

impl FoundMember {
    fn name(&self) -> &str {
        &self.candidate.device.geometry().name
    }
}

/// Assembles an array from `candidates`, in any order. Unusable candidates count as absent.
/// `generation` is this start's own random identity, which no other start may have.
pub async fn assemble(
    env: &Env,
    name: Option<&str>,
    generation: Uuid,
    candidates: Vec<MemberCandidate>,
    start: ArrayStart,
    options: Options,
) -> IoResult<Array> {
    let mut notes = Vec::new();
    let found = find(env, candidates, &options, &mut notes).await?;
    let found = choose(found, name, &mut notes)?;
    let parts = decide(env, found, generation, start, options, &mut notes);
    let (core, returned) = parts.map_err(|error| match notes.is_empty() {
        true => error,
        false => invalid(format!("{error} ({})", notes.join("; "))),
    })?;
    notes.into_iter().for_each(|note| core.log(note));
    activate(core, returned, start).await
}

/// Decides which of `found`, which are of one array, are its members. Does no I/O.
fn decide(
    env: &Env,
    found: Vec<FoundMember>,
    generation: Uuid,
    start: ArrayStart,
    options: Options,
    notes: &mut Vec<String>,
) -> IoResult<(Rc<ArrayCore>, Returned)> {
    let all: Vec<_> = found.iter().map(|found| &found.known).collect();
    let truth = membership::newest(&all).ok_or_else(|| apart(&found))?;
    let past = Past {
        generation,
        // The position of this start comes before these.
        history: membership::history_after(&truth, HISTORY_MAX - 1),
        event: membership::last_event(&all),
        sealed: truth.sealed,
    };
    parts_of(env, found, &truth, past, start, options, notes)
}

/// Reads the superblocks of all candidates at once.
async fn find(
    env: &Env,
    candidates: Vec<MemberCandidate>,
    options: &Options,
    notes: &mut Vec<String>,
) -> IoResult<Vec<FoundMember>> {
    let asked = candidates.into_iter().map(async |candidate| {
        let (known, late) = ask(env, &candidate.device, options).await;
        (candidate, known, late)
    });
    let mut found = Vec::new();
    for (candidate, known, late) in join_all(asked).await {
        let device = candidate.device.geometry().name.clone();
        match known {
            Ok(Some(known)) => found.push(FoundMember {
                candidate,
                known,
                late,
            }),
            Ok(None) => notes.push(format!(
                "{device} belongs to no array, and is not used; remove it from the members, or \
                 add it to the running array"
            )),
            Err(error) => notes.push(format!("{device} cannot be read, and is not used: {error}")),
        }
    }
    if found.is_empty() {
        return Err(invalid(format!(
            "no member that is here belongs to an array; make it with `hotset array create` ({})",
            notes.join("; ")
        )));
    }
    Ok(found)
}

/// Reads the superblocks of a device, once no earlier operation on it can land any more; or returns
/// the reason why the device cannot be used.
async fn ask(
    env: &Env,
    device: &BoxDevice,
    options: &Options,
) -> (IoResult<Option<KnownMember>>, Option<String>) {
    let known = membership::known(env, device, options.timeout).await;
    if !matches!(known, Ok(Some(_))) {
        return (known, None);
    }
    let timeout = options.timeout.unwrap_or(membership::TIMEOUT);
    match ended_on(env, device, timeout).await {
        // The landed operations may include a superblock.
        Ok(()) => (membership::known(env, device, options.timeout).await, None),
        Err(error) => {
            let why = format!("{error}; it counts as absent until it answers");
            (known, Some(why))
        }
    }
}

/// Chooses the devices that belong to the array `name`, or to the array of most devices.
fn choose(
    found: Vec<FoundMember>,
    name: Option<&str>,
    notes: &mut Vec<String>,
) -> IoResult<Vec<FoundMember>> {
    let mut arrays: BTreeMap<Uuid, Vec<FoundMember>> = BTreeMap::new();
    for found in found {
        let array = found.known.newest().array;
        arrays.entry(array).or_default().push(found);
    }
    let name_of = |all: &[FoundMember]| all[0].known.newest().name.clone();
    let (ours, others): (Vec<_>, Vec<_>) = arrays
        .into_values()
        .partition(|all| name.is_none_or(|name| name_of(all) == name));
    let Some(most) = ours.iter().map(Vec::len).max() else {
        return Err(invalid(format!(
            "these devices belong to array {}, not {}; correct the name or the members",
            name_of(&others[0]),
            name.unwrap_or_default()
        )));
    };
    let (mut ours, less): (Vec<_>, Vec<_>) = ours.into_iter().partition(|all| all.len() == most);
    if let [one, other, ..] = &ours[..] {
        return Err(invalid(format!(
            "{} and {} belong to two arrays, {} ({}) and {} ({}); remove one of them from the \
             members",
            one[0].name(),
            other[0].name(),
            name_of(one),
            one[0].known.newest().array,
            name_of(other),
            other[0].known.newest().array
        )));
    }
    for foreign in others.iter().chain(&less).flatten() {
        let theirs = foreign.known.newest();
        notes.push(format!(
            "{} belongs to another array, {} ({}), and is not used; remove it from the members",
            foreign.name(),
            theirs.name,
            theirs.array
        ));
    }
    let ours = ours.pop().expect("the one that most belong to");
    distinct(ours, notes)
}

/// Keeps one device for each member: of two copies of a member the one that the member went on
/// with.
fn distinct(found: Vec<FoundMember>, notes: &mut Vec<String>) -> IoResult<Vec<FoundMember>> {
    let mut distinct: Vec<FoundMember> = Vec::new();
    for found in found {
        let is_same = |other: &&mut FoundMember| other.known.member() == found.known.member();
        let Some(other) = distinct.iter_mut().find(is_same) else {
            distinct.push(found);
            continue;
        };
        let role = found.known.newest().role;
        let older = if found.known.is_behind(&other.known) {
            found
        } else if other.known.is_behind(&found.known) {
            std::mem::replace(other, found)
        } else {
            return Err(invalid(format!(
                "{} is a copy of another member (role {role}); remove one of the two",
                found.name()
            )));
        };
        notes.push(format!(
            "{} is an older copy of {} (role {role}), and is not used; remove it from the members, \
             or add it to the running array, which overwrites it",
            older.name(),
            other.name()
        ));
    }
    Ok(distinct)
}

/// Makes the error for members of one array that diverged.
fn apart(found: &[FoundMember]) -> IoError {
    let newest = found.iter().max_by_key(|found| found.known.newest().events);
    let newest = newest.expect("members that are apart");
    let truth = newest.known.newest();
    let (with_it, others): (Vec<_>, Vec<_>) = found
        .iter()
        .partition(|found| found.known.is_part_of(truth));
    let names =
        |side: &[&FoundMember]| side.iter().map(|f| f.name()).collect::<Vec<_>>().join(", ");
    let (ours, theirs) = (names(&with_it), names(&others));
    let history = |side: &[&FoundMember]| side.first().map(|found| found.known.history());
    invalid(format!(
        "array {} is a split brain: {ours} continued without {theirs}, and {theirs} without {ours}, \
         and each holds writes that the other has not ({ours}: {}; {theirs}: {}). To keep what \
         {ours} holds, remove {theirs} from the members, start (degraded, if that is asked for), \
         and then add {theirs}, which overwrites it; to keep what {theirs} holds, the other way \
         round",
        truth.name,
        history(&with_it).unwrap_or_default(),
        history(&others).unwrap_or_default()
    ))
}

/// The device of a role.
struct RolePlace {
    here: Option<(MemberCandidate, KnownMember)>,
    /// Freshness of the device; `None` if there is no usable one.
    membership: Option<ArrayMembership>,
    /// True if a device of the role is here with superblocks that are known, usable or not.
    known: bool,
}

/// Finds the device of each role of `truth`.
fn places(
    found: &mut Vec<FoundMember>,
    truth: &ArraySuperblock,
    shape: &ArrayShape,
    notes: &mut Vec<String>,
) -> Vec<RolePlace> {
    let mut places = Vec::new();
    for entry in &truth.table {
        let at = found.iter().position(|f| f.known.member() == entry.uuid);
        let at = at.map(|at| found.swap_remove(at));
        let Some(FoundMember {
            candidate,
            known,
            late,
        }) = at
        else {
            let (here, membership, known) = (None, None, false);
            places.push(RolePlace {
                here,
                membership,
                known,
            });
            continue;
        };
        let mut membership = known.membership(truth, entry);
        let needed = truth.data_at + entry.sectors;
        if let Some(why) =
            late.or_else(|| unusable(candidate.device.geometry(), truth.block, needed))
        {
            notes.push(why);
            membership = None;
        }
        let here = membership.map(|_| (candidate, known));
        places.push(RolePlace {
            here,
            membership,
            known: true,
        });
    }
    settle_unknown(&mut places, truth, shape, notes);
    places
}

/// Decides about members of which a superblock cannot be read.
fn settle_unknown(
    places: &mut [RolePlace],
    truth: &ArraySuperblock,
    shape: &ArrayShape,
    notes: &mut Vec<String>,
) {
    let fresh = |place: &RolePlace| place.membership == Some(ArrayMembership::Fresh);
    let in_sync = |role: usize| truth.table[role].state == MemberState::InSync;
    let needed = !shape.can_run(|role| in_sync(role) && fresh(&places[role]));
    for place in places.iter_mut() {
        if let (Some(ArrayMembership::Unknown), Some((candidate, _))) =
            (place.membership, &place.here)
        {
            let name = &candidate.device.geometry().name;
            notes.push(format!("a superblock of {name} cannot be read"));
            place.membership = Some(match needed {
                true => ArrayMembership::Fresh,
                false => ArrayMembership::Stale { whole: true },
            });
        }
    }
}

/// Returns the roles in sync that another member does not know as in sync, since the commit of that
/// was interrupted.
fn unheard(places: &[RolePlace], truth: &ArraySuperblock) -> Vec<usize> {
    let fresh = |place: &&RolePlace| place.membership == Some(ArrayMembership::Fresh);
    let here = || places.iter().filter(fresh).filter_map(|p| p.here.as_ref());
    let is_known = |uuid| here().all(|(_, known)| known.has_in_sync(uuid));
    let table = truth.table.iter();
    let uuids = table.map(|entry| entry.uuid).enumerate();
    uuids
        .filter_map(|(role, uuid)| (!is_known(uuid)).then_some(role))
        .collect()
}

/// Gives each member found its role.
fn parts_of(
    env: &Env,
    mut found: Vec<FoundMember>,
    truth: &ArraySuperblock,
    past: Past,
    start: ArrayStart,
    options: Options,
    notes: &mut Vec<String>,
) -> IoResult<(Rc<ArrayCore>, Returned)> {
    let sizes: Vec<_> = truth.table.iter().map(|entry| entry.sectors).collect();
    let shape = ArrayShape::new(truth.level, &sizes, truth.chunk)?;
    let new = |candidate, known: &KnownMember| {
        let (timeout, env) = (options.timeout, env.clone());
        let member = ArrayMember::new(candidate, known.member(), truth.data_at, timeout, env);
        member.worse_copy.set(known.worse_copy(truth));
        Rc::new(member)
    };
    let places = places(&mut found, truth, &shape, notes);
    check_absent(&shape, &places, truth, start)?;
    let unheard = unheard(&places, truth);
    let (mut members, mut table) = (Vec::new(), Vec::new());
    let (mut returned, mut left) = (Vec::new(), Vec::new());
    for (role, (place, entry)) in places.into_iter().zip(&truth.table).enumerate() {
        let mut entry = *entry;
        let membership = place.membership;
        let here = place.here.map(|(candidate, known)| new(candidate, &known));
        let member = match (here, membership) {
            (Some(member), Some(ArrayMembership::Stale { whole })) => {
                if !entry.state.is_failed() {
                    let name = &member.name;
                    notes.push(format!(
                        "{name} is older than the other members; it is filled again"
                    ));
                }
                returned.push((role, member, whole));
                None
            }
            (here, _) => here,
        };
        if member.is_none() && !entry.state.is_failed() {
            let whole = matches!(entry.state, MemberState::Rebuilding { whole: true });
            entry.state = MemberState::Failed { whole };
            entry.failed_at = truth.sealed + 1;
            left.push(role);
        }
        members.push(member);
        table.push(entry);
    }
    let spares = spares(found, truth, notes).into_iter();
    let spares = spares.map(|found| new(found.candidate, &found.known));
    let parts = ArrayParts {
        name: truth.name.as_str().into(),
        block: truth.block,
        members,
        spares: spares.collect(),
        meta: Some(meta_of(truth)),
        past,
        roster: roster_of(truth, table),
        shape,
    };
    let core = ArrayCore::new(parts, env.clone(), options)?;
    left.into_iter().for_each(|role| core.lost_with_next(role));
    let unheard = unheard.into_iter();
    unheard.for_each(|role| core.known_with_next(role));
    Ok((core, returned))
}

fn meta_of(truth: &ArraySuperblock) -> Meta {
    Meta {
        array: truth.array,
        data_at: truth.data_at,
        region: truth.region,
        journal_slots: truth.journal_slots,
    }
}

fn roster_of(truth: &ArraySuperblock, table: Vec<MemberEntry>) -> Roster {
    Roster {
        table,
        bad: truth.bad.clone(),
        gaps: truth.gaps.clone(),
        scrubbed: truth.scrubbed,
    }
}

/// The usable spares among devices without a role.
fn spares(
    found: Vec<FoundMember>,
    truth: &ArraySuperblock,
    notes: &mut Vec<String>,
) -> Vec<FoundMember> {
    let sizes = truth.table.iter().map(|entry| entry.sectors);
    let end = truth.data_at + sizes.max().unwrap_or_default();
    let mut spares = Vec::new();
    for found in found {
        let FoundMember {
            candidate, known, ..
        } = &found;
        if !known.is_spare() {
            notes.push(format!(
                "{} was replaced by another member; add it as a spare, or remove it",
                candidate.device.geometry().name
            ));
        } else if let Some(why) = unusable(candidate.device.geometry(), truth.block, end) {
            notes.push(why);
        } else {
            spares.push(found);
        }
    }
    spares
}

fn check_absent(
    shape: &ArrayShape,
    places: &[RolePlace],
    truth: &ArraySuperblock,
    start: ArrayStart,
) -> IoResult {
    let should = |role: &usize| truth.table[*role].state == MemberState::InSync;
    let in_sync =
        |role: usize| should(&role) && places[role].membership == Some(ArrayMembership::Fresh);
    let missing = (0..places.len()).filter(|role| should(role) && !in_sync(*role));
    let missing: Vec<_> = missing.map(|role| role.to_string()).collect();
    if !shape.can_run(in_sync) {
        return Err(invalid(format!(
            "array {} cannot start: too many members are missing (roles {}); bring them back",
            truth.name,
            missing.join(", ")
        )));
    }
    // Members of which nothing is known.
    let absent = |role: usize| should(&role) && !places[role].known;
    if shape.can_run(absent) && start == ArrayStart::Complete {
        return Err(invalid(format!(
            "array {} may have continued without the members that are here: bring back the missing \
             (roles {}), or start it degraded if they are lost for good",
            truth.name,
            missing.join(", ")
        )));
    }
    Ok(())
}

#[cfg(test)]
mod search;
