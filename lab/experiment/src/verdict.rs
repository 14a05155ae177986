//! Published figures beside ours, row by row.
//!
//! Invariants: every printed figure has one row. A figure that the experiment does not measure is
//! an error and not a gap, and so is a measured one that was not printed.

use crate::figures::{AcceptedRange, FigureStatus, FigureVerdict, PublishedFigures, TestedDevice};
use crate::spread::{interval_of_mean, mean};
use crate::visitors::VisitCurve;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// Seeds of an experiment, unless others are asked for; fewer judge nothing.
pub const SEEDS: u64 = 5;

/// Measurements of one run, by the names of the figures.
pub type Values = BTreeMap<String, f64>;

/// Result of one seed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SeedOutcome {
    /// Values by the names of the figures.
    pub values: Values,
    /// Curves over time, by name.
    pub curves: Vec<(String, VisitCurve)>,
    /// Charts of the experiment's own: titles and drawings.
    pub charts: Vec<(String, String)>,
    /// Tables beside the figures.
    pub tables: Vec<ResultTable>,
    /// Simulated seconds of the run.
    pub virtual_s: f64,
}

impl SeedOutcome {
    /// Measures `figure`.
    pub fn set(&mut self, figure: impl Into<String>, value: f64) {
        self.values.insert(figure.into(), value);
    }
}

/// A table beside the figures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ResultTable {
    /// Title of the table.
    pub title: String,
    /// Heads of the columns.
    pub head: Vec<String>,
    /// The lines, in cells.
    pub lines: Vec<Vec<String>>,
    /// Unit of the cells, of a table that is drawn too: its columns over its first one.
    #[serde(default)]
    pub drawn: Option<String>,
}

impl ResultTable {
    /// A table with these heads.
    pub fn new(title: impl Into<String>, head: &[&str], lines: Vec<Vec<String>>) -> ResultTable {
        ResultTable {
            title: title.into(),
            head: head.iter().map(ToString::to_string).collect(),
            lines,
            drawn: None,
        }
    }

    /// The same, drawn in `unit` too.
    pub fn drawn_in(self, unit: &str) -> ResultTable {
        let drawn = Some(unit.to_owned());
        ResultTable { drawn, ..self }
    }
}

/// One printed figure beside ours.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FigureRow {
    /// The experiment.
    pub experiment: String,
    /// The figure's name.
    pub figure: String,
    /// The figure's unit.
    pub unit: String,
    /// Published value.
    pub published: f64,
    /// Our mean over the seeds.
    pub ours: f64,
    /// The least of them.
    pub ours_min: f64,
    /// The largest.
    pub ours_max: f64,
    /// Number of seeds.
    pub seeds: usize,
    /// Distance of ours from the published value, in percent.
    pub error_percent: f64,
    /// Worth of the comparison.
    pub status: FigureStatus,
    /// The device under test, of a blind measurement.
    pub device: Option<TestedDevice>,
    /// The measurement that the figure follows from; such a row is not counted.
    pub derived_from: Option<String>,
    /// The accepted values; `None` for an unidentifiable figure.
    pub accepted: Option<AcceptedRange>,
    /// Interval of our mean at 95 %, over the seeds; `None` for one seed.
    pub interval: Option<[f64; 2]>,
    /// Verdict on the interval; `None` for an unidentifiable figure, the quick form, and fewer than
    /// [`SEEDS`].
    pub verdict: Option<FigureVerdict>,
    /// The same with the device under test at other costs, if tried.
    pub sensitivity: Option<CostSensitivity>,
    /// Remarks.
    pub note: String,
    /// The commit with the engine's defaults before the run, of a blind row.
    pub engine: Option<String>,
    /// Simulated seconds of the whole experiment, all seeds.
    pub virtual_seconds: f64,
    /// Wall-clock seconds of the whole experiment on this machine.
    pub wall_seconds: f64,
}

/// A figure with the device under test at other costs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostSensitivity {
    /// The device at no cost.
    pub free: CostedFigure,
    /// The device at twice its cost.
    pub twice: CostedFigure,
}

/// A figure at another cost of the device under test.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostedFigure {
    /// Our mean over the seeds; none of no number.
    pub ours: Option<f64>,
    /// Verdict on the interval over the seeds.
    pub verdict: Option<FigureVerdict>,
}

impl FigureRow {
    /// The figure in other runs, of a device at another cost.
    pub fn costed(&self, runs: &[SeedOutcome]) -> CostedFigure {
        let values = runs.iter().filter_map(|run| run.values.get(&self.figure));
        let values: Vec<f64> = values.copied().collect();
        let ours = mean(&values);
        let judged = self.accepted.zip(interval_of_mean(&values));
        CostedFigure {
            ours: Some(ours).filter(|ours| ours.is_finite()),
            verdict: judged.map(|(accepted, interval)| accepted.judge(interval)),
        }
    }

