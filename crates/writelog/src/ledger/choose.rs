//! The decision to open a log with the present devices, and the state that holds then.
//!
//! The newest superblock of a log holds. It is known to be the newest with the witness, or with
//! every copy that it names. Without such proof, or with another origin, only the operator may have
//! dirty data written back. Data that is known to be overtaken is never written back.

#[cfg(test)]
mod tests;

use crate::state::{LOG_BYTES_MIN, SEGMENTS_MIN};
use block::Nanos;
use layout::{Likeness, LogSuperblock, Uuid, likeness};

/// The log to open.
pub struct WantedLog {
    /// The volume.
    pub volume: String,
    /// Size of the volume in sectors.
    pub sectors: u64,
    /// Identity of its origin.
    pub identity: Vec<u8>,
    /// The host.
    pub host: String,
    /// A UUID that no log has had.
    pub uuid: Uuid,
    /// Time since 1970.
    pub now: Nanos,
    /// True if the operator asks for write-back of dirty data that may be overtaken, or of another
    /// origin.
    pub is_forced: bool,
}

/// Contents of a device.
pub(super) enum CandidateState {
    /// A device that is missing or unreadable, with the reason.
    Absent(String),
    /// Zeroes, with room for `room` segments.
    Blank { room: u32 },
    /// A copy of a log.
    Log {
        superblock: Box<LogSuperblock>,
        room: u32,
    },
    /// Foreign contents.
    Other(String),
}

impl CandidateState {
    /// The superblock of a copy.
    pub(super) fn log(&self) -> Option<&LogSuperblock> {
        match self {
            CandidateState::Log { superblock, .. } => Some(superblock),
            _ => None,
        }
    }
}

/// The decision: the state that holds from now on.
pub(super) struct Chosen {
    /// Superblock, with the trusted copies in its mask.
    pub(super) superblock: LogSuperblock,
    /// True if the log is new.
    pub(super) is_new: bool,
    /// True if a copy that counted does so no more.
    pub(super) shrinks: bool,
    /// Reasons to refuse the log that the operator has overridden.
    pub(super) doubts: Vec<String>,
    /// Reasons for devices that the log does not use: nothing is written to those.
    pub(super) without: [Option<String>; 2],
}

/// Decides on the devices found. An unusable device counts as absent if the other has everything.
pub(super) fn choose(
    wanted: &WantedLog,
    witness: Option<&LogSuperblock>,
    names: &[String; 2],
    found: [&CandidateState; 2],
) -> Result<Chosen, String> {
    let faults = [0, 1].map(|copy| fault(&wanted.volume, &names[copy], found[copy]));
    let absent = faults.clone().map(|why| why.map(CandidateState::Absent));
    let usable = [0, 1].map(|copy| absent[copy].as_ref().unwrap_or(found[copy]));
    let chosen = among(wanted, witness, names, usable);
    match (chosen, faults.iter().flatten().next()) {
        (Ok(chosen), Some(why)) if chosen.is_new => Err(why.clone()),
        (Err(_), Some(why)) => Err(why.clone()),
        (Ok(mut chosen), _) => {
            for (without, why) in chosen.without.iter_mut().zip(faults) {
                *without = without.take().or(why);
            }
            Ok(chosen)
        }
        (refused, None) => refused,
    }
}

/// Returns why a device cannot have a copy, whatever is on the other.
pub(super) fn fault(volume: &str, name: &str, found: &CandidateState) -> Option<String> {
    match found {
        CandidateState::Other(what) => Some(format!(
            "{name} {what}: it cannot have the log of {volume}; give another device, or lose \
             that with `hotset pool format --yes`"
        )),
        CandidateState::Log { superblock, .. } if superblock.volume != volume => {
            let remedy = match superblock.may_be_dirty {
                true => "give each volume its own devices".into(),
                false => format!(
                    "give each volume its own devices, or, if {volume} was renamed, blank both \
                     with `hotset pool format --yes`: the log has no dirty data"
                ),
            };
            Some(format!(
                "{name} has the log of volume {}; {remedy}",
                superblock.volume
            ))
        }
        CandidateState::Log { superblock, room } => {
            too_small(volume, name, *room, superblock.segments)
        }
        CandidateState::Absent(_) | CandidateState::Blank { .. } => None,
    }
}

