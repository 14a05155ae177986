//! The program itself: the work of each shard, on any driver.
//!
//! Shard 1 owns the disks and the mirror. Shard 0 serves connections and runs the clients, which
//! report all their operations to the oracle.

use super::Sabotage;
use super::client::SeamClient;
use super::mirror::Mirror;
use super::oracle::{self, Oracle, WriteEnd};
use super::server::{Losable, SeamDevice, SeamExport, SeamGate, serve};
use super::wire::{FLAG_ABANDON, FLAG_FUA, SeamAsk, SeamStatus};
use block::{
    Address, Boundary, Connector, Driver, Extent, Gate, Host, IoErrorKind, IoResult, Lba, Nanos,
    Sectors, ShardId, SharedBuf, TargetId,
};
use futures_channel::oneshot;
use futures_util::future::join_all;
use shard::{
    Config, GateAsker, GateEnd, GatePass, GateTable, Local, Mesh, RemoteGate, Shard, lane,
};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

/// Number of shards of the program.
pub const SHARDS: u32 = 2;
const FRONT: ShardId = ShardId(0);
const BACK: ShardId = ShardId(1);

/// Sectors that clients use: few, so that their requests meet often. A leg
/// needs 8 more, for its mark.
pub const SECTORS: u64 = 256;
/// The last sectors, which both clients write at the same time at the end.
const RACE: Range<u64> = SECTORS - 8..SECTORS;

