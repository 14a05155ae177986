//! One life of a daemon: the daemon opens the log, clients take steps from the script, and the
//! daemon ends in order unless the power goes first.

use super::bench::{BenchLedger, WriteBackBench};
use super::case::{COPIES, DAEMON, JOURNAL, LifeEnd, ORIGIN, SECTORS, WriteBackStep};
use crate::stamp::{self, ANYTHING, Value, ZERO};
use block::{
    Access, Boundary, BoxDevice, Device, Extent, Fua, Gate, IoError, IoErrorKind, IoResult, Lba,
    Nanos, SECTOR_BYTES, Sectors,
};
use futures_util::future::join_all;
use layout::{JournalSuperblock, Uuid};
use shard::{Local, ShardDisk};
use sim::{SimDriver, SimRng};
use std::ops::Range;
use std::rc::Rc;
use writelog::{Config, CopyArea, Scrutiny, WriteBack, WriteJournal};

/// Sectors of one read when all sectors are read back.
const PIECE: u64 = 128;
/// Longest time between the sight of a stage and its cut, in nanoseconds: two to this power.
const AMID_LOG: u64 = 17;
/// Attempts to flush the origin before a life begins.
const ATTEMPTS: u32 = 50;

/// The name of the log.
const LOG: Uuid = Uuid(77);

type Leaf = ShardDisk<SimDriver>;
type Served = Gate<WriteBack<Leaf>>;

/// Runs the life until the script is used up.
pub(super) async fn live(bench: Rc<WriteBackBench>, local: Local<SimDriver>, cut: Option<LifeEnd>) {
    watch(&bench, &local, cut);
    let log = match open(&bench, &local).await {
        Ok(log) => log,
        Err(error) => return bench.violate(format!("the log cannot be opened: {error}")),
    };
    bench.opened(log.status().copies);
    if let Err(error) = log.begin().await {
        return bench.violate(format!("the log cannot begin: {error}"));
    }
    let gate = Gate::new(log.clone(), local.env());
    read_back(&bench, &gate).await;
    bench.was_read();
    bench.serving.set(true);
    let clients = (0..bench.case.clients).map(|_| client(&bench, &local, &log, &gate));
    join_all(clients).await;
    if bench.is_scripted_out() && !bench.has_failed() {
        read_back(&bench, &gate).await;
        if let Err(error) = log.drain().await {
            bench.violate(format!("it does not drain: {error}"));
        }
        bench.drained(log.status().dirty_bytes);
        if let Err(error) = log.retire_journal().await {
            bench.violate(format!("its journal is not void: {error}"));
        }
        bench.drained(log.status().dirty_bytes);
        read_back(&bench, &gate).await;
    }
    log.close().await;
}

/// Cuts the power when the stage of `cut` is under way.
fn watch(bench: &Rc<WriteBackBench>, local: &Local<SimDriver>, cut: Option<LifeEnd>) {
    let Some((cut, stage)) = cut.and_then(|cut| Some((cut, cut.amid?))) else {
        return;
    };
    let (bench, timer) = (bench.clone(), local.env().timer);
    let mut rng = SimRng::fork(bench.case.seed, 33 + cut.after);
    local.env().spawn.spawn(async move {
        timer.sleep(Nanos::from_micros(cut.after)).await;
        // Cuts early in the stage or late. If the stage ends before the cut, waits for the next
        // one.
        loop {
            bench.stages.until(stage).await;
            let most = 1 << rng.between(1, AMID_LOG);
            timer.sleep(Nanos(rng.below(most))).await;
            if bench.stages.is(stage) {
                break;
            }
        }
        cut_power(&bench, &cut);
    });
}

fn cut_power(bench: &WriteBackBench, cut: &LifeEnd) {
    for domain in domains(cut) {
        bench.control.cut_power(Some(domain));
    }
}

/// The domains that lose their power.
pub(super) fn domains(cut: &LifeEnd) -> impl Iterator<Item = sim::Domain> {
    let origin = cut.loss.origin.then_some(ORIGIN);
    let copies = COPIES.into_iter().zip(cut.loss.copies);
    let copies = copies.filter_map(|(domain, lost)| lost.then_some(domain));
    let journal = cut.loss.journal.then_some(JOURNAL);
    [DAEMON]
        .into_iter()
        .chain(origin)
        .chain(copies)
        .chain(journal)
}

