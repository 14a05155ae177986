//! Rounds of `kill -9` of the real daemon under a database that commits.
//!
//! The kernel keeps what the daemon had written, so that after each kill the file
//! system must be sound once its journal is replayed, the database must recover,
//! and every row whose commit had been acknowledged must be there.

use super::database::{Client, Server, check_file_system};
use super::host::obstacle;
use super::place::Place;
use serde::Serialize;
use sim::Rng;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use testbed::mounted::Mounted;
use testbed::namespace;

const CLIENTS: u64 = 3;

/// What is asked.
#[derive(Clone, Debug)]
pub struct KillRequest {
    /// Daemons to kill.
    pub rounds: u64,
    /// Draws when each is killed.
    pub seed: u64,
    /// Where the files go, half a gigabyte.
    pub directory: PathBuf,
    /// The executable of hotset.
    pub program: PathBuf,
}

/// What rounds have found.
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
    /// What was wrong.
    pub violations: Vec<String>,
}

/// Kills daemons under the stack; the error says what keeps it from being built.
pub fn kills(request: &KillRequest) -> Result<StackKills, String> {
    if let Some(obstacle) = obstacle() {
        return Err(obstacle);
    }
    namespace::enter()?;
    let place = Place::new(&request.directory, |dir| format!("path = \"{dir}/origin\""))?;
    place.make()?;
    let mut rng = Rng::fork(request.seed, 32);
    let committed = Mutex::new(Vec::new());
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
        let cut_off = std::thread::scope(|scope| {
            let client = |number| {
                let (committed, sockets) = (&committed, place.path("sockets"));
                scope.spawn(move || {
                    let committed = |id| committed.lock().expect(SOUND).push(id);
                    Client::start(round * CLIENTS + number, &sockets)?.commit(u64::MAX, committed)
                })
            };
            let clients: Vec<_> = (0..CLIENTS).map(client).collect();
            std::thread::sleep(pause);
            let at_work = clients.iter().all(|client| !client.is_finished());
            let killed = daemon.kill();
            // The database may have ended by itself, for its disk is gone.
            let _ = server.stop("immediate");
            let ends = clients
                .into_iter()
                .map(|client| client.join().expect(SOUND));
            let cut_off = ends.filter(Result::is_err).count() as u64;
            killed.map(|()| at_work && cut_off == CLIENTS)
        });
        kills.rounds += 1;
        kills.kills_under_load += u64::from(cut_off.map_err(|error| error.to_string())?);
        // A file system whose disk is gone may not be unmounted in order.
        let _ = mounted.unmount();
    }
    kills.commits = committed.into_inner().expect(SOUND).len() as u64;
    Ok(kills)
}

const SOUND: &str = "no panic";

/// What the daemon serves again: mounted, with its database; the rows found.
fn recover(
    place: &Place,
    device: &Path,
    committed: &[u64],
) -> Result<(Mounted, Server, u64), String> {
    check_file_system(device)?;
    let mounted = Mounted::new(device, &place.path("mount"))?;
    let server = Server::start(&mounted.at().join("data"), &place.path("sockets"))?;
    let rows = server.verify(committed.iter().copied())?;
    Ok((mounted, server, rows))
}