/// One request of a client's script.
#[derive(Clone, Debug)]
struct ProgramStep {
    ask: SeamAsk,
    fua: bool,
    abandon: bool,
    sectors: Range<u64>,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct SeamScenario {
    /// The seed of the scripts.
    pub seed: u64,
    /// The number of this run on the same disks; numbers of writes differ by the run.
    pub boot: u64,
    /// Requests of each of the two clients.
    pub steps: usize,
    /// Requests that a client has in flight.
    pub window: usize,
    /// Both clients use all sectors. Otherwise each client uses its own half, and every request has
    /// one possible answer.
    pub contended: bool,
    /// Take the second disk away halfway.
    pub lose: bool,
    /// The fault to commit on purpose.
    pub sabotage: Sabotage,
}

/// The targets that the host opened for the program.
#[derive(Clone, Debug)]
pub struct ProgramTargets {
    /// The mirror's disks.
    pub legs: [TargetId; 2],
    /// The server's listener.
    pub listener: TargetId,
    /// The address of the listener.
    pub address: Address,
}

/// The record of a run, which outlives power cuts.
pub struct ProgramRecord {
    /// Judges every answer.
    pub oracle: Oracle,
    /// The violations that the oracle or the program found.
    pub violations: Vec<String>,
    /// Of each client: the end of each request, and a digest of the bytes read.
    pub answers: [Vec<(String, u64)>; 2],
    /// Requests answered, those that failed included.
    pub answered: u64,
    /// Requests answered by an error.
    pub failed: u64,
    /// The clients came to the end of their scripts.
    pub finished: bool,
}

impl Default for ProgramRecord {
    fn default() -> ProgramRecord {
        ProgramRecord {
            oracle: Oracle::new(SECTORS),
            violations: Vec::new(),
            answers: Default::default(),
            answered: 0,
            failed: 0,
            finished: false,
        }
    }
}

/// The record, shared by the shards.
pub type SharedRecord = Arc<Mutex<ProgramRecord>>;

/// Runs the program once on `host`.
pub fn run<H: Host>(
    host: &mut H,
    scenario: &SeamScenario,
    targets: &ProgramTargets,
    record: &SharedRecord,
) {
    let mesh = Mesh::new(SHARDS);
    let (scenario, targets, record) = (scenario.clone(), targets.clone(), record.clone());
    let ran = host.run(SHARDS, move |id, driver| {
        let (scenario, targets, record) = (scenario.clone(), targets.clone(), record.clone());
        let config = Config {
            depth: 8,
            ..Config::default()
        };
        Shard::boot(id, driver, mesh.clone(), config, move |local| async move {
            match id {
                FRONT => front(local, scenario, targets, record).await,
                _ => back(local, scenario, targets, record).await,
            }
        })
    });
    ran.expect("a thread and a ring for each shard");
}

/// Ends the device's shard when sent to.
struct Stop(Cell<Option<oneshot::Sender<()>>>);

/// Set once the mirror serves, or cannot serve: the way to it.
struct Ready(Cell<Option<(GateEnd, GatePass)>>);

async fn back<D: Driver>(
    local: Local<D>,
    scenario: SeamScenario,
    targets: ProgramTargets,
    record: SharedRecord,
) {
    let (stop, stopped) = oneshot::channel();
    local.put(Rc::new(Stop(Cell::new(Some(stop)))));
    let second_lost = Rc::new(Cell::new(false));
    let opened = async {
        let first = Losable::new(local.disk(targets.legs[0])?, Rc::default());
        let second = Losable::new(local.disk(targets.legs[1])?, second_lost.clone());
        Mirror::assemble([first, second], local.env(), scenario.sabotage).await
    };
    let serves = match opened.await {
        Ok(mirror) => {
            let gate = Gate::new(mirror, local.env());
            let table = Rc::new(GateTable::<SeamGate<D>>::default());
            let (end, lane) = lane();
            let pass = table.add(gate.clone());
            local.put(Rc::new(SeamExport::<D> { gate, second_lost }));
            local.env().spawn.spawn(table.serve(lane, local.env()));
            Some((end, pass))
        }
        Err(error) => {
            let expected = matches!(
                error.kind(),
                IoErrorKind::Gone | IoErrorKind::Media | IoErrorKind::Other
            );
            if !expected {
                lock(&record).violations.push(format!("assembly: {error}"));
            }
            None
        }
    };
    local.put(Rc::new(Ready(Cell::new(serves))));
    // A front that ended without a message ends this shard too.
    let _ = stopped.await;
    // An orderly end evicts a leg with a lost cache: the flush fails and the other leg is marked.
    // Otherwise the next start would copy from the leg that lost its cache.
    if let Some(export) = local.get::<SeamExport<D>>() {
        export.gate.drain().await;
        // Without a leg in service, the cache of the last one may be lost as by a power cut.
        if export.gate.flush().await.is_err() {
            lock(&record).oracle.power_cut();
        }
    }
}

async fn front<D: Driver>(
    local: Local<D>,
    scenario: SeamScenario,
    targets: ProgramTargets,
    record: SharedRecord,
) {
    let result = drive(&local, &scenario, &targets, &record).await;
    let stop = local.call(BACK, |local| async move {
        let stop = local.get::<Stop>().and_then(|stop| stop.0.take());
        stop.is_some_and(|stop| stop.send(()).is_ok())
    });
    let stopped = stop.await;
    let mut record = lock(&record);
    if let Err(error) = result.and(stopped.map(drop)) {
        record.failed += 1;
        record.answers[0].push((format!("{:?}", error.kind()), 0));
    }
    record.finished = true;
}

async fn drive<D: Driver>(
    local: &Local<D>,
    scenario: &SeamScenario,
    targets: &ProgramTargets,
    record: &SharedRecord,
) -> IoResult {
    let way = local
        .call(BACK, |local| async move {
            loop {
                if let Some(ready) = local.get::<Ready>() {
                    return ready.0.take();
                }
                local.env().timer.sleep(Nanos::from_micros(200)).await;
            }
        })
        .await?;
    let Some((end, pass)) = way else {
        return Ok(());
    };
    let device = SeamDevice {
        gate: RemoteGate::new(GateAsker::begin(end, local), pass),
        shard: BACK,
        sabotage: scenario.sabotage,
    };
    let listener = local.listener(targets.listener);
    local
        .env()
        .spawn
        .spawn(serve(local.clone(), listener, device));
    let mut clients = Vec::new();
    for number in 0..2 {
        let stream = local.connector().connect(targets.address.clone()).await?;
        clients.push(Talker {
            client: SeamClient::start(local.clone(), stream),
            local: local.clone(),
            number,
            boot: scenario.boot,
            record: record.clone(),
        });
    }
    let scripts = join_all(clients.iter().map(|c| c.play(scenario))).await;
    scripts.into_iter().collect::<IoResult>()?;
    let race = |ask| ProgramStep {
        ask,
        fua: false,
        abandon: false,
        sectors: RACE,
    };
    join_all(
        clients
            .iter()
            .map(|c| c.perform(scenario.steps, race(SeamAsk::Write))),
    )
    .await;
    for pass in 1..=3 {
        for first in (0..SECTORS).step_by(32) {
            let mut step = race(SeamAsk::Read);
            step.sectors = first..first + 32;
            clients[0].perform(scenario.steps + pass, step).await?;
        }
    }
    for client in clients {
        client.client.close();
    }
    Ok(())
}

/// A client with its script, reporting to the oracle.
struct Talker<D: Driver> {
    client: Rc<SeamClient<D>>,
    local: Local<D>,
    number: usize,
    boot: u64,
    record: SharedRecord,
}

impl<D: Driver> Talker<D> {
    async fn play(&self, scenario: &SeamScenario) -> IoResult {
        let script = script(scenario, self.number);
        for (i, steps) in script.chunks(scenario.window).enumerate() {
            let first = i * scenario.window;
            let numbered = (first..).zip(steps.iter().cloned());
            let done = join_all(numbered.map(|(at, step)| self.perform(at, step))).await;
            let answers = done.into_iter().collect::<IoResult<Vec<_>>>()?;
            lock(&self.record).answers[self.number].extend(answers);
        }
        Ok(())
    }

