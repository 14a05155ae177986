//! The choice of a log's journal, and of its replay.
//!
//! Invariant: a journal that holds a part of the data that an origin lacks is used by its own log,
//! or left unchanged; one that was given up is void.

use super::choose::{Chosen, WantedLog};
use super::look::{LogCandidate, probe};
use crate::journal::WriteJournal;
use block::{Device, Env};
use layout::{BLOCK_SECTORS, JournalSuperblock, SuperblockError, Uuid, journal_half};

/// The journal, in use or to be formatted. For an unusable one, its name and the reason.
type Choice<P> = (Option<WriteJournal<P>>, Option<(String, String)>);

/// Decides on the journal of a log that is to open as `chosen`.
pub(super) async fn choose<P: Device + Clone>(
    wanted: &WantedLog,
    chosen: &Chosen,
    candidate: Option<LogCandidate<P>>,
    env: &Env,
) -> Result<Choice<P>, String> {
    let (volume, next) = (&wanted.volume, &chosen.superblock);
    let Some(LogCandidate { name, device, .. }) = candidate else {
        return match &next.journal {
            Some((_, name)) if next.may_be_dirty => Err(format!(
                "{volume} is not served: {name} is its journal, which may have a part of what its \
                 origin has half; give it as `journal` until an end in order has drained the log"
            )),
            _ => Ok((None, None)),
        };
    };
    let absent = |why: String| match chosen.is_new {
        true => Err(format!(
            "the log of {volume} needs its journal at first: {name}: {why}"
        )),
        false => Ok((None, Some((name.clone(), why)))),
    };
    let device = match device {
        Ok(device) => device,
        Err(why) => return absent(why),
    };
    let blocks = device.geometry().sectors.0 / BLOCK_SECTORS;
    let Some(half) = journal_half(blocks) else {
        let what = "is too small: a journal needs 9 MiB";
        return match chosen.is_new {
            true => Err(format!("{name} {what}")),
            false => absent(format!("it {what}")),
        };
    };
    let other = |what: String| {
        Err(format!(
            "{name} {what}: it cannot have the journal of {volume}; give another device, or lose \
             that with `hotset pool format --yes`"
        ))
    };
    let format = || {
        let superblock = blank(wanted, next.log, half);
        let (device, memory) = (device.clone(), env.pool.clone());
        Ok((Some(WriteJournal::new(device, memory, superblock)), None))
    };
    let journal = match WriteJournal::open(device.clone(), env.pool.clone()).await {
        Ok(Ok(journal)) => journal,
        Ok(Err(SuperblockError::Blank)) => {
            return match probe(&device, env).await {
                Ok(None) => format(),
                Ok(Some(foreign)) => other(format!("holds {foreign}")),
                Err(error) => absent(error.to_string()),
            };
        }
        Ok(Err(SuperblockError::Damaged(how))) => {
            return absent(format!("its superblock is damaged: {how}"));
        }
        Ok(Err(SuperblockError::Foreign(what))) => return other(format!("holds {what}")),
        Ok(Err(error)) => return other(error.to_string()),
        Err(error) => return absent(error.to_string()),
    };
    if is_own(wanted, chosen, &journal, &name)? {
        let found = journal.superblock();
        if found.half_at(1) + found.half > blocks {
            return absent(format!("it has {blocks} blocks, and had more"));
        }
        return Ok((Some(journal), None));
    }
    format()
}

fn blank(wanted: &WantedLog, log: Uuid, half: u64) -> JournalSuperblock {
    JournalSuperblock {
        journal: Uuid(wanted.uuid.0.wrapping_add(1).max(1)),
        log,
        sequence: 1,
        retired: 0,
        half,
        sectors: wanted.sectors,
        volume: wanted.volume.clone(),
        identity: wanted.identity.clone(),
    }
}

/// True if a journal is that of the chosen log; refuses one that another log may need.
fn is_own<P: Device>(
    wanted: &WantedLog,
    chosen: &Chosen,
    journal: &WriteJournal<P>,
    name: &str,
) -> Result<bool, String> {
    let (volume, next, found) = (&wanted.volume, &chosen.superblock, journal.superblock());
    if found.volume != *volume {
        return Err(format!(
            "{name} has the journal of volume {}; give each volume its own",
            found.volume
        ));
    }
    let named = next.journal.as_ref().map(|(uuid, _)| *uuid);
    if found.log != next.log && journal.pending().is_some() {
        return Err(format!(
            "{volume} is not served: {name} has a part of what its origin may have half, of a log \
             that is not here; `hotset pool recover {volume} --discard` replays it"
        ));
    }
    Ok(found.log == next.log && named == Some(found.journal))
}
