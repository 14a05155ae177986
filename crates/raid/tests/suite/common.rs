//! Arrays over simulated disks.

use block::{
    BoxDevice, Buf, Device, Env, Extent, Fua, Geometry, IoResult, Lba, Nanos, Sectors, TargetId,
};
use raid::{Array, ArrayPlan, ArrayStart, Level, MemberCandidate, Options, Uuid, assemble, create};
use shard::Local;
use sim::{
    DiskSpec, FaultEffect, FaultRule, OpFilter, RunOutcome, SimDriver, SimHost, SimWorld, When,
    WorldControl,
};
use simnode::run_alone;
use std::cell::Cell;
use std::rc::Rc;

/// The fixture of a test.
#[derive(Clone)]
pub struct Bench {
    pub local: Local<SimDriver>,
    pub env: Env,
    pub control: WorldControl,
    pub disks: Rc<Vec<TargetId>>,
}

thread_local! {
    /// No two identities of a test are the same, however often it drives its world.
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Runs `test` beside disks of `mib` MiB; disk `i` is in domain `c(i % 2)`.
pub fn run(
    seed: u64,
    block: u64,
    mib: &[u64],
    test: impl AsyncFnOnce(Bench) + 'static,
) -> (SimHost, Vec<TargetId>) {
    let shapes: Vec<_> = mib.iter().map(|mib| (*mib, block)).collect();
    run_on(seed, &shapes, test)
}

/// Runs `test` beside disks of these sizes, in MiB, and logical blocks, in sectors.
pub fn run_on(
    seed: u64,
    shapes: &[(u64, u64)],
    test: impl AsyncFnOnce(Bench) + 'static,
) -> (SimHost, Vec<TargetId>) {
    let mut world = SimWorld::new(seed);
    let disks = shapes.iter().enumerate().map(|(i, (mib, block))| {
        let (name, sectors) = (format!("disk-{i}"), Sectors::from_mib(*mib));
        let geometry = Geometry::new(name, sectors, Sectors(*block));
        world
            .add_disk(DiskSpec::new(geometry))
            .expect("a sound disk")
    });
    let disks: Vec<_> = disks.collect();
    let mut sim = SimHost::new(world);
    drive(&mut sim, &disks, test);
    (sim, disks)
}

/// Runs `test` on the disks of a world that may have run before.
pub fn drive(sim: &mut SimHost, disks: &[TargetId], test: impl AsyncFnOnce(Bench) + 'static) {
    let (disks, control) = (Rc::new(disks.to_vec()), sim.world().control());
    let (outcome, ended) = run_alone(sim, async move |local| {
        let env = local.env();
        test(Bench {
            local,
            env,
            control,
            disks,
        })
        .await;
    });
    assert!(
        matches!(outcome, RunOutcome::Done | RunOutcome::PowerCut),
        "{outcome:?}"
    );
    let ended = ended.is_some() || outcome == RunOutcome::PowerCut;
    assert!(ended, "the test did not end");
}

/// Restores the power and runs `test` on the array of `members`.
pub fn after_power(
    sim: &mut SimHost,
    disks: &[TargetId],
    members: &[usize],
    test: impl AsyncFnOnce(Bench, Array) + 'static,
) {
    let members = members.to_vec();
    sim.world().control().power_on(sim::Domain(0));
    drive(sim, disks, async move |bench| {
        bench.sleep(1).await;
        let array = bench.assemble(&members).await.unwrap();
        test(bench, array).await;
    });
}

/// Makes the disks follow `rules` from here on; no other fault happens.
pub fn strike(sim: &mut SimHost, rules: Vec<FaultRule>) {
    let plan = sim::FaultPlan::of(rules);
    sim.world_mut().set_plan(plan).unwrap();
}

/// Has each of `ops` take `delay`, on each of the disks, `within` sectors or on any.
pub fn slow(
    sim: &mut SimHost,
    disks: &[TargetId],
    ops: OpFilter,
    within: Option<Extent>,
    delay: Nanos,
) {
    let rule = |disk: &TargetId| FaultRule {
        disk: *disk,
        ops,
        within,
        when: When::Always,
        effect: FaultEffect::Delay(delay),
    };
    strike(sim, disks.iter().map(rule).collect());
}

/// Makes these sectors unreadable until they are written.
pub fn spoil(sim: &mut SimHost, latent: Vec<(TargetId, Extent)>) {
    let plan = sim::FaultPlan {
        latent,
        ..sim::FaultPlan::default()
    };
    sim.world_mut().set_plan(plan).unwrap();
}

/// Returns the plan of most tests.
pub fn plan(level: Level) -> ArrayPlan {
    ArrayPlan {
        name: "array".into(),
        level,
        chunk: Sectors(64),
        overwrite: false,
        zeroed: false,
    }
}

impl Bench {
    /// Cuts the power of all.
    pub async fn cut_power(&self) {
        self.control.cut_power(None);
        self.sleep(1).await;
    }

    /// Ends the array in order, with its tasks.
    pub async fn end(&self, array: Array) {
        array.close().await.unwrap();
        drop(array);
        self.sleep(300).await;
    }

    pub fn candidate(&self, index: usize) -> MemberCandidate {
        let disk = self.local.disk(self.disks[index]).expect("a disk");
        MemberCandidate::new(BoxDevice::new(disk), format!("c{}", index % 2))
    }

    pub fn candidates(&self, indices: &[usize]) -> Vec<MemberCandidate> {
        indices.iter().map(|i| self.candidate(*i)).collect()
    }

    pub fn uuid(&self) -> Uuid {
        NEXT.set(NEXT.get() + 1);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&NEXT.get().to_be_bytes());
        Uuid::from_bytes(bytes)
    }

    pub async fn create(
        &self,
        level: Level,
        members: &[usize],
        spares: &[usize],
    ) -> IoResult<Array> {
        self.make(&plan(level), members, spares).await
    }

    pub async fn make(
        &self,
        plan: &ArrayPlan,
        members: &[usize],
        spares: &[usize],
    ) -> IoResult<Array> {
        let mut fresh = || self.uuid();
        let (members, spares) = (self.candidates(members), self.candidates(spares));
        create(&self.env, plan, members, spares, &mut fresh, options()).await
    }

    pub async fn assemble(&self, members: &[usize]) -> IoResult<Array> {
        self.start(members, ArrayStart::default()).await
    }

    pub async fn assemble_with(
        &self,
        candidates: Vec<MemberCandidate>,
        options: Options,
    ) -> IoResult<Array> {
        let (fresh, start) = (self.uuid(), ArrayStart::default());
        assemble(&self.env, None, fresh, candidates, start, options).await
    }

    pub async fn start(&self, members: &[usize], start: ArrayStart) -> IoResult<Array> {
        let (candidates, fresh) = (self.candidates(members), self.uuid());
        assemble(
            &self.env,
            Some("array"),
            fresh,
            candidates,
            start,
            options(),
        )
        .await
    }

    pub async fn sleep(&self, millis: u64) {
        self.env.timer.sleep(Nanos::from_millis(millis)).await;
    }

    /// Fills `sectors` from `at` with `byte`.
    pub async fn write(&self, array: &Array, at: u64, sectors: u64, byte: u8) -> IoResult {
        let mut buf = self.env.pool.get(sectors as usize * 512).await;
        buf.fill(byte);
        array.write(Lba(at), buf.share(), Fua::No).await
    }

    pub async fn read(&self, array: &Array, at: u64, sectors: u64) -> IoResult<Buf> {
        let buf = self.env.pool.get(sectors as usize * 512).await;
        let (buf, result) = array.read(Lba(at), buf).await;
        result.map(|()| buf)
    }

    /// True if `sectors` from `at` all hold `byte`.
    pub async fn holds(&self, array: &Array, at: u64, sectors: u64, byte: u8) -> bool {
        let buf = self.read(array, at, sectors).await.expect("it can be read");
        buf.iter().all(|b| *b == byte)
    }

    /// Waits until every member is in sync again.
    pub async fn settled(&self, array: &Array) {
        for _ in 0..10_000 {
            if array.is_settled() {
                return;
            }
            self.sleep(10).await;
        }
        panic!("never settled: {:#?}", array.report());
    }
}

