//! The state that outlives a node with a write-back volume: its machine, its history, the report.

use super::report::{Class, Report};
use crate::nodesim::logged::{BUFFER_BYTES, LOG_MIB, configuration, disk};
use crate::stamp::{self, Value};
use crate::writeback::{VolumeHistory, replay_journal};
use block::{Lba, Nanos, Pool, SECTOR_BYTES, Sectors};
use control::check::check_alone;
use control::config::Config;
use layout::{BLOCK_BYTES, LOG_WITNESS_BYTES, LogSuperblock};
use shard::Local;
use sim::{FaultPlan, Medium, MediumImage, RunBudget, RunOutcome, SimDriver, SimHost, SimWorld};
use simnode::{SimMachine, run_alone};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use writelog::Cleaning;

pub(super) const VOLUME: &str = "db";
pub(super) const ORIGIN: &str = "/origin";
pub(super) const LOGS: [&str; 2] = ["/log0", "/log1"];
pub(super) const JOURNAL: &str = "/journal";
pub(super) const MAX_LAG: Nanos = Nanos::from_millis(500);
pub(super) const SECTORS: u64 = 2048;
/// Time limit of a life, or of an attempt that is refused over and over.
pub(super) const LIFE_MAX: Nanos = Nanos::from_secs(2000);

/// The bytes of the devices.
pub(super) struct Media {
    pub(super) origin: Medium,
    pub(super) logs: [Medium; 2],
    pub(super) journal: Medium,
    pub(super) witness: Medium,
}

/// The state that outlives a node.
pub(super) struct WriteBackOutside {
    pub(super) seed: u64,
    pub(super) cleaning: Cleaning,
    pub(super) config: Rc<Config>,
    pub(super) machine: Rc<SimMachine>,
    pub(super) media: Media,
    pub(super) history: RefCell<VolumeHistory>,
    pub(super) version: Cell<Value>,
    /// The origin has answered writes in this life.
    pub(super) direct: Cell<bool>,
    /// Clients are to end.
    pub(super) over: Cell<bool>,
    /// The last life ended with a loss of power.
    pub(super) was_cut: Cell<bool>,
    /// The last life's dirty data was zeroes and discards alone, which the origin's bytes do not
    /// show.
    pub(super) was_zeroed: Cell<bool>,
    /// Blocks changed in the last life.
    pub(super) changed: RefCell<BTreeSet<u64>>,
    /// The devices of the log in the middle of the last life.
    pub(super) images: RefCell<[Option<MediumImage>; 2]>,
    pub(super) report: RefCell<Report>,
}

impl WriteBackOutside {
    pub(super) fn meet(&self, class: Class) {
        self.report.borrow_mut().meet(class);
    }

    pub(super) fn violate(&self, what: String) {
        self.report.borrow_mut().violate(what);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.report.borrow().violation.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.get() || self.has_failed()
    }

    /// The log's superblock in its witness.
    pub(super) fn known(&self) -> Option<LogSuperblock> {
        let mut bytes = vec![0; LOG_WITNESS_BYTES as usize];
        self.media.witness.latest(Lba::ZERO, &mut bytes);
        let (first, second) = bytes.split_at(BLOCK_BYTES);
        LogSuperblock::newest([Some(first), Some(second)]).ok()
    }

    /// True if both copies are current.
    pub(super) fn has_both(&self) -> bool {
        self.known().is_some_and(|known| known.mask == [true; 2])
    }

    pub(super) fn image(&self, durable: bool) -> Vec<u8> {
        let mut bytes = vec![0; (SECTORS * SECTOR_BYTES) as usize];
        match durable {
            true => self.media.origin.durable(Lba::ZERO, &mut bytes),
            false => self.media.origin.latest(Lba::ZERO, &mut bytes),
        }
        bytes
    }

    /// True if the origin lacks an acknowledged write.
    pub(super) fn is_dirty(&self) -> bool {
        let judged = self
            .history
            .borrow()
            .judge_apart(&values(&self.image(false)));
        judged.is_ok_and(|earlier| earlier.missing_since.is_some())
    }

