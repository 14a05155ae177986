//! PostgreSQL in a directory, and transactions with known commits.
//!
//! Each transaction adds one to an account and a row to the history. So the sum of the accounts is
//! the number of rows, whatever was cut off.

use super::host::postgresql;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testbed::tools::{outcome, run, tool};

/// The lock file of a server, beside its socket.
const LOCK: &str = ".s.PGSQL.5432.lock";
const ACCOUNTS: u64 = 50;
/// Numbers of one client's transactions are below those of the next.
pub(super) const CLIENT: u64 = 1 << 32;
/// Small enough for a volume of 192 MiB, and checkpoints often.
const CONFIGURATION: &str = "
listen_addresses = ''
shared_buffers = 4MB
max_connections = 10
max_wal_size = 8MB
min_wal_size = 2MB
checkpoint_timeout = 30s
autovacuum_naptime = 5s
";

fn as_postgres(program: &Path) -> Command {
    let mut command = tool("runuser");
    command
        .args(["-u", "postgres", "--"])
        .arg(program)
        .current_dir("/");
    command
}

fn psql(sockets: &Path) -> Command {
    let mut command = as_postgres(Path::new("psql"));
    command.args([
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        "postgres",
        "-h",
    ]);
    command.arg(sockets);
    command
}

/// Makes a database in `data`, with these lines of configuration. The server does not run.
///
/// # Errors
/// If a tool fails, with its messages.
pub fn initialize(data: &Path, sockets: &Path, configuration: &str) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    for directory in [data, sockets] {
        std::fs::create_dir_all(directory).map_err(text)?;
        run(tool("chown").arg("postgres:").arg(directory))?;
    }
    let mut initdb = as_postgres(&postgresql()?.join("initdb"));
    initdb.args([
        "--auth=trust",
        "--wal-segsize=1",
        "--no-sync",
        "--no-instructions",
        "-D",
    ]);
    run(initdb.arg(data))?;
    let file = data.join("postgresql.conf");
    let configuration = std::fs::read_to_string(&file).map_err(text)? + configuration;
    std::fs::write(&file, configuration).map_err(text)
}

/// Makes a database in `data` with empty tables. The server does not run afterwards.
pub(super) fn create(data: &Path, sockets: &Path) -> Result<(), String> {
    initialize(data, sockets, CONFIGURATION)?;
    let server = DatabaseServer::start(data, sockets)?;
    let tables = format!(
        "create table account (id int primary key, n bigint not null);
         create table history (id bigint primary key, what text not null);
         insert into account select i, 0 from generate_series(0, {}) i; checkpoint;",
        ACCOUNTS - 1
    );
    run(psql(sockets).args(["-c", &tables]))?;
    server.stop("fast")
}

/// Results of pgbench.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PgbenchFigures {
    /// Transactions a second.
    pub transactions_per_s: f64,
    /// Mean latency of a transaction in milliseconds.
    pub latency_ms: f64,
}

impl PgbenchFigures {
    /// Reads the output of pgbench. Figures of all transactions are before those of each script.
    fn parse(printed: &str) -> Result<PgbenchFigures, String> {
        let figure = |name: &str| {
            let rest = printed.split_once(name).map_or("", |(_, rest)| rest);
            let word = rest.split_whitespace().next();
            let figure = word.and_then(|word| word.parse().ok());
            figure.ok_or_else(|| format!("pgbench prints no {name:?}: {printed}"))
        };
        Ok(PgbenchFigures {
            transactions_per_s: figure("tps =")?,
            latency_ms: figure("latency average =")?,
        })
    }
}

/// A server that runs, until dropped.
pub struct DatabaseServer {
    data: PathBuf,
    sockets: PathBuf,
}

