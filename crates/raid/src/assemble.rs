//! Putting arrays together from what their members say.
//!
//! The superblock with the most events, and of these the last revision, is the
//! truth. A member that it calls failed missed writes, and is filled with what it
//! missed. An array starts without a member only if those that are absent could not
//! have carried it on by themselves: what is here may be old then.
//!
//! A member that is absent may alone have what a commit that was cut short had
//! begun: one event more than the newest that is here. No start gives that event
//! another meaning: its own is one further on.
//!
//! Not here: what a superblock looks like (`format`), making arrays (`create`).

use crate::array::Array;
use crate::core::{Core, Meta, Options, Parts};
use crate::format::{
    BLOCK_BYTES, MAP, MemberEntry, MemberState, ROLE_SPARE, SUPERBLOCKS, Superblock, Uuid,
};
use crate::levels::Shape;
use crate::member::{Candidate, Member};
use block::{BoxDevice, Device, Env, IoError, IoResult, Kind, Lba, Sectors};
use futures_util::future::join_all;
use std::collections::HashSet;
use std::rc::Rc;

pub(crate) fn invalid(what: impl Into<String>) -> IoError {
    IoError::new(Kind::Invalid, what.into())
}

/// The superblock of a device; `None` if it has none.
pub async fn examine(env: &Env, device: &BoxDevice) -> IoResult<Option<Superblock>> {
    let mut best: Option<Superblock> = None;
    let mut last = Ok(());
    for copy in SUPERBLOCKS {
        let geometry = device.geometry();
        if geometry.sectors < copy + Sectors(8) {
            continue;
        }
        let buf = env.pool.take(BLOCK_BYTES);
        let (buf, result) = device.read(Lba(copy.0), buf).await;
        match result {
            Ok(()) => {
                let found = Superblock::decode(&buf);
                let newer = |f: &Superblock| best.as_ref().is_none_or(|b| f.age() > b.age());
                if let Some(found) = found.filter(newer) {
                    best = Some(found);
                }
            }
            Err(error) => last = Err(error),
        }
    }
    match best {
        // What cannot be read may be one.
        None => last.map(|()| None),
        found => Ok(found),
    }
}

/// Why a device cannot be a member of an array with logical blocks of `block`, which
/// uses `needed` of it, whatever it holds.
pub(crate) fn unusable(candidate: &Candidate, block: Sectors, needed: Sectors) -> Option<String> {
    let geometry = candidate.device.geometry();
    let name = &geometry.name;
    if geometry.block > block {
        return Some(format!(
            "{name} has logical blocks of {} bytes, the array of {}: it counts as absent; copy it \
             to a device with smaller ones, or give another in its place",
            geometry.block.bytes(),
            block.bytes()
        ));
    }
    (geometry.sectors < needed).then(|| {
        format!(
            "{name} is smaller than it was: it needs {} MiB, and counts as absent; restore its \
             size, or give another in its place",
            needed.bytes().div_ceil(1 << 20)
        )
    })
}

/// How an array is put together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Start although members are absent that may hold newer data.
    pub degraded: bool,
}

/// Puts an array together from `candidates`, in whatever order. Those that
/// cannot be read count as absent.
pub async fn assemble(
    env: &Env,
    name: Option<&str>,
    candidates: Vec<Candidate>,
    start: Start,
    options: Options,
) -> IoResult<Array> {
    let mut found = Vec::new();
    let mut notes = Vec::new();
    for candidate in candidates {
        let device = candidate.device.geometry().name.clone();
        match examine(env, &candidate.device).await {
            Ok(Some(superblock)) => found.push((candidate, superblock)),
            Ok(None) => {
                return Err(invalid(format!(
                    "{device} belongs to no array; remove it from the members, or add it to the \
                     running array as a spare"
                )));
            }
            Err(error) => notes.push(format!("{device} cannot be read: {error}")),
        }
    }
    let Some(newest) = found
        .iter()
        .max_by_key(|(_, s)| s.age())
        .map(|(_, s)| s.clone())
    else {
        let notes = notes.join("; ");
        return Err(invalid(format!("no device belongs to an array; {notes}")));
    };
    check_found(&found, &newest, name)?;
    let behind = found.iter().filter(|(_, s)| s.events < newest.events);
    let behind: HashSet<_> = behind.map(|(_, s)| s.member).collect();
    let parts = parts_of(env, found, &newest, start, options, &mut notes);
    let (core, returned) = parts.map_err(|error| match notes.is_empty() {
        true => error,
        false => invalid(format!("{error} ({})", notes.join("; "))),
    })?;
    for note in notes {
        core.tell(note);
    }
    catch_up(&core, &newest, &behind).await?;
    take_over_marks(&core).await?;
    core.want_commit();
    core.commit().await?;
    if !core.journals.is_empty() {
        let stripes = core.replay(start.degraded).await?;
        if stripes > 0 {
            core.tell(format!(
                "{}: {stripes} stripes were done again from the journal",
                core.name
            ));
        }
    }
    for (role, member, whole) in returned {
        let name = member.name.clone();
        let adopted = core.adopt(core.claim(role)?, member, whole).await;
        // It was missing in any case; the others carry the array, or say that they cannot.
        if let Err(error) = adopted {
            core.check_up()?;
            core.tell(format!(
                "{}: member {role}, {name}, cannot be filled: {error}; replace it, or give it \
                 again once it works",
                core.name
            ));
        }
    }
    Ok(Array::start(core))
}