    /// Sends one request and has its answer judged. An error is a lost answer.
    async fn perform(&self, at: usize, step: ProgramStep) -> IoResult<(String, u64)> {
        let sectors = step.sectors.clone();
        let extent = Extent::new(Lba(sectors.start), Sectors(sectors.end - sectors.start));
        let flags =
            if step.fua { FLAG_FUA } else { 0 } | if step.abandon { FLAG_ABANDON } else { 0 };
        let number = (self.boot << 48) | (self.number as u64 + 1) << 32 | (at as u64 + 1);
        let mut write = None;
        let mut data = None;
        let begin = {
            let mut record = lock(&self.record);
            match step.ask {
                SeamAsk::Write | SeamAsk::Zero => {
                    let zero = step.ask == SeamAsk::Zero;
                    write = Some(record.oracle.begin_write(sectors.clone(), number, zero));
                    0
                }
                SeamAsk::Flush => record.oracle.begin_flush(),
                SeamAsk::Read | SeamAsk::Lose => record.oracle.begin_read(),
            }
        };
        if let (SeamAsk::Write, Some((_, stamp))) = (step.ask, &write) {
            let mut buf = self.local.env().pool.get(extent.len.bytes() as usize).await;
            oracle::stamp(&mut buf, sectors.start, *stamp);
            data = Some(buf.share());
        }
        let answer = self.client.ask(step.ask, flags, extent, data).await;
        let mut record = lock(&self.record);
        record.answered += 1;
        record.failed += u64::from(!matches!(
            answer,
            Ok((SeamStatus::Done | SeamStatus::Abandoned, _))
        ));
        if let Some((ticket, _)) = write {
            let end = match &answer {
                Ok((SeamStatus::Done, _)) if step.fua => WriteEnd::Durable,
                Ok((SeamStatus::Done, _)) => WriteEnd::Done,
                Ok(_) => WriteEnd::Unknown,
                Err(_) => WriteEnd::Lost,
            };
            record.oracle.end_write(ticket, end);
        }
        let (status, bytes) = answer?;
        let mut digest = 0;
        match (step.ask, status, bytes) {
            (SeamAsk::Read, SeamStatus::Done, Some(bytes)) => {
                digest = digest_of(&bytes);
                if let Err(why) = record.oracle.end_read(begin, sectors.start, &bytes) {
                    record
                        .violations
                        .push(format!("client {} step {at}: {why}", self.number));
                }
            }
            (SeamAsk::Read, SeamStatus::Done, None) => {
                record
                    .violations
                    .push("a read was answered without bytes".into());
            }
            (SeamAsk::Flush, SeamStatus::Done, _) => record.oracle.end_flush(begin),
            _ => {}
        }
        Ok((format!("{:?} {status:?}", step.ask), digest))
    }
}

fn script(scenario: &SeamScenario, client: usize) -> Vec<ProgramStep> {
    let mut rng = fastrand::Rng::with_seed(scenario.seed ^ (client as u64 + 1) << 40);
    let half = RACE.start / 2;
    let range = match (scenario.contended, client) {
        (true, _) => 0..RACE.start,
        (false, 0) => 0..half,
        (false, _) => half..RACE.start,
    };
    let step = |i: usize, rng: &mut fastrand::Rng| {
        if scenario.lose && client == 0 && i == scenario.steps / 2 {
            return ProgramStep {
                ask: SeamAsk::Lose,
                fua: false,
                abandon: false,
                sectors: 0..0,
            };
        }
        let ask = match rng.u32(0..100) {
            0..45 => SeamAsk::Write,
            45..52 => SeamAsk::Zero,
            52..60 => SeamAsk::Flush,
            _ => SeamAsk::Read,
        };
        let first = rng.u64(range.start..range.end - 1);
        let len = rng.u64(1..=16).min(range.end - first);
        ProgramStep {
            ask,
            fua: ask == SeamAsk::Write && rng.u32(0..5) == 0,
            abandon: ask != SeamAsk::Flush && rng.u32(0..12) == 0,
            sectors: if ask == SeamAsk::Flush {
                0..0
            } else {
                first..first + len
            },
        }
    };
    (0..scenario.steps).map(|i| step(i, &mut rng)).collect()
}

/// FNV-1a, so that answers of two drivers can be compared.
fn digest_of(bytes: &SharedBuf) -> u64 {
    let words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The record; a panic elsewhere has already failed the run.
pub fn lock(record: &SharedRecord) -> MutexGuard<'_, ProgramRecord> {
    record
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
