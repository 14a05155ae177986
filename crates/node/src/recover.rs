//! A write-back volume whose log cannot serve it, without a node: what is left, and giving the
//! log up.
//!
//! Invariants:
//!     looking changes nothing
//!     a log is given up ⟹ what its journal has is at the origin, durably
//!
//! What is done in order so that a cut leaves something that can be recovered again: replay,
//! retire, blank the log's superblocks. The file beside the log is the caller's to remove, last.

use crate::arrays::{Devices, Lease};
use crate::place::Role;
use crate::platform::{LogWitness, Platform};
use block::{Device, Fua, IoError, Lba, Nanos};
use cache::log::{Cleaning, Journal, superblock_of};
use control::config::{self, Name};
use layout::{BLOCK_BYTES, BLOCK_SECTORS, LOG_SUPERBLOCKS, LogSuperblock};
use std::fmt;
use std::rc::Rc;

/// What is left of a log.
pub struct Recovery {
    volume: Name,
    origin: Name,
    cleaning: Cleaning,
    /// What is known of the log; none if nothing is.
    known: Option<LogSuperblock>,
    /// Each device of the log, and what is there.
    copies: Vec<(Name, CopyState)>,
    journal: Option<(Name, JournalState)>,
}

enum CopyState {
    Absent(String),
    /// Nothing of this log.
    Nothing,
    /// What it holds has been overtaken.
    Stale,
    Current,
}

enum JournalState {
    Absent(String),
    /// Nothing of this log.
    Nothing,
    /// The origin was written without it since.
    Void,
    /// The origin has all of it.
    Done,
    /// The origin may have a part of a group, whose newest write is so old.
    Pending(Nanos),
    /// The origin has got that.
    Replayed(Nanos),
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (volume, origin) = (&self.volume, &self.origin);
        for (name, state) in &self.copies {
            match state {
                CopyState::Absent(why) => writeln!(f, "{name}: away: {why}")?,
                CopyState::Nothing => writeln!(f, "{name}: nothing of the log of {volume}")?,
                CopyState::Stale => writeln!(f, "{name}: a copy that has been overtaken")?,
                CopyState::Current => writeln!(f, "{name}: a copy that counts")?,
            }
        }
        let seconds = |age: &Nanos| age.0 / 1_000_000_000;
        if let Some((name, state)) = &self.journal {
            match state {
                JournalState::Absent(why) => writeln!(f, "{name}: away: {why}")?,
                JournalState::Nothing => writeln!(f, "{name}: no journal of {volume}")?,
                JournalState::Void => writeln!(f, "{name}: a journal that was given up")?,
                JournalState::Done => writeln!(f, "{name}: a journal with nothing to replay")?,
                JournalState::Pending(age) => writeln!(
                    f,
                    "{name}: a journal with a group to replay, its newest write {} s old",
                    seconds(age)
                )?,
                JournalState::Replayed(age) => writeln!(
                    f,
                    "{name}: replayed a group, its newest write {} s old",
                    seconds(age)
                )?,
            }
        }
        let lost = match &self.known {
            Some(known) if !known.owes => return write!(f, "{volume} owes {origin} nothing"),
            Some(_)
                if self
                    .copies
                    .iter()
                    .any(|(_, c)| matches!(c, CopyState::Current)) =>
            {
                return write!(
                    f,
                    "{volume} owes {origin} what the log has: `hotset serve` carries it out, and \
                     `--rewind` gives it up"
                );
            }
            Some(_) => format!("what {volume} owes {origin} is lost"),
            None => format!("nothing says what {volume} owes {origin}"),
        };
        let journal = self.journal.as_ref().map(|(_, state)| state);
        let promise = match (self.cleaning, journal) {
            (_, Some(JournalState::Pending(_))) => {
                "may have half of a group: `--rewind` replays that, and makes it an earlier state"
            }
            (_, Some(JournalState::Replayed(_))) => "is an earlier state now",
            (Cleaning::Coalesced, _) => "is promised nothing of: verify it, or restore a backup",
            (Cleaning::Journaled, Some(JournalState::Absent(_) | JournalState::Nothing)) => {
                "may have half of a group, which its journal would have: attach that"
            }
            _ => "is an earlier state as it is",
        };
        write!(f, "{lost}; {origin} {promise}")
    }
}

type Leased<P> = (Name, Result<Lease<P>, String>);

async fn lease<P: Platform>(
    devices: &Rc<Devices<P>>,
    name: &Name,
    role: Role,
) -> Result<Lease<P>, IoError> {
    let source = devices.find(name).expect("checked with the configuration");
    devices.open(&source, role).await
}

