//! A drill of write-back volumes on this machine. The daemon's SSDs are loop devices that lose the
//! file system under them; its origin is a server that is killed or stopped.

use super::play::{Site, play};
use super::standing::Standing;
use super::{Cell, Loss, Part, Volumes};
use crate::drive::{Drive, Kind, fresh, image};
use crate::remote::{Daemon, Remote, beside};
use crate::row::{Row, to_message};
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
pub struct Stage {
    volumes: Volumes,
    kind: Kind,
    program: PathBuf,
    directory: PathBuf,
    drives: BTreeMap<Name, Drive>,
    daemon: Option<Daemon>,
}

/// The stand-in for a drive: a log has its devices in this machine.
fn kind_of(part: Part, kind: Kind) -> Kind {
    match part {
        Part::Origin => kind,
        Part::Log | Part::Journal | Part::Pool => Kind::Loop,
    }
}

impl Stage {
    pub fn new(
        volumes: &Volumes,
        kind: Kind,
        program: &Path,
        directory: &Path,
    ) -> Result<Stage, String> {
        let directory = fresh(directory)?;
        let mut stage = Stage {
            volumes: volumes.clone(),
            kind,
            program: program.to_owned(),
            directory,
            drives: BTreeMap::new(),
            daemon: None,
        };
        for (name, part) in &volumes.drives {
            let (kind, size) = (kind_of(*part, kind), volumes.size(*part));
            let drive = Drive::blank(kind, &stage.directory, name.as_str(), size)?;
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
        let drive = Drive::give(kind, &self.directory, name.as_str())?;
        self.drives.insert(name.clone(), drive);
        Ok(())
    }

    /// Starts the daemon; returns once the daemon serves every volume.
    fn start(&mut self) -> Result<(), String> {
        self.daemon = Some(Daemon::start(&self.program, &self.directory)?);
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
    pub fn run(&mut self, cell: Cell) -> Result<Row, String> {
        let socket = self.directory.join("nbd").display().to_string();
        let plan = (socket, self.volumes.clone(), cell.clone());
        let work = async move |local, remote| live(local, remote, plan).await;
        beside(work, |job| self.carry_out(&cell, job))
    }

    fn carry_out(&mut self, cell: &Cell, job: Job) -> Result<Answer, String> {
        let scenario = &cell.scenario;
        match job {
            Job::Lose(step) => {
                for name in &scenario.steps[step] {
                    // A loop device that is killed comes back as another, unlike any open origin.
                    if self.is_stopped(scenario.loss) {
                        self.drives[name].stop()?;
                    } else if let Some(drive) = self.drives.remove(name) {
                        drive.pull()?;
                    }
                }
            }
            Job::GiveBack => {
                for name in scenario.steps.iter().flatten() {
                    match self.is_stopped(scenario.loss) {
                        true => self.drives[name].go_on()?,
                        false => self.give(name)?,
                    }
                }
            }
            Job::Look => return Ok(Answer::Status(Box::new(self.status()?))),
            Job::Stop => {
                let daemon = self.daemon.take().ok_or("the daemon does not run")?;
                daemon.stop()?;
                let origins = self.volumes.volumes.iter().map(|volume| {
                    let file = image(&self.directory, volume.origin.value.as_str());
                    fs::read(file).map_err(to_message)
                });
                return Ok(Answer::Origins(origins.collect::<Result<_, _>>()?));
            }
            Job::Start => self.start()?,
        }
        Ok(Answer::Done)
    }

    fn is_stopped(&self, loss: Loss) -> bool {
        loss == Loss::Path && self.kind == Kind::Loop
    }
}

/// Jobs of the thread with the drives, for the thread with the clients.
enum Job {
    Lose(usize),
    GiveBack,
    Look,
    Stop,
    Start,
}

enum Answer {
    Done,
    Status(Box<Status>),
    Origins(Vec<Vec<u8>>),
}

/// The other thread, in the view of the script.
struct Other {
    local: Local<UringDriver>,
    remote: Remote<Job, Answer>,
    socket: String,
    volumes: Volumes,
}

impl Other {
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

impl Site for Other {
    async fn lose(&self, step: usize) -> Result<(), String> {
        self.remote.ask(Job::Lose(step)).await.map(drop)
    }

    async fn give_back(&self) -> Result<(), String> {
        self.remote.ask(Job::GiveBack).await.map(drop)
    }

    async fn standing(&self) -> Result<Standing, String> {
        match self.remote.ask(Job::Look).await? {
            Answer::Status(status) => Ok(Standing::of(&self.volumes, &status)),
            _ => Err("no status".into()),
        }
    }

    async fn stop(&self) -> Result<Vec<Vec<u8>>, String> {
        match self.remote.ask(Job::Stop).await? {
            Answer::Origins(origins) => Ok(origins),
            _ => Err("no origins".into()),
        }
    }

    async fn start(&self) -> Result<Vec<BoxDevice>, String> {
        self.remote.ask(Job::Start).await?;
        self.connect().await
    }
}

async fn live(
    local: Local<UringDriver>,
    remote: Remote<Job, Answer>,
    (socket, volumes, cell): (String, Volumes, Cell),
) -> Result<Row, String> {
    let other = Other {
        local: local.clone(),
        remote,
        socket,
        volumes: volumes.clone(),
    };
    let devices = other.connect().await?;
    play(local.env(), devices, &other, &volumes, &cell, "real").await
}