    /// Checks that the origin alone is an earlier state, or that each of its sectors is, also after
    /// a power cut of its own. A journal is replayed first.
    pub(super) fn judge(&self) {
        for durable in [false, true] {
            let bytes = self.image(durable);
            if self.cleaning != Cleaning::Journaled {
                self.judge_image(&bytes, durable);
                continue;
            }
            for of_journal in [false, true] {
                let mut bytes = bytes.clone();
                let (sectors, memory) = (Sectors::from_mib(LOG_MIB), Pool::new(2 << 20));
                let journal = &self.media.journal;
                match replay_journal(journal, sectors, of_journal, None, &memory, &mut bytes) {
                    Ok(true) => self.meet(Class::Replayed),
                    Ok(false) => {}
                    Err(what) => self.violate(what),
                }
                self.judge_image(&bytes, durable);
            }
        }
    }

    pub(super) fn judge_image(&self, bytes: &[u8], durable: bool) {
        let image = values(bytes);
        let judged = match self.cleaning {
            Cleaning::Ordered | Cleaning::Journaled => self.history.borrow().judge(&image),
            Cleaning::Coalesced => self.history.borrow().judge_apart(&image),
        };
        match judged {
            Err(what) => self.violate(format!("the origin alone (durable: {durable}): {what}")),
            Ok(earlier) if earlier.lag() > MAX_LAG && !(durable && self.direct.get()) => {
                self.violate(format!("the origin alone lacks {}", earlier.lag()));
            }
            Ok(_) => {}
        }
    }

    /// Runs a node, or more of the machine, to its end. Returns `None` if the power went.
    pub(super) fn boot<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        sim: &mut SimHost,
        plan: FaultPlan,
        work: impl FnOnce(Local<SimDriver>) -> F + 'static,
    ) -> Option<T> {
        sim.world_mut().set_plan(plan).expect("a sound plan");
        let now = sim.world().now();
        sim.set_budget(RunBudget::until(now + LIFE_MAX));
        let (outcome, came) = run_alone(sim, work);
        // The dead node's operations in flight end when the disks are taken over.
        drop(sim.driver());
        if !matches!(outcome, RunOutcome::Done | RunOutcome::PowerCut) {
            self.violate(format!("it does not end: {outcome:?}"));
        }
        came
    }
}

/// The value of each sector.
pub(super) fn values(bytes: &[u8]) -> Vec<Option<Value>> {
    let sectors = bytes.chunks_exact(SECTOR_BYTES as usize).zip(0..);
    sectors.map(|(bytes, at)| stamp::read(bytes, at)).collect()
}

/// The machine of the case of `seed`, with blank devices.
pub(super) fn new(seed: u64, cleaning: Cleaning) -> (Rc<WriteBackOutside>, SimHost) {
    let limits = "max_lag = \"500ms\"\ndirty_max = \"1MiB\"";
    let text = configuration("origin", cleaning, limits);
    let config = Rc::new(check_alone(&text[..], &[]).expect("a sound configuration"));
    let mut world = SimWorld::new(seed);
    let machine = SimMachine::new(&mut world, &config, |device| {
        let (mib, micros) = match device.name.as_str() {
            "origin" => (1, 3000),
            "ssd" => (4, 100),
            _ => (LOG_MIB, 100),
        };
        Ok(disk(device.name.as_str(), mib, micros))
    });
    let machine = machine.expect("a sound world");
    let of = |target| world.medium(target).expect("it keeps its bytes");
    let media = Media {
        origin: of(machine.target(ORIGIN)),
        logs: LOGS.map(|log| of(machine.target(log))),
        journal: of(machine.target(JOURNAL)),
        witness: of(machine.log_witness(VOLUME)),
    };
    let outside = WriteBackOutside {
        seed,
        cleaning,
        config,
        machine,
        media,
        history: RefCell::new(VolumeHistory::new(SECTORS as usize)),
        version: Cell::new(0),
        direct: Cell::new(false),
        over: Cell::new(false),
        was_cut: Cell::new(false),
        was_zeroed: Cell::new(false),
        changed: RefCell::default(),
        images: RefCell::default(),
        report: RefCell::default(),
    };
    let sim = SimHost::new(world).pool_bytes(BUFFER_BYTES);
    (Rc::new(outside), sim)
}
