//! Reports of a log and its recovery.

use super::found::LostRecords;
use super::{CopyState, JournalState, RecoverOutcome, Recovery};
use block::Nanos;
use control::config::Name;
use control::recovery::{RecoveredDevice, RecoveryReport};
use std::fmt;
use writelog::Cleaning;

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.devices(f)?;
        let (volume, origin) = (&self.volume, &self.origin);
        match &self.outcome {
            RecoverOutcome::WrittenBack(dirty, lost) => {
                write!(
                    f,
                    "volume {volume}: {dirty} of dirty data written back to {origin}"
                )?;
                lost.iter().try_for_each(|lost| write!(f, ", {lost}"))?;
                f.write_str(". The log has no dirty data any more")
            }
            RecoverOutcome::WrittenBackTo(path, dirty, lost) => {
                write!(
                    f,
                    "{path} is a copy of {origin} with the {dirty} of dirty data of volume {volume}"
                )?;
                lost.iter().try_for_each(|lost| write!(f, ", {lost}"))?;
                write!(f, ". {origin} and the log are unchanged")
            }
            RecoverOutcome::ReplayedTo(path) => write!(
                f,
                "{path} is a copy of {origin} with the journal's group replayed: an earlier state. \
                 {origin}, the log and the journal are unchanged"
            ),
            RecoverOutcome::Inspected => self.left(f),
            RecoverOutcome::Discarded => {
                if let Ok(log) = &self.log {
                    write!(
                        f,
                        "volume {volume}: {} of dirty data for {origin} discarded; ",
                        log.dirty
                    )?;
                }
                self.promise(f)
            }
        }
    }
}

impl Recovery {
    /// The report for programs.
    pub fn report(&self) -> RecoveryReport {
        let (outcome, to, lost): (_, _, Option<&LostRecords>) = match &self.outcome {
            RecoverOutcome::Inspected => ("inspected", None, None),
            RecoverOutcome::Discarded => ("discarded", None, None),
            RecoverOutcome::ReplayedTo(path) => ("replayed", Some(path), None),
            RecoverOutcome::WrittenBack(_, lost) => ("written-back", None, lost.as_ref()),
            RecoverOutcome::WrittenBackTo(path, _, lost) => {
                ("written-back", Some(path), lost.as_ref())
            }
        };
        let log = self.log.as_ref().ok();
        let copies = self.copies.iter();
        RecoveryReport {
            volume: self.volume.to_string(),
            origin: self.origin.to_string(),
            log: copies.map(|(name, state)| copy(name, state)).collect(),
            journal: self
                .journal
                .as_ref()
                .map(|(name, state)| journal(name, state)),
            dirty_bytes: log.map(|log| log.dirty.0),
            lag_s: log.map(|log| log.lag.as_secs_f64()),
            doubts: log.map_or_else(Vec::new, |log| log.doubts.clone()),
            why: self.log.as_ref().err().cloned(),
            outcome,
            to: to.cloned(),
            lost: lost.map(LostRecords::to_string),
            lines: self.to_string().lines().map(str::to_owned).collect(),
        }
    }