    /// Returns true if another device would be met as well: of a value at either cost, of a bound,
    /// on whose side one cost always is, at both.
    pub fn is_insensitive(&self) -> bool {
        let Some(CostSensitivity { free, twice }) = self.sensitivity else {
            return false;
        };
        let [free, twice] = [free, twice].map(|at| at.verdict == Some(FigureVerdict::Met));
        let ends = self
            .accepted
            .map(|accepted| (accepted.least, accepted.most));
        match ends {
            Some((Some(_), Some(_))) => free || twice,
            _ => free && twice,
        }
    }
}

/// Measurements by their verdicts, and the rows that do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VerdictCounts {
    /// Measurements as printed.
    pub met: usize,
    /// Measurements that are not as printed.
    pub missed: usize,
    /// Measurements of which the seeds do not say.
    pub inconclusive: usize,
    /// Measurements of the quick form, or of too few seeds.
    pub not_judged: usize,
    /// Measurements of which no model could say.
    pub not_identifiable: usize,
    /// Measurements that another device would meet as well.
    pub insensitive: usize,
    /// Rows that follow from a measurement.
    pub derived: usize,
}

impl VerdictCounts {
    /// Counts the rows.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a FigureRow>) -> VerdictCounts {
        let mut counts = VerdictCounts::default();
        for row in rows {
            let count = match row.verdict {
                _ if row.derived_from.is_some() => &mut counts.derived,
                _ if row.is_insensitive() => &mut counts.insensitive,
                Some(FigureVerdict::Met) => &mut counts.met,
                Some(FigureVerdict::Missed) => &mut counts.missed,
                Some(FigureVerdict::Inconclusive) => &mut counts.inconclusive,
                None if row.accepted.is_some() => &mut counts.not_judged,
                None => &mut counts.not_identifiable,
            };
            *count += 1;
        }
        counts
    }

    /// Measurements with a verdict.
    pub fn judged(&self) -> usize {
        self.met + self.missed + self.inconclusive
    }
}

impl Display for VerdictCounts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (met, judged) = (self.met, self.judged());
        write!(
            f,
            "{met} of {judged} measurements met, {} missed, {} inconclusive; not counted: \
             {} insensitive, {} not judged, {} not identifiable, {} rows derived from a measurement",
            self.missed,
            self.inconclusive,
            self.insensitive,
            self.not_judged,
            self.not_identifiable,
            self.derived
        )
    }
}

