//! A PostgreSQL of a live run's own, in the directory of the run.
//!
//! The server runs for a phase alone. So neither its memory nor the page cache has a page of the
//! database when a phase begins.

use super::rounds::LivePlace;
use super::stage::LiveStage;
use crate::CommandFailure;
use proof::stack::{DatabaseServer, database_obstacle, initialize};
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Longest path of a socket.
const SOCKET_BYTES_MAX: usize = 107;
/// The server's socket, in its directory.
const SOCKET: &str = ".s.PGSQL.5432";
/// Space of an empty database, in MiB.
pub const EMPTY_MIB: u64 = 64;

/// A database without a running server.
pub struct LiveDatabase {
    data: PathBuf,
    sockets: PathBuf,
}

/// An error unless a database can be made and run here.
pub fn require_postgresql() -> Result<(), CommandFailure> {
    database_obstacle().map_or(Ok(()), |obstacle| {
        Err(CommandFailure::Runtime(format!(
            "PostgreSQL: cannot be run ({obstacle}). Run this as root, with the package postgresql."
        )))
    })
}

impl LiveDatabase {
    /// Makes a database in the directory of the run, with these lines of configuration.
    pub fn make(
        stage: &mut LiveStage,
        configuration: &str,
        fill: impl FnOnce(&DatabaseServer) -> Result<(), String>,
    ) -> Result<LiveDatabase, CommandFailure> {
        let directory = stage.directory();
        let made = LiveDatabase {
            data: directory.join("data"),
            sockets: directory.join("sockets"),
        };
        let path = directory.display();
        if made.sockets.join(SOCKET).as_os_str().as_bytes().len() > SOCKET_BYTES_MAX {
            return Err(CommandFailure::Usage(format!(
                "{path}: too long a path for a socket. Mount the storage at a shorter one."
            )));
        }
        let make = || {
            // The database's user comes through this directory.
            let all = fs::set_permissions(directory, Permissions::from_mode(0o755));
            all.map_err(|error| error.to_string())?;
            let configuration = format!("listen_addresses = ''\n{configuration}");
            initialize(&made.data, &made.sockets, &configuration)?;
            let server = DatabaseServer::start(&made.data, &made.sockets)?;
            fill(&server)?;
            server.stop("fast")
        };
        make().map_err(|cause| {
            if stage.interruption().has_come() {
                return stage.failed(directory, ErrorKind::Interrupted.into());
            }
            let cause = cause.split_whitespace().collect::<Vec<_>>().join(" ");
            CommandFailure::Runtime(format!(
                "{path}: no database can be made ({cause}). Let the user postgres come to the path."
            ))
        })?;
        stage.prove_volume(&made.data.join("PG_VERSION"))?;
        Ok(made)
    }

    /// Has the server run for `work`.
    pub fn serve<T>(
        &self,
        work: impl FnOnce(&DatabaseServer) -> Result<T, String>,
    ) -> Result<T, CommandFailure> {
        let served = DatabaseServer::start(&self.data, &self.sockets).and_then(|server| {
            let came = work(&server)?;
            server.stop("fast")?;
            Ok(came)
        });
        served.map_err(CommandFailure::Runtime)
    }
}
