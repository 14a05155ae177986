//! What a case met, and what many met together.

use super::replay;
use crate::classes::classes;
use crate::violation::Violation;
use serde::Serialize;
use std::collections::BTreeMap;

classes! {
    Kill, "a server was killed, and another one began";
    Stop, "a server stopped in order, and another one began";
    Held, "requests that a server had in hand were given to the next";
    Failed, "a request failed, for the disk did";
    Full, "all tags held a request";
}

/// What a case met.
#[derive(Clone, Debug)]
pub struct Report {
    /// Requests answered.
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
    /// Requests answered in all of them.
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
