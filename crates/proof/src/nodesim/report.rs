//! What a case met, and what many met together.

use super::replay;
use crate::classes::classes;
use crate::violation::Violation;
use serde::Serialize;
use std::collections::BTreeMap;

classes! {
    Stop, "a node stopped in order, and another one started";
    Kill, "a node was killed, and another one started";
    Cut, "the power went";
    Mode, "a volume's mode was changed under load";
    Quiesce, "a volume was quiesced and resumed";
    Invalidate, "a volume was invalidated";
    VolumeRemoved, "a volume was removed under load";
    VolumeAdded, "a volume was added again";
    VolumeRefused, "a volume was refused that its origin could not serve";
    PoolDeviceAdded, "a device was added to the pool";
    PoolDeviceRemoved, "a device was removed from the pool";
    PoolDeviceLost, "a pool device was unplugged or went silent";
    PoolDeviceEjected, "a pool device was ejected";
    OriginLost, "the disk of a plain volume was unplugged";
    OriginAnew, "it was back, and its volume added again";
    MemberLost, "a member of an array was unplugged";
    MemberSilent, "a member of an array did not answer for a while";
    MemberBack, "a lost member was back";
    SeveralLost, "more members were away than their array can do without";
    MemberFailed, "a member was taken out by hand";
    MemberAdded, "a member was given by hand";
    Scrub, "an array was scrubbed under load";
    Reassembled, "an array that had lost too much was reassembled";
    Waited, "a volume waited for its origin";
    ArrayInPool, "an array was a pool's device";
    Nested, "an array was made of arrays";
    Slow, "disks answered slowly now and then";
    Refused, "a change was refused";
    RefusedOpen, "a change was refused whose device had been opened for it";
    RefusedArray, "a volume was refused whose array had been assembled for it";
    RefusedInUse, "a device was asked for that is in use";
    Interrupted, "a device was unplugged while it was being put to use";
}

/// What a case met.
#[derive(Clone, Debug)]
pub struct Report {
    /// Requests of clients.
    pub operations: u64,
    /// What was wrong; the first of it.
    pub violation: Option<String>,
    met: [u64; Class::ALL.len()],
}

impl Default for Report {
    fn default() -> Report {
        Report {
            operations: 0,
            violation: None,
            met: [0; Class::ALL.len()],
        }
    }
}

impl Report {
    pub(super) fn meet(&mut self, class: Class) {
        self.met[class as usize] += 1;
    }

    pub(super) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }
}

/// What many cases met.
#[derive(Clone, Debug)]
pub struct Totals {
    cases: u64,
    operations: u64,
    met: [u64; Class::ALL.len()],
    violations: Vec<(u64, String)>,
}

impl Default for Totals {
    fn default() -> Totals {
        Totals {
            cases: 0,
            operations: 0,
            met: [0; Class::ALL.len()],
            violations: Vec::new(),
        }
    }
}

/// The report of a campaign, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Cases.
    pub cases: u64,
    /// Requests of clients in all of them.
    pub operations: u64,
    /// How often each class was met.
    pub met: BTreeMap<String, u64>,
    /// What was wrong.
    pub violations: Vec<Violation>,
    /// Cases a second.
    pub cases_per_second: f64,
}

impl Totals {
    /// Adds the case of `seed`.
    pub fn add(&mut self, seed: u64, report: Report) {
        self.cases += 1;
        self.operations += report.operations;
        for (sum, n) in self.met.iter_mut().zip(report.met) {
            *sum += n;
        }
        self.violations
            .extend(report.violation.map(|what| (seed, what)));
    }

    /// The classes that no case met.
    pub fn missed(&self) -> Vec<Class> {
        let all = Class::ALL.iter().zip(self.met);
        all.filter(|(_, n)| *n == 0)
            .map(|(class, _)| *class)
            .collect()
    }

    /// The report, over cases that took `seconds`.
    pub fn summary(&self, seconds: f64) -> Summary {
        let met = Class::ALL.iter().zip(self.met);
        Summary {
            cases: self.cases,
            operations: self.operations,
            met: met.map(|(class, n)| (format!("{class:?}"), n)).collect(),
            violations: Violation::all(&self.violations, replay),
            cases_per_second: self.cases as f64 / seconds.max(1e-9),
        }
    }
}