async fn open(bench: &Rc<WriteBackBench>, local: &Local<SimDriver>) -> IoResult<WriteBack<Leaf>> {
    let env = local.env();
    let origin = local.disk(bench.origin)?;
    // The volatile cache of the last daemon may be lost without an error.
    for attempt in 1.. {
        match origin.flush().await {
            Ok(()) => break,
            Err(error) if attempt == ATTEMPTS => return Err(error),
            Err(_) => env.timer.sleep(Nanos::from_micros(10)).await,
        }
    }
    bench.origin_flushed();
    let config = Config {
        log: LOG,
        incarnation: bench.incarnation(),
        epoch: Nanos::ZERO,
        dirty_max: bench.case.dirty_max,
        max_lag: bench.case.max_lag,
        clean_after: bench.case.clean_after,
        cleaning: bench.case.cleaning,
        may_be_dirty: true,
        scrutiny: Scrutiny::Usual,
        asked: false,
        stages: bench.stages.clone(),
    };
    let area = |copy: usize| {
        let device = local.disk(bench.copies[copy]).expect("a disk");
        bench.is_plugged(copy).then(|| CopyArea {
            device,
            base: Lba(64),
            segments: bench.case.segments,
            member: copy as u16,
            domain: format!("controller-{copy}").into(),
            trusted: bench.is_trusted(copy),
            holes: Vec::new(),
        })
    };
    let members = Rc::new(BenchLedger(bench.clone(), env.timer.clone()));
    let areas = [area(0), area(1)];
    let journal = journal(bench, local, config.incarnation).await?;
    let origin = BoxDevice::new(origin);
    let log = WriteBack::open(config, env, members, areas, journal, origin).await?;
    log.establish().await?;
    Ok(log)
}

/// Opens the journal that is known durably, or makes a new one, unless that fails.
async fn journal(
    bench: &Rc<WriteBackBench>,
    local: &Local<SimDriver>,
    incarnation: u32,
) -> IoResult<Option<WriteJournal<Leaf>>> {
    let Some((case, target)) = bench.case.journal.as_ref().zip(bench.journal) else {
        return Ok(None);
    };
    let (device, memory) = (local.disk(target)?, local.env().pool);
    if bench.journal_uuid().is_some() {
        let journal = WriteJournal::open(device, memory).await?;
        return match journal {
            Ok(journal) => Ok(Some(journal)),
            Err(error) => Err(IoError::new(IoErrorKind::Corrupt, error.to_string())),
        };
    }
    let superblock = JournalSuperblock {
        journal: Uuid(u128::from(incarnation)),
        log: LOG,
        sequence: 1,
        retired: 0,
        half: case.half,
        sectors: SECTORS,
        volume: "db".into(),
        identity: Vec::new(),
    };
    let journal = WriteJournal::format(device, memory, superblock).await.ok();
    bench.begin_journal(journal.as_ref().map(|journal| journal.superblock().journal));
    Ok(journal)
}

/// Reads back all sectors. Each value must be allowed, and is the sector's value from then on.
async fn read_back(bench: &WriteBackBench, gate: &Served) {
    for start in (0..SECTORS).step_by(PIECE as usize) {
        let read = gate.read(start * SECTOR_BYTES, (PIECE * SECTOR_BYTES) as usize);
        match read.await {
            Ok(bytes) => {
                let sectors = bytes.chunks_exact(SECTOR_BYTES as usize);
                for (sector, bytes) in (start..).zip(sectors) {
                    let value = stamp::read(bytes, sector);
                    let history = &mut *bench.history.borrow_mut();
                    if let Err(what) = history.settle(sector as usize, value) {
                        bench.violate(format!("sector {sector}, read back: {what}"));
                    }
                }
            }
            Err(error) => bench.violate(format!("a read failed: {error}")),
        }
    }
}