impl DatabaseServer {
    /// Starts a server and waits until the server has recovered.
    ///
    /// # Errors
    /// If the server does not start, with its log.
    pub fn start(data: &Path, sockets: &Path) -> Result<DatabaseServer, String> {
        let log = sockets.join("log");
        until_ended(&sockets.join(LOCK))?;
        // The file names a process of before the cut. Another process may have that number now.
        let _ = std::fs::remove_file(data.join("postmaster.pid"));
        let mut start = as_postgres(&postgresql()?.join("pg_ctl"));
        start
            .args(["start", "-w", "-t", "120", "-s", "-D"])
            .arg(data);
        start.arg("-l").arg(&log);
        start.arg("-o").arg(format!("-k {}", sockets.display()));
        // The server keeps inherited files open.
        start.stdout(Stdio::null()).stderr(Stdio::null());
        let status = start.status().map_err(|error| error.to_string())?;
        if !status.success() {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("the database does not start: {said}"));
        }
        Ok(DatabaseServer {
            data: data.to_owned(),
            sockets: sockets.to_owned(),
        })
    }

    fn stop_now(&self, mode: &str) -> Result<(), String> {
        let mut stop = as_postgres(&postgresql()?.join("pg_ctl"));
        stop.args(["stop", "-w", "-t", "120", "-s", "-m", mode, "-D"]);
        run(stop.arg(&self.data)).map(drop)
    }

    /// Stops the server in a mode of pg_ctl.
    ///
    /// # Errors
    /// If the server does not end.
    pub fn stop(self, mode: &str) -> Result<(), String> {
        let stopped = self.stop_now(mode);
        std::mem::forget(self);
        stopped
    }

    /// Makes pgbench's tables, of so many hundred thousand accounts.
    ///
    /// # Errors
    /// If pgbench fails, with its messages.
    pub fn fill(&self, scale: u32) -> Result<(), String> {
        let scale = scale.to_string();
        run(self.pgbench()?.args(["-i", "-q", "-s", &scale])).map(drop)
    }

    /// Runs pgbench's own transactions for a while: scripts by name, each with its share.
    ///
    /// # Errors
    /// If pgbench fails, with its messages.
    pub fn bench(
        &self,
        scripts: &[(&str, u64)],
        clients: u32,
        seconds: u64,
    ) -> Result<PgbenchFigures, String> {
        let (clients, seconds) = (clients.to_string(), seconds.to_string());
        let mut pgbench = self.pgbench()?;
        pgbench.args(["-n", "-c", &clients, "-T", &seconds]);
        for (script, share) in scripts {
            pgbench.args(["-b", &format!("{script}@{share}")]);
        }
        PgbenchFigures::parse(&run(&mut pgbench)?)
    }

    /// Fills a table in one transaction: statements, the rows in the text form with `|` between
    /// columns, and more statements.
    ///
    /// # Errors
    /// If psql fails, with its messages.
    pub fn load(
        &self,
        table: &str,
        before: &str,
        rows: impl Iterator<Item = String>,
        after: &str,
    ) -> Result<(), String> {
        let text = |error: std::io::Error| format!("psql: {error}");
        let mut psql = psql(&self.sockets);
        psql.stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = psql.spawn().map_err(text)?;
        let mut input = BufWriter::new(process.stdin.take().expect("piped"));
        let write = move || {
            writeln!(input, "begin;\n{before}")?;
            writeln!(input, "copy {table} from stdin with (delimiter '|');")?;
            for row in rows {
                writeln!(input, "{row}")?;
            }
            write!(input, "\\.\n{after}\ncommit;\n")?;
            // The end of the input is the end of psql.
            input
                .into_inner()
                .map(drop)
                .map_err(|error| error.into_error())
        };
        let written: std::io::Result<()> = write();
        let ended = process.wait_with_output().map_err(text)?;
        match ended.status.success() {
            true => written.map_err(text),
            false => Err(String::from_utf8_lossy(&ended.stderr).into_owned()),
        }
    }

    /// Runs statements of one client. Returns their answer, and their time in milliseconds as the
    /// client sees the time.
    ///
    /// # Errors
    /// If psql fails, with its messages.
    pub fn timed(&self, statements: &str) -> Result<(String, f64), String> {
        let printed = run(psql(&self.sockets).args(["-c", "\\timing on", "-c", statements]))?;
        let split = printed.rsplit_once("Time: ").and_then(|(answer, time)| {
            let time = time.split_whitespace().next()?.parse().ok()?;
            Some((answer.to_owned(), time))
        });
        split.ok_or_else(|| format!("psql prints no time: {printed}"))
    }

    fn pgbench(&self) -> Result<Command, String> {
        let mut command = as_postgres(&postgresql()?.join("pgbench"));
        command.args(["-d", "postgres", "-h"]).arg(&self.sockets);
        Ok(command)
    }

    /// Checks that every row of `committed` is there, and no part of a transaction. Returns the
    /// number of rows.
    pub(super) fn verify(&self, committed: impl Iterator<Item = u64>) -> Result<u64, String> {
        let rows = self.rows()?;
        let lost: Vec<u64> = committed.filter(|number| !rows.contains(number)).collect();
        match lost.is_empty() {
            true => Ok(rows.len() as u64),
            false => Err(format!("committed rows are lost: {lost:?}")),
        }
    }

    /// Returns the rows that are there, and checks that no part of a transaction is.
    pub(super) fn rows(&self) -> Result<BTreeSet<u64>, String> {
        let one = |query: &str| run(psql(&self.sockets).args(["-c", query]));
        let rows = one("select id from history where what = repeat(md5(id::text), 8)")?;
        let rows: Result<BTreeSet<u64>, _> = rows.lines().map(str::parse).collect();
        let rows = rows.map_err(|error| format!("a row's number: {error}"))?;
        let sums = one("select (select sum(n) from account), (select count(*) from history)")?;
        match sums.trim() == format!("{0}|{0}", rows.len()) {
            true => Ok(rows),
            false => Err(format!("{} rows, but sum and count are {sums}", rows.len())),
        }
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        let _ = self.stop_now("immediate");
    }
}

