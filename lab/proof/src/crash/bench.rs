//! The state of a case that outlives a daemon: the script's progress, the models, the plugged
//! disks, and the report.

use super::back_end::BackEnd;
use super::case::{CaseCut, CrashCase, Leaf, PresentDisks, Setting, WITNESS};
use super::report::{Class, Report};
use crate::model::VolumeModel;
use block::{Nanos, TargetId};
use cache::{Cache, CacheMode, Counter, DeviceId};
use sim::{Medium, MediumImage, SimRng, SimWorld, WorldControl};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Longest time between an event, such as an eviction of a line or an ejection of a device, and a
/// cut that counts as in its midst.
const MIDST: Nanos = Nanos::from_micros(300);
/// Longest time for which the log's live part is taken to lie around the ring's end after the log
/// has come round: a few commits.
const WRAPPED: Nanos = Nanos::from_millis(3);

/// The phase of a daemon's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LifePhase {
    Opening,
    Serving,
    Closing,
}

/// The generations, from 1, of the records of a pool's other volumes.
#[derive(Default)]
pub(super) struct OtherRecords {
    pub(super) newest: Cell<u32>,
    /// The newest that was made durable.
    pub(super) durable: Cell<u32>,
    /// Generations that are being made durable.
    pub(super) under_way: Cell<u32>,
}

pub(super) struct CrashBench {
    pub(super) case: Arc<CrashCase>,
    pub(super) origins: Vec<TargetId>,
    pub(super) pool: Vec<TargetId>,
    /// One for each pool.
    pub(super) witnesses: Vec<TargetId>,
    /// The origin of the first pool's other volumes.
    pub(super) neighbours: Option<TargetId>,
    pub(super) control: WorldControl,
    pub(super) back_end: BackEnd,
    /// The records of the first pool's other volumes.
    pub(super) records: OtherRecords,
    pub(super) models: Vec<RefCell<VolumeModel>>,
    pub(super) report: RefCell<Report>,
    pub(super) phase: Cell<LifePhase>,
    next: Cell<usize>,
    /// The number of the life, from 0.
    life: Cell<usize>,
    /// The daemon is to stop in order.
    pub(super) stopping: Cell<bool>,
    plugged: RefCell<Vec<bool>>,
    /// Disks that a client is putting back.
    pub(super) plugging: Vec<Cell<bool>>,
    /// Disks that are unresponsive.
    hung: Vec<Cell<bool>>,
    /// The content of the pool's disks, and their images of when an earlier life ended.
    media: Vec<Medium>,
    images: RefCell<Vec<MediumImage>>,
    places: RefCell<Vec<Option<DeviceId>>>,
    modes: RefCell<Vec<CacheMode>>,
    caches: RefCell<Vec<Cache<Leaf>>>,
    /// Lines and updates in flight to the pool when the daemon ended.
    filling: Cell<u32>,
    /// The pool was open once.
    pub(super) formed: Cell<bool>,
    /// The witness at the end of the last daemon.
    witness_before: RefCell<Vec<u8>>,
    /// The witness that the next daemon is to find, if the witness goes back.
    pub(super) witness_back: RefCell<Option<Vec<u8>>>,
    /// A disk was in the pool when the daemon ended.
    in_use: Cell<bool>,
    /// Random names that were given.
    named: Rc<Cell<u128>>,
    /// The count of each of [`RECENT`], and when it last grew.
    recent: [Cell<(u64, Nanos)>; RECENT.len()],
}

/// The counter of each event in the midst of which a cut may land.
const RECENT: [(Counter, Class); 6] = [
    (Counter::LinesEvicted, Class::Eviction),
    (Counter::DevicesEjected, Class::Ejection),
    (Counter::MapCommits, Class::MapCommit),
    (Counter::LogWraps, Class::JournalWrap),
    (Counter::Checkpoints, Class::Checkpoint),
    (Counter::BitmapCommits, Class::BitmapCommit),
];

/// Looks once more at the daemon when dropped, before the daemon's other tasks are.
pub(super) struct LastLook(pub(super) Rc<CrashBench>);

impl Drop for LastLook {
    fn drop(&mut self) {
        self.0.last_look();
    }
}

