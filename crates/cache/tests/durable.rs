//! What a pool holds comes back, and nothing that is stale does.

use block::{
    BoxDevice, Buf, Device, Env, Extent, Fua, Geometry, Kind, Lba, Nanos, SECTOR_BYTES, Sectors,
    ShardId, TargetId,
};
use cache::{
    Cache, Config, Counter, Durability, Found, Mode, Opened, PoolDevice, Volume, VolumeConfig,
};
use shard::{Config as ShardConfig, Disk, Local, Mesh, Shard};
use sim::{
    Control, DiskSpec, Effect, Ops, Outcome, Plan, Point, PowerCut, Rule, Service, Sim, SimDriver,
    Span, When, World,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

type Leaf = Disk<SimDriver>;

const LINE: u64 = 128;

/// A world that outlives what runs in it: an origin, a pool, a witness.
struct Place {
    sim: Sim,
    origin: TargetId,
    pool: Vec<TargetId>,
    witness: TargetId,
    runs: u64,
    period_ms: u64,
}

/// One run of a cache in that world.
struct Rig {
    env: Env,
    local: Local<SimDriver>,
    cache: Cache<Leaf>,
    volume: Volume<Leaf>,
    opened: Opened,
    control: Control,
    pool: Vec<TargetId>,
    origin: TargetId,
}

impl Place {
    fn new(seed: u64, pool: usize) -> Place {
        let mut world = World::new(seed);
        let mut add = |name: &str, mib, us| {
            let geometry = Geometry::new(name, Sectors::from_mib(mib), Sectors(8));
            let mut spec = DiskSpec::new(geometry);
            spec.service = Service::uniform(Span::exactly(Nanos::from_micros(us)));
            world.add_disk(spec).unwrap()
        };
        let origin = add("origin", 64, 2000);
        let witness = add("witness", 1, 50);
        let pool = (0..pool)
            .map(|i| add(&format!("pool-{i}"), 8, 100))
            .collect();
        Place {
            sim: Sim::new(world),
            origin,
            pool,
            witness,
            runs: 0,
            period_ms: 20,
        }
    }

    /// Runs `test` over the pool's devices that `with` names. Power is cut where
    /// the test cuts it.
    fn run<F>(&mut self, with: &[usize], test: impl Fn(Rig) -> F + 'static) -> Outcome
    where
        F: Future<Output = ()> + 'static,
    {
        self.runs += 1;
        let control = self.sim.world().control();
        let pool: Vec<_> = with.iter().map(|i| self.pool[*i]).collect();
        let (origin, witness) = (self.origin, self.witness);
        let run = (self.runs, self.period_ms);
        let test = Rc::new(test);
        self.sim.drive(1, move |_, driver| {
            let (test, control, pool) = (test.clone(), control.clone(), pool.clone());
            Shard::boot(
                ShardId(0),
                driver,
                Mesh::new(1),
                ShardConfig::default(),
                move |local| async move {
                    let rig = open(local, control, origin, pool, witness, run).await;
                    test(rig).await;
                },
            )
        })
    }
}

fn config(period_ms: u64) -> Config {
    Config {
        commit_period: Nanos::from_millis(period_ms),
        mark_idle_periods: 2,
        ..Config::default()
    }
}

async fn open(
    local: Local<SimDriver>,
    control: Control,
    origin: TargetId,
    pool: Vec<TargetId>,
    witness: TargetId,
    (run, period_ms): (u64, u64),
) -> Rig {
    let next = Cell::new(u128::from(run) << 64);
    let durability = Durability {
        label: "pool".into(),
        host: "host".into(),
        witness: Some(BoxDevice::new(local.disk(witness).unwrap())),
        uuids: Box::new(move || next.replace(next.get() + 1) | 1 << 100),
        overwrite: false,
        cold: false,
    };
    let devices = pool
        .iter()
        .map(|disk| PoolDevice::whole(local.disk(*disk).unwrap(), "controller"))
        .collect();
    let policy = policy::registry::build("lru", 0, 1).unwrap();
    let opened = Cache::open(config(period_ms), policy, local.env(), durability, devices).await;
    let (cache, opened) = opened.unwrap();
    let config = VolumeConfig {
        name: "volume".into(),
        sectors: None,
        mode: Mode::WriteThrough,
    };
    let below = BoxDevice::new(local.disk(origin).unwrap());
    let volume = cache.add_volume(config, below).unwrap();
    Rig {
        env: local.env(),
        local,
        cache,
        volume,
        opened,
        control,
        pool,
        origin,
    }
}

impl Rig {
    async fn buf(&self, sectors: u64) -> Buf {
        self.env.pool.get((sectors * SECTOR_BYTES) as usize).await
    }

    async fn write(&self, at: u64, sectors: u64, byte: u8) {
        let mut buf = self.buf(sectors).await;
        buf.fill(byte);
        let written = self.volume.write(Lba(at), buf.share(), Fua::No).await;
        written.unwrap();
    }

    async fn read(&self, at: u64, sectors: u64) -> Vec<u8> {
        let (buf, result) = self.volume.read(Lba(at), self.buf(sectors).await).await;
        result.unwrap();
        buf.to_vec()
    }

    async fn expect(&self, at: u64, sectors: u64, byte: u8) {
        let bytes = self.read(at, sectors).await;
        assert!(bytes.iter().all(|b| *b == byte), "{} for {byte}", bytes[0]);
    }

    /// Everything on the volume is what the origin holds.
    async fn agrees(&self) {
        let origin = self.local.disk(self.origin).unwrap();
        for at in (0..64 * 2048).step_by(1024) {
            let seen = self.read(at, 1024).await;
            let (raw, result) = origin.read(Lba(at), self.buf(1024).await).await;
            result.unwrap();
            assert!(seen[..] == raw[..], "a stale byte at sector {at}");
        }
    }

    /// Sixteen lines, read twice.
    async fn fill(&self) {
        for line in 0..16 {
            self.read(line * LINE, LINE).await;
        }
        self.cache.settle().await;
    }

    async fn sleep(&self, ms: u64) {
        self.env.timer.sleep(Nanos::from_millis(ms)).await;
    }

    fn count(&self, counter: Counter) -> u64 {
        self.cache.counters().get(counter)
    }

    fn cut(&self) {
        self.control.cut_power(None);
    }
}

/// Restores power before the next run.
fn cut_off(place: &mut Place, outcome: Outcome) {
    assert_eq!(outcome, Outcome::PowerCut);
    let mut world = place.sim.world_mut();
    world.set_plan(Plan::default()).unwrap();
    world.control().power_on(sim::Domain(0));
}

#[test]
fn lines_come_back_after_an_orderly_end() {
    let mut place = Place::new(1, 2);
    let ended = place.run(&[0, 1], |rig| async move {
        assert!(rig.opened.devices.iter().all(|d| d.found == Found::Nothing));
        rig.fill().await;
        rig.write(0, 8, 7).await;
        rig.volume.close().await;
        rig.cache.close().await;
    });
    assert_eq!(ended, Outcome::Done);
    let again = place.run(&[0, 1], |rig| async move {
        let lines = Found::Lines { clean: true };
        assert!(
            rig.opened.devices.iter().all(|d| d.found == lines),
            "{:?}",
            rig.opened
        );
        rig.cache.warmed().await;
        assert_eq!(rig.count(Counter::LinesRestored), 16);
        rig.expect(0, 8, 7).await;
        for line in 1..16 {
            rig.expect(line * LINE, LINE, 0).await;
        }
        assert_eq!(rig.count(Counter::ReadsMissed), 0);
        rig.agrees().await;
        rig.cache.check();
    });
    assert_eq!(again, Outcome::Done);
}

#[test]
fn after_a_power_cut_committed_lines_hit_and_written_regions_do_not() {
    let mut place = Place::new(2, 1);
    let outcome = place.run(&[0], |rig| async move {
        rig.fill().await;
        // One line beyond the first marked region.
        rig.read(32 << 11, LINE).await;
        rig.cache.settle().await;
        rig.sleep(100).await;
        rig.write(0, 8, 9).await;
        rig.cut();
        rig.sleep(1000).await;
    });
    cut_off(&mut place, outcome);
    let again = place.run(&[0], |rig| async move {
        assert_eq!(rig.opened.devices[0].found, Found::Lines { clean: false });
        rig.cache.warmed().await;
        assert_eq!(rig.count(Counter::LinesRestored), 1);
        assert_eq!(rig.count(Counter::LinesInDoubt), 16);
        rig.expect(32 << 11, LINE, 0).await;
        assert_eq!(rig.count(Counter::ReadsHit), 1);
        rig.agrees().await;
    });
    assert_eq!(again, Outcome::Done);
}

#[test]
fn a_region_left_alone_is_believed_again() {
    let mut place = Place::new(3, 1);
    let outcome = place.run(&[0], |rig| async move {
        rig.fill().await;
        rig.write(0, 8, 9).await;
        rig.sleep(500).await;
        rig.cut();
        rig.sleep(1000).await;
    });
    cut_off(&mut place, outcome);
    let again = place.run(&[0], |rig| async move {
        rig.cache.warmed().await;
        assert_eq!(rig.count(Counter::LinesRestored), 16);
        rig.expect(0, 8, 9).await;
        assert_eq!(rig.count(Counter::ReadsHit), 1);
        rig.agrees().await;
    });
    assert_eq!(again, Outcome::Done);
}

#[test]
fn a_device_that_was_away_while_writes_went_on_is_not_believed() {
    for all in [vec![0, 1], vec![0]] {
        for crash in [false, true] {
            let mut place = Place::new(4, 2);
            let away = all.clone();
            let outcome = place.run(&all, move |rig| async move {
                rig.fill().await;
                rig.sleep(100).await;
                // The lines are on the first device, which is filled first.
                rig.control.kill(rig.pool[0]);
                for line in 0..16 {
                    rig.write(line * LINE, 8, 5).await;
                }
                rig.volume.flush().await.unwrap();
                if crash {
                    rig.cut();
                    rig.sleep(1000).await;
                }
                rig.volume.close().await;
                rig.cache.close().await;
            });
            if crash {
                cut_off(&mut place, outcome);
            }
            let first = place.pool[0];
            // It comes back, alone or with the others.
            place.sim.world().control().revive(first);
            let again = place.run(&away, |rig| async move {
                let found = rig.opened.devices[0].found;
                assert!(matches!(found, Found::Unusable(_)), "{found:?}");
                rig.expect(0, 8, 5).await;
                rig.agrees().await;
            });
            assert_eq!(again, Outcome::Done);
        }
    }
}

#[test]
fn a_device_left_out_of_a_run_is_not_believed() {
    let mut place = Place::new(5, 1);
    let filled = place.run(&[0], |rig| async move {
        rig.fill().await;
        rig.volume.close().await;
        rig.cache.close().await;
    });
    assert_eq!(filled, Outcome::Done);
    let without = place.run(&[], |rig| async move {
        assert_eq!(rig.opened.missing.len(), 1);
        rig.write(0, LINE, 3).await;
        rig.volume.close().await;
        rig.cache.close().await;
    });
    assert_eq!(without, Outcome::Done);
    let again = place.run(&[0], |rig| async move {
        assert!(matches!(rig.opened.devices[0].found, Found::Unusable(_)));
        rig.expect(0, LINE, 3).await;
    });
    assert_eq!(again, Outcome::Done);
}

#[test]
fn the_log_wraps_and_checkpoints_follow() {
    let mut place = Place::new(6, 1);
    let counts = Rc::new(RefCell::new((0, 0)));
    let seen = counts.clone();
    let outcome = place.run(&[0], move |rig| {
        let seen = seen.clone();
        async move {
            // More than the pool holds, a commit every few lines.
            for round in 0..3 {
                for line in 0..150 {
                    rig.read((line + 50 * round) * LINE, LINE).await;
                    if line % 4 == 0 {
                        rig.sleep(25).await;
                    }
                }
            }
            rig.cache.settle().await;
            rig.sleep(100).await;
            *seen.borrow_mut() = (rig.count(Counter::Checkpoints), rig.cache.lines().0);
            rig.cut();
            rig.sleep(1000).await;
        }
    });
    cut_off(&mut place, outcome);
    let (checkpoints, lines) = *counts.borrow();
    assert!(checkpoints >= 3, "{checkpoints}");
    let again = place.run(&[0], move |rig| async move {
        rig.cache.warmed().await;
        assert_eq!(rig.count(Counter::LinesRestored), u64::from(lines));
        assert_eq!(rig.count(Counter::MapsDamaged), 0);
        rig.cache.check();
        rig.agrees().await;
        assert_eq!(rig.count(Counter::BlocksCorrupt), 0);
    });
    assert_eq!(again, Outcome::Done);
}

/// A figure of docs/failure-model.md: extra operations of the pool for the marks
/// of small random writes, and metadata for each byte promoted.
#[test]
fn marks_and_map_cost_little() {
    let mut place = Place::new(7, 1);
    place.period_ms = 1000;
    let outcome = place.run(&[0], |rig| async move {
        let mut x = 1u64;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) % (64 << 8) * 8
        };
        let heads = rig.count(Counter::MetadataBytes);
        for _ in 0..10_000 {
            rig.read(next(), 8).await;
        }
        rig.cache.settle().await;
        rig.sleep(3000).await;
        let promoted = rig.count(Counter::BlocksPromoted) * 4096;
        let metadata = rig.count(Counter::MetadataBytes) - heads;
        let each = 1.0 + metadata as f64 / promoted as f64;
        println!("{each:.4} bytes written to the pool for each that was promoted");
        assert!(promoted > 9 << 22 && each < 1.10, "{each}");
        let before = rig.count(Counter::MarkCommits);
        for n in 1..=9_600 {
            rig.write(next(), 8, 1).await;
            if n % 32 == 0 {
                rig.volume.flush().await.unwrap();
            }
        }
        let marks = rig.count(Counter::MarkCommits) - before;
        println!("{marks} writes of marks for 9600 random writes of 4 KiB with 300 flushes");
        assert!(marks <= 30, "{marks}");
    });
    assert_eq!(outcome, Outcome::Done);
}