/// Waits for the end of the server that a lock file names. A server whose volume is gone ends by
/// itself, which takes a while on a busy machine.
fn until_ended(lock: &Path) -> Result<(), String> {
    let Ok(text) = std::fs::read_to_string(lock) else {
        return Ok(());
    };
    let process = text.lines().next().unwrap_or_default();
    // A number that is in use again is of another command.
    let command = format!("/proc/{process}/comm");
    for _ in 0..600 {
        let runs = std::fs::read_to_string(&command).unwrap_or_default();
        if !runs.starts_with("postgres") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(format!(
        "the database server before, process {process}, does not end"
    ))
}

/// A client that commits one transaction after the other.
pub(super) struct DatabaseClient {
    process: Child,
    number: u64,
}

impl DatabaseClient {
    pub(super) fn start(number: u64, sockets: &Path) -> Result<DatabaseClient, String> {
        let mut command = psql(sockets);
        // The client's messages at the server's end are expected where daemons are killed.
        let said = File::options()
            .create(true)
            .append(true)
            .open(sockets.join("clients"))
            .map_err(|error| format!("psql: {error}"))?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said);
        let process = command.spawn().map_err(|error| format!("psql: {error}"))?;
        Ok(DatabaseClient { process, number })
    }

    /// Commits `transactions`, and calls back when each was acknowledged.
    pub(super) fn commit(
        mut self,
        transactions: u64,
        mut committed: impl FnMut(u64),
    ) -> Result<(), String> {
        let mut input = self.process.stdin.take().expect("piped");
        let output = BufReader::new(self.process.stdout.take().expect("piped"));
        let mut lines = output.lines();
        for n in 0..transactions {
            let id = self.number * CLIENT + n;
            let statements = format!(
                "begin; update account set n = n + 1 where id = {};
                 insert into history values ({id}, repeat(md5('{id}'), 8)); commit;
                 \\echo {id}\n",
                (n * 7 + self.number) % ACCOUNTS
            );
            let text = |error: std::io::Error| format!("psql: {error}");
            input.write_all(statements.as_bytes()).map_err(text)?;
            match lines.next() {
                Some(Ok(line)) if line == id.to_string() => committed(id),
                other => return Err(format!("psql answers {other:?}")),
            }
        }
        drop(input);
        let ended = self.process.wait().map_err(|error| error.to_string())?;
        match ended.success() {
            true => Ok(()),
            false => Err(format!("psql ends with {ended}")),
        }
    }
}

impl Drop for DatabaseClient {
    fn drop(&mut self) {
        // The client may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Has `e2fsck` replay the journal, and checks that a second run finds no error.
pub(super) fn check_file_system(image: &Path) -> Result<(), String> {
    let (status, text) = outcome(tool("e2fsck").arg("-p").arg(image))?;
    if !matches!(status, 0 | 1) {
        return Err(format!("e2fsck -p: status {status}: {text}"));
    }
    run(tool("e2fsck").args(["-f", "-n"]).arg(image)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_all_scripts_come_before_those_of_each() {
        let printed = "latency average = 1.250 ms\ninitial connection time = 9.1 ms\n\
                       tps = 6400.5 (without initial connection time)\nSQL script 1: <builtin>\n \
                       - 10 transactions (50.0% of total, tps = 3200.2)\n - latency average = 2 ms\n";
        let figures = PgbenchFigures::parse(printed).unwrap();
        assert_eq!(
            (figures.transactions_per_s, figures.latency_ms),
            (6400.5, 1.25)
        );
        let none = PgbenchFigures::parse("pgbench: error").unwrap_err();
        assert!(none.contains("prints no \"tps =\""), "{none}");
    }
}
