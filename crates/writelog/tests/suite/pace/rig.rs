//! A log on two modelled flash drives before a modelled disk, with a journal or without.

use block::{BoxDevice, Fua, Geometry, IoResult, Lba, Nanos, Sectors, TargetId};
use drives::catalogue::hdd::SAS7K2;
use drives::catalogue::ssd::X25_E;
use drives::{Completed, DriveModel, DriveOp, DriveRequest, Hdd, SsdModel, SsdWear};
use layout::{JournalSuperblock, Uuid};
use shard::{Local, ShardDisk};
use sim::{
    DiskSpec, ModelId, RunOutcome, ServiceTime, SimDriver, SimHost, SimRng, SimWorld, WorldControl,
};
use simnode::run_alone;
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use writelog::{
    Cleaning, Config, CopyArea, LogStanding, Members, NotRecorded, Scrutiny, WriteBack,
    WriteJournal,
};

pub const DEPTH: u64 = 16;
pub const ORIGIN: Sectors = Sectors::from_mib(2048);
/// Size of the journal: two halves for the largest window, and the blocks before them.
const JOURNAL: Sectors = Sectors::from_mib(132);

pub type Leaf = ShardDisk<SimDriver>;

/// Place of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalOn {
    /// A disk like the origin's.
    Own,
    /// The origin's disk, behind the origin.
    Origins,
}

/// Setup of a log.
#[derive(Clone, Copy)]
pub struct Setup {
    pub cleaning: Cleaning,
    /// MiB of each device of the log.
    pub segments: u32,
    /// Place of the journal, if the log is journaled.
    pub journal: JournalOn,
    pub max_lag: Nanos,
}

impl Setup {
    pub const fn new(cleaning: Cleaning, segments: u32) -> Setup {
        Setup {
            cleaning,
            segments,
            journal: JournalOn::Own,
            max_lag: Nanos::from_secs(600),
        }
    }
}

/// One shard with the log of a [`Setup`].
#[derive(Clone)]
pub struct Rig {
    pub local: Local<SimDriver>,
    pub log: WriteBack<Leaf>,
    pub control: WorldControl,
    /// The origin, the devices of the log, the journal.
    pub disks: [TargetId; 4],
    pub lost: Rc<Lost>,
}

/// Devices of the log that were reported lost.
#[derive(Default)]
pub struct Lost(pub RefCell<Vec<u16>>);

impl Members for Lost {
    fn record(
        &self,
        standing: LogStanding,
    ) -> Pin<Box<dyn Future<Output = Result<(), NotRecorded>> + '_>> {
        assert!(!standing.forsaken, "the journal is lost");
        let lost = (0..).zip(standing.copies).filter(|(_, here)| !here);
        *self.0.borrow_mut() = lost.map(|(member, _)| member).collect();
        Box::pin(async { Ok(()) })
    }
}

/// A disk in two parts: unit 0 is the beginning, unit 1 the part behind the origin.
struct Parted(Hdd);

impl DriveModel for Parted {
    fn arrive(&mut self, now: Nanos, mut request: DriveRequest) {
        if request.op != DriveOp::Flush && request.unit == 1 {
            request.extent.start.0 += ORIGIN.0;
        }
        self.0.arrive(now, request);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.0.next_event()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        self.0.advance(now, done);
    }
}

fn disk(world: &mut SimWorld, phase: f64) -> ModelId {
    world.add_model(Parted(Hdd::new(&SAS7K2, phase).unwrap()))
}

fn flash(world: &mut SimWorld) -> ModelId {
    world.add_model(SsdModel::new(&X25_E, SsdWear::Steady).unwrap())
}

fn add(world: &mut SimWorld, name: &str, sectors: Sectors, model: ModelId, unit: u32) -> TargetId {
    let mut spec = DiskSpec::new(Geometry::new(name, sectors, Sectors(8)));
    spec.service = ServiceTime::Model { model, unit };
    world.add_disk(spec).unwrap()
}

