//! Compares a survey of an origin with its record.

use crate::formats::What;
use crate::record::{Allowed, OriginRecord, is_plain};
use crate::survey::Survey;
use block::{Extent, Lba, Sectors};
use layout::{Likeness, likeness};
use std::collections::HashSet;
use std::fmt;

/// Fewest comparable samples on a device without sentinels; fewest different contents if only
/// samples can identify the device.
const SAMPLES_MIN: usize = 8;

/// The result of a comparison with the record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OriginVerdict {
    /// No change by others shows.
    Same,
    /// The device is another, or others have changed it.
    Changed(DoubtReason),
    /// The comparison decides nothing.
    Unknown(DoubtReason),
}

/// Reason against taking an origin for the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoubtReason {
    /// Another device answers.
    Identity,
    /// The device has shrunk or grown.
    Size {
        /// Recorded size.
        was: Sectors,
        /// Present size.
        is: Sectors,
    },
    /// The logical block has another size.
    Block,
    /// A place has content that hotset did not leave there.
    Content(What, Lba),
    /// A place cannot be read.
    Unreadable(What, Lba),
    /// There is no record.
    NoRecord,
    /// Too few places can be compared: hotset has written to nearly all watched places.
    NothingLeft,
    /// The driver reports no identity, and the comparable content may be on any device.
    Unproved,
}

impl DoubtReason {
    /// The fault of the device at `place`, as a clause.
    pub fn of(self, place: &str) -> String {
        match self {
            DoubtReason::Unproved => format!("nothing proves that {place} is its origin ({self})"),
            _ => format!("{place} was changed elsewhere ({self})"),
        }
    }
}

impl fmt::Display for DoubtReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DoubtReason::Identity => write!(f, "it is another device"),
            DoubtReason::Size { was, is } => {
                let verb = if is < was { "shrank" } else { "grew" };
                write!(f, "it {verb} from {} to {} sectors", was.0, is.0)
            }
            DoubtReason::Block => write!(f, "its logical block is another"),
            DoubtReason::Content(what, at) => write!(f, "{} at {at:?} was changed", what.name()),
            DoubtReason::Unreadable(what, at) => {
                write!(f, "{} at {at:?} cannot be read", what.name())
            }
            DoubtReason::NoRecord => write!(f, "nothing is remembered of it"),
            DoubtReason::NothingLeft => write!(f, "too little of it could be compared"),
            DoubtReason::Unproved => write!(
                f,
                "it has no serial number, and too little data to be recognised by"
            ),
        }
    }
}

/// Compares an origin with its record; `now` is a survey of that record's places.
pub fn judge(record: &OriginRecord, now: &Survey) -> OriginVerdict {
    judge_but_for(record, now, |_| false)
}

/// As [`judge`], but the content of `torn` places may be anything. Such content may prove the
/// device, but not refute it.
pub fn judge_but_for(
    record: &OriginRecord,
    now: &Survey,
    torn: impl Fn(Extent) -> bool,
) -> OriginVerdict {
    let known = likeness(record.identity.bytes(), now.identity.bytes());
    if known == Likeness::Other {
        return OriginVerdict::Changed(DoubtReason::Identity);
    }
    if record.sectors != now.sectors {
        return OriginVerdict::Changed(DoubtReason::Size {
            was: record.sectors,
            is: now.sectors,
        });
    }
    if record.block != now.block {
        return OriginVerdict::Changed(DoubtReason::Block);
    }
    let (mut sentinels, mut samples, mut unreadable) = (0, 0, None);
    let mut evidence = Evidence::default();
    for (watched, (extent, hash)) in record.watched.iter().zip(&now.hashes) {
        assert_eq!(watched.extent, *extent, "a survey of another record");
        let place = (watched.what, watched.extent.start);
        let Allowed::These(values) = &watched.allowed else {
            continue;
        };
        match hash {
            None if torn(*extent) => (),
            None => unreadable = unreadable.or(Some(DoubtReason::Unreadable(place.0, place.1))),
            Some(value) if !values.contains(value) && torn(*extent) => (),
            Some(value) if !values.contains(value) => {
                return OriginVerdict::Changed(DoubtReason::Content(place.0, place.1));
            }
            Some(value) => {
                evidence.take(watched.what, *value, *extent);
                match watched.what {
                    What::Sample => samples += 1,
                    _ => sentinels += 1,
                }
            }
        }
    }
    if let Some(reason) = unreadable {
        return OriginVerdict::Unknown(reason);
    }
    // A device with fewer places than this needs all of them.
    let enough = SAMPLES_MIN.min(record.watched.len());
    if known == Likeness::Open && !evidence.proves(enough) {
        return OriginVerdict::Unknown(DoubtReason::Unproved);
    }
    if sentinels == 0 && samples < enough.max(1) {
        return OriginVerdict::Unknown(DoubtReason::NothingLeft);
    }
    OriginVerdict::Same
}

