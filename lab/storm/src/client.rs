//! A client: requests on its part of a volume, each answer against the model.

use crate::bytes::{ClientPart, SECTOR};
use crate::found::StormFindings;
use crate::nbd::{Silence, StormConnection, StormVerb};
use crate::weather::Weather;
use fastrand::Rng;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Sectors of the longest request, and of a request when all data is read.
const LONGEST: u64 = 64;
const PIECE: u64 = 256;
/// Longest pause of a client after some requests, in milliseconds: storms test devices, not
/// processors.
const PAUSE: u64 = 60;
/// Rest of a client without a daemon, and after a failure.
const REST: Duration = Duration::from_millis(20);

/// A client.
pub struct StormClient<'a> {
    /// Socket of the volumes.
    pub socket: &'a Path,
    /// Volume of the client.
    pub volume: &'a str,
    /// Number of the volume.
    pub number: usize,
    /// Present troubles.
    pub weather: &'a Weather,
    /// Results of the storm.
    pub found: &'a StormFindings,
}

/// End of a client's connection.
struct ClientEnd;

impl StormClient<'_> {
    fn connect(&self) -> Option<StormConnection<'_>> {
        match StormConnection::open(self.socket, (self.volume, self.number), self.weather) {
            Ok(connection) => Some(connection),
            Err(Silence::Gone(error)) => {
                if !self.weather.is_ending() {
                    let what = format!("{}: no connection: {error}", self.volume);
                    self.found.violation(what);
                }
                None
            }
            Err(Silence::Overdue(waited)) => {
                let what = format!("{}: no greeting for {} s", self.volume, waited.as_secs());
                self.found.violation(what);
                None
            }
        }
    }

    /// Reads the whole `part`, after which the model has one version of each sector.
    pub fn pin(&self, part: &mut ClientPart) {
        let Some(mut connection) = self.connect() else {
            return;
        };
        self.forget(part);
        let sectors = part.sectors();
        for first in sectors.clone().step_by(PIECE as usize) {
            let piece = first..sectors.end.min(first + PIECE);
            let Ok(bytes) = self.read(&mut connection, &piece) else {
                return;
            };
            let pinned = bytes.map(|bytes| part.pin(piece.start, &bytes));
            if let Some(Err(what)) = pinned {
                return self.found.violation(format!("read at rest: {what}"));
            }
        }
    }

    /// Sends random requests until clients are to end.
    pub fn run(&self, part: &mut ClientPart, rng: &mut Rng) {
        while self.goes_on() {
            let Some(mut connection) = self.connect() else {
                std::thread::sleep(REST);
                continue;
            };
            while self.goes_on() && self.step(&mut connection, part, rng).is_ok() {
                if rng.u8(..8) == 0 {
                    std::thread::sleep(Duration::from_millis(rng.u64(..PAUSE)));
                }
            }
        }
    }

    /// Sends `steps` random requests.
    pub fn steps(&self, part: &mut ClientPart, rng: &mut Rng, steps: usize) {
        let Some(mut connection) = self.connect() else {
            return;
        };
        for _ in 0..steps {
            if !self.goes_on() || self.step(&mut connection, part, rng).is_err() {
                return;
            }
        }
    }

    fn goes_on(&self) -> bool {
        !self.weather.is_over() && !self.found.is_wrong()
    }

    fn step(
        &self,
        connection: &mut StormConnection,
        part: &mut ClientPart,
        rng: &mut Rng,
    ) -> Result<(), ClientEnd> {
        let sectors = draw(part, rng);
        match rng.u8(..100) {
            0..58 => {
                let (version, mut bytes) = part.write(&sectors);
                let fua = rng.u8(..10) == 0;
                let done = self.ask(connection, (StormVerb::Write, fua), &sectors, &mut bytes);
                self.forget(part);
                part.end(&sectors, version, matches!(done, Ok(true)));
                if fua && matches!(done, Ok(true)) {
                    part.flushed(sectors);
                }
                done.map(drop)
            }
            58..64 => {
                let version = part.zero(&sectors);
                let done = self.ask(connection, (StormVerb::Zero, false), &sectors, &mut []);
                self.forget(part);
                part.end(&sectors, version, matches!(done, Ok(true)));
                done.map(drop)
            }
            64..74 => {
                let done = self.ask(connection, (StormVerb::Flush, false), &(0..0), &mut [])?;
                self.forget(part);
                if done {
                    part.flushed(part.sectors());
                }
                Ok(())
            }
            _ => {
                let bytes = self.read(connection, &sectors)?;
                self.forget(part);
                if let Some(bytes) = bytes
                    && let Err(what) = part.check(sectors.start, &bytes)
                {
                    self.found.violation(what);
                }
                Ok(())
            }
        }
    }

    /// Takes the losses of the origin since the last call into the model.
    fn forget(&self, part: &mut ClientPart) {
        part.forget(self.weather.volumes[self.number].forgotten.load(SeqCst));
    }

    /// Reads sectors; `None` if the read rightly failed.
    fn read(
        &self,
        connection: &mut StormConnection,
        sectors: &Range<u64>,
    ) -> Result<Option<Vec<u8>>, ClientEnd> {
        let mut bytes = vec![0; (sectors.end - sectors.start) as usize * SECTOR];
        let done = self.ask(connection, (StormVerb::Read, false), sectors, &mut bytes)?;
        Ok(done.then_some(bytes))
    }

    /// Sends a request. Returns true if it was done.
    fn ask(
        &self,
        connection: &mut StormConnection,
        (verb, fua): (StormVerb, bool),
        sectors: &Range<u64>,
        bytes: &mut [u8],
    ) -> Result<bool, ClientEnd> {
        let begun = Instant::now();
        let offset = sectors.start * SECTOR as u64;
        let length = (sectors.end - sectors.start) as usize * SECTOR;
        let answer = connection.ask((verb, fua), offset, length as u32, bytes);
        self.found.request(begun.elapsed());
        match answer {
            Ok(0) => Ok(true),
            Ok(number) => {
                // A later flush reports the loss of acknowledged writes by the origin.
                let reported = verb == StormVerb::Flush || fua;
                let excused = match reported {
                    true => self.found.origin_failed(self.number),
                    false => self.weather.volumes[self.number].failing.was_since(begun),
                };
                if excused || self.weather.is_ending() {
                    self.found.met("a request fails rightly");
                    std::thread::sleep(REST);
                } else {
                    let what = format!("{}: {verb:?} fails with {number}", self.volume);
                    self.found.violation(what);
                }
                Ok(false)
            }
            Err(Silence::Gone(error)) => {
                if !self.weather.is_ending() {
                    let what = format!("{}: the connection ends: {error}", self.volume);
                    self.found.violation(what);
                }
                Err(ClientEnd)
            }
            Err(Silence::Overdue(waited)) => {
                let waited = waited.as_secs();
                let what = format!("{}: {verb:?} has no answer for {waited} s", self.volume);
                self.found.violation(what);
                Err(ClientEnd)
            }
        }
    }
}

/// Draws sectors of a part; half of the draws are in an eighth of the part, for hits.
fn draw(part: &ClientPart, rng: &mut Rng) -> Range<u64> {
    let all = part.sectors();
    let length = rng.u64(1..=LONGEST);
    let room = match rng.bool() {
        true => (all.end - all.start) / 8,
        false => all.end - all.start,
    };
    let first = all.start + rng.u64(..room - length);
    match rng.u8(..4) {
        // Not aligned to blocks.
        0 => first..first + length,
        _ => {
            let first = (first / 8 * 8).max(all.start);
            first..(first + length.next_multiple_of(8)).min(all.end)
        }
    }
}