async fn client(
    bench: &Rc<WriteBackBench>,
    local: &Local<SimDriver>,
    log: &WriteBack<Leaf>,
    gate: &Served,
) {
    while let Some(number) = bench.next_step() {
        bench.report.borrow_mut().operations += 1;
        let env = local.env();
        match &bench.case.steps[number] {
            WriteBackStep::Read(sectors) => read(bench, gate, sectors).await,
            WriteBackStep::Write(sectors, forced) => {
                let version = bench.version();
                let bytes = (sectors.end - sectors.start) * SECTOR_BYTES;
                let mut buf = env.pool.get(bytes as usize).await;
                stamp::stamp(&mut buf, sectors.start, version);
                let fua = if *forced { Fua::Yes } else { Fua::No };
                let write = gate.write(sectors.start * SECTOR_BYTES, buf.share(), fua);
                change(bench, local, sectors, version, *forced, write).await;
            }
            WriteBackStep::Zero(sectors) => {
                let bytes = (sectors.end - sectors.start) * SECTOR_BYTES;
                let zero = gate.zero(sectors.start * SECTOR_BYTES, bytes);
                change(bench, local, sectors, ZERO, false, zero).await;
            }
            WriteBackStep::Discard(sectors) => {
                // Parts of blocks are kept.
                let whole = sectors.start.next_multiple_of(8)..sectors.end / 8 * 8;
                if !whole.is_empty() {
                    let bytes = (whole.end - whole.start) * SECTOR_BYTES;
                    let discard = gate.discard(whole.start * SECTOR_BYTES, bytes);
                    change(bench, local, &whole, ANYTHING, false, discard).await;
                }
            }
            WriteBackStep::Flush => {
                let begun = bench.history.borrow_mut().begin_flush();
                match gate.flush().await {
                    Ok(()) => bench.history.borrow_mut().end_flush(begun),
                    Err(error) => failed(bench, "flush", error),
                }
            }
            WriteBackStep::Pause(span) => env.timer.sleep(*span).await,
            WriteBackStep::Drain => {
                if let Err(error) = log.drain().await {
                    failed(bench, "drain", error);
                }
            }
            WriteBackStep::Unplug(copy) => bench.unplug(*copy),
        }
    }
}

async fn change(
    bench: &WriteBackBench,
    local: &Local<SimDriver>,
    sectors: &Range<u64>,
    value: Value,
    forced: bool,
    work: impl Future<Output = IoResult>,
) {
    let extent = Extent::new(Lba(sectors.start), Sectors(sectors.end - sectors.start));
    let _guard = bench.lock.lock(extent, Access::Exclusive).await;
    let range = sectors.start as usize..sectors.end as usize;
    let op = bench.history.borrow_mut().begin(range, value);
    match work.await {
        Ok(()) => {
            let now = local.env().timer.now();
            bench.history.borrow_mut().answer(op, forced, now);
        }
        Err(error) => failed(bench, "change", error),
    }
}

/// Only a failing origin may fail a client, and only where writes go to the origin directly.
fn failed(bench: &WriteBackBench, what: &str, error: block::IoError) {
    if bench.case.origin_fails == 0.0 || !bench.is_direct() {
        bench.violate(format!("a {what} failed: {error}"));
    }
}

async fn read(bench: &WriteBackBench, gate: &Served, sectors: &Range<u64>) {
    let extent = Extent::new(Lba(sectors.start), Sectors(sectors.end - sectors.start));
    let _guard = bench.lock.lock(extent, Access::Shared).await;
    let bytes = ((sectors.end - sectors.start) * SECTOR_BYTES) as usize;
    let read = gate.read(sectors.start * SECTOR_BYTES, bytes).await;
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) => return bench.violate(format!("a read failed: {error}")),
    };
    let held = bytes.chunks_exact(SECTOR_BYTES as usize);
    for (sector, bytes) in (sectors.start..).zip(held) {
        let allowed = bench.history.borrow().may_read(sector as usize);
        let value = stamp::read(bytes, sector);
        let sound = allowed.contains(&ANYTHING) || value.is_some_and(|v| allowed.contains(&v));
        if !sound {
            let held = stamp::describe(value, &allowed);
            bench.violate(format!("sector {sector}, read: {held}"));
        }
    }
}