/// The rows of an experiment; `runs` has one outcome a seed. The quick form judges nothing.
pub fn rows(
    experiment: &str,
    figures: &PublishedFigures,
    runs: &[SeedOutcome],
    quick: bool,
    wall_seconds: f64,
) -> Result<Vec<FigureRow>, String> {
    let known = |name: &String| figures.printed.iter().any(|p| p.figure == *name);
    let extra = runs
        .iter()
        .flat_map(|run| run.values.keys())
        .find(|n| !known(n));
    if let Some(name) = extra {
        return Err(format!(
            "{experiment} measures {name}, which was not published; take it out, or add it to the figures"
        ));
    }
    let virtual_seconds = runs.iter().map(|run| run.virtual_s).sum();
    let row = |printed: &crate::figures::Printed| {
        let values = runs.iter();
        let values = values.map(|run| run.values.get(&printed.figure).copied());
        let values: Option<Vec<f64>> = values.collect();
        let values = values.filter(|values| !values.is_empty()).ok_or_else(|| {
            let name = &printed.figure;
            format!("{experiment} does not measure {name}, which was published; add it to the experiment")
        })?;
        if values.iter().any(|value| !value.is_finite()) {
            let name = &printed.figure;
            return Err(format!(
                "{experiment} measured nothing for {name}; run more of it"
            ));
        }
        let ours = mean(&values);
        let error_percent = printed.error_percent(ours);
        let (accepted, interval) = (printed.accepted(), interval_of_mean(&values));
        let is_judged = !quick && values.len() as u64 >= SEEDS;
        let judged = accepted.zip(interval).filter(|_| is_judged);
        Ok(FigureRow {
            experiment: experiment.to_owned(),
            figure: printed.figure.clone(),
            unit: printed.unit.clone(),
            published: printed.value,
            ours,
            ours_min: values.iter().copied().fold(f64::INFINITY, f64::min),
            ours_max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            seeds: values.len(),
            error_percent,
            status: printed.status,
            device: printed.device,
            derived_from: printed.derived_from.clone(),
            accepted,
            interval,
            verdict: judged.map(|(accepted, interval)| accepted.judge(interval)),
            sensitivity: None,
            note: printed.note.clone(),
            engine: (printed.status == FigureStatus::Blind).then(|| figures.engine.clone()),
            virtual_seconds,
            wall_seconds,
        })
    };
    figures.printed.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> PublishedFigures {
        let text = r#"
            source = "a paper"
            engine = "0123abc"
            assumed = []
            contradictions = []
            [[printed]]
            figure = "rate"
            unit = "1/s"
            value = 100.0
            status = "blind"
            device = "disk"
            [[printed]]
            figure = "spread"
            unit = "ms"
            value = 3.0
            status = "not identifiable"
        "#;
        PublishedFigures::parse(text).unwrap()
    }

    fn run(rate: f64) -> SeedOutcome {
        let mut outcome = SeedOutcome::default();
        outcome.set("rate", rate);
        outcome.set("spread", 1.0);
        outcome.virtual_s = 3.0;
        outcome
    }

    /// The verdict on the rate of seeds, and the rows.
    fn judged(rates: &[f64], quick: bool) -> (Option<FigureVerdict>, Vec<FigureRow>) {
        let runs: Vec<_> = rates.iter().map(|rate| run(*rate)).collect();
        let rows = rows("x", &figures(), &runs, quick, 0.5).unwrap();
        (rows[0].verdict, rows)
    }

    #[test]
    fn a_row_has_the_spread_of_the_seeds_and_the_verdict_on_their_interval() {
        let (verdict, rows) = judged(&[104.0, 110.0, 107.0, 106.0, 108.0], false);
        let rate = &rows[0];
        assert_eq!(
            (rate.ours, rate.ours_min, rate.ours_max),
            (107.0, 104.0, 110.0)
        );
        assert_eq!((rate.seeds, verdict), (5, Some(FigureVerdict::Met)));
        assert_eq!(rows[1].verdict, None);
        assert_eq!((rate.virtual_seconds, rate.wall_seconds), (15.0, 0.5));
        assert_eq!(rate.engine.as_deref(), Some("0123abc"));
        assert_eq!(rows[1].engine, None);
        assert_eq!(judged(&[118.0; 5], false).0, Some(FigureVerdict::Missed));
    }

    #[test]
    fn what_seeds_do_not_agree_on_is_inconclusive_and_few_or_quick_ones_judge_nothing() {
        let apart = [80.0, 110.0, 90.0, 120.0, 100.0];
        let verdict = judged(&apart, false).0;
        assert_eq!(verdict, Some(FigureVerdict::Inconclusive));
        assert_eq!(judged(&[100.0; 4], false).0, None);
        assert_eq!(judged(&[100.0; 5], true).0, None);
    }

    /// A row is met at 85 to 115. A row that is met at no cost too is blind to the device.
    #[test]
    fn a_row_that_another_device_would_meet_as_well_is_insensitive_and_not_counted() {
        let rows = judged(&[100.0; 5], false).1;
        let at = |free: f64, twice: f64, most: Option<f64>| {
            let mut row = rows[0].clone();
            row.accepted = row
                .accepted
                .map(|accepted| AcceptedRange { most, ..accepted });
            let costed = |rate: f64| row.costed(&vec![run(rate); 5]);
            row.sensitivity = Some(CostSensitivity {
                free: costed(free),
                twice: costed(twice),
            });
            VerdictCounts::of([&row])
        };
        let most = rows[0].accepted.unwrap().most;
        assert_eq!(at(130.0, 60.0, most).met, 1);
        assert_eq!(at(110.0, 60.0, most).insensitive, 1);
        assert_eq!(at(130.0, 90.0, most).insensitive, 1);
        assert_eq!(at(f64::INFINITY, 60.0, most).met, 1);
        // At least 85: no cost always is.
        assert_eq!(at(130.0, 60.0, None).met, 1);
        assert_eq!(at(130.0, 90.0, None).insensitive, 1);
    }

    #[test]
    fn measurements_are_counted_and_rows_derived_from_one_are_not() {
        let mut rows = judged(&[100.0; 5], false).1;
        rows.push(FigureRow {
            derived_from: Some("rate".into()),
            ..rows[0].clone()
        });
        let counts = VerdictCounts::of(&rows);
        let wanted = VerdictCounts {
            met: 1,
            not_identifiable: 1,
            derived: 1,
            ..VerdictCounts::default()
        };
        assert_eq!(counts, wanted);
        assert!(counts.to_string().starts_with("1 of 1 measurements met"));
        let quick = judged(&[100.0; 5], true).1;
        assert_eq!(VerdictCounts::of(&quick).not_judged, 1);
    }

    #[test]
    fn a_figure_without_a_measurement_and_the_other_way_round_are_errors() {
        let mut less = run(1.0);
        less.values.remove("spread");
        let error = rows("x", &figures(), &[run(1.0), less], false, 0.5).unwrap_err();
        assert!(error.contains("spread"), "{error}");
        let mut more = run(1.0);
        more.set("made-up", 1.0);
        let error = rows("x", &figures(), &[more], false, 0.5).unwrap_err();
        assert!(error.contains("made-up"), "{error}");
        assert!(rows("x", &figures(), &[], false, 0.5).is_err());
    }
}
