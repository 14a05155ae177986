//! The common part of campaigns: cases by seed on some threads, their events, and the output.
//!
//! Invariant: the counts of a campaign do not depend on the number of threads.

use crate::classes::Situation;
use crate::violation::CaseViolation;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of cases from which on a campaign is expected to meet every class.
const CASES_FOR_ALL_CLASSES: u64 = 1000;
/// Interval of progress messages.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

/// A campaign to be run.
#[derive(Clone, Copy, Debug)]
pub struct CampaignRequest {
    /// Cases.
    pub cases: u64,
    /// The seed of the first.
    pub seed: u64,
    /// Threads.
    pub threads: u64,
    /// Print JSON.
    pub json: bool,
}

impl CampaignRequest {
    /// The seeds of its cases.
    pub fn seeds(&self) -> Range<u64> {
        self.seed..self.seed + self.cases
    }
}

/// Runs the cases of `seeds` on `threads` threads, and adds up their reports.
pub fn over<T: Default + Send, R>(
    seeds: Range<u64>,
    threads: u64,
    case: impl Fn(u64) -> R + Sync,
    add: impl Fn(&mut T, u64, R) + Sync,
) -> T {
    let cases = seeds.end - seeds.start;
    let next = AtomicU64::new(seeds.start);
    let sum = Mutex::new((T::default(), 0, Instant::now()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let report = case(seed);
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            let (totals, done, reported) = &mut *sum;
            add(totals, seed, report);
            *done += 1;
            if reported.elapsed() >= PROGRESS_EVERY {
                *reported = Instant::now();
                eprintln!("{done} of {cases} cases");
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner).0
}

/// Runs the cases of `seeds` up to the first violation, which is printed. Returns true if there is
/// one. Mutations are tried so.
pub fn is_violated(seeds: Range<u64>, case: impl Fn(u64) -> Option<String>) -> bool {
    for seed in seeds {
        if let Some(what) = case(seed) {
            println!("seed {seed}: {what}");
            return true;
        }
    }
    false
}

/// The result of `case`; a panic is an error.
pub(crate) fn caught<T>(case: impl FnOnce() -> T) -> Result<T, String> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(case));
    caught.map_err(|cause| {
        let text = cause.downcast_ref::<String>().map(String::as_str);
        let text = text.or(cause.downcast_ref::<&str>().copied());
        format!("a panic: {}", text.unwrap_or("without words"))
    })
}

/// The situations of a case.
#[derive(Clone, Debug)]
pub struct CaseReport<C> {
    /// Requests of clients that were answered.
    pub operations: u64,
    /// The first violation.
    pub violation: Option<String>,
    met: BTreeMap<C, u64>,
}

impl<C> Default for CaseReport<C> {
    fn default() -> CaseReport<C> {
        CaseReport {
            operations: 0,
            violation: None,
            met: BTreeMap::new(),
        }
    }
}

impl<C: Situation> CaseReport<C> {
    pub(crate) fn meet(&mut self, class: C) {
        *self.met.entry(class).or_default() += 1;
    }

    pub(crate) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }
}

/// The situations of many cases.
#[derive(Clone, Debug)]
pub struct CampaignTotals<C> {
    cases: u64,
    operations: u64,
    met: BTreeMap<C, u64>,
    violations: Vec<(u64, String)>,
}

impl<C> Default for CampaignTotals<C> {
    fn default() -> CampaignTotals<C> {
        CampaignTotals {
            cases: 0,
            operations: 0,
            met: BTreeMap::new(),
            violations: Vec::new(),
        }
    }
}

/// The report of a campaign, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct CampaignSummary {
    /// Cases.
    pub cases: u64,
    /// Requests of clients that were answered in all of them.
    pub operations: u64,
    /// Count of each class.
    pub met: BTreeMap<String, u64>,
    /// The violations.
    pub violations: Vec<CaseViolation>,
    /// Cases a second, of all threads together.
    pub cases_per_second: f64,
}

