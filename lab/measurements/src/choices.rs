//! Results of choices of today in an experiment: each against the default, and the advice of the
//! first minutes against the measurements.
//!
//! Invariant: a choice is called faster or slower only if the 95 % interval of its ratio to
//! the default, seed by seed, does not span 1.

use crate::about::RunAbout;
use crate::report::short;
use advise::sizing::volume::{advice, estimate};
use advise::sizing::{EXAMPLE_PRICES, PriceBook};
use experiment::choices::{ALL, AUTO, Came, Choice, MiddleEvent};
use experiment::spread::{interval, spans_one};
use serde::{Deserialize, Serialize};

/// The format that is written.
const FORMAT: u32 = 1;
/// Percent by which the default may be slower than the best fixed choice.
const BEHIND_PERCENT_MAX: f64 = 5.0;

/// One choice beside the default.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChoiceRow {
    /// Name of the choice.
    pub choice: String,
    /// Work a second, the mean over the seeds.
    pub rate: f64,
    /// The least of them.
    pub rate_min: f64,
    /// The largest.
    pub rate_max: f64,
    /// Rate as a multiple of the default's, seed by seed.
    pub ratio: f64,
    /// Interval of that ratio at 95 %; none with one seed.
    pub interval: Option<[f64; 2]>,
    /// `faster`, `slower`, `inconclusive`, or `one seed`.
    pub says: String,
    /// The mean response.
    pub response_ms: f64,
    /// Share of the looked up blocks that were found.
    pub hit_percent: f64,
}

/// A size of the pool, and its hits as advised and as measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Advised {
    /// Size in percent of the default's.
    pub flash_percent: u64,
    /// Hits as advised after the first minutes; none if too little was known.
    pub predicted_percent: Option<f64>,
    /// Hits as measured later.
    pub measured_percent: f64,
}

/// Results of all choices.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tried {
    format: u32,
    /// The experiment.
    pub experiment: String,
    /// True for the quick form.
    pub quick: bool,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// The default's flash, in percent of the experiment's.
    #[serde(default = "whole")]
    pub flash_percent: u64,
    /// The command that runs the experiment again.
    pub command: String,
    /// Commit of the program that ran.
    pub commit: String,
    /// Simulated seconds, all choices and seeds.
    pub virtual_seconds: f64,
    /// Wall-clock seconds of all runs.
    pub wall_seconds: f64,
    /// Rows by choice, the default first.
    pub rows: Vec<ChoiceRow>,
    /// Sizes of the pool.
    pub advised: Vec<Advised>,
    /// Warnings of that advice, with the first seed.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The fastest fixed policy or admission.
    pub best: String,
    /// Percent by which the default is slower than `best`; below zero if faster.
    pub behind_percent: f64,
    /// True if `behind_percent` is within the limit.
    pub met: bool,
}

/// All of an experiment's flash.
const fn whole() -> u64 {
    100
}

impl Tried {
    /// Builds the report from the results of [`ALL`], seed by seed, on so many percent of the
    /// flash.
    pub fn new(about: RunAbout, flash_percent: u64, came: &[Vec<Came>]) -> Tried {
        let rows = rows(&ALL, came);
        let fixed = ALL
            .iter()
            .zip(&rows)
            .filter(|(choice, _)| choice.is_fixed());
        let best = fixed.map(|(_, row)| row);
        let best = best.max_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let best = best.expect("there are fixed choices").clone();
        let behind_percent = (1.0 - 1.0 / best.ratio) * 100.0;
        Tried {
            format: FORMAT,
            experiment: about.experiment,
            quick: about.quick,
            seed: about.seed,
            seeds: came[0].len() as u64,
            flash_percent,
            command: about.command,
            commit: about.commit,
            virtual_seconds: came.iter().flatten().map(|came| came.virtual_s).sum(),
            wall_seconds: about.wall_seconds,
            rows,
            advised: advised(came),
            warnings: warnings(&came[0][0]),
            best: best.choice,
            behind_percent,
            met: behind_percent <= BEHIND_PERCENT_MAX,
        }
    }