pub fn options() -> Options {
    Options {
        rebuild_floor: 1 << 30,
        clear_after: Nanos::from_millis(200),
        mark_ahead: Sectors::ZERO,
        ..Options::default()
    }
}

/// Returns the text of an expected error.
pub fn refused<T>(result: IoResult<T>) -> String {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

/// Reads a copy of the superblock of `disk`.
pub async fn read_copy(bench: &Bench, disk: usize, copy: u64) -> Buf {
    let device = bench.candidate(disk).device;
    let buf = bench.env.pool.get(4096).await;
    let (buf, result) = device.read(Lba(copy * 8), buf).await;
    result.unwrap();
    buf
}

/// Writes a copy of the superblock of `disk` behind the array's back.
pub async fn write_copy(bench: &Bench, disk: usize, copy: u64, bytes: Buf) {
    let device = bench.candidate(disk).device;
    let written = device.write(Lba(copy * 8), bytes.share(), Fua::Yes).await;
    written.unwrap();
}

/// Waits until all members are whole: no leg holds anything but `byte` at the front, and no copies
/// differ.
pub async fn all_hold(bench: &Bench, array: &Array, sectors: u64, byte: u8) {
    bench.settled(array).await;
    for _ in 0..4 {
        assert!(bench.holds(array, 0, sectors, byte).await);
    }
    assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
}
