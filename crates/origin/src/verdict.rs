//! Compares what an origin is with what it was.

use crate::formats::What;
use crate::record::{Allowed, Record};
use crate::survey::Survey;
use block::{Lba, Sectors};
use std::fmt;

/// Samples that must be comparable where no sentinel is.
const SAMPLES_MIN: usize = 8;

/// Whether an origin is what it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing shows a change by others.
    Same,
    /// It is another, or others have changed it.
    Changed(Reason),
    /// It cannot be decided.
    Unknown(Reason),
}

/// Why an origin is not taken to be the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Another device answers.
    Identity,
    /// It has shrunk, or grown.
    Size {
        /// What it was.
        was: Sectors,
        /// What it is.
        is: Sectors,
    },
    /// Its logical block is another.
    Block,
    /// A place holds what hotset did not leave there.
    Content(What, Lba),
    /// A place cannot be read.
    Unreadable(What, Lba),
    /// Nothing is remembered of it.
    NoRecord,
    /// Too little is left to compare: hotset wrote everywhere that it watches.
    NothingLeft,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Identity => write!(f, "it is another device"),
            Reason::Size { was, is } => {
                let verb = if is < was { "shrank" } else { "grew" };
                write!(f, "it {verb} from {} to {} sectors", was.0, is.0)
            }
            Reason::Block => write!(f, "its logical block is another"),
            Reason::Content(what, at) => write!(f, "{} at {at:?} was changed", what.name()),
            Reason::Unreadable(what, at) => write!(f, "{} at {at:?} cannot be read", what.name()),
            Reason::NoRecord => write!(f, "nothing is remembered of it"),
            Reason::NothingLeft => write!(f, "too little of it could be compared"),
        }
    }
}

/// Compares an origin with its record; `now` is a survey of that record's places.
pub fn judge(record: &Record, now: &Survey) -> Verdict {
    if record.identity != now.identity {
        return Verdict::Changed(Reason::Identity);
    }
    if record.sectors != now.sectors {
        return Verdict::Changed(Reason::Size {
            was: record.sectors,
            is: now.sectors,
        });
    }
    if record.block != now.block {
        return Verdict::Changed(Reason::Block);
    }
    let (mut sentinels, mut samples, mut unreadable) = (0, 0, None);
    for (watched, (extent, hash)) in record.watched.iter().zip(&now.hashes) {
        assert_eq!(watched.extent, *extent, "a survey of another record");
        let place = (watched.what, watched.extent.start);
        let Allowed::These(values) = &watched.allowed else {
            continue;
        };
        match hash {
            None => unreadable = unreadable.or(Some(Reason::Unreadable(place.0, place.1))),
            Some(value) if !values.contains(value) => {
                return Verdict::Changed(Reason::Content(place.0, place.1));
            }
            Some(_) if watched.what == What::Sample => samples += 1,
            Some(_) => sentinels += 1,
        }
    }
    if let Some(reason) = unreadable {
        return Verdict::Unknown(reason);
    }
    // A device smaller than that many samples has fewer.
    let enough = SAMPLES_MIN.min(record.watched.len());
    if sentinels == 0 && samples < enough.max(1) {
        return Verdict::Unknown(Reason::NothingLeft);
    }
    Verdict::Same
}