#[test]
fn a_power_cut_at_any_moment_of_the_first_opening_leaves_a_pool_that_opens() {
    let mut cuts = 0;
    for step in 1..200 {
        let mut place = Place::new(step, 2);
        let cut = PowerCut {
            domain: None,
            at: Point::Step(step),
        };
        let plan = Plan {
            cuts: vec![cut],
            ..Plan::default()
        };
        place.sim.world_mut().set_plan(plan).unwrap();
        if place.run(&[0, 1], |_| async {}) == Outcome::Done {
            break;
        }
        cuts += 1;
        cut_off(&mut place, Outcome::PowerCut);
        let again = place.run(&[0, 1], |rig| async move {
            rig.fill().await;
            rig.agrees().await;
        });
        assert_eq!(again, Outcome::Done, "step {step}");
    }
    assert!((10..199).contains(&cuts), "{cuts}");
}

#[test]
fn one_unreadable_sector_of_metadata_costs_lines_at_most() {
    let plan = layout::Plan::new(Sectors::from_mib(8), (LINE / 8) as u32).unwrap();
    for (name, area) in plan.areas() {
        let mut place = Place::new(5, 1);
        let filled = place.run(&[0], |rig| async move {
            rig.fill().await;
            rig.write(0, 8, 7).await;
            rig.volume.close().await;
            rig.cache.close().await;
        });
        assert_eq!(filled, Outcome::Done);
        let bad = Rule {
            disk: place.pool[0],
            ops: Ops::Reads,
            within: Some(Extent::new(area.lba(Lba(0), 0), Sectors(8))),
            when: When::Always,
            effect: Effect::Fail(Kind::Media),
        };
        let faults = Plan {
            rules: vec![bad],
            ..Plan::default()
        };
        place.sim.world_mut().set_plan(faults).unwrap();
        let again = place.run(&[0], |rig| async move {
            rig.cache.warmed().await;
            rig.agrees().await;
            rig.cache.check();
        });
        assert_eq!(again, Outcome::Done, "{name}");
    }
}

