//! A log that is opened without a node: to inspect it, to read the volume through it, and to write
//! its dirty data back.
//!
//! The engine is the node's, and so is the choice of trusted copies. An inspected log is not begun,
//! so that nothing is written.

use super::found::{Leased, LostRecords, RecoveredLog, missing, said};
use crate::arrays::{DeviceSource, OpenDevices};
use crate::leaf::Leaf;
use crate::log::{Copy, FoundLog, OpenLog, WitnessFile, engine, journal_of, patience, wanted};
use crate::node::{AbsentDevice, NodePool, changed};
use crate::place::RawRole;
use crate::platform::Platform;
use crate::witness::{self, WitnessOwner};
use block::{
    BoxDevice, Device, Driver, Env, Fua, IoError, IoResult, Lba, Nanos, Sectors, WithDeadline,
};
use cache::origin_record_on;
use control::config::{self, ByteCount};
use futures_util::future::{Either, select};
use layout::LogSuperblock;
use origin::DoubtReason;
use std::pin::pin;
use std::rc::Rc;
use writelog::{LedgerWitness, LogCandidate, LogLedger, WriteBack};

/// Longest time that a retried origin may fail.
const TROUBLE_MAX: Nanos = Nanos::from_secs(10);
/// Interval of looks for a failing origin.
const LOOK: Nanos = Nanos::from_millis(500);
/// Length of each copy.
const COPY: Sectors = Sectors(2048);

/// A log as it was found, and an engine that changes nothing.
pub(super) struct Look<D: Driver> {
    pub(super) engine: WriteBack<Copy<D>>,
    /// Reasons of a node to refuse the log.
    pub(super) doubts: Vec<String>,
}

/// Candidates for the devices of the log and for its journal.
type Candidates<D> = ([LogCandidate<Copy<D>>; 2], Option<LogCandidate<Copy<D>>>);

fn candidates<P: Platform>(found: &RecoveredLog<'_, P>) -> Candidates<P::Driver> {
    let env = found.platform.local().env();
    let limit = patience(&found.devices.config(), found.volume);
    let candidate = |(name, device): &Leased<P>| LogCandidate {
        name: name.to_string(),
        domain: device.as_ref().map_or("", |lease| &lease.controller).into(),
        device: match device {
            Ok(lease) => Ok(WithDeadline::new(lease.leaf.clone(), env.clone(), limit)),
            Err(error) => Err(error.to_string()),
        },
        holes: Vec::new(),
    };
    let copies = [candidate(&found.logs[0]), candidate(&found.logs[1])];
    let journal = found.journal.filter(|_| journal_of(found.volume).is_some());
    (copies, journal.map(candidate))
}

/// Opens the log without beginning it.
pub(super) async fn look<P: Platform>(
    found: &RecoveredLog<'_, P>,
    remembered: Option<&LogSuperblock>,
) -> Result<Look<P::Driver>, String> {
    let (platform, env) = (found.platform, found.platform.local().env());
    let (copies, journal) = candidates(found);
    let (volume, identity) = (found.volume, &found.origin.identity);
    let wanted = wanted(platform, volume, found.size, identity, true);
    let witness = LedgerWitness::Says(remembered.cloned().map(Box::new));
    let opened = LogLedger::open(wanted, env.clone(), witness, copies, journal).await;
    let opened = opened.map_err(said)?;
    let config = engine(volume, &opened, true);
    let record = opened.record;
    let (ledger, areas, journal) = (opened.ledger, opened.areas, opened.journal);
    let origin = BoxDevice::new(found.origin.leaf.clone());
    let engine = WriteBack::open(config, env, ledger, areas, journal, origin).await;
    let engine = engine.map_err(said)?;
    let mut doubts = opened.doubts;
    doubts.extend(engine.missing().map(|records| missing(&records)));
    if let Some(why) = is_changed(found, &engine, record).await {
        let dirty = ByteCount(engine.status().dirty_bytes);
        let what = why.of(volume.origin.value.as_str());
        doubts.push(format!("{what}; {dirty} of dirty data would overwrite it"));
    }
    Ok(Look { engine, doubts })
}

/// Returns the reason if the origin differs from the log's `record`, or from the record of the
/// volume's pool, if present.
async fn is_changed<P: Platform>(
    found: &RecoveredLog<'_, P>,
    engine: &WriteBack<Copy<P::Driver>>,
    record: Vec<u8>,
) -> Option<DoubtReason> {
    let env = found.platform.local().env();
    if engine.is_drained() {
        return None;
    }
    let record = match record.is_empty() {
        false => record,
        true => pool_record(found, &env).await.unwrap_or_default(),
    };
    let is_dirty = |extent| engine.is_dirty(extent);
    changed(found.origin, &env.pool, &record, is_dirty).await
}

/// The newest record of the origin in the volume's pool.
async fn pool_record<P: Platform>(found: &RecoveredLog<'_, P>, env: &Env) -> Option<Vec<u8>> {
    let name = found.volume.name.as_str();
    let mut newest = None;
    for source in sources(found.devices, found.volume) {
        // Starting an array would change it.
        let DeviceSource::Device(_) = source else {
            continue;
        };
        let Ok(lease) = found.devices.open(&source, RawRole::Pool).await else {
            continue;
        };
        let record = origin_record_on(&lease.leaf, env, name).await;
        newest = newest.max(record.ok().flatten());
        lease.release().await;
    }
    newest.map(|(_, record)| record)
}

