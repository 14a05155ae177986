//! Recovery, without a node, of a write-back volume that its log cannot serve: inspects the log,
//! writes it back, or discards it.
//!
//! Invariants:
//!     inspection changes nothing, and neither does a recovery to another place
//!     a log is discarded ⟹ the pending group of its journal is at the origin, durably
//!     a log is written back ⟹ its data is at the origin, durably, before `may_be_dirty` is cleared
//!     the origin is written without its pool ⟹ the pool has forgotten the volume, durably
//!     a refused recovery has changed nothing
//!
//! The order of steps leaves a recoverable state after each cut: replay, retire, blank the log's
//! superblocks. The caller removes the file beside the log, as the last step.

mod found;
mod offline_log;
mod report;
mod target;

pub use target::RecoverTarget;

use crate::arrays::{Lease, OpenDevices};
use crate::place::{OpenedPlace, RawRole};
use crate::platform::{LogWitness, Platform};
use block::{Device, Fua, IoError, Lba, Nanos, SECTOR_BYTES, Sectors};
use control::config::{self, ByteCount, Name};
use found::{Leased, LostRecords, RecoveredLog, said};
use layout::{BLOCK_BYTES, BLOCK_SECTORS, LOG_SUPERBLOCKS, Likeness, LogSuperblock, likeness};
use offline_log::Look;
use std::rc::Rc;
use writelog::{Cleaning, WriteJournal, superblock_of};

/// The action on a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoverAction {
    /// Inspects the log, and changes nothing.
    Inspect,
    /// Discards the log, after its journal was replayed.
    Discard,
    /// Writes the log back to the origin.
    WriteBack,
}

/// The state of a log, and the result of the action.
pub struct Recovery {
    volume: Name,
    origin: Name,
    cleaning: Cleaning,
    /// The newest superblock of the log, if there is any.
    known: Option<LogSuperblock>,
    /// True if this superblock names another origin.
    is_other_origin: bool,
    /// Each device of the log, with its state.
    copies: Vec<(Name, CopyState)>,
    journal: Option<(Name, JournalState)>,
    /// The data that can be written back, or the reason why there is none.
    log: Result<DirtyReport, String>,
    outcome: RecoverOutcome,
}

/// The dirty data of a log.
struct DirtyReport {
    dirty: ByteCount,
    is_drained: bool,
    lag: Nanos,
    /// Reasons of a node to refuse the log.
    doubts: Vec<String>,
}

enum RecoverOutcome {
    Inspected,
    Discarded,
    ReplayedTo(String),
    WrittenBack(ByteCount, Option<LostRecords>),
    WrittenBackTo(String, ByteCount, Option<LostRecords>),
}

enum CopyState {
    Absent(String),
    /// No superblock of this log.
    Nothing,
    /// A superblock that a newer one has overtaken.
    Stale,
    Current,
}

enum JournalState {
    Absent(String),
    /// No journal of this volume.
    Nothing,
    /// The origin was written without the journal since.
    Void,
    /// The origin has all groups of the journal.
    Done,
    /// The origin may have a part of a group; the age of the group's newest write.
    Pending(Nanos),
    /// The origin may have a part of a group, and the journal cannot replay it.
    Damaged(String),
    /// The pending group was replayed to the origin; the age of its newest write.
    Replayed(Nanos),
}

async fn lease<P: Platform>(
    devices: &Rc<OpenDevices<P>>,
    name: &Name,
    role: RawRole,
) -> Result<Lease<P>, IoError> {
    let source = devices.find(name).expect("checked with the configuration");
    devices.open(&source, role).await
}

