//! The troubles of a node and since when there is each, origins that fail, and reported losses.
//!
//! Invariants:
//!     a trouble is listed from when it is first looked at until it is no more
//!     an origin fails from its first failed request on; it is well again once a request has
//!     succeeded, and for `WELL` after that none has failed
//!         ⟹ each is said once, however many requests fail
//!
//! Not here: looking for troubles (`look`), what kinds there are, and what each costs
//! (`control::trouble`).

use block::Nanos;
use cache::DeviceId;
use control::config::Name;
use control::trouble::{Kind, Trouble};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

/// How long no request may fail before an origin is well again.
const WELL: Nanos = Nanos::from_secs(10);

/// What is known of troubles between two looks.
#[derive(Default)]
pub(super) struct Troubles {
    /// Since when there is one of a kind with a subject.
    since: RefCell<BTreeMap<(Kind, String), Nanos>>,
    /// Why the configuration does not read any more.
    pub(super) unreadable: RefCell<Option<String>>,
}

/// A trouble, before it is known for how long.
pub(super) struct Found {
    kind: Kind,
    subject: String,
    what: String,
    remedy: String,
}

/// The troubles that were found so far.
#[derive(Default)]
pub(super) struct List(pub(super) Vec<Found>);

impl List {
    pub(super) fn add(
        &mut self,
        kind: Kind,
        subject: String,
        what: String,
        remedy: impl Into<String>,
    ) {
        self.0.push(Found {
            kind,
            subject,
            what,
            remedy: remedy.into(),
        });
    }
}

impl Troubles {
    /// What was found, the most urgent first, with the time since it was found first.
    pub(super) fn known_for(&self, found: Vec<Found>, now: Nanos) -> Vec<Trouble> {
        let before = self.since.take();
        let mut since = self.since.borrow_mut();
        let mut troubles: Vec<Trouble> = Vec::new();
        for one in found {
            let key = (one.kind, one.subject.clone());
            let first = before.get(&key).copied().unwrap_or(now);
            since.insert(key, first);
            troubles.push(Trouble {
                kind: one.kind,
                severity: one.kind.severity(),
                subject: one.subject,
                what: one.what,
                for_s: now.since(first).as_secs_f64(),
                cost: one.kind.cost().to_owned(),
                remedy: one.remedy,
            });
        }
        troubles.sort_by(|a, b| {
            (a.severity, a.kind, &a.subject).cmp(&(b.severity, b.kind, &b.subject))
        });
        troubles
    }
}

/// Losses that were reported.
#[derive(Default)]
pub(super) struct Losses {
    /// Devices of pools.
    pub(super) ejected: HashSet<(Name, DeviceId)>,
    /// Copies of the logs of volumes.
    pub(super) copies: HashSet<(Name, Name)>,
    /// Volumes whose journals are lost.
    pub(super) journals: HashSet<Name>,
    /// Volumes whose logs are.
    pub(super) logs: HashSet<Name>,
}

/// The origins of volumes, failing or well.
#[derive(Default)]
pub(super) struct Failing(RefCell<BTreeMap<Name, Origin>>);

#[derive(Default)]
struct Origin {
    /// Requests that had succeeded, and that had failed, when it was last looked.
    seen: (u64, u64),
    /// Why it fails, if it does.
    why: Option<String>,
    /// Since when requests succeed and none fails.
    well_since: Option<Nanos>,
}

/// A change of an origin that is to be reported.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Said {
    Fails(String),
    Well,
}

impl Origin {
    /// The change by `now`, when so many requests have succeeded and failed.
    fn look(&mut self, now: Nanos, seen: (u64, u64), why: Option<String>) -> Option<Said> {
        let before = std::mem::replace(&mut self.seen, seen);
        if seen.1 > before.1 {
            self.well_since = None;
            let why = why.unwrap_or_default();
            let first = self.why.is_none();
            self.why = Some(why.clone());
            return first.then_some(Said::Fails(why));
        }
        self.why.as_ref()?;
        if seen.0 > before.0 {
            self.well_since.get_or_insert(now);
        }
        let well = self
            .well_since
            .is_some_and(|since| now.since(since) >= WELL);
        well.then(|| {
            *self = Origin {
                seen,
                ..Origin::default()
            };
            Said::Well
        })
    }
}

impl Failing {
    /// Looks at the origins of all volumes: by their names, how many requests have succeeded and
    /// failed, and the last error. Returns their changes.
    pub(super) fn look(
        &self,
        now: Nanos,
        origins: Vec<(Name, (u64, u64), Option<String>)>,
    ) -> Vec<(Name, Said)> {
        let mut known = self.0.take();
        let mut said = Vec::new();
        for (volume, seen, why) in origins {
            let mut origin = known.remove(&volume).unwrap_or_default();
            let what = origin.look(now, seen, why);
            said.extend(what.map(|what| (volume.clone(), what)));
            self.0.borrow_mut().insert(volume, origin);
        }
        said
    }

    /// Why the origin of `volume` fails, if it does.
    pub(super) fn of(&self, volume: &Name) -> Option<String> {
        self.0.borrow().get(volume)?.why.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_known_since_it_was_found_first_and_again_after_it_was_not() {
        let troubles = Troubles::default();
        let found = |kind, subject: &str| Found {
            kind,
            subject: subject.into(),
            what: "is wrong".into(),
            remedy: "mend it".into(),
        };
        let look = |second, found| {
            let known = troubles.known_for(found, Nanos::from_secs(second));
            let known = known.into_iter();
            known.map(|t| (t.subject, t.for_s)).collect::<Vec<_>>()
        };
        let worn = || found(Kind::DeviceWorn, "ssd");
        assert_eq!(look(10, vec![worn()]), [("ssd".into(), 0.0)]);
        let both = vec![worn(), found(Kind::OriginFails, "vol")];
        let urgent_first = [("vol".into(), 0.0), ("ssd".into(), 5.0)];
        assert_eq!(look(15, both), urgent_first);
        assert_eq!(look(16, Vec::new()), []);
        assert_eq!(look(20, vec![worn()]), [("ssd".into(), 0.0)]);
    }

    #[test]
    fn a_failure_is_said_once_and_the_end_of_it_once() {
        let mut origin = Origin::default();
        let mut look = |second, succeeded, failed| {
            let now = Nanos::from_secs(second);
            origin.look(now, (succeeded, failed), Some("EIO".into()))
        };
        assert_eq!(look(1, 10, 0), None);
        assert_eq!(look(2, 10, 3), Some(Said::Fails("EIO".into())));
        for second in 3..20 {
            assert_eq!(look(second, 10, second * 100), None, "said already");
        }
        assert_eq!(look(100, 10, 1900), None, "no request has succeeded");
        assert_eq!(look(101, 11, 1900), None);
        assert_eq!(look(105, 20, 1901), None, "one has failed again");
        assert_eq!(look(106, 30, 1901), None);
        assert_eq!(look(115, 30, 1901), None);
        assert_eq!(look(116, 30, 1901), Some(Said::Well));
        assert_eq!(look(117, 30, 1902), Some(Said::Fails("EIO".into())));
    }
}
