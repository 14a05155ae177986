//! A mail store on two mirrored controllers: its results at the published number of threads, and
//! the most threads that it answers in time.
//!
//! Mailboxes, databases and pages are as published. The tool adds threads until the mean
//! read of a database, of any of them, or the mean write of the logs takes too long.
//!
//! Not here: processor time, and the hour-long tests; rates are those of minutes.

use crate::choices::choose;
use crate::controllers::{self, ControllerLoad, TOPOLOGY};
use crate::entry::{Experiment, LoadUses};
use crate::figures::PublishedFigures;
use crate::mail::{self, MailServed, MailShape, of_all};
use crate::measured::{LoadMeasured, Times};
use crate::parameters::{COSTS, ModelParameter, ModelPart, micros, millis, set};
use crate::queries::QueryReads;
use crate::record::record;
use crate::rig::Volume;
use crate::verdict::{ResultTable, SeedOutcome};
use block::{Env, IoResult, Nanos};

/// The experiment's name in the registry.
pub const NAME: &str = "perc-mail";
const FIGURES: &str = include_str!("../figures/perc-mail.toml");
/// One line of the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    title: "a mail store of 500 mailboxes on two mirrored controllers of seven drives, and the most that it answers in time",
    needs: "300 MB; half a minute a seed",
    times: 1.0,
    topology: TOPOLOGY,
    figures,
    check: |settings| set(Scale::of(SHAPE, true), &PARAMETERS, settings).map(drop),
    run: |seed, quick, settings, done| {
        run(
            seed,
            set(Scale::of(SHAPE, quick), &PARAMETERS, settings)?,
            done,
        )
    },
    parts: &PARTS,
    load: Some(LoadUses {
        choose: |seed, quick, flash, choice| {
            choose(
                Scale::of(PART_SHAPE, quick).cached(PART),
                seed,
                flash,
                choice,
            )
        },
        record: |seed, quick, sink| record(Scale::of(SHAPE, quick), seed, sink),
    }),
};
/// The parameters that can be set.
const PARAMETERS: [ModelParameter<Scale>; 9] = [
    ("threads", 1.0..=16.0, |scale, value| {
        scale.shape.threads = value as u32;
    }),
    ("pause_us", 0.0..=1e7, |scale, value| {
        scale.shape.pause = micros(value)
    }),
    ("path_us", 0.0..=1e6, |scale, value| {
        scale.shape.path = micros(value)
    }),
    ("changed", 0.0..=1.0, |scale, value| {
        scale.shape.changed = value
    }),
    ("committed", 0.0..=1.0, |scale, value| {
        scale.shape.committed = value
    }),
    ("scan", 1.0..=1e9, |scale, value| {
        scale.shape.scan_bytes_per_second = value as u64;
    }),
    ("apart_gib", 67.0..=390.0, |scale, value| {
        scale.shape.apart_bytes = (value as u64) << 30;
    }),
    ("span_s", 5.0..=1e4, |scale, value| {
        scale.times.span = millis(value * 1e3);
    }),
    ("disk_cost", COSTS, |scale, value| scale.disk_cost = value),
];
/// The parts of the model that can be left out; without the scan it reads once in the whole run.
const PARTS: [ModelPart; 6] = [
    ("the scan in the background", &[("scan", 1.0)]),
    ("changes of pages", &[("changed", 0.0)]),
    ("waits for the log", &[("committed", 0.0)]),
    ("space between the databases", &[("apart_gib", 67.0)]),
    ("the pause of a thread", &[("pause_us", 0.0)]),
    (
        "the host's and the guest's time for a request",
        &[("path_us", 0.0)],
    ),
];
/// Threads of a database, as published.
pub const THREADS: u32 = 7;
/// The most that are tried.
const THREADS_MAX: u32 = 16;
/// The most that the mean read of a database takes in a test that passes.
pub const READ_MS_MAX: f64 = 20.0;
/// The most that the mean write of the logs takes.
pub const COMMIT_MS_MAX: f64 = 10.0;

/// Workload of a run, and its times.
pub type Scale = controllers::ControllersScale<MailShape>;

impl ControllerLoad for MailShape {
    type Point = MailServed;

    async fn ask(
        self,
        env: &Env,
        ways: u64,
        volume: Volume,
        times: Times,
    ) -> IoResult<LoadMeasured<MailServed>> {
        mail::run(env, ways, self, volume, times).await
    }

