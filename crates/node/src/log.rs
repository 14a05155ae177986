//! The log of a write-back volume: its devices and witness become an engine in front of the
//! cached volume, and are left again in order.
//!
//! Invariant: `owes` is durable before the first change of a client, and until nothing is
//! owed any more.
//!
//! Not here: the content of the devices, and which may be trusted (`writelog`).

use crate::event::Event;
use crate::leaf::Leaf;
use crate::nanos;
use crate::platform::Platform;
use crate::witness::Claim;
use block::{BoxDevice, Driver, Env, IoError, IoResult, Kind, Nanos, Sectors, WithDeadline};
use control::config::{self, Name};
use layout::{Identity, Uuid};
use std::rc::Rc;
use writelog::{Cleaning, Config, Opened, Scrutiny, Wanted, WriteBack};

/// How long a device of a log may take at the least before it counts as lost.
const ANSWER_MAX: Nanos = Nanos::from_secs(5);
/// And as so many times the longest hit of the pool: as a pool's device for metadata.
const ANSWER_HITS: u64 = 10;
/// The longest that writes gather before they go to the origin in order, while nothing presses.
const GATHER_MAX: Nanos = Nanos::from_secs(1);
/// And as a part of what may be lost.
const GATHER_PART: u64 = 8;

/// A device that holds a copy of a log.
pub(crate) type Copy<D> = WithDeadline<Leaf<D>>;

/// How long a device of the log of `volume` may take before it counts as lost.
pub(crate) fn patience(config: &config::Config, volume: &config::Volume) -> Nanos {
    let mut pools = config.pools.iter();
    let pool = pools.find(|p| p.name.value == volume.pool.value);
    let hit = pool.map_or(Nanos::ZERO, |p| nanos(p.hit_latency_max.value));
    ANSWER_MAX.max(Nanos(hit.0.saturating_mul(ANSWER_HITS)))
}

/// The device of its journal, if it is to have one.
pub(crate) fn journal_of(volume: &config::Volume) -> Option<&Name> {
    let journaled = volume.write_back.value == Cleaning::Journaled;
    let journal = volume.journal.as_ref().filter(|_| journaled);
    journal.map(|journal| &journal.value)
}

/// Whose log is to be opened, for an origin of this identity; `keep` as [`Wanted`] has it.
pub(crate) fn wanted<P: Platform>(
    platform: &P,
    volume: &config::Volume,
    size: Sectors,
    origin: &Identity,
    keep: bool,
) -> Wanted {
    Wanted {
        volume: volume.name.value.to_string(),
        sectors: size.0,
        identity: origin.bytes().to_vec(),
        host: platform.host(),
        uuid: Uuid(platform.uuid()),
        now: platform.clock(),
        keep,
    }
}

/// How the log of `volume` goes on from what was `found`; `asked`: the operator wants all that
/// there is.
pub(crate) fn engine<C>(volume: &config::Volume, found: &Opened<C>, asked: bool) -> Config {
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
            // The longer, the more replaces what came before.
            Cleaning::Coalesced | Cleaning::Journaled => Nanos(max_lag.0 / GATHER_PART),
        },
        cleaning,
        owes: found.owes,
        scrutiny: match found.shrinks {
            true => Scrutiny::Alone,
            false => Scrutiny::Usual,
        },
        asked,
        stages: Rc::default(),
    }
}

/// A log that is open; clones are the same.
pub(crate) struct Log<D: Driver>(Rc<Inner<D>>);

struct Inner<D: Driver> {
    engine: WriteBack<Copy<D>>,
    devices: Vec<Name>,
    /// By copies: the device, if it was there.
    copies: [Option<Name>; 2],
    had_journal: bool,
    witness: WitnessFile,
}

/// The file beside a log, and what keeps others from it; clones are the same.
#[derive(Clone)]
pub(crate) struct WitnessFile {
    pub(crate) device: BoxDevice,
    pub(crate) claim: Rc<dyn Claim>,
}

