//! A client: one operation after another through the volume's gate, each
//! checked against the model.

use super::report::Class;
use super::scenario::CacheScenario;
use super::shared::{CacheSimShared, TestVolume};
use crate::model::VolumeModel;
use crate::stamp::{self, ANYTHING, Value, ZERO};
use block::{Boundary, Env, Fua, IoError, IoResult, Nanos, SECTOR_BYTES};
use futures_util::future::join;
use sim::SimRng;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// The side of the clients of one shard.
pub(crate) struct ClientSide<G> {
    pub(crate) shared: Rc<CacheSimShared>,
    pub(crate) env: Env,
    /// The gate of each volume.
    pub(crate) gates: Vec<G>,
}

/// Client `number` does its share of the scenario's operations.
pub(crate) async fn work<G: Boundary>(side: Rc<ClientSide<G>>, number: u64) {
    let shared = side.shared.clone();
    let scenario = shared.scenario.clone();
    let mut rng = SimRng::fork(scenario.seed, 100 + number);
    let share = scenario.operations / scenario.clients;
    let extra = u64::from(number < scenario.operations % scenario.clients);
    let mut next = 0;
    for _ in 0..share + extra {
        if shared.report.borrow().violation.is_some() {
            return;
        }
        let volume = rng.below(shared.targets.len() as u64) as usize;
        let target = &shared.targets[volume];
        let sectors = place(&mut rng, target, next, scenario.len_max);
        next = sectors.end;
        let operation = Operation {
            shared: &shared,
            env: &side.env,
            scenario: &scenario,
            target,
            gate: &side.gates[volume],
            sectors,
        };
        let start = side.env.timer.now();
        operation.perform(&mut rng).await;
        let took = side.env.timer.now() - start;
        shared.finished(took);
        if rng.chance(0.2) {
            side.env.timer.sleep(Nanos(rng.below(1_000_000))).await;
        }
    }
}

/// The sectors of the next operation: near the front, anywhere, or on from `next`; now and then a
/// sector or two of the same few blocks, where requests that the gate lets pass each other meet in
/// one block.
fn place(rng: &mut SimRng, target: &TestVolume, next: u64, len_max: u64) -> Range<u64> {
    let total = target.sectors;
    if rng.chance(0.1) {
        let start = rng.below(32);
        return start..start + rng.between(1, 2);
    }
    let len = match rng.below(10) {
        0..3 => rng.between(1, 8),
        3..7 => 8 * rng.between(1, 2),
        7..9 => rng.between(1, 128),
        _ => rng.between(1, 512),
    }
    .min(total)
    .min(len_max);
    let start = match rng.below(10) {
        0..6 => rng.below(total / 4 + 1),
        6..9 => rng.below(total),
        _ => next,
    };
    let start = if rng.chance(0.6) {
        start / 8 * 8
    } else {
        start
    };
    let start = start.min(total - len);
    start..start + len
}

struct Operation<'a, G> {
    shared: &'a CacheSimShared,
    env: &'a Env,
    scenario: &'a CacheScenario,
    target: &'a TestVolume,
    gate: &'a G,
    sectors: Range<u64>,
}

