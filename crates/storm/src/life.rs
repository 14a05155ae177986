//! One life of a daemon: it is started, all is read, clients write while its devices fail and it is
//! paused, and it is killed or ended.

use crate::bytes::Part;
use crate::client::Client;
use crate::machine::Process;
use crate::operator::{operate, watch};
use crate::plan::{Fault, Target};
use crate::weather::While;
use crate::world::World;
use fastrand::Rng;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

/// How long a daemon may take to serve all of its volumes, and to end in order.
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(60);
/// Threads that operate the daemon.
const OPERATORS: usize = 2;

/// The parts of each volume.
pub type Parts = Vec<Vec<Part>>;

impl World<'_> {
    fn client<'a>(&'a self, socket: &'a std::path::Path, volume: usize) -> Client<'a> {
        Client {
            socket,
            volume: self.plan.volumes[volume].name,
            number: volume,
            weather: self.weather,
            found: self.found,
        }
    }

    /// Starts a daemon that serves all of its volumes, which are read and compared.
    pub fn start(&self, parts: &mut Parts) -> Result<Process, String> {
        self.weather.ending.store(false, SeqCst);
        self.weather.over.store(false, SeqCst);
        let mut process = self.machine.start().map_err(|error| error.to_string())?;
        let volumes = self.plan.volumes.len();
        let served = self
            .machine
            .serves(&mut process, volumes, self.weather, START);
        if let Err(what) = served {
            return Err(format!("{what}\n{}", self.machine.last_said()));
        }
        let socket = self.machine.socket();
        thread::scope(|scope| {
            for (volume, parts) in parts.iter_mut().enumerate() {
                let client = self.client(&socket, volume);
                scope.spawn(move || parts.iter_mut().for_each(|part| client.pin(part)));
            }
        });
        Ok(process)
    }

    /// A daemon that is killed, ended or paused before it serves, at times.
    fn start_in_vain(&self, rng: &mut Rng) -> Result<(), String> {
        let mut process = self.machine.start().map_err(|error| error.to_string())?;
        let wait = rng.u64(..1500);
        thread::sleep(Duration::from_millis(wait));
        let (signal, name) = match rng.bool() {
            true => (libc::SIGKILL, "killed"),
            false => (libc::SIGTERM, "ended"),
        };
        self.found
            .happens(format!("{name} {wait} ms after its start"));
        self.found.met(&format!("a daemon {name} within its start"));
        process.signal(signal);
        process.wait(self.weather, STOP).map(drop)
    }

    /// What becomes of a device of the pool while no daemon runs: it comes back blank, or as it was
    /// some lives ago.
    fn exchange(&self, rng: &mut Rng) -> io::Result<()> {
        let name = self.plan.pool()[rng.usize(..self.plan.pool().len())];
        let back = self.machine.folder.join("back");
        let (device, old) = (
            back.join(name),
            self.machine.folder.join(format!("{name}.old")),
        );
        match rng.u8(..8) {
            0 => {
                self.found.happens(format!("{name} comes back blank"));
                self.found.met("a device of the pool comes back blank");
                let file = File::options().write(true).open(device)?;
                let bytes = file.metadata()?.len();
                file.set_len(0)?;
                file.set_len(bytes)
            }
            1 | 2 => fs::copy(device, old).map(drop),
            3 | 4 if old.exists() => {
                self.found.happens(format!("{name} comes back as it was"));
                self.found.met("a device of the pool comes back as it was");
                // The file itself stays, and so its inode.
                let bytes = fs::read(old)?;
                File::options()
                    .write(true)
                    .open(device)?
                    .write_all_at(&bytes, 0)
            }
            _ => Ok(()),
        }
    }

    /// Lives; an error if there is no going on.
    pub fn live(&self, parts: &mut Parts, rng: &mut Rng) -> Result<(), String> {
        self.found.next_life();
        self.weather.load();
        self.exchange(rng).map_err(|error| error.to_string())?;
        while rng.u8(..4) == 0 {
            self.start_in_vain(rng)?;
        }
        let mut process = self.start(parts)?;
        if self.found.is_wrong() {
            return Ok(());
        }
        let killed = rng.bool();
        let socket = self.machine.socket();
        let mut seeds = || Rng::with_seed(rng.u64(..));
        let out_of_service = thread::scope(|scope| {
            for (volume, parts) in parts.iter_mut().enumerate() {
                for part in parts {
                    let (client, mut rng) = (self.client(&socket, volume), seeds());
                    scope.spawn(move || client.run(part, &mut rng));
                }
            }
            for _ in 0..OPERATORS {
                let mut rng = seeds();
                scope.spawn(move || operate(self, &mut rng));
            }
            scope.spawn(|| watch(self));
            let mut rng = seeds();
            let out_of_service = self.happen(&process, &mut rng);
            if killed {
                self.kill(&mut process);
            }
            self.weather.over.store(true, SeqCst);
            out_of_service
        });
        if !killed {
            self.end(&mut process)?;
        }
        drop(out_of_service);
        self.judge_end()
    }

    /// Strikes the daemon and its devices by chance. A fault of a device lasts while its value in
    /// the result is kept.
    fn happen(&self, process: &Process, rng: &mut Rng) -> Vec<While<'_>> {
        let mut out_of_service = Vec::new();
        let log = rng.usize(..2);
        for _ in 0..rng.usize(1..=4) {
            thread::sleep(Duration::from_millis(rng.u64(50..800)));
            if rng.u8(..3) == 0 {
                self.pause(process, rng);
            } else {
                out_of_service.extend(self.fault(&Fault::draw(rng, self.plan, log)));
            }
            if self.found.is_wrong() {
                break;
            }
        }
        thread::sleep(Duration::from_millis(rng.u64(50..800)));
        out_of_service
    }

    fn pause(&self, process: &Process, rng: &mut Rng) {
        let time = match rng.u8(..6) {
            0 => rng.u64(5000..13_000),
            _ => rng.u64(20..1500),
        };
        self.found.happens(format!("paused for {time} ms"));
        self.found.met("a pause");
        let paused = self.weather.paused.begin();
        process.signal(libc::SIGSTOP);
        thread::sleep(Duration::from_millis(time));
        process.signal(libc::SIGCONT);
        drop(paused);
    }

    /// What is returned goes on failing until it is dropped.
    fn fault(&self, fault: &Fault) -> Option<While<'_>> {
        let (name, rule) = (fault.name, &fault.rule);
        self.found.happens(format!(
            "{name}: {rule:?} for {} ms",
            fault.time.as_millis()
        ));
        self.found
            .met(&format!("{:?}: {:?}", fault.target, rule.effect));
        self.found.blame(name);
        let skies = self.weather.volumes.iter().enumerate();
        let volume = fault.volume(self.plan);
        let concerned = skies.filter(|(number, _)| match fault.target {
            Target::State => true,
            _ => volume == Some(*number),
        });
        let held: Vec<While> = concerned.map(|(_, sky)| sky.held.begin()).collect();
        let failing = volume.map(|volume| self.weather.volumes[volume].failing.begin());
        if let (Target::Origin, Some(volume)) = (fault.target, volume) {
            self.found.fail_origin(volume);
        }
        self.devil.set(name, Some(rule.clone()));
        let begun = Instant::now();
        while begun.elapsed() < fault.time && !self.found.is_wrong() {
            thread::sleep(Duration::from_millis(20));
        }
        self.devil.set(name, None);
        drop(held);
        failing.filter(|_| fault.lasts())
    }

    fn kill(&self, process: &mut Process) {
        self.found.happens("killed".into());
        self.found.met("a kill");
        self.weather.ending.store(true, SeqCst);
        process.signal(libc::SIGKILL);
        // A ring's operations in flight are waited for by the kernel.
        if let Err(what) = process.wait(self.weather, STOP) {
            self.found.violation(format!("after a kill: {what}"));
        }
    }

    /// Ends the daemon in order.
    pub fn end(&self, process: &mut Process) -> Result<(), String> {
        self.found.happens("ended".into());
        self.found.met("an end in order");
        self.weather.ending.store(true, SeqCst);
        if let Some(status) = process.ended()? {
            return Err(format!(
                "the daemon has ended by itself: {status}\n{}",
                self.machine.last_said()
            ));
        }
        process.signal(libc::SIGTERM);
        // An origin that may have lost writes is reported by the status too.
        let mut volumes = 0..self.plan.volumes.len();
        let may_fail = volumes.any(|volume| self.found.origin_failed(volume));
        match process.wait(self.weather, STOP)?.as_str() {
            "status 0" => Ok(()),
            "status 1" if may_fail => Ok(()),
            other => Err(format!(
                "an end in order: {other}\n{}",
                self.machine.last_said()
            )),
        }
    }

    /// Whether each loss was an event, and of what was at fault.
    fn judge_end(&self) -> Result<(), String> {
        let said = self.machine.said();
        if said.contains("panicked") {
            return Err(format!(
                "the daemon has panicked\n{}",
                self.machine.last_said()
            ));
        }
        for device in self.found.lost() {
            self.found.met("a loss of a device");
            let names: &[&str] = match device.as_str() {
                "log" => &crate::plan::LOGS,
                one => &[one],
            };
            if !names.iter().any(|name| said.contains(name)) {
                self.found
                    .violation(format!("{device} is lost, and no event says so"));
            }
            if !names.iter().any(|name| self.found.is_blamed(name)) {
                self.found
                    .violation(format!("{device} is lost, and nothing was wrong with it"));
            }
        }
        Ok(())
    }
}