/// A log that was found, and who is to have it.
pub(crate) struct FoundLog<D: Driver> {
    pub(crate) found: Opened<Copy<D>>,
    /// The devices that are missing, to be reported once the log serves.
    pub(crate) absent: Vec<Event>,
    pub(crate) devices: Vec<Name>,
    pub(crate) witness: WitnessFile,
}

impl<D: Driver> Clone for Log<D> {
    fn clone(&self) -> Log<D> {
        Log(self.0.clone())
    }
}

impl<D: Driver> Log<D> {
    /// What was `found` becomes the log of `volume`, in front of `origin`. It serves nobody
    /// before [`Log::begin`]. `asked` as [`engine`] has it.
    pub(crate) async fn open(
        volume: &config::Volume,
        found: FoundLog<D>,
        asked: bool,
        env: Env,
        origin: BoxDevice,
    ) -> IoResult<Log<D>> {
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
        Ok(Log(Rc::new(Inner {
            engine,
            devices,
            copies,
            had_journal,
            witness,
        })))
    }

    /// What requests go by.
    pub(crate) fn engine(&self) -> &WriteBack<Copy<D>> {
        &self.0.engine
    }

    /// The file beside it.
    pub(crate) fn witness(&self) -> WitnessFile {
        self.0.witness.clone()
    }

    /// The devices that it has.
    pub(crate) fn devices(&self) -> &[Name] {
        &self.0.devices
    }

    /// Those that were lost since it was opened, and why.
    pub(crate) fn lost(&self) -> Vec<(Name, String)> {
        let copies = self.0.copies.iter().enumerate();
        let lost = copies.filter_map(|(copy, name)| {
            let why = self.0.engine.lost_by(copy)?;
            Some((name.clone()?, why.to_string()))
        });
        lost.collect()
    }

    /// Whether it has, or had, a journal since it was opened.
    pub(crate) fn had_journal(&self) -> bool {
        self.0.had_journal
    }

    /// The devices of its copies that take no part.
    pub(crate) fn offline(&self) -> Vec<Name> {
        let mut copies: Vec<Name> = self.0.devices.iter().take(2).cloned().collect();
        let online = self.0.engine.online().into_iter().zip(&self.0.copies);
        for (_, name) in online.filter(|(online, _)| *online) {
            copies.retain(|copy| Some(copy) != name.as_ref());
        }
        copies
    }

    /// Whether its journal was lost since it was opened.
    pub(crate) fn has_lost_journal(&self) -> bool {
        self.0.had_journal && self.0.engine.status().forsaken
    }

    /// What is owed goes to the origin from now on, and clients may be served. Before, nothing is
    /// written. A log without room is carried out instead, and another begun at the next attempt.
    pub(crate) async fn begin(&self) -> IoResult {
        let engine = &self.0.engine;
        if engine.is_full() {
            self.carry_out().await?;
            let what = "the write-back log was full: all of it is written back, and another is \
                        begun at the next attempt";
            return Err(IoError::new(Kind::NoSpace, what));
        }
        engine.establish().await?;
        engine.begin().await
    }

    /// As [`Log::begin`], of a log in which nothing is dirty; it takes no change before its engine
    /// goes on.
    pub(crate) async fn begin_at_rest(&self) -> IoResult {
        self.0.engine.seal();
        self.begin().await
    }

    /// Writes all back at once, in no order, and gives the log up.
    async fn carry_out(&self) -> IoResult {
        let lost = self.0.engine.carry_out().await?;
        if let Some(lost) = lost.first() {
            let what = format!("block {} of the write-back log cannot be read", lost.start);
            return Err(IoError::new(Kind::Corrupt, what));
        }
        self.0.engine.end().await
    }

    /// Takes no change any more; returns once nothing is owed, durably.
    pub(crate) async fn rest(&self) -> IoResult<Resting<D>> {
        let resting = Resting(self.clone());
        self.0.engine.rest().await?;
        Ok(resting)
    }
}

/// A log that takes no change, until this is dropped.
pub(crate) struct Resting<D: Driver>(Log<D>);

impl<D: Driver> Drop for Resting<D> {
    fn drop(&mut self) {
        self.0.engine().go_on();
    }
}