fn too_small(volume: &str, name: &str, room: u32, segments: u32) -> Option<String> {
    (room < segments).then(|| {
        format!(
            "{name} has room for {room} MiB of the log of {volume}, which has {segments} MiB; \
             give it a device that is as large"
        )
    })
}

/// As [`choose`], for devices that may have a copy.
fn among(
    wanted: &WantedLog,
    witness: Option<&LogSuperblock>,
    names: &[String; 2],
    found: [&CandidateState; 2],
) -> Result<Chosen, String> {
    let volume = &wanted.volume;
    let logs = found.map(CandidateState::log);
    if let [Some(a), Some(b)] = logs
        && a.copy == b.copy
        && a.log == b.log
        && current(witness, logs).is_none()
    {
        return Err(format!(
            "{volume} is not served: {} and {} hold the same copy; take away the older, or see \
             `hotset pool recover {volume}`: `--discard` discards both",
            names[0], names[1]
        ));
    }
    let all: Vec<&LogSuperblock> = logs.into_iter().flatten().chain(witness).collect();
    let Some(now) = last(volume, witness, names, &all)? else {
        return new(wanted, 0, names, found);
    };
    let mut last = LastLog {
        wanted,
        witness,
        names,
        now,
        trusted: trusted(now, witness, logs),
        doubts: Vec::new(),
    };
    last.doubt_copies()?;
    if last.trusted == [false; 2] {
        return match now.may_be_dirty {
            false => new(wanted, now.sequence, names, found),
            true => Err(elsewhere(volume, now, logs)),
        };
    }
    if now.may_be_dirty {
        last.doubt_origin()?;
    }
    let without = [0, 1].map(|copy| match found[copy] {
        CandidateState::Log { room, .. } | CandidateState::Blank { room } => {
            too_small(volume, &names[copy], *room, now.segments)
        }
        CandidateState::Absent(_) | CandidateState::Other(_) => None,
    });
    let sequence = all.iter().map(|s| s.sequence).max().unwrap_or(0);
    Ok(Chosen {
        superblock: last.next(sequence),
        is_new: false,
        shrinks: last.trusted != now.mask,
        doubts: last.doubts,
        without,
    })
}

/// The only device that the witness knows as current: the other is away, or an older image. An older
/// image may be of the same copy, of a device that had left its place and has another since.
pub(super) fn current(
    witness: Option<&LogSuperblock>,
    logs: [Option<&LogSuperblock>; 2],
) -> Option<usize> {
    let known = witness?;
    let is_current = |log: &LogSuperblock| {
        log.log == known.log && log.epoch >= known.epoch && log.sequence >= known.sequence
    };
    match logs.map(|log| log.is_some_and(is_current)) {
        [true, false] => Some(0),
        [false, true] => Some(1),
        _ => None,
    }
}

/// The copies of the log `now` that have all of its data.
fn trusted(
    now: &LogSuperblock,
    witness: Option<&LogSuperblock>,
    logs: [Option<&LogSuperblock>; 2],
) -> [bool; 2] {
    [0, 1].map(|copy| {
        let log = logs[copy].filter(|s| s.log == now.log && s.epoch == now.epoch);
        // The witness is written last: a copy with a lower sequence is an older image.
        let known = witness.filter(|witness| witness.log == now.log);
        let least = known.map_or(0, |witness| witness.sequence);
        now.mask[copy] && log.is_some_and(|s| s.sequence >= least)
    })
}

/// The last log of a volume, before the next opening.
struct LastLog<'a> {
    wanted: &'a WantedLog,
    witness: Option<&'a LogSuperblock>,
    names: &'a [String; 2],
    /// The newest superblock.
    now: &'a LogSuperblock,
    trusted: [bool; 2],
    /// Reasons to refuse the log that the operator has overridden.
    doubts: Vec<String>,
}