/// Performs `action` on the log of `volume`, and writes to `target` if given, else to the origin.
/// `logs` are the files beside logs.
pub async fn recover<P: Platform>(
    devices: &Rc<OpenDevices<P>>,
    platform: &P,
    volume: &config::Volume,
    logs: &[LogWitness],
    action: RecoverAction,
    target: Option<&RecoverTarget<'_>>,
) -> Result<Recovery, String> {
    if volume.log.value.len() != 2 {
        let name = &volume.name.value;
        return Err(format!(
            "volume {name} has no `log` of two devices: give the one that it had"
        ));
    }
    let origin = lease(devices, &volume.origin.value, RawRole::Origin).await;
    let origin = origin.map_err(said)?;
    let mut leases: Vec<Leased<P>> = Vec::new();
    for name in &volume.log.value {
        leases.push((name.clone(), lease(devices, name, RawRole::Log).await));
    }
    let journal = match &volume.journal {
        None => None,
        Some(name) => Some((
            name.value.clone(),
            lease(devices, &name.value, RawRole::Log).await,
        )),
    };
    let size = volume
        .size
        .as_ref()
        .map(|size| Sectors(size.value.0 / SECTOR_BYTES));
    let found = RecoveredLog {
        platform,
        devices,
        volume,
        size: size.unwrap_or(origin.leaf.geometry().sectors),
        origin: &origin,
        logs: &leases,
        journal: journal.as_ref(),
    };
    let done = with(&found, logs, action, target).await;
    for lease in leases.into_iter().chain(journal) {
        if let (_, Ok(lease)) = lease {
            lease.release().await;
        }
    }
    origin.release().await;
    done
}

async fn with<P: Platform>(
    found: &RecoveredLog<'_, P>,
    logs: &[LogWitness],
    action: RecoverAction,
    target: Option<&RecoverTarget<'_>>,
) -> Result<Recovery, String> {
    let (volume, identity) = (found.volume, found.origin.identity.bytes());
    let name = &volume.name.value;
    let superblocks = superblocks(found).await;
    let mut witness = logs.iter().map(|log| &log.superblock);
    let witness = witness.find(|superblock| superblock.volume == name.as_str());
    let ours = superblocks.iter().flat_map(|read| read.iter().flatten());
    let known = ours
        .chain(witness)
        .max_by_key(|superblock| (superblock.opened_at, superblock.sequence));
    let known = known.cloned();
    let states = superblocks.iter().map(|read| match (read, &known) {
        (Err(why), _) => CopyState::Absent(why.clone()),
        (Ok(Some(ours)), Some(known)) if counts(ours, known) => CopyState::Current,
        (Ok(Some(_)), _) => CopyState::Stale,
        (Ok(None), _) => CopyState::Nothing,
    });
    let devices = found.logs.iter().map(|(device, _)| device.clone());
    let look = offline_log::look(found, witness).await;
    let mut recovery = Recovery {
        volume: name.clone(),
        origin: volume.origin.value.clone(),
        cleaning: volume.write_back.value,
        is_other_origin: known
            .as_ref()
            .is_some_and(|known| likeness(&known.identity, identity) == Likeness::Other),
        copies: devices.zip(states).collect(),
        journal: None,
        known,
        log: look.as_ref().map_err(String::clone).map(|look| {
            let status = look.engine.status();
            DirtyReport {
                dirty: ByteCount(status.dirty_bytes),
                is_drained: look.engine.is_drained(),
                lag: status.lag,
                doubts: look.doubts.clone(),
            }
        }),
        outcome: RecoverOutcome::Inspected,
    };
    let replays = action == RecoverAction::Discard && target.is_none();
    if let Some((device, lease)) = found.journal {
        let state = look_at(found, lease, &recovery, replays).await?;
        if replays {
            needed(device, &state, &recovery)?;
        }
        recovery.journal = Some((device.clone(), state));
    }
    recovery.outcome = match (action, target) {
        (RecoverAction::Inspect, _) => RecoverOutcome::Inspected,
        (RecoverAction::Discard, None) => discard(found, &superblocks).await?,
        (RecoverAction::Discard, Some(target)) => replay_to(found, &recovery, target).await?,
        (RecoverAction::WriteBack, _) => write_back(found, look, target).await?,
    };
    Ok(recovery)
}

