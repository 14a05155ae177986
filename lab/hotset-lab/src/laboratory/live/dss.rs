//! `hotset-lab live dss`: the queries of TPC-H, one after the other, on a PostgreSQL of its own.
//!
//! Each phase is a run of all queries, as the evaluation had one without its cache, one while the
//! cache warmed, and one with the warm cache. Answers are compared: all runs have the same ones.
//!
//! Not here: results of the TPC's benchmark, which has rules of its own.

use super::database::{EMPTY_MIB, LiveDatabase, require_postgresql};
use super::device::DeviceReads;
use super::options::LiveArguments;
use super::report::{FigureAbout, LiveReport};
use super::rounds::{self, LivePlace, LoadOutcome};
use super::stage::{LiveStage, WARM};
use super::tpch::{QUERIES, TABLES, statements};
use crate::CommandFailure;
use clap::Args;
use experiment::nytro;
use proof::stack::DatabaseServer;

const NAME: &str = "dss";
/// Space of the tables of scale 1 with their indexes, and of sorts, in MiB.
const SCALE_MIB: f64 = 3000.0;
/// Size of the write-ahead log, in MiB.
const LOG_MIB: u64 = 64;
/// The server maintains nothing by itself, so that a phase has the reads of queries alone. Time
/// to compile a query is no time of storage.
const CONFIGURATION: &str = "wal_level = minimal\nmax_wal_senders = 0\nmax_wal_size = 64MB\n\
                             autovacuum = off\njit = off\n";

#[derive(Args)]
pub struct LiveDss {
    #[command(flatten)]
    at: LiveArguments,
    /// Scale factor of TPC-H: 1 are 2 GB of tables and indexes
    #[arg(long, value_name = "FACTOR", default_value_t = 0.1, value_parser = scale)]
    scale: f64,
    /// Memory of the server (shared_buffers), in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memory: u32,
}

/// Reads a scale factor.
fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok();
    scale
        .filter(|scale| (0.001..=1000.0).contains(scale))
        .ok_or_else(|| "no number from 0.001 to 1000".into())
}

pub fn run(command: &LiveDss) -> Result<(), CommandFailure> {
    require_postgresql()?;
    let mib = EMPTY_MIB + 2 * LOG_MIB + (command.scale * SCALE_MIB) as u64;
    let mut stage = LiveStage::raise(&command.at, [mib << 20].into_iter())?;
    let configuration = format!("{CONFIGURATION}shared_buffers = {}MB\n", command.memory);
    let interruption = stage.interruption().clone();
    let database = LiveDatabase::make(&mut stage, &configuration, |server| {
        for table in TABLES {
            let rows = table.rows(command.scale);
            let rows = rows.take_while(|_| !interruption.has_come());
            server.load(table.name, &table.create(), rows, &table.index())?;
            let going = interruption.require_none();
            going.map_err(|error| error.to_string())?;
        }
        server.timed("vacuum analyze").map(drop)
    })?;
    let figures = nytro::figures();
    let report = LiveReport::new(NAME, &figures.source, stage.page_cache())
        .of(&command.at)
        .asked("scale", command.scale)
        .asked("memory_mib", command.memory)
        .note("queries of TPC-H with the parameters of their validation; no result of the TPC's");
    let mut answers = vec![None; QUERIES];
    rounds::run(&command.at, &mut stage, report, &about(), |stage, _| {
        let before = DeviceReads::below(stage.directory());
        let mut outcome =
            database.serve(|server| query_all(server, command, stage, &mut answers))?;
        let all_s = outcome.values["all"];
        let after = DeviceReads::below(stage.directory());
        if let (Some(before), Some(after)) = (before, after) {
            let reads = after - before;
            outcome.set("mb_s", reads.bytes as f64 / 1e6 / all_s);
            if reads.requests > 0 {
                outcome.set("read", reads.ms as f64 / reads.requests as f64);
            }
        }
        Ok(outcome)
    })?;
    stage.strike()
}

/// The name of a query's figure.
fn name(number: usize) -> String {
    format!("q{number}")
}

/// The figures: the time of each query and of all, and the device's reads meanwhile.
fn about() -> Vec<FigureAbout> {
    let figures = nytro::figures();
    let printed = |name: &str| {
        let found = figures
            .printed
            .iter()
            .find(|printed| printed.figure == name);
        found.expect("the figure was printed").value
    };
    let queries = (1..=QUERIES).map(|number| FigureAbout::new(name(number), "s"));
    let all = FigureAbout::new("all", "s").ratio_beside(WARM, 1.0 / printed("time"));
    let read = FigureAbout::new("read", "ms")
        .beside(&figures, "without the cache", "latency.none")
        .beside(&figures, "warm", "latency.mean")
        .ratio_beside(WARM, 1.0 / printed("latency.gain"));
    let mb_s = FigureAbout::new("mb_s", "MB/s").ratio_beside(WARM, printed("throughput.mean"));
    queries.chain([all, read, mb_s]).collect()
}

/// Asks each query once; an error if an answer is another than that of the first run.
fn query_all(
    server: &DatabaseServer,
    command: &LiveDss,
    stage: &LiveStage,
    answers: &mut [Option<String>],
) -> Result<LoadOutcome, String> {
    let mut outcome = LoadOutcome::default();
    let mut all_s = 0.0;
    for (number, before) in (1..).zip(answers) {
        let going = stage.interruption().require_none();
        going.map_err(|error| error.to_string())?;
        let (answer, ms) = server.timed(&statements(number, command.scale))?;
        require_same(number, before, answer)?;
        outcome.set(&name(number), ms / 1e3);
        all_s += ms / 1e3;
    }
    outcome.set("all", all_s);
    Ok(outcome)
}

/// An error unless the answer is that of the first run, which is kept.
fn require_same(number: usize, first: &mut Option<String>, answer: String) -> Result<(), String> {
    // Rows with the same key have no order.
    let mut rows: Vec<&str> = answer.lines().collect();
    rows.sort_unstable();
    let rows = rows.join("\n");
    match first.get_or_insert_with(|| rows.clone()) == &rows {
        true => Ok(()),
        false => Err(format!(
            "query {number}: another answer than in the first run. The storage, or the cache, has \
             returned wrong data."
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_answer_than_the_first_is_an_error() {
        let mut first = None;
        require_same(3, &mut first, "a|1\nb|1\n".into()).unwrap();
        require_same(3, &mut first, "b|1\na|1\n".into()).unwrap();
        let other = require_same(3, &mut first, "a|1\nb|2\n".into()).unwrap_err();
        assert!(other.contains("query 3: another answer"), "{other}");
    }

    #[test]
    fn a_scale_is_a_number_above_zero() {
        assert_eq!(scale("0.01"), Ok(0.01));
        for bad in ["0", "-1", "x", "NaN", "1001"] {
            assert!(scale(bad).is_err(), "{bad}");
        }
    }
}
