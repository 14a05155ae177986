//! The drill's world on this machine: a daemon whose drives are pulled by killing
//! the processes behind them.

use super::drive::{Drive, Kind, image};
use super::play::{Counts, Site, look, play};
use super::row::{Row, to_message};
use super::setup::{Cell, Setup};
use block::{Address, BoxDevice, Env, Nanos};
use control::client::Client;
use control::config::Name;
use control::protocol::Request;
use control::status::Array;
use shard::{Local, run_alone};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use testbed::tools::bound;
use uring::{Options, Uring, UringDriver};

/// How long a daemon may take to serve.
const START_MAX: Duration = Duration::from_secs(60);
/// How often an answer of the helper thread is looked for.
const LOOK: Nanos = Nanos::from_millis(2);

/// The drives that are not pulled.
type Drives = BTreeMap<Name, Drive>;

/// A daemon and its drives.
pub struct Stage {
    setup: Setup,
    directory: PathBuf,
    kind: Kind,
    drives: Mutex<Drives>,
    daemon: Daemon,
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stage {
    pub fn new(
        setup: &Setup,
        kind: Kind,
        program: &Path,
        directory: &Path,
    ) -> Result<Stage, String> {
        fs::create_dir_all(directory).map_err(to_message)?;
        let directory = directory.canonicalize().map_err(to_message)?;
        let _ = fs::remove_dir_all(directory.join("state"));
        let mut drives = Drives::new();
        for drive in setup.drives() {
            let name = &drive.name.value;
            let file = File::create(image(&directory, name.as_str())).map_err(to_message)?;
            file.set_len(setup.drive_size().bytes())
                .map_err(to_message)?;
            let drive = Drive::give(kind, &directory, name.as_str())?;
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
        let log = File::create(directory.join("log")).map_err(to_message)?;
        let mut daemon = bound(program);
        daemon.args(["serve", "--config"]).arg(&config);
        daemon.stdin(Stdio::null()).stderr(log);
        let daemon = Daemon(daemon.spawn().map_err(to_message)?);
        let stage = Stage {
            setup: setup.clone(),
            directory,
            kind,
            drives: Mutex::new(drives),
            daemon,
        };
        let began = Instant::now();
        while stage.arrays().is_err() {
            if began.elapsed() > START_MAX {
                let log = fs::read_to_string(stage.directory.join("log")).unwrap_or_default();
                let number = stage.daemon.0.id();
                return Err(format!(
                    "the daemon {number} does not serve: {}",
                    log.trim()
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(stage)
    }

    fn client(&self) -> Result<Client, String> {
        Client::connect(&self.directory.join("control")).map_err(to_message)
    }

    fn arrays(&self) -> Result<Vec<Array>, String> {
        Ok(self.client()?.status().map_err(to_message)?.arrays)
    }

    /// Runs one cell.
    pub fn run(&self, cell: Cell) -> Result<Row, String> {
        let (jobs, of_load) = channel();
        let (answers, to_load) = channel();
        let socket = self.directory.join("nbd").display().to_string();
        std::thread::scope(|scope| {
            let plan = (self.setup.clone(), cell.clone());
            let load = scope.spawn(move || client(socket, plan, jobs, to_load));
            // Ends when the load has, and has dropped its end.
            for job in of_load {
                let answer = self.carry_out(&cell, job);
                if answers.send(answer).is_err() {
                    break;
                }
            }
            load.join().map_err(|_| "the load panicked".to_owned())?
        })
    }

    fn carry_out(&self, cell: &Cell, job: Job) -> Result<Answer, String> {
        match job {
            Job::Pull => {
                let mut drives = self.drives.lock().map_err(to_message)?;
                for name in &cell.scenario.drives {
                    if let Some(drive) = drives.remove(name) {
                        drive.pull()?;
                    }
                }
                Ok(Answer::default())
            }
            Job::GiveBack => {
                let mut drives = self.drives.lock().map_err(to_message)?;
                for name in &cell.scenario.drives {
                    let drive = Drive::give(self.kind, &self.directory, name.as_str())?;
                    drives.insert(name.clone(), drive);
                }
                Ok(Answer::default())
            }
            Job::Look => {
                let (whole, counts) = look(&self.setup, &self.arrays()?);
                Ok(Answer {
                    whole,
                    counts,
                    differ: Vec::new(),
                })
            }
            Job::Scrub => {
                let mut differ = Vec::new();
                for name in self.setup.redundant() {
                    differ.push((name.to_string(), self.scrub(name.as_str())?));
                }
                Ok(Answer {
                    differ,
                    ..Answer::default()
                })
            }
        }
    }

    fn scrub(&self, array: &str) -> Result<u64, String> {
        let request = Request::Scrub {
            array: array.to_owned(),
            repair: false,
        };
        self.client()?.command(&request).map_err(to_message)?;
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

/// What the thread with the servers is to do for the one with the load.
enum Job {
    Pull,
    GiveBack,
    Look,
    Scrub,
}

#[derive(Default)]
struct Answer {
    whole: bool,
    counts: Counts,
    differ: Vec<(String, u64)>,
}

/// The other thread, as the script sees it.
struct Remote {
    env: Env,
    jobs: Sender<Job>,
    answers: RefCell<Receiver<Result<Answer, String>>>,
}

impl Remote {
    async fn ask(&self, job: Job) -> Result<Answer, String> {
        self.jobs.send(job).map_err(to_message)?;
        loop {
            let answer = self.answers.borrow().try_recv();
            match answer {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => self.env.timer.sleep(LOOK).await,
                Err(TryRecvError::Disconnected) => return Err("the drill was ended".into()),
            }
        }
    }
}

impl Site for Remote {
    async fn pull(&self) -> Result<(), String> {
        self.ask(Job::Pull).await.map(drop)
    }
    async fn give_back(&self) -> Result<(), String> {
        self.ask(Job::GiveBack).await.map(drop)
    }
    async fn is_whole(&self) -> Result<bool, String> {
        Ok(self.ask(Job::Look).await?.whole)
    }
    async fn scrub(&self) -> Result<Vec<(String, u64)>, String> {
        Ok(self.ask(Job::Scrub).await?.differ)
    }
    async fn counts(&self) -> Result<Counts, String> {
        Ok(self.ask(Job::Look).await?.counts)
    }
}

type Ends = (Sender<Job>, Receiver<Result<Answer, String>>);

/// The client's whole life on a thread of its own.
fn client(
    socket: String,
    plan: (Setup, Cell),
    jobs: Sender<Job>,
    answers: Receiver<Result<Answer, String>>,
) -> Result<Row, String> {
    let mut host = Uring::new(Options::default()).map_err(to_message)?;
    let work = async move |local| live(local, &socket, &plan, (jobs, answers)).await;
    let ended = run_alone(&mut host, work);
    ended.unwrap_or_else(|| Err("the load did not end".into()))
}

async fn live(
    local: Local<UringDriver>,
    socket: &str,
    (setup, cell): &(Setup, Cell),
    (jobs, answers): Ends,
) -> Result<Row, String> {
    let mut volumes = Vec::new();
    for array in setup.volumes() {
        let export = array.name.as_str();
        let options = nbd::client::Options::new(Address::Unix(socket.into()), export);
        let client = nbd::client::Client::connect(local.env(), local.connector(), options);
        volumes.push(BoxDevice::new(client.await.map_err(to_message)?));
    }
    let site = Remote {
        env: local.env(),
        jobs,
        answers: RefCell::new(answers),
    };
    play(local.env(), volumes, &site, setup, cell, "real").await
}