    /// Reads a report; the error names the problem.
    pub fn parse(text: &str) -> Result<Tried, String> {
        let tried: Tried = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match tried.format {
            FORMAT => Ok(tried),
            other => Err(format!(
                "its format {other} is not {FORMAT}, which is read here"
            )),
        }
    }
}

/// The rows of `choices`, from their results seed by seed, the default first.
pub fn rows(choices: &[Choice], came: &[Vec<Came>]) -> Vec<ChoiceRow> {
    let default = &came[0];
    let row = |(choice, came): (&Choice, &Vec<Came>)| {
        let rates = || came.iter().map(|came| came.rate);
        let pairs = came.iter().zip(default);
        let ratios: Vec<f64> = pairs.map(|(came, auto)| came.rate / auto.rate).collect();
        let interval = interval(&ratios).filter(|_| *choice != AUTO);
        let ratio = mean(ratios.iter().copied());
        let says = match interval {
            _ if *choice == AUTO => "the default",
            None => "one seed",
            Some(interval) if spans_one(interval) => "inconclusive",
            Some([from, _]) if from > 1.0 => "faster",
            Some(_) => "slower",
        };
        ChoiceRow {
            choice: choice.name.into(),
            rate: mean(rates()),
            rate_min: rates().fold(f64::INFINITY, f64::min),
            rate_max: rates().fold(0.0, f64::max),
            ratio,
            interval,
            says: says.into(),
            response_ms: mean(came.iter().map(|came| came.response_ms)),
            hit_percent: 100.0 * mean(came.iter().map(|came| came.hit_ratio)),
        }
    };
    choices.iter().zip(came).map(row).collect()
}

fn advised(came: &[Vec<Came>]) -> Vec<Advised> {
    let sizes = ALL.iter().zip(came).filter(|(choice, _)| {
        let other = Choice {
            flash_percent: 100,
            name: AUTO.name,
            ..**choice
        };
        choice.event == MiddleEvent::None && other == AUTO
    });
    let row = |(choice, measured): (&Choice, &Vec<Came>)| {
        let predicted = came[0].iter().map(|auto| {
            let bytes = auto.observed.pool_bytes * choice.flash_percent / 100;
            estimate(&auto.observed, bytes).map(|estimate| 100.0 * estimate.hit_ratio)
        });
        let predicted: Option<Vec<f64>> = predicted.collect();
        Advised {
            flash_percent: choice.flash_percent,
            predicted_percent: predicted.map(|all| mean(all.into_iter())),
            measured_percent: 100.0 * mean(measured.iter().map(|came| came.hit_ratio)),
        }
    };
    sizes.map(row).collect()
}

