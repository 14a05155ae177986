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
use std::sync::Mutex;
use std::time::Duration;
use uring::UringDriver;

/// The drives that are not pulled.
type Drives = BTreeMap<Name, DrillDrive>;

/// A daemon and its drives.
pub struct DrillStage {
    setup: DrillSetup,
    directory: PathBuf,
    kind: DriveKind,
    drives: Mutex<Drives>,
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
            drives: Mutex::new(drives),
            daemon,
        })
    }

    fn arrays(&self) -> Result<Vec<ArrayReport>, String> {
        Ok(self.daemon.status()?.arrays)
    }

    /// Runs one cell.
    pub fn run(&self, cell: DrillCell) -> Result<DrillRow, String> {
        let socket = self.directory.join("nbd").display().to_string();
        let plan = (self.setup.clone(), cell.clone());
        let script = async move |local, other| live(local, ServerThread(other), socket, plan).await;
        beside(script, |job| self.carry_out(&cell, job))
    }

    fn carry_out(&self, cell: &DrillCell, job: DrillJob) -> Result<StageAnswer, String> {
        match job {
            DrillJob::Pull => {
                let mut drives = self.drives.lock().map_err(to_message)?;
                for name in &cell.scenario.drives {
                    if let Some(drive) = drives.remove(name) {
                        drive.pull()?;
                    }
                }
                Ok(StageAnswer::default())
            }
            DrillJob::GiveBack => {
                let mut drives = self.drives.lock().map_err(to_message)?;
                for name in &cell.scenario.drives {
                    let drive = DrillDrive::give(self.kind, &self.directory, name.as_str())?;
                    drives.insert(name.clone(), drive);
                }
                Ok(StageAnswer::default())
            }
            DrillJob::Look => {
                let (whole, counts) = look(&self.setup, &self.arrays()?);
                Ok(StageAnswer {
                    whole,
                    counts,
                    differ: Vec::new(),
                })
            }
            DrillJob::Scrub => {
                let mut differ = Vec::new();
                for name in self.setup.redundant() {
                    differ.push((name.to_string(), self.scrub(name.as_str())?));
                }
                Ok(StageAnswer {
                    differ,
                    ..StageAnswer::default()
                })
            }
        }
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

/// Jobs of the thread with the servers, for the thread with the load.
enum DrillJob {
    Pull,
    GiveBack,
    Look,
    Scrub,
}

#[derive(Default)]
struct StageAnswer {
    whole: bool,
    counts: Counts,
    differ: Vec<(String, u64)>,
}

/// The thread with the servers, in the view of the script.
struct ServerThread(Remote<DrillJob, StageAnswer>);

impl DrillWorld for ServerThread {
    async fn pull(&self) -> Result<(), String> {
        self.0.ask(DrillJob::Pull).await.map(drop)
    }
    async fn give_back(&self) -> Result<(), String> {
        self.0.ask(DrillJob::GiveBack).await.map(drop)
    }
    async fn is_whole(&self) -> Result<bool, String> {
        Ok(self.0.ask(DrillJob::Look).await?.whole)
    }
    async fn scrub(&self) -> Result<Vec<(String, u64)>, String> {
        Ok(self.0.ask(DrillJob::Scrub).await?.differ)
    }
    async fn counts(&self) -> Result<Counts, String> {
        Ok(self.0.ask(DrillJob::Look).await?.counts)
    }
}

async fn live(
    local: Local<UringDriver>,
    other: ServerThread,
    socket: String,
    (setup, cell): (DrillSetup, DrillCell),
) -> Result<DrillRow, String> {
    let mut volumes = Vec::new();
    for array in setup.volumes() {
        let export = array.name.as_str();
        let options = nbd::client::Options::new(Address::Unix(socket.clone().into()), export);
        let client = nbd::client::Client::connect(local.env(), local.connector(), options);
        volumes.push(BoxDevice::new(client.await.map_err(to_message)?));
    }
    play(local.env(), volumes, &other, &setup, &cell, "real").await
}
