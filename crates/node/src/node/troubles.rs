//! The list of what is wrong with a node, and since when each trouble has been known.
//!
//! Invariant: a trouble is listed from when it is first looked at until it is no more.
//!
//! Not here: looking for troubles (`look`), what kinds there are, and what each costs
//! (`control::trouble`).

use block::Nanos;
use control::trouble::{Kind, Trouble};
use std::cell::RefCell;
use std::collections::BTreeMap;

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
}
