//! `hotset-lab live oltp`: pgbench on a PostgreSQL of its own.
//!
//! The database is made once. Before each phase the server stops, so that neither its memory nor
//! the page cache has a page of the database.
//!
//! Not here: the published transactions themselves. Their mix has pgbench's statements in the same
//! shares of reading and changing ones.

use super::options::LiveArguments;
use super::report::{FigureAbout, LiveReport};
use super::rounds::{self, LoadOutcome};
use super::stage::LiveStage;
use crate::CommandFailure;
use clap::{Args, ValueEnum};
use experiment::oltp::KINDS;
use experiment::perc_oltp;
use experiment::verdict::Values;
use proof::stack::{DatabaseServer, TPCB, database_obstacle, initialize};
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const NAME: &str = "oltp";
/// Longest path of a socket.
const SOCKET_BYTES_MAX: usize = 107;
/// The server's socket, in its directory.
const SOCKET: &str = ".s.PGSQL.5432";
/// Space of an empty database, in MiB.
const EMPTY_MIB: u64 = 64;
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
    if let Some(obstacle) = database_obstacle() {
        return Err(CommandFailure::Runtime(format!(
            "PostgreSQL: cannot be run ({obstacle}). Run this as root, with the package postgresql."
        )));
    }
    let scripts = command.mix.scripts();
    let mib = EMPTY_MIB + u64::from(command.scale) * SCALE_MIB + 2 * log_mib(command.scale);
    let mut stage = LiveStage::raise(&command.at, [mib << 20].into_iter())?;
    let (data, sockets) = (
        stage.directory().join("data"),
        stage.directory().join("sockets"),
    );
    make(command, &stage, &data, &sockets)?;
    stage.prove_volume(&data.join("PG_VERSION"))?;
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
        let measured = DatabaseServer::start(&data, &sockets).and_then(|server| {
            let figures = server.bench(&scripts, command.clients, command.seconds)?;
            server.stop("fast")?;
            Ok(figures)
        });
        let measured = measured.map_err(CommandFailure::Runtime)?;
        let values = [
            ("tps", measured.transactions_per_s),
            ("latency", measured.latency_ms),
        ];
        Ok(LoadOutcome {
            values: Values::from(values.map(|(name, value)| (name.to_owned(), value))),
            curves: Vec::new(),
        })
    })?;
    stage.strike()
}

/// Makes the database with its tables; the server does not run afterwards.
fn make(
    command: &LiveOltp,
    stage: &LiveStage,
    data: &Path,
    sockets: &Path,
) -> Result<(), CommandFailure> {
    let path = stage.directory().display();
    if sockets.join(SOCKET).as_os_str().as_bytes().len() > SOCKET_BYTES_MAX {
        return Err(CommandFailure::Usage(format!(
            "{path}: too long a path for a socket. Mount the storage at a shorter one."
        )));
    }
    let configuration = format!(
        "listen_addresses = ''\nshared_buffers = {}MB\nmax_connections = {}\n\
         max_wal_size = {}MB\n",
        command.memory,
        command.clients + CONNECTIONS,
        log_mib(command.scale)
    );
    let made = || {
        // The database's user comes through this directory.
        let all = fs::set_permissions(stage.directory(), Permissions::from_mode(0o755));
        all.map_err(|error| error.to_string())?;
        initialize(data, sockets, &configuration)?;
        let server = DatabaseServer::start(data, sockets)?;
        server.fill(command.scale)?;
        server.stop("fast")
    };
    made().map_err(|cause| {
        let cause = cause.split_whitespace().collect::<Vec<_>>().join(" ");
        CommandFailure::Runtime(format!(
            "{path}: no database can be made ({cause}). Let the user postgres come to the path."
        ))
    })
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