#[test]
fn a_device_of_openings_that_were_cut_short_is_not_believed() {
    let mut place = Place::new(8, 1);
    let filled = place.run(&[0], |rig| async move {
        rig.fill().await;
        rig.volume.close().await;
        rig.cache.close().await;
    });
    assert_eq!(filled, Outcome::Done);
    let disk = place.pool[0];
    let without = place.run(&[], move |rig| async move {
        rig.write(0, LINE, 3).await;
        rig.volume.close().await;
        rig.cache.close().await;
        // Openings with it alone raised its epoch, and never came to the witness.
        let device = rig.local.disk(disk).unwrap();
        let sectors = layout::HEAD_BLOCKS * layout::BLOCK_SECTORS;
        let (buf, result) = device.read(Lba(0), rig.buf(sectors).await).await;
        result.unwrap();
        let mut head = layout::Head::decode(&buf).unwrap();
        head.epoch += 5;
        for area in head.plan().unwrap().heads {
            let mut buf = rig.buf(sectors).await;
            head.encode(&mut buf);
            let at = area.lba(Lba(0), 0);
            device.write(at, buf.share(), Fua::Yes).await.unwrap();
        }
    });
    assert_eq!(without, Outcome::Done);
    let again = place.run(&[0], |rig| async move {
        let found = rig.opened.devices[0].found;
        assert!(matches!(found, Found::Unusable(_)), "{found:?}");
        rig.expect(0, LINE, 3).await;
    });
    assert_eq!(again, Outcome::Done);
}

