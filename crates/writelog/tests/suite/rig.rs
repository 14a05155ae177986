//! One shard in a world of an origin, the two devices of a log, a journal and a witness.

use block::{
    BoxDevice, Buf, Content, Device, Extent, Fua, Geometry, IoError, IoErrorKind, IoResult, Layer,
    Lba, Nanos, Sectors, SharedBuf, TargetId,
};
use layout::Uuid;
use shard::{Local, ShardDisk};
use sim::{
    DiskSpec, RunOutcome, ServiceSpan, ServiceTime, SimDriver, SimHost, SimWorld, WorldControl,
};
use simnode::run_alone;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use writelog::{
    Cleaning, Config, CopyArea, LogStanding, Members, NotRecorded, Scrutiny, WriteBack,
    WriteJournal,
};

pub type Leaf = ShardDisk<SimDriver>;

/// Runs `test` on one shard in such a world.
pub fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce(Rig) -> F + 'static) -> SimHost {
    let mut world = SimWorld::new(1);
    let mut add = |name: &str, mib, micros| {
        let mut spec = DiskSpec::new(Geometry::new(name, Sectors::from_mib(mib), Sectors(8)));
        spec.service = ServiceTime::uniform(ServiceSpan::exactly(Nanos::from_micros(micros)));
        world.add_disk(spec).unwrap()
    };
    let disks: [TargetId; 5] = [
        add("origin", 64, 5000),
        add("ssd0", 16, 100),
        add("ssd1", 16, 100),
        add("hdd9", 16, 100),
        add("witness", 1, 100),
    ];
    let control = world.control();
    let mut sim = SimHost::new(world);
    let (outcome, _) = run_alone(&mut sim, move |local| {
        test(Rig {
            local,
            control,
            disks,
            reported: Rc::default(),
        })
    });
    assert_eq!(outcome, RunOutcome::Done);
    sim
}

/// An ordered log.
pub fn config(incarnation: u32) -> Config {
    Config {
        log: Uuid(1),
        incarnation,
        epoch: Nanos::ZERO,
        dirty_max: 8 << 20,
        max_lag: Nanos::from_secs(30),
        clean_after: Nanos::from_secs(1),
        cleaning: Cleaning::Ordered,
        may_be_dirty: true,
        scrutiny: Scrutiny::Usual,
        asked: false,
        stages: Rc::default(),
    }
}

#[derive(Clone)]
pub struct Rig {
    pub local: Local<SimDriver>,
    pub control: WorldControl,
    pub disks: [TargetId; 5],
    pub reported: Rc<Reported>,
}

/// Reported losses, and whether a loss can be made durable.
#[derive(Default)]
pub struct Reported {
    pub lost: RefCell<Vec<u16>>,
    pub forsaken: Cell<bool>,
    pub settled: Cell<bool>,
    pub stuck: Cell<bool>,
}

impl Members for Reported {
    fn record(
        &self,
        standing: LogStanding,
    ) -> Pin<Box<dyn Future<Output = Result<(), NotRecorded>> + '_>> {
        Box::pin(async move {
            if self.stuck.get() {
                let error = IoError::new(IoErrorKind::NoSpace, "the witness is full");
                return Err(NotRecorded::Unsure(error));
            }
            let lost = &mut *self.lost.borrow_mut();
            for (member, here) in (0..).zip(standing.copies) {
                if !here && !lost.contains(&member) {
                    lost.push(member);
                }
            }
            self.forsaken.set(standing.forsaken);
            self.settled.set(!standing.may_be_dirty);
            Ok(())
        })
    }
}

impl Rig {
    pub fn leaf(&self, disk: usize) -> Leaf {
        self.local.disk(self.disks[disk]).unwrap()
    }

    pub fn area(&self, copy: usize, domain: &str) -> CopyArea<Leaf> {
        CopyArea {
            device: self.leaf(1 + copy),
            base: Lba(0),
            segments: 8,
            member: copy as u16,
            domain: domain.into(),
            trusted: true,
            holes: Vec::new(),
        }
    }

    pub fn both(&self) -> [Option<CopyArea<Leaf>>; 2] {
        [Some(self.area(0, "pcie0")), Some(self.area(1, "pcie1"))]
    }