impl CrashBench {
    pub(super) fn new(
        case: Arc<CrashCase>,
        origins: Vec<TargetId>,
        pool: Vec<TargetId>,
        (witnesses, neighbours): (Vec<TargetId>, Option<TargetId>),
        world: &SimWorld,
    ) -> CrashBench {
        let medium = |disk: &TargetId| world.medium(*disk).expect("it keeps bytes");
        let models = case
            .volumes
            .iter()
            .map(|space| RefCell::new(VolumeModel::new(*space)));
        CrashBench {
            models: models.collect(),
            report: RefCell::default(),
            phase: Cell::new(LifePhase::Opening),
            next: Cell::new(0),
            life: Cell::new(0),
            stopping: Cell::new(false),
            hung: vec![Cell::new(false); pool.len()],
            media: pool.iter().map(medium).collect(),
            images: RefCell::default(),
            records: OtherRecords::default(),
            back_end: BackEnd::new(origins.iter().map(medium).collect()),
            control: world.control(),
            plugged: RefCell::new(vec![true; pool.len()]),
            plugging: vec![Cell::new(false); pool.len()],
            places: RefCell::new(vec![None; pool.len()]),
            modes: RefCell::new(vec![CacheMode::WriteThrough; origins.len()]),
            caches: RefCell::default(),
            filling: Cell::default(),
            formed: Cell::default(),
            witness_before: RefCell::default(),
            witness_back: RefCell::default(),
            in_use: Cell::default(),
            named: Rc::default(),
            recent: Default::default(),
            case,
            origins,
            pool,
            witnesses,
            neighbours,
        }
    }

    /// The number of the next step of the script that no client has begun.
    pub(super) fn next_step(&self) -> Option<usize> {
        let next = self.next.get();
        if next == self.case.steps.len() || self.stopping.get() || self.has_failed() {
            return None;
        }
        self.next.set(next + 1);
        Some(next)
    }

    pub(super) fn is_scripted_out(&self) -> bool {
        self.next.get() == self.case.steps.len()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.report.borrow().violation.is_some()
    }

    pub(super) fn violate(&self, what: String) {
        self.report.borrow_mut().violate(what);
    }

    pub(super) fn is_plugged(&self, disk: usize) -> bool {
        self.plugged.borrow()[disk]
    }

    pub(super) fn plug(&self, disk: usize, plugged: bool) {
        if std::mem::replace(&mut self.plugged.borrow_mut()[disk], plugged) != plugged {
            self.hung[disk].set(false);
            if plugged {
                self.control.revive(self.pool[disk]);
            } else {
                self.control.kill(self.pool[disk]);
            }
        }
    }

    /// The daemon's configuration of each volume.
    pub(super) fn setting(&self) -> &[Setting] {
        self.case.setting(self.life.get())
    }

    pub(super) fn hang(&self, disk: usize) {
        if self.is_plugged(disk) {
            self.hung[disk].set(true);
            self.control.hang(self.pool[disk]);
            self.report.borrow_mut().meet(Class::Hung);
        }
    }

    /// Lets the operations of slow disks go on, but not those of hung ones.
    pub(super) fn release_stuck(&self) {
        for (disk, hung) in self.pool.iter().zip(&self.hung) {
            if !hung.get() {
                self.control.release(*disk);
            }
        }
    }

    /// True if a disk is hung. No one waits for such a disk.
    pub(super) fn is_any_hung(&self) -> bool {
        self.hung.iter().any(Cell::get)
    }

    /// Lets a disk answer again, hung or slow.
    pub(super) fn release(&self, disk: usize) {
        self.hung[disk].set(false);
        self.control.release(self.pool[disk]);
    }

    pub(super) fn place(&self, disk: usize) -> Option<DeviceId> {
        self.places.borrow()[disk]
    }

    pub(super) fn put(&self, disk: usize, place: Option<DeviceId>) {
        self.places.borrow_mut()[disk] = place;
    }

    pub(super) fn mode(&self, volume: usize) -> CacheMode {
        self.modes.borrow()[volume]
    }

    pub(super) fn set_mode(&self, volume: usize, mode: CacheMode) {
        self.modes.borrow_mut()[volume] = mode;
    }

    /// A new daemon starts.
    pub(super) fn begin_life(&self) {
        self.phase.set(LifePhase::Opening);
        self.stopping.set(false);
        (0..self.pool.len()).for_each(|disk| self.release(disk));
        let origins = self.origins.iter();
        origins.for_each(|origin| self.control.revive(*origin));
        self.places.borrow_mut().fill(None);
        self.plugging.iter().for_each(|busy| busy.set(false));
        self.filling.set(0);
        self.records.under_way.set(0);
        for seen in &self.recent {
            seen.take();
        }
    }

    /// The daemon serves, and reads back the content of its pool.
    pub(super) fn opened(&self, caches: &[Cache<Leaf>]) {
        *self.caches.borrow_mut() = caches.to_vec();
    }

    /// True if a fault of the case may keep a pool from being opened.
    pub(super) fn may_be_refused(&self) -> bool {
        !self.case.faults.is_empty()
    }

    /// A random name.
    pub(super) fn uuid(&self) -> u128 {
        self.uuids()()
    }