/// Runs `clients` until they have ended.
pub fn run<F: Future<Output = ()> + 'static>(
    setup: Setup,
    clients: impl FnOnce(Rig) -> F + 'static,
) {
    let mut world = SimWorld::new(1);
    let log = Sectors::from_mib(u64::from(setup.segments));
    let origin = disk(&mut world, 0.0);
    let (journal, unit) = match setup.journal {
        JournalOn::Own => (disk(&mut world, 0.4), 0),
        JournalOn::Origins => (origin, 1),
    };
    let ssds = [flash(&mut world), flash(&mut world)];
    let disks = [
        add(&mut world, "origin", ORIGIN, origin, 0),
        add(&mut world, "ssd0", log, ssds[0], 0),
        add(&mut world, "ssd1", log, ssds[1], 0),
        add(&mut world, "hdd9", JOURNAL, journal, unit),
    ];
    let control = world.control();
    let mut sim = SimHost::new(world);
    let (outcome, _) = run_alone(&mut sim, async move |local| {
        let lost = Rc::new(Lost::default());
        let log = open(&local, disks, setup, lost.clone()).await;
        let rig = Rig {
            local,
            log: log.clone(),
            control,
            disks,
            lost,
        };
        clients(rig).await;
        log.close().await;
    });
    assert_eq!(outcome, RunOutcome::Done);
}

async fn open(
    local: &Local<SimDriver>,
    disks: [TargetId; 4],
    setup: Setup,
    lost: Rc<Lost>,
) -> WriteBack<Leaf> {
    let env = local.env();
    let area = |copy: usize, domain: &str| {
        Some(CopyArea {
            device: local.disk(disks[1 + copy]).unwrap(),
            base: Lba(0),
            segments: setup.segments,
            member: copy as u16,
            domain: domain.into(),
            trusted: true,
            holes: Vec::new(),
        })
    };
    let config = Config {
        log: Uuid(1),
        incarnation: 1,
        epoch: Nanos::ZERO,
        dirty_max: 1 << 30,
        max_lag: setup.max_lag,
        clean_after: Nanos::from_secs(1),
        cleaning: setup.cleaning,
        may_be_dirty: true,
        scrutiny: Scrutiny::Usual,
        asked: false,
        stages: Rc::default(),
    };
    let journal = match setup.cleaning {
        Cleaning::Journaled => {
            let device = local.disk(disks[3]).unwrap();
            let journal = WriteJournal::format(device, env.pool.clone(), superblock());
            Some(journal.await.unwrap())
        }
        Cleaning::Ordered | Cleaning::Coalesced => None,
    };
    let origin = BoxDevice::new(local.disk(disks[0]).unwrap());
    let areas = [area(0, "pcie0"), area(1, "pcie1")];
    let log = WriteBack::open(config, env, lost, areas, journal, origin);
    let log = log.await.unwrap();
    log.establish().await.unwrap();
    log.begin().await.unwrap();
    log
}

fn superblock() -> JournalSuperblock {
    JournalSuperblock {
        journal: Uuid(9),
        log: Uuid(1),
        sequence: 1,
        retired: 0,
        half: layout::journal_half(JOURNAL.0 / 8).unwrap(),
        sectors: ORIGIN.0,
        volume: "db".into(),
        identity: Vec::new(),
    }
}

impl Rig {
    pub fn now(&self) -> Nanos {
        self.local.env().timer.now()
    }

    pub fn leaf(&self, disk: usize) -> Leaf {
        self.local.disk(self.disks[disk]).unwrap()
    }

    /// Writes a block to the log.
    pub async fn write(&self, at: Lba) -> IoResult {
        let data = self.local.env().pool.get(4096).await.share();
        block::Device::write(&self.log, at, data, Fua::No).await
    }

    /// Writes `blocks` blocks at random places.
    pub async fn make_dirty(&self, blocks: u64) {
        let mut rng = SimRng::fork(9, 0);
        for _ in 0..blocks {
            self.write(anywhere(&mut rng)).await.unwrap();
        }
    }
}

pub fn anywhere(rng: &mut SimRng) -> Lba {
    Lba(rng.below(ORIGIN.0 / 8) * 8)
}