/// Warnings of the advice after the first minutes.
fn warnings(default: &Came) -> Vec<String> {
    let prices = PriceBook::parse(EXAMPLE_PRICES).expect("the shipped prices are well formed");
    match advice(&default.observed, prices) {
        Ok(advice) => advice.warnings,
        Err(why) => vec![why],
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    sum / count
}

/// The part of the flash, to follow the name of an experiment; empty for all of the flash.
pub fn on_flash(tried: &Tried) -> String {
    match tried.flash_percent {
        100 => String::new(),
        percent => format!(", on {percent} % of its flash"),
    }
}

/// Heads of the columns of [`cells`].
pub const HEAD: [&str; 8] = [
    "choice", "ratio", "95 %", "", "hits %", "a second", "from", "to",
];

/// A row's cells, as pages and terminals show them.
pub fn cells(row: &ChoiceRow) -> [String; 8] {
    [
        row.choice.clone(),
        format!("{:.3}", row.ratio),
        row.interval
            .map_or("-".into(), |[from, to]| format!("{from:.3} to {to:.3}")),
        row.says.clone(),
        format!("{:.1}", row.hit_percent),
        short(row.rate),
        short(row.rate_min),
        short(row.rate_max),
    ]
}

/// Heads of the columns of [`advice_cells`].
pub const ADVICE_HEAD: [&str; 3] = ["flash %", "hits % advised", "hits % measured"];

/// A size's cells.
pub fn advice_cells(row: &Advised) -> [String; 3] {
    let predicted = row.predicted_percent;
    [
        row.flash_percent.to_string(),
        predicted.map_or("-".into(), |hits| format!("{hits:.1}")),
        format!("{:.1}", row.measured_percent),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::observed::{Observed, ServiceReport};
    use control::status::Total;
    use policy::profile::Profiler;

    fn came(rate: f64, hit_ratio: f64) -> Came {
        let mut profiler = Profiler::new(4096, 1);
        for access in 0..10_000u64 {
            profiler.tick(block::Nanos::from_secs(access));
            profiler.access(access % 100, 1, policy::PolicyOp::Read);
        }
        Came {
            rate,
            response_ms: 1.0,
            hit_ratio,
            observed: Observed {
                volume: "v".into(),
                pool: "p".into(),
                policy: "auto".into(),
                mode: "write-through".into(),
                volumes_in_pool: 1,
                pool_bytes: 80 * 4096,
                profile: profiler.profile(),
                written: None,
                blocks_hit: 50,
                blocks_missed: 50,
                blocks_streamed: 0,
                promoted_bytes: 0,
                updated_bytes: 0,
                read_total: Total::default(),
                write_total: Total::default(),
                origin: ServiceReport::default(),
                cache: ServiceReport::default(),
            },
            virtual_s: 1.0,
        }
    }

    fn tried(rates: impl Fn(&Choice, u64) -> f64, seeds: u64) -> Tried {
        let of = |choice: &Choice| (0..seeds).map(|n| came(rates(choice, n), 0.5)).collect();
        let came: Vec<Vec<Came>> = ALL.iter().map(of).collect();
        let about = RunAbout {
            experiment: "x".into(),
            quick: false,
            seed: 1,
            command: String::new(),
            commit: String::new(),
            wall_seconds: 1.0,
        };
        Tried::new(about, whole(), &came)
    }

    #[test]
    fn a_choice_is_faster_only_if_its_seeds_say_so() {
        let rates = |choice: &Choice, seed: u64| match choice.name {
            "lru" => 110.0 + seed as f64,
            "auto-endurance" => [80.0, 100.0, 130.0][seed as usize],
            "streams admitted" => 90.0 + seed as f64,
            _ => 100.0 + seed as f64,
        };
        let tried = tried(rates, 3);
        let says = |name: &str| {
            let mut rows = tried.rows.iter();
            rows.find(|row| row.choice == name).unwrap().says.clone()
        };
        let all = ["auto", "lru", "auto-endurance", "streams admitted"].map(says);
        assert_eq!(all, ["the default", "faster", "inconclusive", "slower"]);
        assert_eq!((tried.best.as_str(), tried.met), ("lru", false));
        assert!(
            (tried.behind_percent - 9.0).abs() < 0.2,
            "{}",
            tried.behind_percent
        );
        let text = serde_json::to_string(&tried).unwrap();
        assert_eq!(Tried::parse(&text).unwrap().rows.len(), tried.rows.len());
        let other = text.replace("\"format\":1", "\"format\":9");
        assert!(Tried::parse(&other).unwrap_err().contains("format 9"));
    }

    #[test]
    fn the_advice_of_each_size_stands_beside_what_was_measured() {
        let tried = tried(|_, _| 100.0, 1);
        assert!(tried.met && tried.rows[1].says == "one seed");
        let sizes: Vec<u64> = tried.advised.iter().map(|row| row.flash_percent).collect();
        assert_eq!(sizes, [100, 50, 200]);
        assert_eq!(tried.warnings, Vec::<String>::new());
        // A loop of 100 lines: the pool that holds the loop misses nothing any more.
        let predicted: Vec<f64> = tried
            .advised
            .iter()
            .map(|row| row.predicted_percent.unwrap())
            .collect();
        assert!(predicted[2] > 95.0 && predicted[0] < 60.0, "{predicted:?}");
    }

    #[test]
    fn what_the_advice_warned_of_is_kept() {
        let mut profiler = Profiler::new(4096, 1);
        for line in 0..1000u64 {
            profiler.tick(block::Nanos::from_secs(line));
            profiler.access(line, 1, policy::PolicyOp::Read);
        }
        let mut default = came(100.0, 0.5);
        default.observed.profile = profiler.profile();
        let warned = warnings(&default).join("; ");
        assert!(warned.contains("are the first to their data"), "{warned}");
    }
}
