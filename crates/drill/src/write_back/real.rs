//! A drill of write-back volumes on this machine. The daemon's SSDs are loop devices that lose the
//! file system under them; its origin is a server that is killed or stopped.

use super::play::{WriteBackWorld, play};
use super::standing::VolumesStanding;
use super::{DrillLoss, DrivePart, Volumes, WriteBackCell, WriteBackScenario};
use crate::drive::{DrillDrive, DriveKind, fresh, image};
use crate::remote::{DrillDaemon, Remote, beside};
use crate::row::{DrillRow, to_message};
use block::{Address, BoxDevice};
use control::config::Name;
use control::status::Status;
use shard::Local;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uring::UringDriver;

/// Time limit until all volumes are served.
const SERVED_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// A daemon and its drives.
pub struct WriteBackStage {
    volumes: Volumes,
    kind: DriveKind,
    program: PathBuf,
    directory: PathBuf,
    drives: BTreeMap<Name, DrillDrive>,
    daemon: Option<DrillDaemon>,
}

/// The stand-in for a drive: a log has its devices in this machine.
fn kind_of(part: DrivePart, kind: DriveKind) -> DriveKind {
    match part {
        DrivePart::Origin => kind,
        DrivePart::Log | DrivePart::Journal | DrivePart::Pool => DriveKind::Loop,
    }
}

impl WriteBackStage {
    pub fn new(
        volumes: &Volumes,
        kind: DriveKind,
        program: &Path,
        directory: &Path,
    ) -> Result<WriteBackStage, String> {
        let directory = fresh(directory)?;
        let mut stage = WriteBackStage {
            volumes: volumes.clone(),
            kind,
            program: program.to_owned(),
            directory,
            drives: BTreeMap::new(),
            daemon: None,
        };
        for (name, part) in &volumes.drives {
            let (kind, size) = (kind_of(*part, kind), volumes.size(*part));
            let drive = DrillDrive::blank(kind, &stage.directory, name.as_str(), size)?;
            stage.drives.insert(name.clone(), drive);
        }
        let source = |name: &str, part| kind_of(part, kind).source(&stage.directory, name);
        let text = volumes.configuration(&stage.directory, source);
        fs::write(stage.directory.join("hotset.toml"), text).map_err(to_message)?;
        stage.start()?;
        Ok(stage)
    }

    fn give(&mut self, name: &Name) -> Result<(), String> {
        let kind = kind_of(self.volumes.drives[name], self.kind);
        let drive = DrillDrive::give(kind, &self.directory, name.as_str())?;
        self.drives.insert(name.clone(), drive);
        Ok(())
    }

    /// Starts the daemon; returns once the daemon serves every volume.
    fn start(&mut self) -> Result<(), String> {
        self.daemon = Some(DrillDaemon::start(&self.program, &self.directory)?);
        let began = Instant::now();
        loop {
            let status = self.status()?;
            if status.volumes.len() == self.volumes.volumes.len() {
                return Ok(());
            }
            if began.elapsed() > SERVED_MAX {
                let waiting = status.waiting.into_iter();
                let why: Vec<String> = waiting.map(|volume| volume.why).collect();
                return Err(format!("not all is served: {}", why.join("; ")));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn status(&self) -> Result<Status, String> {
        let daemon = self.daemon.as_ref().ok_or("the daemon does not run")?;
        daemon.status()
    }

    /// Runs one cell.
    pub fn run(&mut self, cell: WriteBackCell) -> Result<DrillRow, String> {
        let socket = self.directory.join("nbd").display().to_string();
        let plan = (socket, self.volumes.clone(), cell);
        beside(self, async move |local, remote| {
            live(local, remote, plan).await
        })
    }

    fn lose(&mut self, scenario: &WriteBackScenario, step: usize) -> Result<(), String> {
        for name in &scenario.steps[step] {
            // A loop device that is killed comes back as another, unlike any open origin.
            if self.is_stopped(scenario.loss) {
                self.drives[name].stop()?;
            } else if let Some(drive) = self.drives.remove(name) {
                drive.pull()?;
            }
        }
        Ok(())
    }

    fn give_back(&mut self, scenario: &WriteBackScenario) -> Result<(), String> {
        for name in scenario.steps.iter().flatten() {
            match self.is_stopped(scenario.loss) {
                true => self.drives[name].go_on()?,
                false => self.give(name)?,
            }
        }
        Ok(())
    }

    /// Ends the daemon in order. Returns the bytes of the origins.
    fn stop(&mut self) -> Result<Vec<Vec<u8>>, String> {
        let daemon = self.daemon.take().ok_or("the daemon does not run")?;
        daemon.stop()?;
        let origins = self.volumes.volumes.iter().map(|volume| {
            let file = image(&self.directory, volume.origin.value.as_str());
            fs::read(file).map_err(to_message)
        });
        origins.collect()
    }

    fn is_stopped(&self, loss: DrillLoss) -> bool {
        loss == DrillLoss::Path && self.kind == DriveKind::Loop
    }
}

/// The other thread, in the view of the script.
struct WriteBackThread {
    local: Local<UringDriver>,
    remote: Remote<WriteBackStage>,
    socket: String,
    volumes: Volumes,
    scenario: WriteBackScenario,
}

impl WriteBackThread {
    async fn connect(&self) -> Result<Vec<BoxDevice>, String> {
        let mut devices = Vec::new();
        for volume in &self.volumes.volumes {
            let address = Address::Unix(self.socket.clone().into());
            let options = nbd::client::Options::new(address, volume.name.value.as_str());
            let (env, connector) = (self.local.env(), self.local.connector());
            let client = nbd::client::Client::connect(env, connector, options);
            devices.push(BoxDevice::new(client.await.map_err(to_message)?));
        }
        Ok(devices)
    }
}

impl WriteBackWorld for WriteBackThread {
    async fn lose(&self, step: usize) -> Result<(), String> {
        let scenario = self.scenario.clone();
        let lose = move |stage: &mut WriteBackStage| stage.lose(&scenario, step);
        self.remote.ask(lose).await
    }

    async fn give_back(&self) -> Result<(), String> {
        let scenario = self.scenario.clone();
        self.remote
            .ask(move |stage| stage.give_back(&scenario))
            .await
    }

    async fn standing(&self) -> Result<VolumesStanding, String> {
        let status = self.remote.ask(|stage| stage.status()).await?;
        Ok(VolumesStanding::of(&self.volumes, &status))
    }

    async fn stop(&self) -> Result<Vec<Vec<u8>>, String> {
        self.remote.ask(WriteBackStage::stop).await
    }

    async fn start(&self) -> Result<Vec<BoxDevice>, String> {
        self.remote.ask(WriteBackStage::start).await?;
        self.connect().await
    }
}

async fn live(
    local: Local<UringDriver>,
    remote: Remote<WriteBackStage>,
    (socket, volumes, cell): (String, Volumes, WriteBackCell),
) -> Result<DrillRow, String> {
    let other = WriteBackThread {
        local: local.clone(),
        remote,
        socket,
        volumes: volumes.clone(),
        scenario: cell.scenario.clone(),
    };
    let devices = other.connect().await?;
    play(local.env(), devices, &other, &volumes, &cell, "real").await
}
