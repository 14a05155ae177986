//! The log of a write-back volume: opens an engine on the log's devices and witness, in front of
//! the cached volume, and closes it in order.
//!
//! Invariant: `may_be_dirty` is durable before the first change of a client, and until nothing is
//! dirty any more.
//!
//! Not here: the content of the devices, and the choice of the trusted ones (`writelog`).

use crate::event::NodeEvent;
use crate::leaf::Leaf;
use crate::nanos;
use crate::platform::Platform;
use crate::witness::WitnessClaim;
use block::{BoxDevice, Driver, Env, IoError, IoErrorKind, IoResult, Nanos, Sectors, WithDeadline};
use control::config::{self, Name};
use layout::{DeviceIdentity, Uuid};
use std::rc::Rc;
use writelog::{Cleaning, Config, OpenedLog, Scrutiny, WantedLog, WriteBack};

/// Least time limit of a log device, after which the device counts as lost.
const ANSWER_MAX: Nanos = Nanos::from_secs(5);
/// The time limit as a multiple of the pool's longest hit, as for the pool's metadata.
const ANSWER_HITS: u64 = 10;
/// Longest time that writes gather before they are written back in order, if nothing presses.
const GATHER_MAX: Nanos = Nanos::from_secs(1);
/// Divisor of `max_lag` that limits the gathering too.
const GATHER_PART: u64 = 8;

/// A device that holds a copy of a log.
pub(crate) type Copy<D> = WithDeadline<Leaf<D>>;

/// Time limit of a log device of `volume`, after which the device counts as lost.
pub(crate) fn patience(config: &config::Config, volume: &config::Volume) -> Nanos {
    let mut pools = config.pools.iter();
    let pool = pools.find(|p| p.name.value == volume.pool.value);
    let hit = pool.map_or(Nanos::ZERO, |p| nanos(p.hit_latency_max.value));
    ANSWER_MAX.max(Nanos(hit.0.saturating_mul(ANSWER_HITS)))
}

/// The journal device of `volume`, if it is journaled.
pub(crate) fn journal_of(volume: &config::Volume) -> Option<&Name> {
    let journaled = volume.write_back.value == Cleaning::Journaled;
    let journal = volume.journal.as_ref().filter(|_| journaled);
    journal.map(|journal| &journal.value)
}

/// Describes the log to open, for an origin of this identity; `is_forced` is as in [`WantedLog`].
pub(crate) fn wanted<P: Platform>(
    platform: &P,
    volume: &config::Volume,
    size: Sectors,
    origin: &DeviceIdentity,
    is_forced: bool,
) -> WantedLog {
    WantedLog {
        volume: volume.name.value.to_string(),
        sectors: size.0,
        identity: origin.bytes().to_vec(),
        host: platform.host(),
        uuid: Uuid(platform.uuid()),
        now: platform.clock(),
        is_forced,
    }
}

/// The configuration of the engine for the log that was `found`. `asked`: the operator wants all
/// data that is left.
pub(crate) fn engine<C>(volume: &config::Volume, found: &OpenedLog<C>, asked: bool) -> Config {
    let max_lag = nanos(volume.max_lag.value);
    let cleaning = volume.write_back.value;
    Config {
        log: found.log,
        incarnation: found.incarnation,
        epoch: found.epoch,
        dirty_max: volume.dirty_max.value.0,
        max_lag,
        clean_after: match cleaning {
            Cleaning::Ordered => GATHER_MAX.min(Nanos(max_lag.0 / GATHER_PART)),
            // A longer wait lets more writes replace earlier ones.
            Cleaning::Coalesced | Cleaning::Journaled => Nanos(max_lag.0 / GATHER_PART),
        },
        cleaning,
        may_be_dirty: found.may_be_dirty,
        scrutiny: match found.shrinks {
            true => Scrutiny::Alone,
            false => Scrutiny::Usual,
        },
        asked,
        stages: Rc::default(),
    }
}

/// An open log; clones are the same.
pub(crate) struct OpenLog<D: Driver>(Rc<LogShared<D>>);

struct LogShared<D: Driver> {
    engine: WriteBack<Copy<D>>,
    devices: Vec<Name>,
    /// The device of each copy; `None` if it was absent.
    copies: [Option<Name>; 2],
    had_journal: bool,
    witness: WitnessFile,
}

/// The file beside a log, and the claim on it; clones are the same.
#[derive(Clone)]
pub(crate) struct WitnessFile {
    pub(crate) device: BoxDevice,
    pub(crate) claim: Rc<dyn WitnessClaim>,
}

/// A log that was found, with its devices and witness.
pub(crate) struct FoundLog<D: Driver> {
    pub(crate) found: OpenedLog<Copy<D>>,
    /// The devices that are missing, to be reported once the log serves.
    pub(crate) absent: Vec<NodeEvent>,
    pub(crate) devices: Vec<Name>,
    pub(crate) witness: WitnessFile,
}

