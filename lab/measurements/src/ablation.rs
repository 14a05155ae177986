//! Effect of the parts of an experiment's model: its figures with all of them, and without each.

use crate::about::RunAbout;
use experiment::figures::{FigureVerdict, Printed, PublishedFigures};
use experiment::verdict::SeedOutcome;
use serde::{Deserialize, Serialize};

/// The format that is written.
const FORMAT: u32 = 1;
/// Name of a model without any missing part.
const NOTHING: &str = "nothing";

/// A figure without one part of the model.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Moved {
    /// Our mean over the seeds; none if not measured then.
    pub ours: Option<f64>,
    /// True if our mean is accepted; none of an unidentifiable figure.
    pub met: Option<bool>,
}

/// All figures without one part of the model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AblationRow {
    /// The part.
    pub without: String,
    /// Results by figure, in order.
    pub moved: Vec<Moved>,
}

/// Effect of the parts of an experiment's model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ablated {
    format: u32,
    /// The experiment.
    pub experiment: String,
    /// True for the quick form.
    pub quick: bool,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// The command that runs the experiment again.
    pub command: String,
    /// Commit of the program that ran.
    pub commit: String,
    /// Simulated seconds, all parts and seeds.
    pub virtual_seconds: f64,
    /// Wall-clock seconds of all runs.
    pub wall_seconds: f64,
    /// The figures.
    pub figures: Vec<String>,
    /// Published value of each.
    pub published: Vec<f64>,
    /// Rows, the one without nothing first.
    pub rows: Vec<AblationRow>,
}

impl Ablated {
    /// Builds the report from the outcomes with all of the model, and then without each of `parts`,
    /// seed by seed.
    pub fn new(
        about: RunAbout,
        figures: &PublishedFigures,
        parts: &[&str],
        outcomes: &[Vec<SeedOutcome>],
    ) -> Ablated {
        let names = [NOTHING].into_iter().chain(parts.iter().copied());
        let row = |(without, outcomes): (&str, &Vec<SeedOutcome>)| AblationRow {
            without: without.into(),
            moved: figures
                .printed
                .iter()
                .map(|printed| moved(printed, outcomes))
                .collect(),
        };
        let printed = figures.printed.iter();
        Ablated {
            format: FORMAT,
            experiment: about.experiment,
            quick: about.quick,
            seed: about.seed,
            seeds: outcomes[0].len() as u64,
            command: about.command,
            commit: about.commit,
            virtual_seconds: outcomes.iter().flatten().map(|run| run.virtual_s).sum(),
            wall_seconds: about.wall_seconds,
            figures: printed.clone().map(|p| p.figure.clone()).collect(),
            published: printed.map(|p| p.value).collect(),
            rows: names.zip(outcomes).map(row).collect(),
        }
    }

    /// Reads a report; the error names the problem.
    pub fn parse(text: &str) -> Result<Ablated, String> {
        let ablated: Ablated = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match ablated.format {
            FORMAT => Ok(ablated),
            other => Err(format!(
                "its format {other} is not {FORMAT}, which is read here"
            )),
        }
    }

    /// The places of the figures that the whole model misses.
    pub fn missed(&self) -> Vec<usize> {
        let of = |place: &usize| self.rows[0].moved[*place].met == Some(false);
        (0..self.figures.len()).filter(of).collect()
    }

    /// Heads of the columns of [`Ablated::cells`] of these figures.
    pub fn head(&self, figures: &[usize]) -> Vec<String> {
        let figures = figures.iter().map(|place| self.figures[*place].clone());
        ["without".to_owned()].into_iter().chain(figures).collect()
    }

    /// A line of the published values of these figures, and one for each row, as pages and
    /// terminals show them.
    pub fn cells(&self, figures: &[usize], short: impl Fn(f64) -> String) -> Vec<Vec<String>> {
        let published = figures.iter().map(|place| short(self.published[*place]));
        let printed = ["printed".to_owned()].into_iter().chain(published);
        let cell = |moved: &Moved| match (moved.ours, moved.met) {
            (None, _) => "-".into(),
            (Some(ours), Some(false)) => format!("{} missed", short(ours)),
            (Some(ours), _) => short(ours),
        };
        let line = |row: &AblationRow| {
            let cells = figures.iter().map(|place| cell(&row.moved[*place]));
            [row.without.clone()].into_iter().chain(cells).collect()
        };
        let rows = self.rows.iter().map(line);
        [printed.collect()].into_iter().chain(rows).collect()
    }
}

fn moved(printed: &Printed, outcomes: &[SeedOutcome]) -> Moved {
    let values = outcomes.iter();
    let values = values.map(|run| run.values.get(&printed.figure).copied());
    let sum: Option<f64> = values.sum();
    let ours = sum.map(|sum| sum / outcomes.len() as f64);
    let ours = ours.filter(|ours| ours.is_finite());
    Moved {
        ours,
        met: ours
            .zip(printed.accepted())
            .map(|(ours, accepted)| accepted.judge([ours, ours]) == FigureVerdict::Met),
    }
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
            figure = "wait"
            unit = "ms"
            value = 3.0
            status = "blind"
            device = "disk"
        "#;
        PublishedFigures::parse(text).unwrap()
    }

    fn run(rate: f64, wait: f64) -> SeedOutcome {
        let mut outcome = SeedOutcome::default();
        outcome.set("rate", rate);
        outcome.set("wait", wait);
        outcome
    }

    #[test]
    fn what_is_missed_stands_beside_what_it_is_without_each_part() {
        let about = RunAbout {
            experiment: "x".into(),
            quick: true,
            seed: 1,
            command: String::new(),
            commit: String::new(),
            wall_seconds: 1.0,
        };
        let outcomes = [
            vec![run(70.0, 3.0), run(74.0, 3.1)],
            vec![run(99.0, f64::NAN), run(101.0, 3.0)],
        ];
        let ablated = Ablated::new(about, &figures(), &["the log"], &outcomes);
        assert_eq!(ablated.missed(), [0]);
        let lines = ablated.cells(&[0, 1], |value| format!("{value:.0}"));
        let lines: Vec<String> = lines.iter().map(|line| line.join("|")).collect();
        assert_eq!(
            lines,
            ["printed|100|3", "nothing|72 missed|3", "the log|100|-"]
        );
        let text = serde_json::to_string(&ablated).unwrap();
        assert_eq!(Ablated::parse(&text).unwrap(), ablated);
        let other = text.replace("\"format\":1", "\"format\":9");
        assert!(Ablated::parse(&other).unwrap_err().contains("format 9"));
    }
}