impl LastLog<'_> {
    fn doubt(&mut self, what: String, remedy: String) -> Result<(), String> {
        if self.wanted.is_forced {
            self.doubts.push(what);
            return Ok(());
        }
        let volume = &self.wanted.volume;
        Err(format!("{volume} is not served: {what}; {remedy}"))
    }

    /// Without its witness, an absent copy may have more than those present.
    fn doubt_copies(&mut self) -> Result<(), String> {
        let (wanted, now, witness) = (self.wanted, self.now, self.witness);
        let volume = &wanted.volume;
        let remembered = witness.is_some_and(|witness| witness.log == now.log);
        let is_other = witness.is_some() && now.may_be_dirty;
        if remembered || (self.trusted == now.mask && !is_other) {
            return Ok(());
        }
        let away = missing(self.names, now.mask, self.trusted);
        let file = match witness {
            None => "the file of the log in `state` is lost, which would say".to_owned(),
            Some(_) => format!("the file of the log in `state` is of another log of {volume}"),
        };
        let (what, attach) = match away.as_str() {
            "" => (file, "give it that log's devices".to_owned()),
            away => {
                let what = format!("{away} may have what its origin does not have, and {file}");
                (what, format!("attach {away}"))
            }
        };
        let remedy = format!(
            "{attach}, or see `hotset pool recover {volume}`: `--write-back` writes back what is \
             here, and `--discard` discards that"
        );
        self.doubt(what, remedy)
    }

    /// Dirty data goes to an origin of its size or a larger one, and to no other device.
    fn doubt_origin(&mut self) -> Result<(), String> {
        let (wanted, now) = (self.wanted, self.now);
        let volume = &wanted.volume;
        let what = format!(
            "it has dirty data and had {} sectors; {} are wanted",
            now.sectors, wanted.sectors
        );
        if now.sectors > wanted.sectors {
            return Err(format!(
                "{volume} is not served: {what}: give it its size back, or see \
                 `hotset pool recover {volume}`: `--discard` discards that"
            ));
        }
        if now.sectors < wanted.sectors {
            let remedy = format!(
                "give it its size back, or see `hotset pool recover {volume}`: `--write-back` \
                 writes the data back all the same, and `--discard` discards it"
            );
            self.doubt(what, remedy)?;
        }
        if likeness(&now.identity, &wanted.identity) == Likeness::Other {
            let what = "this is another device than the origin of its dirty data, which would \
                        overwrite it";
            let remedy = format!(
                "give it its own back, or see `hotset pool recover {volume}`: `--write-back` \
                 overwrites this one with the dirty data, and `--discard` discards that"
            );
            self.doubt(what.into(), remedy)?;
        }
        Ok(())
    }

    /// The superblock of the next incarnation, after superblocks of up to `sequence`.
    fn next(&self, sequence: u64) -> LogSuperblock {
        let (wanted, now) = (self.wanted, self.now);
        LogSuperblock {
            copy: None,
            mask: self.trusted,
            sequence,
            // The mask shrinks here, outside of `LogLedger::change`.
            epoch: now.epoch + u64::from(self.trusted != now.mask),
            incarnation: now.incarnation + 1,
            sectors: wanted.sectors,
            opened_at: wanted.now.0.max(now.opened_at),
            devices: self.names.clone(),
            host: wanted.host.clone(),
            identity: wanted.identity.clone(),
            ..now.clone()
        }
    }
}