impl<C: Situation> CampaignTotals<C> {
    /// Adds the case of `seed`.
    pub fn add(&mut self, seed: u64, report: CaseReport<C>) {
        self.cases += 1;
        self.operations += report.operations;
        for (class, times) in report.met {
            *self.met.entry(class).or_default() += times;
        }
        let violation = report.violation.map(|what| (seed, what));
        self.violations.extend(violation);
    }

    /// The classes that no case met.
    pub fn missed(&self) -> Vec<C> {
        let missed = C::ALL.iter().filter(|class| !self.met.contains_key(class));
        missed.copied().collect()
    }

    /// The report, over cases that took `seconds`; `replay` makes the command that repeats
    /// a seed.
    pub fn summary(&self, seconds: f64, replay: impl Fn(u64) -> String) -> CampaignSummary {
        let times = |class: &C| self.met.get(class).copied().unwrap_or(0);
        let met = C::ALL.iter().map(|c| (format!("{c:?}"), times(c)));
        CampaignSummary {
            cases: self.cases,
            operations: self.operations,
            met: met.collect(),
            violations: CaseViolation::all(&self.violations, replay),
            cases_per_second: self.cases as f64 / seconds.max(1e-9),
        }
    }
}

/// Carries out a request and prints the report. The error describes the failure.
pub fn command<C: Situation>(
    request: &CampaignRequest,
    run: impl Fn(u64) -> CaseReport<C> + Sync,
    replay: impl Fn(u64) -> String,
) -> Result<(), String> {
    let begin = Instant::now();
    let totals: CampaignTotals<C> =
        over(request.seeds(), request.threads, run, CampaignTotals::add);
    let summary = totals.summary(begin.elapsed().as_secs_f64(), replay);
    if request.json {
        let text = serde_json::to_string_pretty(&summary).expect("plain data");
        println!("{text}");
    } else {
        println!(
            "{} cases, {} operations, {:.1} cases/s, {} violations",
            summary.cases,
            summary.operations,
            summary.cases_per_second,
            summary.violations.len()
        );
        for (class, times) in &summary.met {
            println!("{times:>10}  {class}");
        }
        print_violations(&summary.violations);
    }
    verdict(&summary.violations, request.cases, &totals.missed())
}

/// Prints the violations, and the command that repeats each.
pub(crate) fn print_violations(violations: &[CaseViolation]) {
    for violation in violations {
        println!("seed {}: {}", violation.seed, violation.what);
        println!("    replay: {}", violation.replay);
    }
}

/// Returns an error after a violation, or if a long campaign missed a class.
pub(crate) fn verdict<C: std::fmt::Debug>(
    violations: &[CaseViolation],
    cases: u64,
    missed: &[C],
) -> Result<(), String> {
    if !violations.is_empty() {
        Err(format!("{} cases failed", violations.len()))
    } else if cases >= CASES_FOR_ALL_CLASSES && !missed.is_empty() {
        Err(format!("never met: {missed:?}"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_run_once_on_any_number_of_threads() {
        for threads in [1, 3, 8] {
            let add = |seen: &mut Vec<u64>, seed, report| {
                assert_eq!(seed, report);
                seen.push(seed);
            };
            let mut seen: Vec<u64> = over(5..105, threads, |seed| seed, add);
            seen.sort_unstable();
            assert_eq!(seen, Vec::from_iter(5..105));
        }
    }

    #[test]
    fn a_campaign_fails_by_what_was_wrong_and_a_long_one_by_what_it_never_met() {
        let wrong = CaseViolation::all(&[(7, "a stale byte".into())], |seed| seed.to_string());
        assert_eq!(verdict(&wrong, 1, &["Cut"]), Err("1 cases failed".into()));
        assert_eq!(verdict(&[], 999, &["Cut"]), Ok(()));
        let missed = Err("never met: [\"Cut\"]".into());
        assert_eq!(verdict(&[], 1000, &["Cut"]), missed);
        assert_eq!(verdict::<&str>(&[], 1000, &[]), Ok(()));
    }
}