/// A bit that flips in one read of map or log, and not in the next.
#[test]
fn what_could_not_be_read_once_is_not_believed_later() {
    let mut fewer = 0;
    let plan = layout::Plan::new(Sectors::from_mib(8), (LINE / 8) as u32).unwrap();
    // As many as make one checkpoint, and then a few.
    let lines = plan.log.blocks / 2 + 5;
    let areas = plan.areas().into_iter();
    let read_back = areas.filter(|(name, _)| ["log", "map"].iter().any(|n| name.contains(n)));
    for (name, area) in read_back {
        for seed in 0..40 {
            let mut place = Place::new(100 + seed, 1);
            let outcome = place.run(&[0], move |rig| async move {
                // A commit for each, in no order that would seem sequential.
                for i in 0..lines {
                    rig.read(i * 37 % lines * LINE, LINE).await;
                    rig.cache.settle().await;
                    rig.sleep(25).await;
                }
                rig.sleep(100).await;
                rig.cut();
                rig.sleep(1000).await;
            });
            cut_off(&mut place, outcome);
            let flip = Rule {
                disk: place.pool[0],
                ops: Ops::Reads,
                within: Some(Extent::new(area.lba(Lba(0), 0), Sectors(8))),
                when: When::Nth(1),
                effect: Effect::FlipBit,
            };
            let faults = Plan {
                rules: vec![flip],
                ..Plan::default()
            };
            place.sim.world_mut().set_plan(faults).unwrap();
            let restored = Rc::new(Cell::new(0));
            let seen = restored.clone();
            let outcome = place.run(&[0], move |rig| {
                let seen = seen.clone();
                async move {
                    rig.cache.warmed().await;
                    seen.set(rig.count(Counter::LinesRestored));
                    rig.volume.set_mode(Mode::WriteAround);
                    for line in 0..lines {
                        rig.write(line * LINE, 8, 9).await;
                    }
                    rig.volume.flush().await.unwrap();
                    // Until the marks have gone.
                    rig.sleep(400).await;
                    rig.cut();
                    rig.sleep(1000).await;
                }
            });
            cut_off(&mut place, outcome);
            fewer += u32::from(restored.get() < lines);
            let again = place.run(&[0], move |rig| async move {
                rig.cache.warmed().await;
                for line in 0..lines {
                    rig.expect(line * LINE, 8, 9).await;
                }
                rig.agrees().await;
            });
            assert_eq!(again, Outcome::Done, "{name}, seed {seed}");
        }
    }
    assert!(fewer > 9, "{fewer} flips were where they matter");
}
