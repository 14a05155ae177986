//! The drill's world on this machine: a daemon and its drives, which are pulled by killing the
//! processes behind them.

use super::drive::{DrillDrive, DriveKind, fresh};
use super::play::{Counts, DrillWorld, look, play};
use super::remote::{DrillDaemon, Remote, beside};
use super::row::{DrillRow, to_message};
use super::setup::{DrillCell, DrillSetup};
use block::{Address, BoxDevice};
use control::config::Name;
use control::protocol::ControlRequest;
use control::status::ArrayReport;
use shard::Local;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use uring::UringDriver;

/// The drives that are not pulled.
type Drives = BTreeMap<Name, DrillDrive>;

/// A daemon and its drives.
pub struct DrillStage {
    setup: DrillSetup,
    directory: PathBuf,
    kind: DriveKind,
    drives: Drives,
    daemon: DrillDaemon,
}

impl DrillStage {
    pub fn new(
        setup: &DrillSetup,
        kind: DriveKind,
        program: &Path,
        directory: &Path,
    ) -> Result<DrillStage, String> {
        let directory = fresh(directory)?;
        let mut drives = Drives::new();
        for drive in setup.drives() {
            let name = &drive.name.value;
            let size = setup.drive_size();
            let drive = DrillDrive::blank(kind, &directory, name.as_str(), size)?;
            drives.insert(name.clone(), drive);
        }
        let config = directory.join("hotset.toml");
        let source = |name: &str| kind.source(&directory, name);
        fs::write(&config, setup.configuration(&directory, source)).map_err(to_message)?;
        for array in setup.arrays() {
            let array = array.name.as_str();
            let mut create = Command::new(program);
            create.args(["array", "create", array, "--yes", "--config"]);
            let made = create.arg(&config).output().map_err(to_message)?;
            if !made.status.success() {
                let message = String::from_utf8_lossy(&made.stderr).trim().to_owned();
                return Err(format!("array {array} cannot be made: {message}"));
            }
        }
        let daemon = DrillDaemon::start(program, &directory)?;
        Ok(DrillStage {
            setup: setup.clone(),
            directory,
            kind,
            drives,
            daemon,
        })
    }

    fn arrays(&self) -> Result<Vec<ArrayReport>, String> {
        Ok(self.daemon.status()?.arrays)
    }

    /// Runs one cell.
    pub fn run(&mut self, cell: DrillCell) -> Result<DrillRow, String> {
        let socket = self.directory.join("nbd").display().to_string();
        let plan = (self.setup.clone(), cell);
        beside(self, async move |local, remote| {
            live(local, remote, socket, plan).await
        })
    }

    fn pull(&mut self, names: &[Name]) -> Result<(), String> {
        let mut pulled = names.iter().filter_map(|name| self.drives.remove(name));
        pulled.try_for_each(DrillDrive::pull)
    }

    fn give_back(&mut self, names: Vec<Name>) -> Result<(), String> {
        for name in names {
            let drive = DrillDrive::give(self.kind, &self.directory, name.as_str())?;
            self.drives.insert(name, drive);
        }
        Ok(())
    }

    fn look(&self) -> Result<(bool, Counts), String> {
        Ok(look(&self.setup, &self.arrays()?))
    }

    fn scrub(&self, array: &str) -> Result<u64, String> {
        let request = ControlRequest::Scrub {
            array: array.to_owned(),
            repair: false,
        };
        self.daemon
            .client()?
            .command(&request)
            .map_err(to_message)?;
        loop {
            let arrays = self.arrays()?;
            let found = arrays.into_iter().find(|found| found.name == array);
            match found.and_then(|found| found.scrub) {
                Some(scrub) if scrub.running => std::thread::sleep(Duration::from_millis(50)),
                Some(scrub) => match scrub.error {
                    None => return Ok(scrub.mismatches),
                    Some(error) => return Err(error),
                },
                None => return Err(format!("array {array} runs no more")),
            }
        }
    }
}

/// The thread with the servers, in the view of the script.
struct ServerThread {
    remote: Remote<DrillStage>,
    /// The drives of the cell.
    drives: Vec<Name>,
}

impl DrillWorld for ServerThread {
    async fn pull(&self) -> Result<(), String> {
        let drives = self.drives.clone();
        self.remote.ask(move |stage| stage.pull(&drives)).await
    }
    async fn give_back(&self) -> Result<(), String> {
        let drives = self.drives.clone();
        self.remote.ask(move |stage| stage.give_back(drives)).await
    }
    async fn is_whole(&self) -> Result<bool, String> {
        Ok(self.remote.ask(|stage| stage.look()).await?.0)
    }
    async fn scrub(&self) -> Result<Vec<(String, u64)>, String> {
        let scrub = |stage: &mut DrillStage| {
            let arrays = stage.setup.redundant();
            arrays
                .map(|name| Ok((name.to_string(), stage.scrub(name.as_str())?)))
                .collect()
        };
        self.remote.ask(scrub).await
    }
    async fn counts(&self) -> Result<Counts, String> {
        Ok(self.remote.ask(|stage| stage.look()).await?.1)
    }
}

async fn live(
    local: Local<UringDriver>,
    remote: Remote<DrillStage>,
    socket: String,
    (setup, cell): (DrillSetup, DrillCell),
) -> Result<DrillRow, String> {
    let drives = cell.scenario.drives.clone();
    let other = ServerThread { remote, drives };
    let mut volumes = Vec::new();
    for array in setup.volumes() {
        let export = array.name.as_str();
        let options = nbd::client::Options::new(Address::Unix(socket.clone().into()), export);
        let client = nbd::client::Client::connect(local.env(), local.connector(), options);
        volumes.push(BoxDevice::new(client.await.map_err(to_message)?));
    }
    play(local.env(), volumes, &other, &setup, &cell, "real").await
}