/// Returns the newest superblock of the volume's last log, which is the one opened last. An earlier
/// log is overtaken, dirty or not.
fn last<'a>(
    volume: &str,
    witness: Option<&LogSuperblock>,
    names: &[String; 2],
    all: &[&'a LogSuperblock],
) -> Result<Option<&'a LogSuperblock>, String> {
    let of_log = |log| all.iter().filter(move |s| s.log == log);
    let newest = all
        .iter()
        .filter_map(|s| of_log(s.log).max_by_key(|s| s.sequence));
    let is_known = |s: &LogSuperblock| witness.is_some_and(|witness| witness.log == s.log);
    let last = newest
        .clone()
        .max_by_key(|s| (s.opened_at, s.may_be_dirty, is_known(s), s.sequence));
    let Some(last) = last else {
        return Ok(None);
    };
    let mut others = newest.filter(|s| s.log != last.log && s.may_be_dirty);
    let Some(other) = others.next() else {
        return Ok(Some(last));
    };
    let [first, second] = names;
    if last.may_be_dirty {
        return Err(format!(
            "{volume} is not served: {first} and {second} have logs that know nothing of each \
             other, and both have dirty data; take away the one that does not count, or see \
             `hotset pool recover {volume}`: `--discard` discards both"
        ));
    }
    let on = match other.copy {
        Some(copy) => other.devices[usize::from(copy)].as_str(),
        None => "the file in `state`",
    };
    Err(format!(
        "{volume} is not served: {on} has a log of {volume} that was given up, or overtaken: \
         another was opened after it, and has written everything back; give {volume} the devices \
         of that, or blank ones, or see `hotset pool recover {volume}`: `--discard` discards the old \
         one"
    ))
}

/// Explains that no data of the log `now` can be reached.
fn elsewhere(volume: &str, now: &LogSuperblock, logs: [Option<&LogSuperblock>; 2]) -> String {
    let copies = (0..2).filter(|copy| now.mask[*copy]);
    let copies: Vec<&str> = copies.map(|copy| now.devices[copy].as_str()).collect();
    let copies = copies.join(" and ");
    let attach = match logs.into_iter().flatten().next() {
        Some(_) => "what is here is older and cannot be written back: attach what was used last",
        None => "attach one of them",
    };
    format!(
        "{volume} is not served: what its origin does not have yet is on {copies}; {attach}, or see \
         what is left with `hotset pool recover {volume}`: `--discard` discards that"
    )
}

/// Names the copies of `mask` that are not `here`.
fn missing(names: &[String; 2], mask: [bool; 2], here: [bool; 2]) -> String {
    let missing = (0..2).filter(|copy| mask[*copy] && !here[*copy]);
    let missing: Vec<&str> = missing.map(|copy| names[copy].as_str()).collect();
    missing.join(" and ")
}

/// Begins a log on devices without one.
fn new(
    wanted: &WantedLog,
    sequence: u64,
    names: &[String; 2],
    found: [&CandidateState; 2],
) -> Result<Chosen, String> {
    let volume = &wanted.volume;
    if wanted.is_forced {
        return Err(format!("no record of dirty data of volume {volume}"));
    }
    let mut segments = u32::MAX;
    for (name, found) in names.iter().zip(found) {
        match found {
            CandidateState::Blank { room } | CandidateState::Log { room, .. }
                if *room < SEGMENTS_MIN =>
            {
                return Err(format!(
                    "{name} is too small: a log needs {} MiB",
                    LOG_BYTES_MIN >> 20
                ));
            }
            CandidateState::Blank { room } | CandidateState::Log { room, .. } => {
                segments = segments.min(*room)
            }
            CandidateState::Absent(why) => {
                return Err(format!(
                    "a new log of {volume} needs both devices: {name}: {why}"
                ));
            }
            CandidateState::Other(_) => unreachable!("refused before"),
        }
    }
    Ok(Chosen {
        superblock: LogSuperblock {
            copy: None,
            may_be_dirty: false,
            mask: [true; 2],
            log: wanted.uuid,
            sequence,
            epoch: 0,
            incarnation: 1,
            segments,
            sectors: wanted.sectors,
            opened_at: wanted.now.0,
            volume: volume.clone(),
            devices: names.clone(),
            host: wanted.host.clone(),
            identity: wanted.identity.clone(),
            journal: None,
            record: Vec::new(),
        },
        is_new: true,
        shrinks: false,
        doubts: Vec::new(),
        without: [None, None],
    })
}
