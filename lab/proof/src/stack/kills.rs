//! Rounds of `kill -9` of the real daemon under a database that commits.
//!
//! The kernel keeps the daemon's writes. So after each kill the file system must be sound once its
//! journal is replayed, the database must recover, and every row with an acknowledged commit must
//! be there. Where all but the origin of a write-back volume is destroyed with the daemon, the same
//! holds as far as the origin alone promises ([`super::destroyed`]).

use super::database::{DatabaseClient, DatabaseServer, check_file_system};
use super::destroyed::{self, Commit};
use super::host::obstacle;
use super::place::{StackDirectory, StackWriteBack};
use serde::Serialize;
use sim::SimRng;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use testbed::mounted::MountedFileSystem;
use testbed::namespace;
use writelog::Cleaning;

const CLIENTS: u64 = 3;
/// Small, so that the log goes round.
const LOG_BYTES: u64 = 64 << 20;

/// A request for rounds of kills.
#[derive(Clone, Debug)]
pub struct KillRequest {
    /// Daemons to kill.
    pub rounds: u64,
    /// Draws the moment of each kill.
    pub seed: u64,
    /// The directory of the files, half a gigabyte.
    pub directory: PathBuf,
    /// The executable of hotset.
    pub program: PathBuf,
    /// The order of a volume that is write-back; none of one that writes through.
    pub order: Option<Cleaning>,
    /// All but the origin is destroyed with each daemon.
    pub destroys: bool,
}

/// The findings of the rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StackKills {
    /// Daemons killed.
    pub rounds: u64,
    /// Those that were killed while every client was at its commits.
    pub kills_under_load: u64,
    /// Transactions that were acknowledged.
    pub commits: u64,
    /// Committed rows that were asked for after all kills together.
    pub rows: u64,
    /// Those of them that were lost with all but the origin.
    pub commits_lost: u64,
    /// Time by which the oldest of these was acknowledged before the last of its round, in
    /// milliseconds.
    pub lost_age_ms: u64,
    /// The violations.
    pub violations: Vec<String>,
}

/// Kills daemons under the stack. The error names the obstacle to building the stack.
pub fn kills(request: &KillRequest) -> Result<StackKills, String> {
    if let Some(obstacle) = obstacle() {
        return Err(obstacle);
    }
    namespace::enter()?;
    let place = make(request)?;
    let mut rng = SimRng::fork(request.seed, 32);
    let committed = Mutex::new(Vec::<Commit>::new());
    let mut kills = StackKills::default();
    for round in 0..=request.rounds {
        let daemon = place.serve(&request.program)?;
        let attached = place.attach()?;
        let recovered = recover(&place, attached.device(), &committed.lock().expect(SOUND));
        let (mounted, server, rows) = match recovered {
            Ok(up) => up,
            Err(what) => {
                kills
                    .violations
                    .push(format!("after {round} kills: {what}"));
                break;
            }
        };
        kills.rows += rows;
        if round == request.rounds {
            server.stop("fast")?;
            mounted.unmount()?;
            break;
        }
        let pause = Duration::from_millis(rng.between(300, 2000));
        let kill = || {
            let destroyed = match request.destroys {
                true => place.destroy(),
                false => Ok(()),
            };
            let killed = daemon.kill().map_err(|error| error.to_string());
            // The database may have ended by itself, for its disk is gone.
            let _ = server.stop("immediate");
            destroyed.and(killed)
        };
        let cut_off = under_load(round, pause, &place.path("sockets"), &committed, kill);
        kills.rounds += 1;
        kills.kills_under_load += u64::from(cut_off?);
        // A file system on a dead disk may not be unmounted in order.
        let _ = mounted.unmount();
        drop(attached);
        if request.destroys {
            let committed = &mut *committed.lock().expect(SOUND);
            match destroyed::recover(&place, &request.program, committed) {
                Ok(alone) => {
                    kills.commits_lost += alone.lost;
                    kills.lost_age_ms = kills.lost_age_ms.max(alone.oldest.as_millis() as u64);
                    committed.retain(|(id, _)| alone.rows.contains(id));
                }
                Err(what) => {
                    let what = format!("the origin alone, after {} kills: {what}", round + 1);
                    kills.violations.push(what);
                    break;
                }
            }
            place.blank()?;
        }
    }
    kills.commits = committed.into_inner().expect(SOUND).len() as u64 + kills.commits_lost;
    Ok(kills)
}

const SOUND: &str = "no panic";

/// Makes the files of the stack.
fn make(request: &KillRequest) -> Result<StackDirectory, String> {
    let origin = |dir: std::path::Display| format!("path = \"{dir}/origin\"");
    let log = request.order.map(|order| StackWriteBack {
        order,
        max_lag: destroyed::MAX_LAG,
        bytes: LOG_BYTES,
        journal: String::new(),
    });
    let place = StackDirectory::new(&request.directory, log, origin)?;
    place.make()?;
    Ok(place)
}

/// Has clients commit for that time before `kill`. Returns true if every client was at its commits,
/// and was cut off.
fn under_load(
    round: u64,
    time: Duration,
    sockets: &Path,
    committed: &Mutex<Vec<Commit>>,
    kill: impl FnOnce() -> Result<(), String>,
) -> Result<bool, String> {
    std::thread::scope(|scope| {
        let client = |number| {
            scope.spawn(move || {
                let committed = |id| {
                    let now = Instant::now();
                    committed.lock().expect(SOUND).push((id, now));
                };
                DatabaseClient::start(round * CLIENTS + number, sockets)?
                    .commit(u64::MAX, committed)
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        std::thread::sleep(time);
        let at_work = clients.iter().all(|client| !client.is_finished());
        let killed = kill();
        let ends = clients
            .into_iter()
            .map(|client| client.join().expect(SOUND));
        let cut_off = ends.filter(Result::is_err).count() as u64;
        killed.map(|()| at_work && cut_off == CLIENTS)
    })
}

/// Mounts the volume of the next daemon, with its database. Returns the number of rows.
fn recover(
    place: &StackDirectory,
    device: &Path,
    committed: &[Commit],
) -> Result<(MountedFileSystem, DatabaseServer, u64), String> {
    check_file_system(device)?;
    let mounted = MountedFileSystem::new(device, &place.path("mount"))?;
    let server = DatabaseServer::start(&mounted.at().join("data"), &place.path("sockets"))?;
    let rows = server.verify(committed.iter().map(|(id, _)| *id))?;
    Ok((mounted, server, rows))
}