/// The devices of the volume's pool.
fn sources<P: Platform>(
    devices: &Rc<OpenDevices<P>>,
    volume: &config::Volume,
) -> Vec<DeviceSource> {
    let config = devices.config();
    let pool = config.pools.iter();
    let pool = pool.filter(|pool| pool.name.value == volume.pool.value);
    let names = pool.flat_map(|pool| &pool.devices.value);
    names.filter_map(|name| devices.find(name)).collect()
}

/// Drops all lines of `volume` in its pool, durably: the origin is about to be written without the
/// pool.
pub(super) async fn forget<P: Platform>(
    devices: &Rc<OpenDevices<P>>,
    volume: &config::Volume,
) -> Result<(), String> {
    let config = devices.config();
    let mut pools = config.pools.iter();
    let pool = pools.find(|pool| pool.name.value == volume.pool.value);
    let pool = pool.expect("checked with the configuration");
    let sources = sources(devices, volume);
    let opened = NodePool::open(pool, &sources, devices, AbsentDevice::Reported).await?;
    opened.cache.forget(volume.name.as_str());
    opened.cache.remember().await;
    opened.cache.close().await;
    let names: Vec<_> = opened.devices.borrow().keys().cloned().collect();
    for name in names {
        devices.close(&name).await.map_err(said)?;
    }
    Ok(())
}

/// Writes the dirty data of the log back. Returns its size, and the records that were lost.
pub(super) async fn write_back<P: Platform>(
    found: &RecoveredLog<'_, P>,
) -> Result<(ByteCount, Option<LostRecords>), String> {
    let (platform, env) = (found.platform, found.platform.local().env());
    let volume = found.volume;
    let witness = witness::open(platform, WitnessOwner::Log(volume.name.value.clone())).await;
    let (witness, hold) = witness.map_err(said)?;
    let (copies, journal) = candidates(found);
    let identity = &found.origin.identity;
    let wanted = wanted(platform, volume, found.size, identity, true);
    let kept = LedgerWitness::Kept(witness.clone());
    let opened = LogLedger::open(wanted, env.clone(), kept, copies, journal).await;
    let opened = opened.map_err(said)?;
    let names = found.logs.iter().map(|(name, _)| name.clone()).collect();
    let origin = BoxDevice::new(found.origin.leaf.clone());
    let found_log = FoundLog {
        found: opened,
        absent: Vec::new(),
        devices: names,
        witness: WitnessFile {
            device: witness,
            claim: Rc::new(hold),
        },
    };
    let log = OpenLog::open(volume, found_log, true, env.clone(), origin).await;
    let log = log.map_err(said)?;
    let dirty = ByteCount(log.engine().status().dirty_bytes);
    if let Some(records) = log.engine().missing() {
        let lost = log.engine().write_back_all().await.map_err(said)?;
        log.engine().end().await.map_err(said)?;
        return Ok((dirty, Some(LostRecords::new(records, &lost))));
    }
    // The origin is about to be written without a guard, so its record no longer holds.
    log.engine().watcher().watch(Vec::new()).await;
    log.begin().await.map_err(said)?;
    let carried = {
        let (rested, trouble) = (pin!(log.rest()), pin!(trouble(&log, &env)));
        match select(rested, trouble).await {
            Either::Left((Ok(resting), _)) => Ok(resting),
            Either::Left((Err(why), _)) | Either::Right((why, _)) => Err(format!(
                "{} of {dirty} of dirty data not written back to {}: {why}. The log still has it: \
                 mend that, and repeat the command",
                ByteCount(log.engine().status().dirty_bytes),
                volume.origin.value
            )),
        }
    };
    log.engine().close().await;
    carried.map(|_| (dirty, None))
}

/// Returns the error once write-back has failed for [`TROUBLE_MAX`].
async fn trouble<D: Driver>(log: &OpenLog<D>, env: &Env) -> IoError {
    let mut since = None;
    loop {
        env.timer.sleep(LOOK).await;
        let now = env.timer.now();
        match log.engine().status().trouble {
            None => since = None,
            Some(error) if now - *since.get_or_insert(now) >= TROUBLE_MAX => return error,
            Some(_) => {}
        }
    }
}

/// Writes the origin's data to `to`, and the log's data over it.
pub(super) async fn write_back_to<P: Platform>(
    found: &RecoveredLog<'_, P>,
    look: &Look<P::Driver>,
    to: &Leaf<P::Driver>,
    zeroes: bool,
) -> Result<(ByteCount, Option<LostRecords>), String> {
    let env = found.platform.local().env();
    let dirty = ByteCount(look.engine.status().dirty_bytes);
    let copied = copy(&found.origin.leaf, to, zeroes, &env).await;
    copied.map_err(said)?;
    let lost = look.engine.write_back_all_to(to).await.map_err(said)?;
    let records = look.engine.missing();
    Ok((
        dirty,
        records.map(|records| LostRecords::new(records, &lost)),
    ))
}

/// Copies all of `from` to `to`, durably. With `zeroes`, `to` reads as zeroes, so zeroes are
/// skipped.
pub(super) async fn copy<D: Driver>(
    from: &impl Device,
    to: &Leaf<D>,
    zeroes: bool,
    env: &Env,
) -> IoResult {
    let end = from.geometry().sectors;
    let mut at = Sectors::ZERO;
    while at < end {
        let len = Sectors(COPY.0.min(end.0 - at.0));
        let buf = env.pool.get(len.bytes() as usize).await;
        let (buf, read) = from.read(Lba(at.0), buf).await;
        read?;
        if !zeroes || buf.iter().any(|byte| *byte != 0) {
            to.write(Lba(at.0), buf.share(), Fua::No).await?;
        }
        at = Sectors(at.0 + len.0);
    }
    to.flush().await
}