/// Looks at the log of `volume`; with `rewind` gives it up, after a replay of its journal. `logs` are the
/// files beside logs.
pub async fn recover<P: Platform>(
    devices: &Rc<Devices<P>>,
    platform: &P,
    volume: &config::Volume,
    logs: &[LogWitness],
    rewind: bool,
) -> Result<Recovery, String> {
    let said = |error: IoError| error.to_string();
    let origin = lease(devices, &volume.origin.value, Role::Origin).await;
    let origin = origin.map_err(said)?;
    let mut leases: Vec<Leased<P>> = Vec::new();
    for name in &volume.log.value {
        let device = lease(devices, name, Role::Log).await;
        leases.push((name.clone(), device.map_err(said)));
    }
    let journal = match &volume.journal {
        None => None,
        Some(name) => {
            let device = lease(devices, &name.value, Role::Log).await;
            Some((name.value.clone(), device.map_err(said)))
        }
    };
    let done = with(platform, volume, logs, rewind, &origin, &leases, &journal).await;
    for lease in leases.into_iter().chain(journal) {
        if let (_, Ok(lease)) = lease {
            lease.release().await;
        }
    }
    origin.release().await;
    done
}

async fn with<P: Platform>(
    platform: &P,
    volume: &config::Volume,
    logs: &[LogWitness],
    rewind: bool,
    origin: &Lease<P>,
    leases: &[Leased<P>],
    journal: &Option<Leased<P>>,
) -> Result<Recovery, String> {
    let said = |error: IoError| error.to_string();
    let (name, env) = (&volume.name.value, platform.local().env());
    let mut found = Vec::new();
    for (device, lease) in leases {
        let superblock = match lease {
            Ok(lease) => superblock_of(&lease.leaf, &env).await.map_err(said)?,
            Err(_) => None,
        };
        let ours = superblock.filter(|superblock| superblock.volume == name.as_str());
        found.push((device, lease, ours));
    }
    let witness = logs.iter().map(|log| &log.superblock);
    let witness = witness.filter(|superblock| superblock.volume == name.as_str());
    let all = found
        .iter()
        .filter_map(|(.., ours)| ours.as_ref())
        .chain(witness);
    let known = all.max_by_key(|superblock| superblock.sequence).cloned();
    let identity = platform.identity(&origin.place);
    if let Some(known) = &known
        && known.identity != identity.bytes()
    {
        return Err(format!(
            "{} is not the origin that volume {name} had: give it its own back",
            origin.place
        ));
    }
    let copies = found.iter().map(|(device, lease, ours)| {
        let state = match (lease, ours, &known) {
            (Err(why), ..) => CopyState::Absent(why.clone()),
            (Ok(_), Some(ours), Some(known)) if counts(ours, known) => CopyState::Current,
            (Ok(_), Some(_), _) => CopyState::Stale,
            (Ok(_), None, _) => CopyState::Nothing,
        };
        ((*device).clone(), state)
    });
    let mut recovery = Recovery {
        volume: name.clone(),
        origin: volume.origin.value.clone(),
        cleaning: volume.write_back.value,
        copies: copies.collect(),
        journal: None,
        known,
    };
    if let Some((device, lease)) = journal {
        let state = look_at(platform, lease, origin, &recovery, rewind).await?;
        recovery.journal = Some((device.clone(), state));
    }
    if rewind {
        for (_, lease, ours) in &found {
            if let (Ok(lease), Some(_)) = (lease, ours) {
                blank(&lease.leaf, &env).await.map_err(said)?;
            }
        }
    }
    Ok(recovery)
}

fn counts(copy: &LogSuperblock, known: &LogSuperblock) -> bool {
    let in_mask = copy.copy.is_some_and(|copy| known.mask[usize::from(copy)]);
    copy.log == known.log && copy.epoch == known.epoch && in_mask
}

/// What a journal has; with `rewind` the origin gets that, and the journal is void.
async fn look_at<P: Platform>(
    platform: &P,
    lease: &Result<Lease<P>, String>,
    origin: &Lease<P>,
    recovery: &Recovery,
    rewind: bool,
) -> Result<JournalState, String> {
    let said = |error: IoError| error.to_string();
    let (lease, memory) = match lease {
        Ok(lease) => (lease, platform.local().env().pool),
        Err(why) => return Ok(JournalState::Absent(why.clone())),
    };
    let Ok(journal) = Journal::open(lease.leaf.clone(), memory)
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
    if superblock.identity != platform.identity(&origin.place).bytes() {
        return Err(format!(
            "{} is not the origin that the journal is of: give it its own back",
            origin.place
        ));
    }
    if !rewind {
        return Ok(JournalState::Pending(age));
    }
    journal.replay(&origin.leaf).await.map_err(said)?;
    journal.retire().await.map_err(said)?;
    Ok(JournalState::Replayed(age))
}

/// Nothing says any more that a device has a copy.
async fn blank<D: Device>(device: &D, env: &block::Env) -> block::IoResult {
    let mut buf = env.pool.take(BLOCK_BYTES);
    buf.fill(0);
    let zeroes = buf.share();
    for at in LOG_SUPERBLOCKS {
        let at = Lba(at * BLOCK_SECTORS);
        device.write(at, zeroes.clone(), Fua::Yes).await?;
    }
    Ok(())
}
