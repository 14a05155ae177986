//! The common part of campaigns: cases by seed on some threads, their events, and the output.
//!
//! Invariant: the counts of a campaign do not depend on the number of threads.

use crate::arguments::Arguments;
use crate::classes::Situation;
use crate::violation::CaseViolation;
use block::TargetId;
use serde::Serialize;
use sim::SimHost;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval of progress messages.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

/// A campaign: a case for each seed, and the situations that many cases have to meet.
pub trait Campaign: Sync {
    /// A situation that is counted.
    type Class: Situation;

    /// True if the campaign has a case of `seed`.
    fn has(&self, _seed: u64) -> bool {
        true
    }

    /// Runs the case of `seed`, which may panic.
    fn case(&self, seed: u64) -> CaseReport<Self::Class>;

    /// Runs the case of `seed`. A panic is a violation.
    fn run(&self, seed: u64) -> CaseReport<Self::Class> {
        CaseReport::of(|| self.case(seed))
    }

    /// The command that repeats the case of `seed`.
    fn replay(&self, seed: u64) -> String;

    /// The situations that many cases have to meet.
    fn classes(&self) -> Vec<Self::Class>;

    /// Number of cases from which on every situation has to be met.
    fn cases_for_all(&self) -> u64 {
        1000
    }
}

/// The cases of a campaign to be run.
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

/// Runs the cases of `seeds` on `threads` threads.
pub fn totals<C: Campaign>(
    campaign: &C,
    seeds: Range<u64>,
    threads: u64,
) -> CampaignTotals<C::Class> {
    let case = |seed| campaign.has(seed).then(|| campaign.run(seed));
    over(
        seeds,
        threads,
        case,
        |totals: &mut CampaignTotals<_>, seed, report| {
            report
                .into_iter()
                .for_each(|report| totals.add(seed, report));
        },
    )
}

/// Runs the cases of `seeds` for a test.
///
/// # Panics
/// At the first violation, with the command that repeats the case.
pub fn sound<C: Campaign>(
    campaign: &C,
    seeds: impl IntoIterator<Item = u64>,
) -> CampaignTotals<C::Class> {
    let mut totals = CampaignTotals::default();
    for seed in seeds {
        let report = campaign.run(seed);
        let wrong = report.violation.as_deref();
        assert_eq!(wrong, None, "replay: {}", campaign.replay(seed));
        totals.add(seed, report);
    }
    totals
}

/// Runs a campaign as the arguments of its example ask. With `--first` the campaign ends at the
/// first violation; mutations are tried so. The error describes the failure.
pub fn example(campaign: &impl Campaign, asked: &Arguments) -> Result<(), String> {
    let request = CampaignRequest {
        cases: asked.seeds,
        seed: asked.start,
        threads: asked.threads(),
        json: asked.has("json"),
    };
    match asked.has("first") {
        true => first(campaign, request.seeds()),
        false => command(campaign, &request),
    }
}

/// Runs the cases of `seeds` up to the first violation, which is printed.
fn first(campaign: &impl Campaign, seeds: Range<u64>) -> Result<(), String> {
    for seed in seeds.filter(|seed| campaign.has(*seed)) {
        if let Some(what) = campaign.run(seed).violation {
            println!("seed {seed}: {what}");
            return Err(format!("replay: {}", campaign.replay(seed)));
        }
    }
    Ok(())
}

/// The result of `case`; a panic is an error.
fn caught<T>(case: impl FnOnce() -> T) -> Result<T, String> {
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
    figures: BTreeMap<&'static str, u64>,
    met: BTreeMap<C, u64>,
}

impl<C> Default for CaseReport<C> {
    fn default() -> CaseReport<C> {
        CaseReport {
            operations: 0,
            violation: None,
            figures: BTreeMap::new(),
            met: BTreeMap::new(),
        }
    }
}

impl<C: Situation> CaseReport<C> {
    /// The report of `case`. A panic is a violation.
    pub(crate) fn of(case: impl FnOnce() -> CaseReport<C>) -> CaseReport<C> {
        caught(case).unwrap_or_else(|what| CaseReport {
            violation: Some(what),
            ..CaseReport::default()
        })
    }

    pub(crate) fn meet(&mut self, class: C) {
        self.meet_times(class, 1);
    }

    pub(crate) fn meet_times(&mut self, class: C, times: u64) {
        if times > 0 {
            *self.met.entry(class).or_default() += times;
        }
    }

    /// Adds to the figure `name`, which is reported beside the situations.
    pub(crate) fn count(&mut self, name: &'static str, more: u64) {
        *self.figures.entry(name).or_default() += more;
    }

    /// The figure `name`; 0 if nothing was counted.
    pub fn figure(&self, name: &str) -> u64 {
        self.figures.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Writes that overlapped on one of `disks` are a violation.
    pub(crate) fn require_no_overlap<'a>(
        &mut self,
        sim: &SimHost,
        disks: impl IntoIterator<Item = &'a TargetId>,
    ) {
        for disk in disks {
            let overlaps = sim.world().overlaps(*disk);
            if overlaps > 0 {
                self.violate(format!("{overlaps} writes overlapped on target {}", disk.0));
            }
        }
    }
}