    fn shown(point: &MailServed) -> QueryReads {
        point.pages()
    }
}

/// The workload.
pub const SHAPE: MailShape = MailShape {
    databases: 5,
    apart_bytes: 200 << 30,
    // A hundred mailboxes of 700 MB.
    database_bytes: 70_000_000_000 / (256 << 10) * (256 << 10),
    page_bytes: 32 << 10,
    threads: THREADS,
    pause: Nanos::from_micros(26_900),
    // Of 100 tasks 40 insert, 20 delete, 5 replace, and 35 read.
    changed: 0.65,
    committed: 0.3,
    commit_bytes: 16 << 10,
    scan_bytes: 256 << 10,
    scan_bytes_per_second: 5_000_000,
    path: Nanos::from_micros(262),
};

/// Choices are tried on this part of the databases, and of a drive.
const PART: u64 = 50;
/// Shape of that part, with databases as far apart. The scan comes through the whole part as often.
const PART_SHAPE: MailShape = MailShape {
    database_bytes: SHAPE.database_bytes / PART / (256 << 10) * (256 << 10),
    scan_bytes_per_second: SHAPE.scan_bytes_per_second / PART,
    ..SHAPE
};

/// Runs one test; returns the result, and the simulated time.
pub fn run_one(
    seed: u64,
    scale: Scale,
    threads: u32,
) -> Result<(LoadMeasured<MailServed>, Nanos), String> {
    let shape = MailShape {
        threads,
        ..scale.shape
    };
    let scale = Scale { shape, ..scale };
    scale.run_one(seed)
}

fn passes(measured: &LoadMeasured<MailServed>) -> bool {
    let (sum, _) = measured.whole();
    let logs = of_all(&sum.commits);
    sum.reads.iter().all(|reads| is_fast(reads, READ_MS_MAX)) && is_fast(&logs, COMMIT_MS_MAX)
}

/// Requests that were not sent took no time.
fn is_fast(requests: &QueryReads, most_ms: f64) -> bool {
    requests.reads == 0 || requests.mean_ms() <= most_ms
}

/// Name of a test's result.
const fn verb(passes: bool) -> &'static str {
    if passes { "pass" } else { "fail" }
}

/// The requests of a test by database, and of all: pages, the log, and maintenance.
fn by_database(measured: &LoadMeasured<MailServed>, databases: u32) -> ResultTable {
    let (sum, s) = measured.whole();
    let kinds = [&sum.reads, &sum.writes, &sum.commits, &sum.scans];
    let each = |requests: [QueryReads; 4], passes: bool| {
        let cells = requests.into_iter().flat_map(|requests| {
            let rate = format!("{:.1}", requests.reads as f64 / s);
            [rate, requests.mean_text()]
        });
        cells.chain([verb(passes).to_owned()]).collect::<Vec<_>>()
    };
    let named = |name: String, cells: Vec<String>| [name].into_iter().chain(cells).collect();
    let own = (0..databases as usize).map(|own| {
        let requests = kinds.map(|kind| kind[own]);
        let [reads, _, logs, _] = &requests;
        let passes = is_fast(reads, READ_MS_MAX) && is_fast(logs, COMMIT_MS_MAX);
        named((own + 1).to_string(), each(requests, passes))
    });
    let all = named("all".into(), each(kinds.map(of_all), passes(measured)));
    ResultTable::new(
        "A test by database: pages, its log, and maintenance",
        &[
            "database",
            "pages read/s",
            "ms",
            "pages written/s",
            "ms",
            "log writes/s",
            "ms",
            "maintenance reads/s",
            "ms",
            "test",
        ],
        own.chain([all]).collect(),
    )
}

/// Tests of the search: the slowest mean read of a database, and the logs.
fn of_tests(tests: &[(u32, LoadMeasured<MailServed>)]) -> ResultTable {
    let line = |(threads, measured): &(u32, LoadMeasured<MailServed>)| {
        let (sum, _) = measured.whole();
        let slowest = sum.reads.iter().map(|reads| reads.mean_ms());
        vec![
            threads.to_string(),
            format!("{:.2}", slowest.fold(0.0, f64::max)),
            of_all(&sum.commits).mean_text(),
            verb(passes(measured)).to_owned(),
        ]
    };
    ResultTable::new(
        "Tests: at most 20 ms for the reads of each database, and 10 ms for the logs",
        &[
            "threads a database",
            "slowest reads, ms",
            "logs, ms",
            "test",
        ],
        tests.iter().map(line).collect(),
    )
}

