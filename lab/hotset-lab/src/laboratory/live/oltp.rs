//! `hotset-lab live oltp`: pgbench on a PostgreSQL of its own.
//!
//! The database is made once.
//!
//! Not here: the published transactions themselves. Their mix has pgbench's statements in the same
//! shares of reading and changing ones.

use super::database::{EMPTY_MIB, LiveDatabase, require_postgresql};
use super::options::LiveArguments;
use super::report::{FigureAbout, LiveReport};
use super::rounds::{self, LoadOutcome};
use super::stage::LiveStage;
use crate::CommandFailure;
use clap::{Args, ValueEnum};
use experiment::oltp::KINDS;
use experiment::perc_oltp;
use proof::stack::{DatabaseServer, TPCB};

const NAME: &str = "oltp";
/// Space of a hundred thousand accounts with their indexes and history, in MiB.
const SCALE_MIB: u64 = 18;
/// Connections of the server itself and of maintenance.
const CONNECTIONS: u32 = 10;

#[derive(Args)]
pub struct LiveOltp {
    #[command(flatten)]
    at: LiveArguments,
    /// Hundred thousands of accounts, each of 16 MB
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    scale: u32,
    /// Clients, each with one transaction after the other
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=900))]
    clients: u32,
    /// Memory of the server (shared_buffers), in MiB
    #[arg(long, value_name = "MIB", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memory: u32,
    /// Transactions
    #[arg(long, value_name = "MIX", default_value = "pgbench")]
    mix: TransactionMix,
    /// Time of each phase, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

/// Scripts of pgbench.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum TransactionMix {
    /// pgbench's own transactions, all of which change rows
    Pgbench,
    /// As many reading ones as the published brokerage had, 769 of a thousand
    Brokerage,
}

impl TransactionMix {
    /// Names of the scripts, and their shares.
    fn scripts(self) -> Vec<(&'static str, u64)> {
        let share = |changes| -> u64 {
            let kinds = KINDS.iter().filter(|kind| kind.changes() == changes);
            kinds.map(|kind| kind.share).sum()
        };
        match self {
            TransactionMix::Pgbench => vec![TPCB],
            TransactionMix::Brokerage => vec![("select-only", share(false)), (TPCB.0, share(true))],
        }
    }
}

/// Size of the write-ahead log, in MiB.
fn log_mib(scale: u32) -> u64 {
    (u64::from(scale) * 8).clamp(32, 1024)
}

pub fn run(command: &LiveOltp) -> Result<(), CommandFailure> {
    require_postgresql()?;
    let scripts = command.mix.scripts();
    let mib = EMPTY_MIB + u64::from(command.scale) * SCALE_MIB + 2 * log_mib(command.scale);
    let mut stage = LiveStage::raise(&command.at, [mib << 20].into_iter())?;
    let configuration = format!(
        "shared_buffers = {}MB\nmax_connections = {}\nmax_wal_size = {}MB\n",
        command.memory,
        command.clients + CONNECTIONS,
        log_mib(command.scale)
    );
    let fill = |server: &DatabaseServer| server.fill(command.scale);
    let database = LiveDatabase::make(&mut stage, &configuration, fill)?;
    let figures = perc_oltp::figures();
    let beside = |name: &str, unit| {
        FigureAbout::new(name, unit).beside(&figures, "two controllers, 250 users", name)
    };
    let about = [beside("tps", "1/s"), FigureAbout::new("latency", "ms")];
    let report = LiveReport::new(NAME, &figures.source, stage.page_cache())
        .of(&command.at)
        .asked("scale", command.scale)
        .asked("clients", command.clients)
        .asked("memory_mib", command.memory)
        .asked("scripts", format!("{scripts:?}"))
        .asked("seconds", command.seconds);
    rounds::run(&command.at, &mut stage, report, &about, |_, _| {
        let bench =
            |server: &DatabaseServer| server.bench(&scripts, command.clients, command.seconds);
        let measured = database.serve(bench)?;
        let mut outcome = LoadOutcome::default();
        outcome.set("tps", measured.transactions_per_s);
        outcome.set("latency", measured.latency_ms);
        Ok(outcome)
    })?;
    stage.strike()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brokerage_reads_as_often_as_was_published() {
        let scripts = TransactionMix::Brokerage.scripts();
        assert_eq!(scripts, [("select-only", 769), ("tpcb-like", 231)]);
        assert_eq!(TransactionMix::Pgbench.scripts(), [("tpcb-like", 1)]);
        assert_eq!([1, 50, 1000].map(log_mib), [32, 400, 1024]);
    }
}