/// The volume's superblock on each device of its log, if there is one.
async fn superblocks<P: Platform>(
    found: &RecoveredLog<'_, P>,
) -> Vec<Result<Option<LogSuperblock>, String>> {
    let (name, env) = (&found.volume.name.value, found.platform.local().env());
    let ours = |superblock: &LogSuperblock| superblock.volume == name.as_str();
    let mut superblocks = Vec::new();
    for (_, lease) in found.logs {
        let read = match lease {
            Ok(lease) => superblock_of(&lease.leaf, &env).await.map_err(said),
            Err(why) => Err(why.to_string()),
        };
        superblocks.push(read.map(|found| found.filter(ours)));
    }
    superblocks
}

/// Blanks the devices that have a superblock of the volume.
async fn discard<P: Platform>(
    found: &RecoveredLog<'_, P>,
    superblocks: &[Result<Option<LogSuperblock>, String>],
) -> Result<RecoverOutcome, String> {
    let env = found.platform.local().env();
    for ((_, lease), read) in found.logs.iter().zip(superblocks) {
        if let (Ok(lease), Ok(Some(_))) = (lease, read) {
            blank(&lease.leaf, &env).await.map_err(said)?;
        }
    }
    Ok(RecoverOutcome::Discarded)
}

/// Writes the dirty data to `target` if given, else to the origin.
async fn write_back<P: Platform>(
    found: &RecoveredLog<'_, P>,
    look: Result<Look<P::Driver>, String>,
    target: Option<&RecoverTarget<'_>>,
) -> Result<RecoverOutcome, String> {
    let look = look.map_err(|why| format!("nothing can be written back: {why}"))?;
    let mut all = found.logs.iter().chain(found.journal);
    // A device that another user has is not absent.
    let is_used = |error: &&IoError| !error.kind().is_absence();
    if let Some(why) = all.find_map(|(_, lease)| lease.as_ref().err().filter(is_used)) {
        return Err(why.to_string());
    }
    let Some(target) = target else {
        drop(look);
        offline_log::forget(found.devices, found.volume).await?;
        let (dirty, lost) = offline_log::write_back(found).await?;
        return Ok(RecoverOutcome::WrittenBack(dirty, lost));
    };
    let to = open_target(found, target).await?;
    let zeroes = target.make.is_some();
    let kept = offline_log::write_back_to(found, &look, &to.leaf, zeroes).await;
    let (dirty, lost) = kept?;
    let place = target.path.display().to_string();
    Ok(RecoverOutcome::WrittenBackTo(place, dirty, lost))
}

async fn open_target<P: Platform>(
    found: &RecoveredLog<'_, P>,
    target: &RecoverTarget<'_>,
) -> Result<OpenedPlace<P>, String> {
    let sectors = found.origin.leaf.geometry().sectors;
    target::open(found.devices, target, sectors).await
}

/// Makes a copy of the origin at the target, and replays the journal's group there.
async fn replay_to<P: Platform>(
    found: &RecoveredLog<'_, P>,
    recovery: &Recovery,
    target: &RecoverTarget<'_>,
) -> Result<RecoverOutcome, String> {
    let env = found.platform.local().env();
    let origin = &found.volume.origin.value;
    let pending = recovery.journal.as_ref();
    if let Some((_, JournalState::Damaged(why))) = pending {
        return Err(why.clone());
    }
    let pending = pending.filter(|(_, state)| matches!(state, JournalState::Pending(_)));
    let (Some(_), Some((_, Ok(lease)))) = (pending, found.journal) else {
        return Err(format!(
            "no journal has anything to replay: copy {origin} as it is"
        ));
    };
    let journal = WriteJournal::open(lease.leaf.clone(), env.pool.clone()).await;
    let journal = journal.map_err(said)?.map_err(|error| error.to_string())?;
    let to = open_target(found, target).await?;
    let zeroes = target.make.is_some();
    let copied = offline_log::copy(&found.origin.leaf, &to.leaf, zeroes, &env).await;
    copied.map_err(said)?;
    journal.replay(&to.leaf).await.map_err(said)?;
    Ok(RecoverOutcome::ReplayedTo(
        target.path.display().to_string(),
    ))
}

