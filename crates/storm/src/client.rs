//! A client: requests on its part of a volume, each answer against the model.

use crate::bytes::{Part, SECTOR};
use crate::found::Found;
use crate::nbd::{Connection, Silence, Verb};
use crate::weather::Weather;
use fastrand::Rng;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Sectors of the longest request, and of one when all is read.
const LONGEST: u64 = 64;
const PIECE: u64 = 256;
/// How long a client pauses after some requests at the most, in milliseconds: what storms are for
/// are the devices, not the processors.
const PAUSE: u64 = 60;
/// How long a client rests when there is no daemon, and after a failure.
const REST: Duration = Duration::from_millis(20);

/// One client.
pub struct Client<'a> {
    /// Where volumes are served.
    pub socket: &'a Path,
    /// Its volume, and the number of that.
    pub volume: &'a str,
    /// See `volume`.
    pub number: usize,
    /// The weather.
    pub weather: &'a Weather,
    /// What is found.
    pub found: &'a Found,
}

/// Why a client cannot go on with its connection.
struct Ended;

impl Client<'_> {
    fn connect(&self) -> Option<Connection<'_>> {
        match Connection::open(self.socket, (self.volume, self.number), self.weather) {
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

    /// Reads all of `part`, in which each sector is one version then.
    pub fn pin(&self, part: &mut Part) {
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

    /// Asks this and that until clients are to end.
    pub fn run(&self, part: &mut Part, rng: &mut Rng) {
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

    /// Asks this and that, so many times.
    pub fn steps(&self, part: &mut Part, rng: &mut Rng, steps: usize) {
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
        connection: &mut Connection,
        part: &mut Part,
        rng: &mut Rng,
    ) -> Result<(), Ended> {
        let sectors = draw(part, rng);
        match rng.u8(..100) {
            0..58 => {
                let (version, mut bytes) = part.write(&sectors);
                let fua = rng.u8(..10) == 0;
                let done = self.ask(connection, (Verb::Write, fua), &sectors, &mut bytes);
                self.forget(part);
                part.end(&sectors, version, matches!(done, Ok(true)));
                if fua && matches!(done, Ok(true)) {
                    part.flushed(sectors);
                }
                done.map(drop)
            }
            58..64 => {
                let version = part.zero(&sectors);
                let done = self.ask(connection, (Verb::Zero, false), &sectors, &mut []);
                self.forget(part);
                part.end(&sectors, version, matches!(done, Ok(true)));
                done.map(drop)
            }
            64..74 => {
                let done = self.ask(connection, (Verb::Flush, false), &(0..0), &mut [])?;
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

    /// Has the model lose what the origin may have lost since it was last asked.
    fn forget(&self, part: &mut Part) {
        part.forget(self.weather.volumes[self.number].forgotten.load(SeqCst));
    }

    /// What is there; `None` if that failed rightly.
    fn read(
        &self,
        connection: &mut Connection,
        sectors: &Range<u64>,
    ) -> Result<Option<Vec<u8>>, Ended> {
        let mut bytes = vec![0; (sectors.end - sectors.start) as usize * SECTOR];
        let done = self.ask(connection, (Verb::Read, false), sectors, &mut bytes)?;
        Ok(done.then_some(bytes))
    }

    /// Whether it was done.
    fn ask(
        &self,
        connection: &mut Connection,
        (verb, fua): (Verb, bool),
        sectors: &Range<u64>,
        bytes: &mut [u8],
    ) -> Result<bool, Ended> {
        let begun = Instant::now();
        let offset = sectors.start * SECTOR as u64;
        let length = (sectors.end - sectors.start) as usize * SECTOR;
        let answer = connection.ask((verb, fua), offset, length as u32, bytes);
        self.found.request(begun.elapsed());
        match answer {
            Ok(0) => Ok(true),
            Ok(number) => {
                // The loss of what an origin had acknowledged is reported by a later flush.
                let reported = verb == Verb::Flush || fua;
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
                Err(Ended)
            }
            Err(Silence::Overdue(waited)) => {
                let waited = waited.as_secs();
                let what = format!("{}: {verb:?} has no answer for {waited} s", self.volume);
                self.found.violation(what);
                Err(Ended)
            }
        }
    }
}

/// Some sectors of a part; most of them in an eighth of it, so that there are hits.
fn draw(part: &Part, rng: &mut Rng) -> Range<u64> {
    let all = part.sectors();
    let length = rng.u64(1..=LONGEST);
    let room = match rng.bool() {
        true => (all.end - all.start) / 8,
        false => all.end - all.start,
    };
    let first = all.start + rng.u64(..room - length);
    match rng.u8(..4) {
        // Not on whole blocks.
        0 => first..first + length,
        _ => {
            let first = (first / 8 * 8).max(all.start);
            first..(first + length.next_multiple_of(8)).min(all.end)
        }
    }
}
