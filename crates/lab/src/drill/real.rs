//! The drill's world on this machine: a daemon whose drives are NBD servers,
//! each a process that is killed and started again.

use super::{Cell, Counts, DETECTION, DRIVE_MIB, Row, SIDES, STRIPE, Site, drive, play, told};
use crate::bench::server::Server;
use block::{Address, BoxDevice, Env, Host, Nanos};
use control::client::Client;
use control::protocol::Request;
use control::status::Array;
use shard::{Local, Mesh, Shard};
use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uring::{Options, Uring, UringDriver};

/// How long a daemon may take to serve.
const START_MAX: Duration = Duration::from_secs(60);
/// How often an answer of the helper thread is looked for.
const LOOK: Nanos = Nanos::from_millis(2);

/// The servers of a side's drives; `None` if one is pulled.
type Drives = Vec<Option<Server>>;

/// A daemon and its drives.
pub struct Stage {
    directory: PathBuf,
    drives: Mutex<Vec<Drives>>,
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

/// Runs nbdkit for a drive.
fn serve(directory: &Path, side: usize, number: usize) -> Result<Server, String> {
    let name = drive(side, number);
    let file = directory.join(format!("{name}.img")).display().to_string();
    Server::nbdkit(&name, directory, &["file", &file]).map_err(told)
}

fn configuration(directory: &Path) -> String {
    let dir = directory.display();
    let mut text = format!(
        "[daemon]\ncontrol = \"{dir}/control\"\nstate = \"{dir}/state\"\n[[listen]]\nunix = \"{dir}/nbd\"\n\
         [[pool]]\nname = \"none\"\ndevices = []\n"
    );
    let detection = DETECTION.0 / 1_000_000;
    let array = |name: &str, level: &str, members: &[String]| {
        format!(
            "[[array]]\nname = \"{name}\"\nlevel = \"{level}\"\nmembers = {members:?}\n\
             detection = \"{detection}ms\"\n"
        )
    };
    for (side, name) in SIDES.into_iter().enumerate() {
        for number in 0..=STRIPE {
            let drive = drive(side, number);
            text += &format!(
                "[[device]]\nname = \"{drive}\"\nnbd = \"nbd+unix:///?socket={dir}/{drive}\"\n\
                 controller = \"{name}\"\n"
            );
        }
        let members: Vec<_> = (1..=STRIPE).map(|number| drive(side, number)).collect();
        text += &array(&format!("stripe-{name}"), "raid0", &members);
    }
    let both = |make: &dyn Fn(usize) -> String| [make(0), make(1)];
    text += &array(
        "data-mirror",
        "raid1",
        &both(&|side| format!("stripe-{}", SIDES[side])),
    );
    text += &array("os-mirror", "raid1", &both(&|side| drive(side, 0)));
    for name in ["data", "os"] {
        text += &format!(
            "[[volume]]\nname = \"{name}\"\norigin = \"{name}-mirror\"\npool = \"none\"\n\
             mode = \"pass-through\"\n"
        );
    }
    text
}

impl Stage {
    pub fn new(program: &Path, directory: &Path) -> Result<Stage, String> {
        fs::create_dir_all(directory).map_err(told)?;
        let directory = directory.canonicalize().map_err(told)?;
        let _ = fs::remove_dir_all(directory.join("state"));
        let mut drives = Vec::new();
        for side in 0..SIDES.len() {
            let mut servers = Vec::new();
            for number in 0..=STRIPE {
                let path = directory.join(format!("{}.img", drive(side, number)));
                let file = File::create(path).map_err(told)?;
                file.set_len(DRIVE_MIB << 20).map_err(told)?;
                servers.push(Some(serve(&directory, side, number)?));
            }
            drives.push(servers);
        }
        let config = directory.join("hotset.toml");
        fs::write(&config, configuration(&directory)).map_err(told)?;
        for array in ["stripe-a", "stripe-b", "data-mirror", "os-mirror"] {
            let mut create = Command::new(program);
            create.args(["array", "create", array, "--yes", "--config"]);
            let made = create.arg(&config).output().map_err(told)?;
            if !made.status.success() {
                let told = String::from_utf8_lossy(&made.stderr).trim().to_owned();
                return Err(format!("array {array} cannot be made: {told}"));
            }
        }
        let log = File::create(directory.join("log")).map_err(told)?;
        let mut daemon = Command::new(program);
        daemon.args(["serve", "--config"]).arg(&config);
        daemon.stdin(Stdio::null()).stderr(log);
        let daemon = Daemon(daemon.spawn().map_err(told)?);
        let stage = Stage {
            directory,
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
        Client::connect(&self.directory.join("control")).map_err(told)
    }

    fn arrays(&self) -> Result<Vec<Array>, String> {
        Ok(self.client()?.status().map_err(told)?.arrays)
    }

    /// Runs one cell.
    pub fn run(&self, cell: Cell) -> Result<Row, String> {
        let (jobs, of_load) = channel();
        let (answers, to_load) = channel();
        let socket = self.directory.join("nbd").display().to_string();
        std::thread::scope(|scope| {
            let load = scope.spawn(move || client(socket, cell, jobs, to_load));
            // Ends when the load has, and has dropped its end.
            for job in of_load {
                let answer = self.carry_out(cell, job);
                if answers.send(answer).is_err() {
                    break;
                }
            }
            load.join().map_err(|_| "the load panicked".to_owned())?
        })
    }

    fn carry_out(&self, cell: Cell, job: Job) -> Result<Answer, String> {
        match job {
            Job::Pull => {
                let mut drives = self.drives.lock().map_err(told)?;
                for number in cell.scenario.drives() {
                    if let Some(server) = drives[cell.side][number].take() {
                        server.kill().map_err(told)?;
                    }
                }
                Ok(Answer::default())
            }
            Job::GiveBack => {
                let mut drives = self.drives.lock().map_err(told)?;
                for number in cell.scenario.drives() {
                    drives[cell.side][number] = Some(serve(&self.directory, cell.side, number)?);
                }
                Ok(Answer::default())
            }
            Job::Look => {
                let arrays = self.arrays()?;
                let whole = arrays.iter().all(|array| array.state == "healthy");
                let mirrors = arrays.iter().filter(|array| array.level == "raid1");
                let counts = mirrors.flat_map(|array| {
                    array.members.iter().map(|member| {
                        let device = member.device.as_deref().unwrap_or("-");
                        let name = format!("{} on {device}", array.name);
                        (name, member.reads, member.writes)
                    })
                });
                Ok(Answer {
                    whole,
                    counts: counts.collect(),
                    differ: 0,
                })
            }
            Job::Scrub => {
                let mut differ = 0;
                for array in ["data-mirror", "os-mirror"] {
                    differ += self.scrub(array)?;
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
        self.client()?.command(&request).map_err(told)?;
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
    differ: u64,
}

/// The other thread, as the script sees it.
struct Remote {
    env: Env,
    jobs: Sender<Job>,
    answers: RefCell<Receiver<Result<Answer, String>>>,
}

impl Remote {
    async fn ask(&self, job: Job) -> Result<Answer, String> {
        self.jobs.send(job).map_err(told)?;
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
    async fn scrub(&self) -> Result<u64, String> {
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
    cell: Cell,
    jobs: Sender<Job>,
    answers: Receiver<Result<Answer, String>>,
) -> Result<Row, String> {
    let mut host = Uring::new(Options::default()).map_err(told)?;
    let ends: Arc<Mutex<Option<Ends>>> = Arc::new(Mutex::new(Some((jobs, answers))));
    let outcome = Arc::new(Mutex::new(Err("the load did not end".to_owned())));
    let (result, mesh) = (outcome.clone(), Mesh::new(1));
    host.run(1, move |id, driver| {
        let (ends, result, socket) = (ends.clone(), result.clone(), socket.clone());
        let depth = shard::Config::default();
        Shard::boot(id, driver, mesh.clone(), depth, move |local| async move {
            let ends = ends.lock().expect("no panic under this lock").take();
            let ended = match ends {
                Some(ends) => live(local, &socket, cell, ends).await,
                None => Err("there is one shard".into()),
            };
            *result.lock().expect("no panic under this lock") = ended;
        })
    });
    outcome.lock().map_err(told)?.clone()
}

async fn live(
    local: Local<UringDriver>,
    socket: &str,
    cell: Cell,
    (jobs, answers): Ends,
) -> Result<Row, String> {
    let mut volumes = Vec::new();
    for export in ["data", "os"] {
        let options = nbd::client::Options::new(Address::Unix(socket.into()), export);
        let client = nbd::client::Client::connect(local.env(), local.connector(), options);
        volumes.push(BoxDevice::new(client.await.map_err(told)?));
    }
    let site = Remote {
        env: local.env(),
        jobs,
        answers: RefCell::new(answers),
    };
    play(local.env(), volumes, &site, cell, "real").await
}