/// Gives members that the newest superblock has not reached that one, then all of them
/// the same as the event after it, before there is a newer: starts that are cut short,
/// one after another, would leave them more than one behind, which only members do that
/// missed writes.
async fn catch_up(core: &Rc<Core>, newest: &Superblock, behind: &HashSet<Uuid>) -> IoResult {
    let mut refused: Vec<(usize, IoError)> = Vec::new();
    for events in [newest.events, newest.events + 1] {
        let mut live = core.live();
        live.retain(|(role, member)| {
            let lacks = events > newest.events || behind.contains(&member.uuid);
            lacks && refused.iter().all(|(r, _)| r != role)
        });
        let each = live.into_iter().map(async |(role, member)| {
            let mut buf = core.env.pool.take(BLOCK_BYTES);
            let superblock = Superblock {
                role: role as u16,
                member: member.uuid,
                events,
                ..newest.clone()
            };
            superblock.encode(&mut buf);
            let copy = SUPERBLOCKS[(events % 2) as usize];
            let written = member.write_meta(copy, buf.share()).await;
            written.err().map(|error| {
                member.torn.set(Some(copy));
                (role, error)
            })
        });
        refused.extend(join_all(each).await.into_iter().flatten());
        let took = |role| core.in_sync(role).is_some() && refused.iter().all(|(r, _)| *r != role);
        if !refused.is_empty() && !core.shape.can_run(took) {
            return Err(refused.swap_remove(0).1);
        }
    }
    for (role, error) in refused {
        core.fail(role, &error);
    }
    Ok(())
}

/// Whether an array went on with the member of `found` that the one of `table` calls
/// failed: with none of those that are in sync here. If it had any of them with it, its
/// last event never reached those, and nothing was acknowledged after that.
pub(crate) fn went_on_alone(found: &Superblock, table: &[MemberEntry]) -> bool {
    let mine = table.iter().find(|entry| entry.uuid == found.member);
    let is_newer = mine.is_some_and(|mine| found.events >= mine.failed_at);
    let in_sync = table.iter().filter(|e| e.state == MemberState::InSync);
    let mut with_it = in_sync.filter(|here| {
        let there = found.table.iter().find(|there| there.uuid == here.uuid);
        there.is_some_and(|there| !there.state.is_failed())
    });
    is_newer && with_it.next().is_none()
}

/// Refuses what cannot be one array.
fn check_found(
    found: &[(Candidate, Superblock)],
    newest: &Superblock,
    name: Option<&str>,
) -> IoResult {
    if let Some(name) = name
        && newest.name != name
    {
        return Err(invalid(format!(
            "these devices belong to array {}, not {name}; correct the name or the members",
            newest.name
        )));
    }
    let mut seen = HashSet::new();
    for (candidate, superblock) in found {
        let device = &candidate.device.geometry().name;
        if superblock.array != newest.array {
            return Err(invalid(format!(
                "{device} belongs to another array, {} ({}); remove it from the members",
                superblock.name, superblock.array
            )));
        }
        if !seen.insert(superblock.member) {
            return Err(invalid(format!(
                "{device} is a copy of another member (role {}); remove one of the two",
                superblock.role
            )));
        }
        let entry = newest
            .table
            .iter()
            .find(|entry| entry.uuid == superblock.member);
        if let Some(entry) = entry
            && entry.state.is_failed()
            && went_on_alone(superblock, &newest.table)
        {
            return Err(invalid(format!(
                "{device} was used apart from the other members, so that both hold data the other \
                 has not; remove it from the members, then add it to the array, which overwrites it"
            )));
        }
    }
    Ok(())
}

type Returned = Vec<(usize, Rc<Member>, bool)>;

