//! Transactions of a brokerage on two mirrored controllers, at the published number of users.
//!
//! Not here: the hypervisor and the processors; the log's own disk lies behind the data's.

use crate::choices::choose;
use crate::controllers::{self, ControllerLoad, TOPOLOGY};
use crate::entry::{Experiment, LoadUses};
use crate::figures::PublishedFigures;
use crate::measured::{LoadMeasured, Times};
use crate::oltp::{self, KINDS, OltpShape, TransactionsServed};
use crate::parameters::{COSTS, ModelParameter, ModelPart, millis, set};
use crate::queries::QueryReads;
use crate::record::record;
use crate::rig::Volume;
use crate::verdict::{ResultTable, SeedOutcome};
use block::{Env, IoResult};

/// The experiment's name in the registry.
pub const NAME: &str = "perc-oltp";
const FIGURES: &str = include_str!("../figures/perc-oltp.toml");
/// One line of the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    title: "transactions of 250 users of a brokerage on two mirrored controllers of seven drives",
    needs: "100 MB; 10 seconds a seed",
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
const PARAMETERS: [ModelParameter<Scale>; 8] = [
    ("users", 1.0..=1e4, |scale, value| {
        scale.shape.users = value as u32
    }),
    ("pages", 0.01..=100.0, |scale, value| {
        scale.shape.scale = value
    }),
    ("ahead", 0.0..=16.0, |scale, value| {
        scale.shape.ahead = value
    }),
    ("memory_mib", 0.5..=1e6, |scale, value| {
        scale.shape.memory_pages = (value * 128.0) as u32;
    }),
    ("commit_bytes", 512.0..=65_536.0, |scale, value| {
        scale.shape.commit_bytes = value as u64 / 512 * 512;
    }),
    ("apart_gib", 103.0..=480.0, |scale, value| {
        scale.shape.apart_bytes = (value as u64) << 30;
    }),
    ("span_s", 5.0..=1e4, |scale, value| {
        scale.times.span = millis(value * 1e3);
    }),
    ("disk_cost", COSTS, |scale, value| scale.disk_cost = value),
];
/// The parts of the model that can be left out.
const PARTS: [ModelPart; 3] = [
    ("the database's memory", &[("memory_mib", 0.5)]),
    ("space between the disks", &[("apart_gib", 103.0)]),
    ("all of a commit but a sector", &[("commit_bytes", 512.0)]),
];
/// Workload of a run, and its times.
pub type Scale = controllers::ControllersScale<OltpShape>;

impl ControllerLoad for OltpShape {
    type Point = TransactionsServed;

    async fn ask(
        self,
        env: &Env,
        ways: u64,
        volume: Volume,
        times: Times,
    ) -> IoResult<LoadMeasured<TransactionsServed>> {
        oltp::run(env, ways, self, volume, times).await
    }

    fn shown(point: &TransactionsServed) -> QueryReads {
        point.data()
    }
}

/// The workload.
pub const SHAPE: OltpShape = OltpShape {
    users: 250,
    page_bytes: 8 << 10,
    // 250 GB.
    pages: 250_000_000_000 / (8 << 10),
    disks: 3,
    // Over as much of the volume as the mail store's.
    apart_bytes: 250 << 30,
    log_bytes: 204_000_000_000 / (8 << 10) * (8 << 10),
    // 8 GB.
    memory_pages: 1 << 20,
    scale: 1.0,
    ahead: 0.0,
    commit_bytes: 8 << 10,
};

/// Choices are tried on this part of the database, of its memory and of a drive.
const PART: u64 = 50;
/// Shape of that part, in pieces over as much of the disks.
const PART_SHAPE: OltpShape = OltpShape {
    pages: SHAPE.pages / PART,
    disks: 75,
    apart_bytes: SHAPE.disks * SHAPE.apart_bytes / 75,
    memory_pages: SHAPE.memory_pages / PART as u32,
    ..SHAPE
};

/// Everything that was printed, measured with one seed. Passes each part to `done`.
pub fn run(seed: u64, scale: Scale, done: &dyn Fn(&str)) -> Result<SeedOutcome, String> {
    let (measured, took) = scale.run_one(seed)?;
    done(&format!("seed {seed}: all users"));
    let mut outcome = SeedOutcome {
        virtual_s: took.0 as f64 / 1e9,
        ..SeedOutcome::default()
    };
    let (sum, s) = measured.whole();
    let data = sum.data();
    for (figure, value) in [
        ("tps", sum.ended() as f64 / s),
        ("mib_s", data.bytes as f64 / f64::from(1 << 20) / s),
        ("iops", data.reads as f64 / s),
        ("latency", data.mean_ms()),
    ] {
        outcome.set(figure, value);
    }
    outcome.tables = vec![transactions(&sum, s), counters(&sum, s)];
    let curve = scale.curve(&measured);
    outcome.curves.push(("data disks".to_owned(), curve));
    Ok(outcome)
}

/// Transactions of each kind, and their shares of all and of the benchmark's mix.
fn transactions(sum: &TransactionsServed, s: f64) -> ResultTable {
    let line = |(kind, ended): (&oltp::TransactionKind, u64)| {
        vec![
            kind.name.to_owned(),
            ended.to_string(),
            format!("{:.2}", ended as f64 / s),
            format!("{:.1}", ended as f64 * 100.0 / sum.ended() as f64),
            format!("{:.1}", kind.share as f64 / 10.0),
        ]
    };
    let kinds = KINDS.iter().zip(sum.transactions);
    ResultTable::new(
        "Counters: transactions",
        &[
            "transaction",
            "ended",
            "a second",
            "% of all",
            "% of the mix",
        ],
        kinds.map(line).collect(),
    )
}

/// Requests of the database: pages in its memory, on the data disks, and the log.
fn counters(sum: &TransactionsServed, s: f64) -> ResultTable {
    let found = QueryReads {
        reads: sum.touched.saturating_sub(sum.reads.reads),
        ..QueryReads::default()
    };
    let line = |(name, requests): (&str, QueryReads)| {
        let per = requests.reads as f64 / sum.ended() as f64;
        vec![
            name.to_owned(),
            format!("{:.1}", requests.reads as f64 / s),
            format!("{:.2}", requests.bytes as f64 / f64::from(1 << 20) / s),
            requests.mean_text(),
            format!("{per:.2}"),
        ]
    };
    let all = [
        ("pages found in memory", found),
        ("pages read", sum.reads),
        ("pages written", sum.writes),
        ("writes of the log", sum.commits),
    ];
    ResultTable::new(
        "Counters: the database's pages and its log",
        &["what", "a second", "MiB/s", "mean ms", "a transaction"],
        all.into_iter().map(line).collect(),
    )
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
        assert_eq!(rows.len(), 4);
        assert!(outcome.values["tps"] > 100.0, "{outcome:?}");
        let rates = |table: usize, column: usize| -> f64 {
            let lines = outcome.tables[table].lines.iter();
            lines.map(|line| line[column].parse::<f64>().unwrap()).sum()
        };
        assert!((rates(0, 2) / outcome.values["tps"] - 1.0).abs() < 0.01);
        let mib_s = outcome.values["mib_s"];
        let log = &outcome.tables[1].lines[3][2];
        assert!((rates(1, 2) - log.parse::<f64>().unwrap() - mib_s).abs() < 0.05);
        let again = || Scale::of(SHAPE, true).run_one(1).unwrap();
        assert_eq!(again(), again());
        assert_ne!(again(), Scale::of(SHAPE, true).run_one(2).unwrap());
    }
}