impl<D: Driver> Clone for OpenLog<D> {
    fn clone(&self) -> OpenLog<D> {
        OpenLog(self.0.clone())
    }
}

impl<D: Driver> OpenLog<D> {
    /// Opens the log that was `found` for `volume`, in front of `origin`. Requests are served only
    /// after [`OpenLog::begin`]. `asked` is as in [`engine`].
    pub(crate) async fn open(
        volume: &config::Volume,
        found: FoundLog<D>,
        asked: bool,
        env: Env,
        origin: BoxDevice,
    ) -> IoResult<OpenLog<D>> {
        let FoundLog {
            found,
            devices,
            witness,
            ..
        } = found;
        let config = engine(volume, &found, asked);
        let here = found.areas.each_ref().map(Option::is_some);
        let copy = |copy: usize| {
            let named = |name: &&Name| name.as_str() == found.names[copy];
            devices.iter().find(named).filter(|_| here[copy]).cloned()
        };
        let copies = [copy(0), copy(1)];
        let (areas, journal) = (found.areas, found.journal);
        let had_journal = journal.is_some();
        let engine = WriteBack::open(config, env, found.ledger, areas, journal, origin).await?;
        Ok(OpenLog(Rc::new(LogShared {
            engine,
            devices,
            copies,
            had_journal,
            witness,
        })))
    }

    /// The engine that serves requests.
    pub(crate) fn engine(&self) -> &WriteBack<Copy<D>> {
        &self.0.engine
    }

    /// The file beside the log.
    pub(crate) fn witness(&self) -> WitnessFile {
        self.0.witness.clone()
    }

    /// The devices of the log.
    pub(crate) fn devices(&self) -> &[Name] {
        &self.0.devices
    }

    /// Devices lost since the log was opened, each with the reason.
    pub(crate) fn lost(&self) -> Vec<(Name, String)> {
        let copies = self.0.copies.iter().enumerate();
        let lost = copies.filter_map(|(copy, name)| {
            let why = self.0.engine.lost_by(copy)?;
            Some((name.clone()?, why.to_string()))
        });
        lost.collect()
    }

    /// True if the log had a journal when it was opened.
    pub(crate) fn had_journal(&self) -> bool {
        self.0.had_journal
    }

    /// Devices of the log whose copies are not current.
    pub(crate) fn offline(&self) -> Vec<Name> {
        let mut copies: Vec<Name> = self.0.devices.iter().take(2).cloned().collect();
        let online = self.0.engine.online().into_iter().zip(&self.0.copies);
        for (_, name) in online.filter(|(online, _)| *online) {
            copies.retain(|copy| Some(copy) != name.as_ref());
        }
        copies
    }

    /// True if the journal was lost since the log was opened.
    pub(crate) fn has_lost_journal(&self) -> bool {
        self.0.had_journal && self.0.engine.status().forsaken
    }

    /// Starts write-back; clients may be served from then on. Nothing is written before. A full log
    /// is written back as a whole instead; the next attempt begins another.
    pub(crate) async fn begin(&self) -> IoResult {
        let engine = &self.0.engine;
        if engine.is_full() {
            self.write_back_all().await?;
            let what = "the write-back log was full: all of it is written back, and another is \
                        begun at the next attempt";
            return Err(IoError::new(IoErrorKind::NoSpace, what));
        }
        engine.establish().await?;
        engine.begin().await
    }

    /// As [`OpenLog::begin`], for a log in which nothing is dirty. The log takes no change before its
    /// engine goes on.
    pub(crate) async fn begin_at_rest(&self) -> IoResult {
        self.0.engine.seal();
        self.begin().await
    }

    /// Writes all dirty data back at once, in no order, and ends the log.
    async fn write_back_all(&self) -> IoResult {
        let lost = self.0.engine.write_back_all().await?;
        if let Some(lost) = lost.first() {
            let what = format!(
                "block {} of the write-back log cannot be read; attach the device that is absent, \
                 or write the rest back by `hotset pool recover`",
                lost.start
            );
            return Err(IoError::new(IoErrorKind::Corrupt, what));
        }
        self.0.engine.end().await
    }

    /// Takes no more changes; returns once nothing is dirty, durably.
    pub(crate) async fn rest(&self) -> IoResult<RestingLog<D>> {
        let resting = RestingLog(self.clone());
        self.0.engine.rest().await?;
        Ok(resting)
    }
}

/// A log that takes no change, until this is dropped.
pub(crate) struct RestingLog<D: Driver>(OpenLog<D>);

impl<D: Driver> Drop for RestingLog<D> {
    fn drop(&mut self) {
        self.0.engine().go_on();
    }
}