/// Gives each member found its role.
fn parts_of(
    env: &Env,
    mut found: Vec<(Candidate, Superblock)>,
    newest: &Superblock,
    start: Start,
    options: Options,
    notes: &mut Vec<String>,
) -> IoResult<(Rc<Core>, Returned)> {
    let sizes: Vec<_> = newest.table.iter().map(|entry| entry.sectors).collect();
    let shape = Shape::new(newest.level, &sizes, newest.chunk)?;
    let new = |candidate, uuid| {
        let (patience, env) = (options.patience, env.clone());
        Rc::new(Member::new(candidate, uuid, newest.data_at, patience, env))
    };
    let (mut members, mut returned) = (Vec::new(), Vec::new());
    let (mut absent, mut unheard) = (Vec::new(), Vec::new());
    for (role, entry) in newest.table.iter().enumerate() {
        let mut entry = *entry;
        let at = found.iter().position(|(_, s)| s.member == entry.uuid);
        let here = at.map(|at| found.swap_remove(at));
        let is_heard = here.is_some();
        let needed = newest.data_at + entry.sectors;
        let here = here.filter(|(candidate, _)| {
            let why = unusable(candidate, newest.block, needed);
            notes.extend(why.clone());
            why.is_none()
        });
        let member = match (here, entry.state) {
            (Some((candidate, superblock)), MemberState::Failed { whole }) => {
                let whole = whole || superblock.events + 2 < entry.failed_at;
                returned.push((role, new(candidate, entry.uuid), whole));
                None
            }
            (Some((candidate, superblock)), _) if superblock.events + 1 >= newest.events => {
                Some(new(candidate, entry.uuid))
            }
            (Some((candidate, _)), _) => {
                notes.push(format!(
                    "{} is older than the other members; it is filled anew",
                    candidate.device.geometry().name
                ));
                returned.push((role, new(candidate, entry.uuid), true));
                None
            }
            (None, state) => {
                if state == MemberState::InSync {
                    absent.push(role);
                    unheard.extend((!is_heard).then_some(role));
                }
                None
            }
        };
        if member.is_none() && !entry.state.is_failed() {
            let whole = matches!(entry.state, MemberState::Rebuilding { whole: true });
            entry.state = MemberState::Failed { whole };
            entry.failed_at = newest.events + 2;
        }
        members.push((member, entry));
    }
    check_absent(&shape, &absent, &unheard, &members, newest, start)?;
    let mut spares = Vec::new();
    for (candidate, superblock) in found {
        if superblock.role == ROLE_SPARE {
            spares.push(new(candidate, superblock.member));
        } else {
            notes.push(format!(
                "{} was replaced by another member; add it as a spare, or remove it",
                candidate.device.geometry().name
            ));
        }
    }
    let parts = Parts {
        name: newest.name.as_str().into(),
        block: newest.block,
        members,
        spares,
        meta: Some(Meta {
            array: newest.array,
            data_at: newest.data_at,
            region: newest.region,
            journal_slots: newest.journal_slots,
        }),
        generation: newest.events + 1,
        bad: newest.bad.clone(),
        shape,
    };
    Ok((Core::new(parts, env.clone(), options)?, returned))
}

fn check_absent(
    shape: &Shape,
    absent: &[usize],
    unheard: &[usize],
    members: &[(Option<Rc<Member>>, MemberEntry)],
    newest: &Superblock,
    start: Start,
) -> IoResult {
    let in_sync = |role: usize| {
        let (member, entry) = &members[role];
        member.is_some() && entry.state == MemberState::InSync
    };
    let named = |roles: &[usize]| {
        let roles: Vec<_> = roles.iter().map(ToString::to_string).collect();
        roles.join(", ")
    };
    if !shape.can_run(in_sync) {
        return Err(invalid(format!(
            "array {} cannot start: too many members are missing (roles {}); bring them back",
            newest.name,
            named(absent)
        )));
    }
    if !unheard.is_empty() && shape.can_run(|role| unheard.contains(&role)) && !start.degraded {
        return Err(invalid(format!(
            "array {} may have gone on without the members that are here: bring back the missing \
             (roles {}), or start it degraded if they are lost for good",
            newest.name,
            named(unheard)
        )));
    }
    Ok(())
}

/// Reads which regions may differ, from every member that is in sync.
async fn take_over_marks(core: &Rc<Core>) -> IoResult {
    let Some(intent) = &core.intent else {
        return Ok(());
    };
    for (role, member) in core.live() {
        if !core.is_in_sync(role) {
            continue;
        }
        let buf = core.env.pool.take(BLOCK_BYTES);
        let (mut buf, result) = member.read_meta(MAP, buf).await;
        if result.is_err() {
            buf.fill(0);
        }
        intent.adopt(&buf, core.meta().array);
    }
    if core.journals.is_empty() {
        *core.unsynced.borrow_mut() = intent.marks().into_iter().collect();
    }
    if intent.marked() > 0 {
        intent.write_now(core).await?;
    }
    Ok(())
}