    fn devices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let volume = &self.volume;
        for (name, state) in &self.copies {
            match state {
                CopyState::Absent(why) => writeln!(f, "{name}: cannot be used: {why}")?,
                CopyState::Nothing => writeln!(f, "{name}: nothing of the log of {volume}")?,
                CopyState::Stale => writeln!(f, "{name}: a copy that has been overtaken")?,
                CopyState::Current => writeln!(f, "{name}: a copy that counts")?,
            }
        }
        let seconds = |age: &Nanos| age.0 / 1_000_000_000;
        let Some((name, state)) = &self.journal else {
            return Ok(());
        };
        match state {
            JournalState::Absent(why) => writeln!(f, "{name}: cannot be used: {why}"),
            JournalState::Nothing => writeln!(f, "{name}: no journal of {volume}"),
            JournalState::Void => writeln!(f, "{name}: a journal that was given up"),
            JournalState::Done => writeln!(f, "{name}: a journal with nothing to replay"),
            JournalState::Pending(age) => writeln!(
                f,
                "{name}: a journal with a group to replay, its newest write {} s old",
                seconds(age)
            ),
            JournalState::Damaged(why) => writeln!(f, "{why}"),
            JournalState::Replayed(age) => writeln!(
                f,
                "{name}: replayed a group, its newest write {} s old",
                seconds(age)
            ),
        }
    }

    /// Writes the state of the log, and the possible actions.
    fn left(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (volume, origin) = (&self.volume, &self.origin);
        match &self.log {
            Ok(log) if !log.doubts.is_empty() => {
                for doubt in &log.doubts {
                    writeln!(f, "{doubt}")?;
                }
                write!(
                    f,
                    "volume {volume}: not served, {} of dirty data for {origin}. `--write-back` \
                     writes it back all the same, `--discard` discards it",
                    log.dirty
                )
            }
            Ok(log) if !log.is_drained => write!(
                f,
                "volume {volume}: {} of dirty data for {origin}, the oldest {} s old. \
                 `hotset serve` writes it back, and so does `--write-back`; `--discard` discards it",
                log.dirty,
                log.lag.0 / 1_000_000_000
            ),
            Ok(_) => write!(f, "volume {volume}: no dirty data for {origin}"),
            Err(why) if self.has_copy() => f.write_str(why),
            Err(why) => match &self.known {
                Some(known) if !known.may_be_dirty && self.has_old() => f.write_str(why),
                Some(known) if !known.may_be_dirty => {
                    write!(f, "volume {volume}: no dirty data for {origin}")
                }
                Some(_) => {
                    write!(f, "volume {volume}: its dirty data for {origin} is lost; ")?;
                    self.promise(f)
                }
                None => {
                    write!(f, "volume {volume}: no record of dirty data for {origin}; ")?;
                    self.promise(f)
                }
            },
        }
    }

    /// Writes the state of the origin alone.
    fn promise(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = &self.origin;
        let journal = self.journal.as_ref().map(|(_, state)| state);
        let promise = match (self.cleaning, journal) {
            (_, Some(JournalState::Pending(_))) => {
                "may have half of a group: `--discard` replays that, and makes it an earlier state"
            }
            (_, Some(JournalState::Damaged(_))) => {
                "may have half of a group, which its journal cannot replay: verify it, or restore a \
                 backup"
            }
            (_, Some(JournalState::Replayed(_))) => "is an earlier state now",
            _ if self.is_other_origin => "is not the origin that it had",
            (Cleaning::Coalesced, _) => "is promised nothing of: verify it, or restore a backup",
            (Cleaning::Journaled, Some(JournalState::Absent(_) | JournalState::Nothing)) => {
                "may have half of a group, which its journal would have: attach that"
            }
            _ => "is an earlier state as it is",
        };
        write!(f, "{origin} {promise}")
    }

    fn has_old(&self) -> bool {
        let mut copies = self.copies.iter();
        copies.any(|(_, copy)| matches!(copy, CopyState::Stale))
    }

    fn has_copy(&self) -> bool {
        let mut copies = self.copies.iter();
        copies.any(|(_, copy)| matches!(copy, CopyState::Current))
    }
}

fn copy(name: &Name, state: &CopyState) -> RecoveredDevice {
    let (state, why) = match state {
        CopyState::Absent(why) => ("absent", Some(why)),
        CopyState::Nothing => ("nothing", None),
        CopyState::Stale => ("overtaken", None),
        CopyState::Current => ("current", None),
    };
    RecoveredDevice {
        device: name.to_string(),
        state,
        why: why.cloned(),
        newest_write_s: None,
    }
}

fn journal(name: &Name, state: &JournalState) -> RecoveredDevice {
    let (state, why, age) = match state {
        JournalState::Absent(why) => ("absent", Some(why), None),
        JournalState::Nothing => ("nothing", None, None),
        JournalState::Void => ("given-up", None, None),
        JournalState::Done => ("done", None, None),
        JournalState::Pending(age) => ("pending", None, Some(age)),
        JournalState::Damaged(why) => ("damaged", Some(why), None),
        JournalState::Replayed(age) => ("replayed", None, Some(age)),
    };
    RecoveredDevice {
        device: name.to_string(),
        state,
        why: why.cloned(),
        newest_write_s: age.map(|age| age.as_secs_f64()),
    }
}