    /// Both areas of `segments` segments, on their disks as changed by `device`.
    pub fn areas<D>(&self, segments: u32, device: impl Fn(Leaf) -> D) -> [Option<CopyArea<D>>; 2] {
        self.both().map(|area| {
            let area = area.expect("both are there");
            Some(CopyArea {
                device: device(area.device),
                base: area.base,
                segments,
                member: area.member,
                domain: area.domain,
                trusted: area.trusted,
                holes: area.holes,
            })
        })
    }

    pub async fn open(
        &self,
        incarnation: u32,
        areas: [Option<CopyArea<Leaf>>; 2],
    ) -> IoResult<WriteBack<Leaf>> {
        self.open_by(incarnation, areas, None).await
    }

    /// Opens a log with `journal`, if there is one.
    pub async fn open_by(
        &self,
        incarnation: u32,
        areas: [Option<CopyArea<Leaf>>; 2],
        journal: Option<WriteJournal<Leaf>>,
    ) -> IoResult<WriteBack<Leaf>> {
        let config = Config {
            cleaning: match journal {
                Some(_) => Cleaning::Journaled,
                None => Cleaning::Ordered,
            },
            ..config(incarnation)
        };
        let log = self
            .open_before(self.leaf(0), config, areas, journal)
            .await?;
        log.begin().await?;
        Ok(log)
    }

    /// Opens and establishes a log in front of a substitute for the origin, which gets nothing
    /// before the log is begun.
    pub async fn open_before<D: Device>(
        &self,
        origin: impl Device,
        config: Config,
        areas: [Option<CopyArea<D>>; 2],
        journal: Option<WriteJournal<D>>,
    ) -> IoResult<WriteBack<D>> {
        let log = self.attempt(origin, config, areas, journal).await?;
        log.establish().await?;
        Ok(log)
    }

    /// Opens a log in the same way, and does not establish it.
    pub async fn attempt<D: Device>(
        &self,
        origin: impl Device,
        config: Config,
        areas: [Option<CopyArea<D>>; 2],
        journal: Option<WriteJournal<D>>,
    ) -> IoResult<WriteBack<D>> {
        let (env, origin) = (self.local.env(), BoxDevice::new(origin));
        let members = self.reported.clone();
        WriteBack::open(config, env, members, areas, journal, origin).await
    }

    pub async fn data(&self, blocks: usize, byte: u8) -> SharedBuf {
        let mut buf = self.local.env().pool.get(blocks * 4096).await;
        buf.fill(byte);
        buf.share()
    }

    pub async fn expect(&self, log: &impl Device, block: u64, blocks: usize, byte: u8) {
        let buf = self.local.env().pool.get(blocks * 4096).await;
        let (buf, read) = log.read(Lba(block * 8), buf).await;
        read.unwrap();
        assert!(
            buf.iter().all(|b| *b == byte),
            "block {block}: {} and not {byte}",
            buf[0]
        );
    }

    pub fn now(&self) -> Nanos {
        self.local.env().timer.now()
    }
}

/// A disk with a count of its reads, the bytes written, its unreadable place, and a claim that it
/// is one hole.
pub struct Tapped {
    pub leaf: Leaf,
    pub reads: Rc<Cell<u64>>,
    pub written: Rc<Cell<u64>>,
    pub unreadable: Option<Lba>,
    pub hollow: bool,
}

impl Tapped {
    pub fn new(leaf: Leaf) -> Tapped {
        Tapped {
            leaf,
            reads: Rc::default(),
            written: Rc::default(),
            unreadable: None,
            hollow: false,
        }
    }
}

impl Layer for Tapped {
    type Below = Leaf;

    fn below(&self) -> &Leaf {
        &self.leaf
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        self.reads.set(self.reads.get() + 1);
        if self.unreadable == Some(at) {
            let error = IoError::new(IoErrorKind::Media, "an unreadable sector");
            return (buf, Err(error));
        }
        self.leaf.read(at, buf).await
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.written.set(self.written.get() + data.len() as u64);
        self.leaf.write(at, data, fua).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        if self.hollow {
            out.push((extent, Content::Hole));
            return Ok(());
        }
        self.leaf.extents(extent, out).await
    }
}