/// Everything that was printed, measured with one seed. Passes each part to `done`.
pub fn run(seed: u64, scale: Scale, done: &dyn Fn(&str)) -> Result<SeedOutcome, String> {
    let mut outcome = SeedOutcome::default();
    let mut tests = Vec::new();
    let mut test = |threads: u32| {
        let (measured, took) = run_one(seed, scale, threads)?;
        outcome.virtual_s += took.0 as f64 / 1e9;
        done(&format!("seed {seed}: {threads} threads a database"));
        tests.push((threads, measured.clone()));
        Ok::<_, String>(measured)
    };
    let measured = test(scale.shape.threads)?;
    let threads = most(scale.shape.threads, passes(&measured), |threads| {
        Ok(passes(&test(threads)?))
    })?;
    let (sum, s) = measured.whole();
    // Four tests were printed, and their average.
    for of in ["1", "2", "3", "4", "average"] {
        for (figure, value) in [
            ("iops", sum.pages().reads as f64 / s),
            ("read", of_all(&sum.reads).mean_ms()),
            ("log", of_all(&sum.commits).mean_ms()),
            // Processors take no time here.
            ("cpu", 0.0),
        ] {
            outcome.set(format!("{figure}.{of}"), value);
        }
    }
    outcome.set("threads", f64::from(threads));
    outcome.tables = vec![
        by_database(&measured, scale.shape.databases),
        of_tests(&tests),
    ];
    let name = format!("{} threads a database, pages", scale.shape.threads);
    outcome.curves.push((name, scale.curve(&measured)));
    Ok(outcome)
}

/// The most threads that pass, from so many on; 0 if none does.
fn most(
    mut threads: u32,
    passes: bool,
    mut test: impl FnMut(u32) -> Result<bool, String>,
) -> Result<u32, String> {
    if passes {
        while threads < THREADS_MAX && test(threads + 1)? {
            threads += 1;
        }
    } else {
        threads -= 1;
        while threads > 0 && !test(threads)? {
            threads -= 1;
        }
    }
    Ok(threads)
}

/// The published figures.
pub fn figures() -> PublishedFigures {
    PublishedFigures::parse(FIGURES).expect("the shipped figures are well formed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::rows;

    #[test]
    fn the_short_form_measures_every_printed_figure() {
        let outcome = run(1, Scale::of(SHAPE, true), &|_| ()).unwrap();
        let rows = rows(NAME, &figures(), std::slice::from_ref(&outcome), true, 0.0).unwrap();
        assert_eq!(rows.len(), 21);
        assert!(outcome.values["iops.average"] > 500.0, "{outcome:?}");
        let again = || run_one(1, Scale::of(SHAPE, true), THREADS).unwrap();
        assert_eq!(again(), again());
        assert_ne!(
            again(),
            run_one(2, Scale::of(SHAPE, true), THREADS).unwrap()
        );
    }

    /// A slow database fails alone, and so does the whole test.
    #[test]
    fn canary_a_slow_database_fails_in_its_line() {
        let mut served = MailServed::default();
        let requests = |ms: u64| QueryReads {
            reads: 10,
            bytes: 10,
            taken: Nanos::from_millis(10 * ms),
        };
        served.reads = [12, 19, 21, 12, 12].map(requests);
        served.commits = [requests(1); mail::DATABASES_MAX];
        let measured = LoadMeasured {
            interval_s: 1.0,
            points: vec![served],
        };
        let table = by_database(&measured, 5);
        let ends = table.lines.iter().map(|line| line[9].as_str());
        let ends: Vec<&str> = ends.collect();
        assert_eq!(ends, ["pass", "pass", "fail", "pass", "pass", "fail"]);
        assert_eq!(table.lines[5][1..3], ["50.0", "15.20"]);
        assert_eq!(
            of_tests(&[(7, measured)]).lines[0][1..],
            ["21.00", "1.00", "fail"]
        );
    }

    #[test]
    fn the_search_ends_at_the_last_number_that_passes() {
        for limit in [0, 3, 6, 7, 9, 16, 40] {
            let found = most(THREADS, THREADS <= limit, |threads| Ok(threads <= limit));
            assert_eq!(found.unwrap(), limit.min(THREADS_MAX));
        }
    }
}