fn counts(copy: &LogSuperblock, known: &LogSuperblock) -> bool {
    let in_mask = copy.copy.is_some_and(|copy| known.mask[usize::from(copy)]);
    copy.log == known.log && copy.epoch == known.epoch && in_mask
}

/// Refuses to discard a log while its journal may have a group that the origin has in part.
fn needed(device: &Name, state: &JournalState, recovery: &Recovery) -> Result<(), String> {
    let known = recovery.known.as_ref();
    let may_have = known.map(|known| known.may_be_dirty && known.journal.is_some());
    let what = match (state, may_have) {
        (JournalState::Absent(why), Some(true) | None) => format!("{device} is away ({why})"),
        (JournalState::Nothing, Some(true)) => format!("{device} is not the journal that it had"),
        _ => return Ok(()),
    };
    let (volume, origin) = (&recovery.volume, &recovery.origin);
    Err(format!(
        "the log of {volume} is not discarded: {what}, and {origin} may have half of what the \
         journal has. Attach the journal, or write the log back with `--write-back`; if the \
         journal is lost for good, give {volume} `write_back = \"coalesced\"` without `journal`, \
         and try again"
    ))
}

/// The state of a journal. With `replays`, the origin gets the pending group, and the journal is
/// retired.
async fn look_at<P: Platform>(
    found: &RecoveredLog<'_, P>,
    lease: &Result<Lease<P>, IoError>,
    recovery: &Recovery,
    replays: bool,
) -> Result<JournalState, String> {
    let (platform, origin) = (found.platform, found.origin);
    let (lease, memory) = match lease {
        Ok(lease) => (lease, platform.local().env().pool),
        Err(why) => return Ok(JournalState::Absent(why.to_string())),
    };
    let Ok(journal) = WriteJournal::open(lease.leaf.clone(), memory)
        .await
        .map_err(said)?
    else {
        return Ok(JournalState::Nothing);
    };
    let superblock = journal.superblock();
    if superblock.volume != recovery.volume.as_str() {
        return Ok(JournalState::Nothing);
    }
    if let Some(known) = &recovery.known {
        let named = known.journal.as_ref().map(|(uuid, _)| *uuid);
        if named != Some(superblock.journal) {
            return Ok(JournalState::Void);
        }
    }
    let Some(pending) = journal.pending() else {
        return Ok(JournalState::Done);
    };
    let age = platform.clock() - Nanos(pending.written_at);
    if !replays {
        let verified = journal.verify().await;
        return Ok(match verified {
            Ok(()) => JournalState::Pending(age),
            Err(error) => JournalState::Damaged(error.to_string()),
        });
    }
    if likeness(&superblock.identity, origin.identity.bytes()) == Likeness::Other {
        return Err(format!(
            "{} is not the origin that the journal is of: give it its own back",
            origin.place
        ));
    }
    offline_log::forget(found.devices, found.volume).await?;
    journal.replay(&origin.leaf).await.map_err(said)?;
    journal.retire().await.map_err(said)?;
    Ok(JournalState::Replayed(age))
}

/// Blanks the superblocks of a log device, so that it no longer counts as a copy.
pub(crate) async fn blank<D: Device>(device: &D, env: &block::Env) -> block::IoResult {
    let mut buf = env.pool.take(BLOCK_BYTES);
    buf.fill(0);
    let zeroes = buf.share();
    for at in LOG_SUPERBLOCKS {
        let at = Lba(at * BLOCK_SECTORS);
        device.write(at, zeroes.clone(), Fua::Yes).await?;
    }
    Ok(())
}