    /// Random names, of which none is given twice in a case.
    pub(super) fn uuids(&self) -> impl FnMut() -> u128 + 'static {
        let (named, seed) = (self.named.clone(), self.case.seed);
        move || {
            named.set(named.get() + 1);
            let mut rng = SimRng::fork(seed, 1 << 32 | named.get() as u64);
            u128::from(rng.bits()) << 64 | u128::from(rng.bits())
        }
    }

    /// Notes the cache's latest events.
    pub(super) fn look(&self, now: Nanos) {
        let caches = self.caches.borrow();
        let counters: Vec<_> = caches.iter().map(Cache::counters).collect();
        for (seen, (counter, _)) in self.recent.iter().zip(RECENT) {
            let count = counters.iter().map(|c| c.get(counter)).sum();
            if count > seen.get().0 {
                seen.set((count, now));
            }
        }
    }

    /// The daemon is about to be gone, with all its tasks.
    fn last_look(&self) {
        let filling = self.caches.borrow().iter().map(Cache::filling).sum();
        self.filling.set(filling);
    }

    /// Chooses the disks and the witness that the next daemon finds, after the daemon that ended
    /// with `cut`. `peek` reads the witness.
    ///
    /// The superblocks of disks make up for a witness that goes back, as long as one disk that was
    /// in the pool to the last is there.
    pub(super) fn between_lives(&self, cut: CaseCut, peek: &dyn Fn(&mut [u8])) {
        for disk in 0..self.pool.len() {
            match cut.disks {
                PresentDisks::Same => {}
                PresentDisks::All => self.plug(disk, true),
                // Two disks of which each began a pool of its own are two pools.
                PresentDisks::Only(disks) => {
                    self.plug(disk, !self.formed.get() || disks >> disk & 1 > 0);
                }
            }
        }
        self.go_back(cut.disks_back);
        let mut bytes = vec![0; WITNESS.bytes() as usize];
        peek(&mut bytes);
        let before = self.witness_before.replace(bytes);
        let back = cut.witness_back && self.in_use.get() && !before.is_empty();
        *self.witness_back.borrow_mut() = back.then_some(before);
    }

    /// Restores `disks` to their content of a life ago.
    fn go_back(&self, disks: u8) {
        if self.case.cuts.iter().all(|cut| cut.disks_back == 0) {
            return;
        }
        let before = self.images.take();
        *self.images.borrow_mut() = self.media.iter().map(Medium::save).collect();
        for (disk, image) in before.iter().enumerate() {
            if disks >> disk & 1 > 0 {
                self.media[disk].restore(image);
                self.report.borrow_mut().meet(Class::DiskBack);
            }
        }
    }

    /// Starts the next life, and notes the changes of its configuration.
    pub(super) fn next_life(&self) {
        let before = self.setting();
        self.life.set(self.life.get() + 1);
        let report = &mut *self.report.borrow_mut();
        for (was, is) in before.iter().zip(self.setting()) {
            for (changed, event) in [
                (was.name != is.name, Class::Renamed),
                (was.pool != is.pool, Class::Moved),
                (was.windows != is.windows, Class::Resized),
            ] {
                if changed {
                    report.meet(event);
                }
            }
        }
    }

    /// The daemon is dead: counts the situations that the cut landed in, and forgets the cache.
    pub(super) fn autopsy(&self, now: Nanos, cut: Option<CaseCut>) {
        self.look(now);
        // A device that is still joining has no superblock that shows how far the pool had got.
        let came = |d: &cache::DeviceReport| self.places.borrow().contains(&Some(d.id));
        let online = |d: &cache::DeviceReport| d.state == cache::DeviceState::Online && came(d);
        let caches = self.caches.take();
        let mut devices = caches.iter().flat_map(Cache::devices);
        self.in_use.set(devices.any(|device| online(&device)));
        drop(caches);
        let restored = self.back_end.end_life();
        if cut.is_none() {
            return;
        }
        let report = &mut *self.report.borrow_mut();
        report.count("power_cuts", 1);
        if self.phase.get() == LifePhase::Opening {
            report.meet(Class::Recovery);
        }
        if restored {
            report.meet(Class::Standstill);
        }
        if self.records.under_way.get() > 0 {
            report.meet(Class::Table);
        }
        let filling = self.filling.get() > 0;
        let lately = |seen: &Cell<(u64, Nanos)>, span| {
            let (count, at) = seen.get();
            count > 0 && now - at <= span
        };
        if filling {
            report.meet(Class::Promotion);
        }
        for (seen, (_, landing)) in self.recent.iter().zip(RECENT) {
            // A line that was evicted for a line not in flight does not count.
            let span = match landing {
                Class::JournalWrap => WRAPPED,
                _ => MIDST,
            };
            if lately(seen, span) && (landing != Class::Eviction || filling) {
                report.meet(landing);
            }
        }
    }
}