impl<G: Boundary> Operation<'_, G> {
    fn offset(&self) -> u64 {
        self.sectors.start * SECTOR_BYTES
    }

    fn bytes(&self) -> u64 {
        (self.sectors.end - self.sectors.start) * SECTOR_BYTES
    }

    fn model(&self) -> &RefCell<VolumeModel> {
        &self.target.model
    }

    async fn perform(&self, rng: &mut SimRng) {
        match rng.below(100) {
            0..49 => {
                self.read(rng).await;
                // A further shard knows the place by then, while others change the block.
                while self.scenario.crossed && rng.chance(0.6) {
                    self.read(rng).await;
                }
            }
            49..52 => self.crowd(rng).await,
            52..88 => self.write(rng).await,
            88..92 => {
                self.change(ZERO, self.gate.zero(self.offset(), self.bytes()))
                    .await
            }
            92..94 => {
                self.discard().await;
            }
            94..98 => self.judge(self.gate.flush().await),
            _ => {
                let mut runs = Vec::new();
                let answer = self
                    .gate
                    .extents(self.offset(), self.bytes(), &mut runs)
                    .await;
                self.judge(answer);
            }
        }
    }

    /// Time limit of the client's wait, if the client does not wait to the end.
    fn deadline(&self, rng: &mut SimRng) -> Option<Nanos> {
        (self.scenario.abandon && rng.chance(0.05)).then(|| Nanos(rng.below(2_000_000)))
    }

    async fn read(&self, rng: &mut SimRng) {
        let id = self.model().borrow_mut().begin_read(&self.sectors);
        let read = self.gate.read(self.offset(), self.bytes() as usize);
        let answer = match self.deadline(rng) {
            None => Some(read.await),
            Some(span) => self.env.timer.timeout(span, read).await,
        };
        let bytes = match answer {
            Some(Ok(data)) => Some(data),
            Some(Err(error)) => {
                self.judge(Err(error));
                None
            }
            None => None,
        };
        let right = self.model().borrow_mut().end_read(id, bytes.as_deref());
        if let Err(what) = right {
            let what = format!(
                "read of sectors {:?} of {}: {what}",
                self.sectors, self.target.name
            );
            self.shared.violate(what);
        }
    }

    /// Requests that share a 4 KiB block and no sector, which the gate lets pass
    /// each other: while one part is read, another is written, then read.
    async fn crowd(&self, rng: &mut SimRng) {
        let block = self.sectors.start / 8 * 8;
        if self.scenario.block.0 > 1 || block + 8 > self.target.sectors {
            return self.read(rng).await;
        }
        let part = |at: u64| Operation {
            sectors: block + at..block + at + 1,
            ..*self
        };
        // A block that is written in part is not cached any more.
        part(2).write(rng).await;
        let mut other = SimRng::fork(rng.bits(), 0);
        let written = async {
            part(4).write(&mut other).await;
            part(4).read(&mut other).await;
        };
        join(part(0).read(rng), written).await;
    }

    async fn write(&self, rng: &mut SimRng) {
        let version = self.model().borrow_mut().version();
        let mut buf = self.env.pool.get(self.bytes() as usize).await;
        stamp::stamp(&mut buf, self.sectors.start, version);
        let fua = if rng.chance(0.1) { Fua::Yes } else { Fua::No };
        let write = self.gate.write(self.offset(), buf.share(), fua);
        // An abandoned merge of part of a block could put its neighbours' old bytes back: the
        // caller of a gate must not abandon such a merge.
        let block = self.scenario.block.0;
        let whole =
            self.sectors.start.is_multiple_of(block) && self.sectors.end.is_multiple_of(block);
        match self.deadline(rng).filter(|_| whole) {
            None => self.change(version, write).await,
            Some(span) => {
                self.begin(version);
                let answer = self.env.timer.timeout(span, write).await;
                if answer.is_none() {
                    self.shared.report.borrow_mut().meet(Class::Abandoned);
                }
                self.end(version, answer);
            }
        }
    }

    /// Only whole blocks are discarded; the gate keeps the rest.
    async fn discard(&self) {
        let block = self.scenario.block.0;
        let start = self.sectors.start.next_multiple_of(block);
        let end = self.sectors.end / block * block;
        let discard = self.gate.discard(self.offset(), self.bytes());
        if start < end {
            let inner = Operation {
                sectors: start..end,
                ..*self
            };
            inner.change(ANYTHING, discard).await;
        } else {
            self.judge(discard.await);
        }
    }

    async fn change(&self, value: Value, work: impl Future<Output = IoResult>) {
        self.begin(value);
        let result = work.await;
        self.end(value, Some(result));
    }

    fn begin(&self, value: Value) {
        self.model().borrow_mut().begin(&self.sectors, value);
    }

    fn end(&self, value: Value, answer: Option<IoResult>) {
        let mut model = self.model().borrow_mut();
        match &answer {
            None => model.abandon(&self.sectors, value),
            // No power is lost here: acknowledged writes stay.
            Some(result) => model.end(&self.sectors, value, result.is_ok(), true),
        }
        drop(model);
        self.judge(answer.unwrap_or(Ok(())));
    }

    fn judge(&self, result: IoResult) {
        if let Err(error) = result
            && !is_origins(self.scenario, &error)
        {
            let what = format!(
                "{} at sectors {:?}: {error}",
                self.target.name, self.sectors
            );
            self.shared
                .violate(format!("an error that the origin did not cause: {what}"));
        }
    }
}

/// True if the origin may have caused `error`.
pub(crate) fn is_origins(scenario: &CacheScenario, error: &IoError) -> bool {
    scenario.origin_faults && error.device().is_some_and(|d| d.starts_with("origin"))
}