/// The situations of many cases.
#[derive(Clone, Debug)]
pub struct CampaignTotals<C> {
    operations: Vec<u64>,
    figures: BTreeMap<&'static str, u64>,
    met: BTreeMap<C, u64>,
    violations: Vec<(u64, String)>,
}

impl<C> Default for CampaignTotals<C> {
    fn default() -> CampaignTotals<C> {
        CampaignTotals {
            operations: Vec::new(),
            figures: BTreeMap::new(),
            met: BTreeMap::new(),
            violations: Vec::new(),
        }
    }
}

/// The report of a campaign, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct CampaignSummary {
    /// Cases.
    pub cases: usize,
    /// Requests of clients that were answered in all of them.
    pub operations: u64,
    /// The median of a case's requests.
    pub operations_median: u64,
    /// Figures of the campaign, of all cases together.
    #[serde(flatten)]
    pub figures: BTreeMap<&'static str, u64>,
    /// Count of each situation.
    pub met: BTreeMap<String, u64>,
    /// The violations.
    pub violations: Vec<CaseViolation>,
    /// Cases a second, of all threads together.
    pub cases_per_second: f64,
}

impl<C: Situation> CampaignTotals<C> {
    /// Adds the case of `seed`.
    pub fn add(&mut self, seed: u64, report: CaseReport<C>) {
        self.operations.push(report.operations);
        for (name, count) in report.figures {
            *self.figures.entry(name).or_default() += count;
        }
        for (class, times) in report.met {
            *self.met.entry(class).or_default() += times;
        }
        let violation = report.violation.map(|what| (seed, what));
        self.violations.extend(violation);
    }

    fn times(&self, class: &C) -> u64 {
        self.met.get(class).copied().unwrap_or(0)
    }

    /// The situations of `campaign` that no case met.
    pub fn missed(&self, campaign: &impl Campaign<Class = C>) -> Vec<C> {
        let mut missed = campaign.classes();
        missed.retain(|class| self.times(class) == 0);
        missed
    }

    /// The report, over cases of `campaign` that took `seconds`.
    fn summary(&self, campaign: &impl Campaign<Class = C>, seconds: f64) -> CampaignSummary {
        let mut operations = self.operations.clone();
        operations.sort_unstable();
        let classes = campaign.classes().into_iter();
        CampaignSummary {
            cases: operations.len(),
            operations: operations.iter().sum(),
            operations_median: operations.get(operations.len() / 2).copied().unwrap_or(0),
            figures: self.figures.clone(),
            met: classes
                .map(|c| (format!("{c:?}"), self.times(&c)))
                .collect(),
            violations: CaseViolation::all(&self.violations, |seed| campaign.replay(seed)),
            cases_per_second: operations.len() as f64 / seconds.max(1e-9),
        }
    }
}

/// Runs the cases of `request` and prints the report. The error describes the failure.
pub fn command<C: Campaign>(campaign: &C, request: &CampaignRequest) -> Result<(), String> {
    let begin = Instant::now();
    let totals = totals(campaign, request.seeds(), request.threads);
    let summary = totals.summary(campaign, begin.elapsed().as_secs_f64());
    if request.json {
        let text = serde_json::to_string_pretty(&summary).expect("plain data");
        println!("{text}");
    } else {
        println!(
            "{} cases, {} operations (median {}), {:.1} cases/s, {} violations",
            summary.cases,
            summary.operations,
            summary.operations_median,
            summary.cases_per_second,
            summary.violations.len()
        );
        for (name, count) in &summary.figures {
            println!("{count:>10}  {name}");
        }
        for class in campaign.classes() {
            println!("{:>10}  {class:?}: {}", totals.times(&class), class.help());
        }
        for violation in &summary.violations {
            println!("seed {}: {}", violation.seed, violation.what);
            println!("    replay: {}", violation.replay);
        }
    }
    let all = request.cases >= campaign.cases_for_all();
    verdict(&summary.violations, all, &totals.missed(campaign))
}

/// Returns an error after a violation, or if a campaign that should meet `all` missed a situation.
fn verdict<C: std::fmt::Debug>(
    violations: &[CaseViolation],
    all: bool,
    missed: &[C],
) -> Result<(), String> {
    if !violations.is_empty() {
        Err(format!("{} cases failed", violations.len()))
    } else if all && !missed.is_empty() {
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
        assert_eq!(
            verdict(&wrong, false, &["Cut"]),
            Err("1 cases failed".into())
        );
        assert_eq!(verdict(&[], false, &["Cut"]), Ok(()));
        let missed = Err("never met: [\"Cut\"]".into());
        assert_eq!(verdict(&[], true, &["Cut"]), missed);
        assert_eq!(verdict::<&str>(&[], true, &[]), Ok(()));
    }
}
