//! The troubles of a node with their beginnings, failing origins, and reported losses.
//!
//! Invariants:
//!     a trouble is listed from the first look that finds it until the first that does not
//!     an origin fails from its first failed request on, or once `UNANSWERED` looks have found
//!     requests in flight and none that ended; it works again after a request has succeeded and
//!     neither was so for `WELL` since
//!         ⟹ each is reported once, however many requests fail
//!
//! Not here: looking for troubles (`look`), the kinds of troubles and their costs
//! (`control::trouble`).

use block::Nanos;
use cache::DeviceId;
use control::config::Name;
use control::trouble::{Trouble, TroubleKind};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

/// Time without a failed request after which an origin works again.
const WELL: Nanos = Nanos::from_secs(10);
/// Looks in a row without an answer after which an origin fails. Looks are a second apart, and a
/// process that is paused does not look.
const UNANSWERED: u32 = 10;

/// The troubles between two looks.
#[derive(Default)]
pub(super) struct Troubles {
    /// Beginning of each trouble, by kind and subject.
    since: RefCell<BTreeMap<(TroubleKind, String), Nanos>>,
    /// Reason why the configuration cannot be read, if it cannot.
    pub(super) unreadable: RefCell<Option<String>>,
}

/// A trouble, before its duration is known.
pub(super) struct FoundTrouble {
    kind: TroubleKind,
    subject: String,
    what: String,
    remedy: String,
}

/// The troubles found so far.
#[derive(Default)]
pub(super) struct TroubleList(pub(super) Vec<FoundTrouble>);

impl TroubleList {
    pub(super) fn add(
        &mut self,
        kind: TroubleKind,
        subject: String,
        what: String,
        remedy: impl Into<String>,
    ) {
        self.0.push(FoundTrouble {
            kind,
            subject,
            what,
            remedy: remedy.into(),
        });
    }
}

impl Troubles {
    /// The troubles `found`, the most urgent first, each with the time since it was first found.
    pub(super) fn known_for(&self, found: Vec<FoundTrouble>, now: Nanos) -> Vec<Trouble> {
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
    /// Volumes with a lost journal.
    pub(super) journals: HashSet<Name>,
    /// Volumes with a lost log.
    pub(super) logs: HashSet<Name>,
}

/// The origins of volumes, failing or well.
#[derive(Default)]
pub(super) struct Failing(RefCell<BTreeMap<Name, OriginTrouble>>);

/// The requests of an origin since it was opened.
#[derive(Clone, Copy, Default)]
pub(super) struct OriginRequests {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) in_flight: u64,
}

impl OriginRequests {
    /// True if requests were in flight at both looks and none ended between.
    fn are_unanswered_since(&self, before: &OriginRequests) -> bool {
        let ended = |requests: &OriginRequests| requests.succeeded + requests.failed;
        self.in_flight > 0 && before.in_flight > 0 && ended(self) == ended(before)
    }
}

#[derive(Default)]
struct OriginTrouble {
    /// Requests as of the last look.
    seen: OriginRequests,
    /// Looks in a row that found requests in flight and none that ended.
    unanswered: u32,
    /// Reason of the failure, if the origin fails.
    why: Option<String>,
    /// Look that found the first success since the last failure.
    well_since: Option<Nanos>,
}

/// A change of an origin to report.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Said {
    Fails(String),
    Well,
}

impl OriginTrouble {
    /// The change by `now`; `why` is the last error.
    fn look(&mut self, now: Nanos, seen: OriginRequests, why: Option<String>) -> Option<Said> {
        let before = std::mem::replace(&mut self.seen, seen);
        self.unanswered = match seen.are_unanswered_since(&before) {
            true => self.unanswered.saturating_add(1),
            false => 0,
        };
        if seen.failed > before.failed {
            return self.fail(why.unwrap_or_default());
        }
        if self.unanswered >= UNANSWERED {
            return self.fail(format!("it has answered no request for {UNANSWERED} s"));
        }
        self.why.as_ref()?;
        if seen.succeeded > before.succeeded {
            self.well_since.get_or_insert(now);
        }
        let well = self
            .well_since
            .is_some_and(|since| now.since(since) >= WELL);
        well.then(|| {
            *self = OriginTrouble {
                seen,
                ..OriginTrouble::default()
            };
            Said::Well
        })
    }

    /// Takes the origin for failing. Returns the change if there is one.
    fn fail(&mut self, why: String) -> Option<Said> {
        self.well_since = None;
        let is_new = self.why.is_none();
        self.why = Some(why.clone());
        is_new.then_some(Said::Fails(why))
    }
}

impl Failing {
    /// Looks at the origins of all volumes: the volume's name, the requests, and the last error.
    /// Returns the changes.
    pub(super) fn look(
        &self,
        now: Nanos,
        origins: Vec<(Name, OriginRequests, Option<String>)>,
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

    /// The reason why the origin of `volume` fails, if it does.
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
        let found = |kind, subject: &str| FoundTrouble {
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
        let worn = || found(TroubleKind::DeviceWorn, "ssd");
        assert_eq!(look(10, vec![worn()]), [("ssd".into(), 0.0)]);
        let both = vec![worn(), found(TroubleKind::OriginFails, "vol")];
        let urgent_first = [("vol".into(), 0.0), ("ssd".into(), 5.0)];
        assert_eq!(look(15, both), urgent_first);
        assert_eq!(look(16, Vec::new()), []);
        assert_eq!(look(20, vec![worn()]), [("ssd".into(), 0.0)]);
    }

    #[test]
    fn a_failure_is_said_once_and_the_end_of_it_once() {
        let mut origin = OriginTrouble::default();
        let mut look = |second, succeeded, failed| {
            let seen = OriginRequests {
                succeeded,
                failed,
                in_flight: 0,
            };
            origin.look(Nanos::from_secs(second), seen, Some("EIO".into()))
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
    #[test]
    fn an_origin_that_answers_nothing_fails_until_it_has_answered_for_a_while() {
        let mut origin = OriginTrouble::default();
        let mut look = |second, succeeded, in_flight| {
            let seen = OriginRequests {
                succeeded,
                failed: 0,
                in_flight,
            };
            origin.look(Nanos::from_secs(second), seen, None)
        };
        for second in 0..30 {
            assert_eq!(look(second, 7, 0), None, "nothing is asked of it");
        }
        for second in 30..60 {
            assert_eq!(look(second, second, 4), None, "one of many has ended");
        }
        for second in 60..69 {
            assert_eq!(look(second, 59, 4), None);
        }
        let why = "it has answered no request for 10 s".to_owned();
        assert_eq!(look(69, 59, 4), Some(Said::Fails(why)));
        for second in 70..200 {
            assert_eq!(look(second, 59, 4), None, "said already");
        }
        assert_eq!(look(200, 60, 4), None);
        assert_eq!(look(209, 60, 4), None);
        assert_eq!(look(210, 70, 0), Some(Said::Well));
    }
}