/// Content of places that no other device has by chance.
#[derive(Default)]
struct Evidence {
    contents: HashSet<u64>,
    has_number: bool,
}

impl Evidence {
    /// Counts a place with permitted content.
    fn take(&mut self, what: What, hash: u64, extent: Extent) {
        if !is_plain(hash, extent.len) {
            self.contents.insert(hash);
            self.has_number |= what.has_number();
        }
    }

    fn proves(&self, enough: usize) -> bool {
        self.has_number || self.contents.len() >= enough.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{WatchedPlace, hash};
    use layout::{DeviceIdentity, Fact};

    fn identity(facts: &[(Fact, &str)]) -> DeviceIdentity {
        let facts = facts
            .iter()
            .map(|(fact, value)| (*fact, (*value).to_owned()));
        DeviceIdentity::of(&facts.collect())
    }

    fn bytes(fill: u64) -> Vec<u8> {
        vec![fill as u8; 4096]
    }

    /// A device with `identity` and places of one kind: blocks filled with each of `holds`.
    fn record(identity: &DeviceIdentity, what: What, holds: &[u64]) -> OriginRecord {
        let place = |(at, fill): (usize, &u64)| WatchedPlace {
            what,
            extent: Extent::new(Lba(at as u64 * 8), Sectors(8)),
            allowed: Allowed::These(vec![hash(&bytes(*fill))]),
        };
        OriginRecord {
            identity: identity.clone(),
            sectors: Sectors(1000),
            block: Sectors(1),
            watched: holds.iter().enumerate().map(place).collect(),
        }
    }

    fn survey(record: &OriginRecord, identity: &DeviceIdentity, holds: &[u64]) -> Survey {
        let hashes = record.watched.iter().zip(holds);
        Survey {
            identity: identity.clone(),
            sectors: Sectors(1000),
            block: Sectors(1),
            hashes: hashes
                .map(|(w, fill)| (w.extent, Some(hash(&bytes(*fill)))))
                .collect(),
        }
    }

    const BLANK: [u64; 32] = [0; 32];
    const FULL: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn zeroes_prove_nothing_and_a_serial_number_does() {
        let (path, serial) = (
            identity(&[(Fact::Path, "/dev/sdb")]),
            identity(&[(Fact::Path, "/dev/sdb"), (Fact::Serial, "1")]),
        );
        let verdict = |identity: &DeviceIdentity, what, holds: &[u64]| {
            let record = record(identity, what, holds);
            judge(&record, &survey(&record, identity, holds))
        };
        assert_eq!(verdict(&serial, What::Sample, &BLANK), OriginVerdict::Same);
        for (what, holds, proves) in [
            (What::Sample, &BLANK[..], false),
            // Equal contents count once.
            (What::Sample, &[7; 32], false),
            (What::Sample, &[1, 2, 3, 4, 5, 6, 7, 7], false),
            (What::Sample, &FULL, true),
            (What::Ext4Superblock, &[7], true),
            (What::Ext4Superblock, &[0], false),
            (What::Table, &[7; 2], false),
        ] {
            let expected = match proves {
                true => OriginVerdict::Same,
                false => OriginVerdict::Unknown(DoubtReason::Unproved),
            };
            assert_eq!(verdict(&path, what, holds), expected, "{what:?} {holds:?}");
        }
    }

    #[test]
    fn what_may_be_torn_proves_and_does_not_refute() {
        let path = identity(&[(Fact::Path, "/dev/sdb")]);
        let record = record(&path, What::Sample, &FULL);
        let torn = |extent: Extent| extent.start == Lba(0);
        let verdict = |holds: &[u64]| judge_but_for(&record, &survey(&record, &path, holds), torn);
        assert_eq!(verdict(&FULL), OriginVerdict::Same);
        let mut holds = FULL;
        holds[0] = 99;
        assert_eq!(
            verdict(&holds),
            OriginVerdict::Unknown(DoubtReason::Unproved)
        );
        let refuted = OriginVerdict::Changed(DoubtReason::Content(What::Sample, Lba(0)));
        assert_eq!(judge(&record, &survey(&record, &path, &holds)), refuted);
        holds = FULL;
        holds[1] = 99;
        let refuted = OriginVerdict::Changed(DoubtReason::Content(What::Sample, Lba(8)));
        assert_eq!(verdict(&holds), refuted);
    }
}
