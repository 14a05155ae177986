//! Says when the origin of a volume fails, and when it is well again.
//!
//! An origin fails from its first failed request on. It is well again once a request has
//! succeeded, and for [`WELL`] after that none has failed. So each is said once, however many
//! requests fail.

use block::Nanos;
use control::config::Name;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// How long no request may fail before an origin is well again.
const WELL: Nanos = Nanos::from_secs(10);

/// What the origins of volumes do.
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

/// What is to be said of an origin.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Said {
    Fails(String),
    Well,
}

impl Origin {
    /// What has changed by `now`, when so many requests have succeeded and failed.
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
    /// failed, and the last error. What is to be said of them.
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
