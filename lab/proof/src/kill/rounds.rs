//! The rounds: serve, load, kill, serve again, read everything back.

use super::client::{KillClient, NbdCommand};
use super::daemon::{KillDirectory, VOLUME_BYTES};
use crate::model::{Space, VolumeModel};
use crate::stamp;
use serde::Serialize;
use sim::SimRng;
use std::io;
use std::path::Path;
use std::process::{self, Stdio};
use std::thread;
use std::time::Duration;

const CLIENTS: u64 = 4;
/// Sectors of each client's part.
const PART: u64 = VOLUME_BYTES / 512 / CLIENTS;
/// A part is read back in pieces of so many sectors.
const EXAMINED: u64 = 512;
/// Bytes that fio rewrites in each round.
const FIO_SIZE: &str = "16m";

/// The findings of the rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Kills {
    /// Daemons killed.
    pub rounds: u64,
    /// Requests that were answered and checked, between and after the kills.
    pub requests: u64,
    /// Kills that caught fio in the midst of its writes.
    pub kills_under_fio: u64,
    /// Times that fio verified all its writes of before a kill.
    pub fio_verified: u64,
    /// The violations.
    pub violations: Vec<String>,
}

/// Kills `rounds` daemons of the executable `program`, with files in `dir`.
pub fn rounds(rounds: u64, seed: u64, dir: &Path, program: &Path) -> Result<Kills, String> {
    let place = KillDirectory::new(dir, program).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut parts: Vec<KillPart> = (0..CLIENTS).map(|n| KillPart::new(n, seed)).collect();
    let mut kills = Kills::default();
    let mut rng = SimRng::fork(seed, 1);
    let mut daemon = place.serve()?;
    for round in 0..rounds {
        // Half of the kills come after fio has written all, half before.
        let all = rng.chance(0.5);
        if all {
            fio(&place, "--do_verify=0", seed + round)?.finish()?;
        }
        let load = match all {
            true => None,
            false => Some(fio(&place, "--do_verify=0", seed + round)?),
        };
        let pause = Duration::from_millis(rng.between(20, 600));
        let socket = place.path("nbd");
        thread::scope(|scope| {
            for part in &mut parts {
                let socket = &socket;
                scope.spawn(move || part.load(socket));
            }
            thread::sleep(pause);
            daemon.kill().map_err(|e| e.to_string())
        })?;
        kills.rounds += 1;
        if let Some(load) = load {
            kills.kills_under_fio += u64::from(load.finish().is_err());
        }
        daemon = place.serve()?;
        thread::scope(|scope| {
            for part in &mut parts {
                let socket = &socket;
                scope.spawn(move || part.examine(socket));
            }
        });
        if all {
            match fio(&place, "--verify_only=1", seed + round)?.finish() {
                Ok(()) => kills.fio_verified += 1,
                Err(what) => kills.violations.push(format!("round {round}: fio: {what}")),
            }
        }
        let wrong = parts.iter_mut().filter_map(|part| part.violation.take());
        kills
            .violations
            .extend(wrong.map(|what| format!("round {round}: {what}")));
    }
    kills.requests = parts.iter().map(|part| part.requests).sum();
    Ok(kills)
}

/// A client's own part of the volume.
struct KillPart {
    number: u64,
    model: VolumeModel,
    rng: SimRng,
    requests: u64,
    violation: Option<String>,
}

impl KillPart {
    fn new(number: u64, seed: u64) -> KillPart {
        let space = Space {
            windows: 1,
            each: PART,
        };
        KillPart {
            number,
            model: VolumeModel::numbered_from(space, number << 40),
            rng: SimRng::fork(seed, 100 + number),
            requests: 0,
            violation: None,
        }
    }

    fn violate(&mut self, what: impl ToString) {
        let what = format!("part {}: {}", self.number, what.to_string());
        self.violation.get_or_insert(what);
    }

    /// Reads and writes until the daemon is gone.
    fn load(&mut self, socket: &Path) {
        if let Ok(mut client) = KillClient::connect(socket, "checked") {
            while self.step(&mut client).is_ok() && self.violation.is_none() {}
        }
        // Writes in flight may have landed.
        self.model.cut(false);
    }

    /// Makes one request. The error means that no daemon answers.
    fn step(&mut self, client: &mut KillClient) -> io::Result<()> {
        let len = self.rng.between(1, 64);
        // A hot eighth, so that there are hits.
        let range = if self.rng.chance(0.7) { PART / 8 } else { PART };
        let at = self.rng.below(range - len);
        let sectors = at..at + len;
        match self.rng.below(10) {
            0..5 => self.read(client, sectors),
            5..9 => {
                let version = self.model.version();
                let mut bytes = vec![0; len as usize * 512];
                stamp::stamp(&mut bytes, at, version);
                self.model.begin(&sectors, version);
                let error = client.request(NbdCommand::Write, self.offset(at), &mut bytes)?;
                self.model.end(&sectors, version, error == 0, false);
                self.judge(error);
                Ok(())
            }
            _ => {
                let error = client.request(NbdCommand::Flush, 0, &mut [])?;
                self.judge(error);
                Ok(())
            }
        }
    }

    fn offset(&self, sector: u64) -> u64 {
        (self.number * PART + sector) * 512
    }

    fn judge(&mut self, error: u32) {
        self.requests += 1;
        if error != 0 {
            self.violate(format!("a request failed with error {error}"));
        }
    }

    fn read(&mut self, client: &mut KillClient, sectors: std::ops::Range<u64>) -> io::Result<()> {
        let mut bytes = vec![0; (sectors.end - sectors.start) as usize * 512];
        let id = self.model.begin_read(&sectors);
        let error = client.request(NbdCommand::Read, self.offset(sectors.start), &mut bytes)?;
        let right = self.model.end_read(id, (error == 0).then_some(&bytes[..]));
        if let Err(what) = right {
            self.violate(what);
        }
        self.judge(error);
        Ok(())
    }

    /// Reads the whole part, twice: the second time from the pool as far as the first pass filled
    /// the pool.
    fn examine(&mut self, socket: &Path) {
        let outcome = KillClient::connect(socket, "checked").and_then(|mut client| {
            let whole = (0..PART).step_by(EXAMINED as usize);
            for at in whole.clone().chain(whole) {
                self.read(&mut client, at..at + EXAMINED)?;
            }
            Ok(())
        });
        if let Err(error) = outcome {
            self.violate(error);
        }
    }
}

/// fio at work.
struct Fio(process::Child);

impl Fio {
    fn finish(self) -> Result<(), String> {
        let output = self.0.wait_with_output().map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(text + &String::from_utf8_lossy(&output.stdout))
    }
}

fn fio(place: &KillDirectory, how: &str, seed: u64) -> Result<Fio, String> {
    let socket = place.path("nbd").display().to_string();
    let child = process::Command::new("fio")
        .args(["--name=fio", "--ioengine=nbd", "--thread", "--rw=randwrite"])
        .args([
            "--bsrange=4k-64k",
            "--iodepth=8",
            "--verify=crc32c",
            "--verify_state_save=0",
            "--verify_fatal=1",
        ])
        .arg(format!("--uri=nbd+unix:///fio?socket={socket}"))
        .args([format!("--size={FIO_SIZE}"), format!("--randseed={seed}")])
        .args(["--output-format=terse", how])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    child
        .map(Fio)
        .map_err(|e| format!("fio: {e}: install the Debian package fio"))
}
