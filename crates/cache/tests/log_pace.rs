//! Write-back on modelled drives: writes go at the SSDs' speed until the log is half full, and
//! from then on at the disk's, without a pause.

use block::{BoxDevice, Device, Fua, Geometry, IoResult, Lba, Nanos, Sectors, ShardId, TargetId};
use cache::log::{Area, Cleaning, Config, Members, WriteBack};
use futures_util::future::{join, join_all};
use layout::Uuid;
use shard::{Config as ShardConfig, Disk, Local, Mesh, Shard};
use sim::model::catalogue::hdd::SAS7K2;
use sim::model::catalogue::ssd::X25_E;
use sim::model::{Hdd, Model, Ssd, Wear};
use sim::{DiskSpec, Outcome, Rng, Service, Sim, SimDriver, World};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

const DEPTH: u64 = 16;
const RUN: Nanos = Nanos::from_secs(120);
const ORIGIN: Sectors = Sectors::from_mib(2048);

type Leaf = Disk<SimDriver>;

/// No device is lost here.
struct Unharmed;

impl Members for Unharmed {
    fn lose(&self, member: u16) -> Pin<Box<dyn Future<Output = IoResult> + '_>> {
        panic!("member {member} is lost")
    }

    fn forsake_journal(&self) -> Pin<Box<dyn Future<Output = IoResult> + '_>> {
        panic!("the journal is lost")
    }

    fn owe_nothing(&self) -> Pin<Box<dyn Future<Output = IoResult> + '_>> {
        panic!("a copy is lost")
    }
}

/// When writes began, and how long they took.
type Writes = Rc<RefCell<Vec<(Nanos, Nanos)>>>;

fn add(world: &mut World, name: &str, sectors: Sectors, model: impl Model + 'static) -> TargetId {
    let model = world.add_model(model);
    let mut spec = DiskSpec::new(Geometry::new(name, sectors, Sectors(8)));
    spec.service = Service::Model { model, unit: 0 };
    world.add_disk(spec).unwrap()
}

/// A log on two flash drives before a disk, which is given too, until `clients` have ended.
fn run<F: Future<Output = ()> + 'static>(
    (cleaning, segments): (Cleaning, u32),
    clients: impl Fn(Local<SimDriver>, WriteBack<Leaf>, Rc<Leaf>) -> F + Clone + 'static,
) {
    let mut world = World::new(1);
    let ssd = || Ssd::new(&X25_E, Wear::Steady).unwrap();
    let hdd = Hdd::new(&SAS7K2, 0.0).unwrap();
    let disks = [
        add(&mut world, "origin", ORIGIN, hdd),
        add(
            &mut world,
            "ssd0",
            Sectors::from_mib(u64::from(segments)),
            ssd(),
        ),
        add(
            &mut world,
            "ssd1",
            Sectors::from_mib(u64::from(segments)),
            ssd(),
        ),
    ];
    let mut sim = Sim::new(world);
    let outcome = sim.drive(1, |_, driver| {
        let clients = clients.clone();
        let config = ShardConfig::default();
        Shard::boot(
            ShardId(0),
            driver,
            Mesh::new(1),
            config,
            async move |local| {
                let log = open(&local, disks, cleaning, segments).await;
                let origin = Rc::new(local.disk(disks[0]).unwrap());
                clients(local, log.clone(), origin).await;
                log.close().await;
            },
        )
    });
    assert_eq!(outcome, Outcome::Done);
}

async fn open(
    local: &Local<SimDriver>,
    disks: [TargetId; 3],
    cleaning: Cleaning,
    segments: u32,
) -> WriteBack<Leaf> {
    let area = |copy: usize, domain: &str| {
        Some(Area {
            device: local.disk(disks[1 + copy]).unwrap(),
            base: Lba(0),
            segments,
            member: copy as u16,
            domain: domain.into(),
            trusted: true,
        })
    };
    let config = Config {
        pool: Uuid(1),
        log: 1,
        volume: 1,
        incarnation: 1,
        epoch: Nanos::ZERO,
        dirty_max: 1 << 30,
        max_lag: Nanos::from_secs(600),
        clean_after: Nanos::from_secs(1),
        cleaning,
        stages: Rc::default(),
    };
    let origin = BoxDevice::new(local.disk(disks[0]).unwrap());
    let areas = [area(0, "pcie0"), area(1, "pcie1")];
    let log = WriteBack::open(config, local.env(), Rc::new(Unharmed), areas, None, origin);
    let log = log.await.unwrap();
    log.begin();
    log
}

fn anywhere(rng: &mut Rng) -> Lba {
    Lba(rng.below(ORIGIN.0 / 8) * 8)
}

async fn write_at_random(
    local: Local<SimDriver>,
    log: WriteBack<Leaf>,
    client: u64,
    writes: Writes,
) {
    let (env, mut rng) = (local.env(), Rng::fork(7, client));
    while env.timer.now() < RUN {
        let begun = env.timer.now();
        let data = env.pool.get(4096).await.share();
        let at = anywhere(&mut rng);
        log.write(at, data, Fua::No).await.unwrap();
        writes.borrow_mut().push((begun, env.timer.now() - begun));
    }
}

fn random_writes(cleaning: Cleaning) -> (u64, Nanos) {
    let writes = Writes::default();
    let all = writes.clone();
    run((cleaning, 68), move |local, log, _| {
        let client = |client| write_at_random(local.clone(), log.clone(), client, all.clone());
        let clients: Vec<_> = (0..DEPTH).map(client).collect();
        async move {
            join_all(clients).await;
        }
    });

    let writes = writes.take();
    // Half of 64 segments, of which a record of one block takes two blocks.
    let free = writes[..32 * 127].iter().map(|(_, took)| *took).max();
    assert!(
        free < Some(Nanos::from_millis(20)),
        "below a half: {free:?}"
    );

    let settled = writes
        .iter()
        .filter(|(begun, _)| *begun >= Nanos(RUN.0 / 2));
    let waits: Vec<Nanos> = settled.map(|(_, took)| *took).collect();
    let rate = waits.len() as u64 / 60;
    let longest = waits.into_iter().max();
    (rate, longest.expect("some waited"))
}

#[test]
fn random_writes_slow_down_to_the_disk_s_rate_without_a_pause() {
    for cleaning in Cleaning::ALL {
        let (rate, longest) = random_writes(cleaning);
        assert!(
            (200..400).contains(&rate),
            "{cleaning:?}: {rate} writes a second to a disk"
        );
        // Where writes are stopped until a segment is free, the longest takes 545 ms.
        assert!(
            longest < Nanos::from_millis(150),
            "{cleaning:?}: the longest: {longest:?}"
        );
    }
}

/// Random reads in ten seconds from the disk, at depth 1, after `burst` writes that it lacks.
fn reads_after(burst: u64) -> u64 {
    let reads = Rc::new(Cell::new(0));
    let count = reads.clone();
    run((Cleaning::Ordered, 68), move |local, log, _| {
        let (env, count) = (local.env(), count.clone());
        async move {
            let mut rng = Rng::fork(9, 0);
            for _ in 0..burst {
                let data = env.pool.get(4096).await.share();
                log.write(anywhere(&mut rng), data, Fua::No).await.unwrap();
            }
            env.timer.sleep(Nanos::from_secs(2)).await;
            let end = env.timer.now() + Nanos::from_secs(10);
            while env.timer.now() < end {
                let buf = env.pool.get(4096).await;
                log.read(anywhere(&mut rng), buf).await.1.unwrap();
                count.set(count.get() + 1);
            }
            let owed = log.status().dirty_bytes;
            assert!(burst == 0 || owed > 0, "nothing is left to clean");
        }
    });
    reads.get()
}

#[test]
fn reads_from_the_origin_keep_most_of_their_rate_while_the_log_is_cleaned() {
    let (alone, beside) = (reads_after(0), reads_after(3000));
    // A cleaner that never rests leaves them 49 %.
    assert!(beside * 100 >= alone * 80, "{beside} of {alone}");
}

/// Pages that are written again and again.
const HOT: u64 = 256;
/// What is counted, at the end of a run.
const COUNTED: Nanos = Nanos::from_secs(20);

/// Writes a page and flushes, again and again; counts what ends once that has settled.
async fn sync_hot_pages(
    local: Local<SimDriver>,
    to: &impl Device,
    client: u64,
    until: Nanos,
    count: Rc<Cell<u64>>,
) {
    let (env, mut rng) = (local.env(), Rng::fork(11, client));
    while env.timer.now() < until {
        let data = env.pool.get(4096).await.share();
        // Pages of a database, each in an extent of its own.
        let page = Lba(rng.below(HOT) * (ORIGIN.0 / HOT));
        to.write(page, data, Fua::No).await.unwrap();
        to.flush().await.unwrap();
        if env.timer.now() >= until - COUNTED {
            count.set(count.get() + 1);
        }
    }
}

/// Flushed writes a second of hot pages at the end of a run; without an order they go to the
/// origin directly.
fn syncs(cleaning: Option<Cleaning>, until: Nanos) -> u64 {
    let all = Rc::new(Cell::new(0));
    let count = all.clone();
    let log = (cleaning.unwrap_or(Cleaning::Ordered), 260);
    run(log, move |local, log, origin| {
        let count = count.clone();
        async move {
            let clients = (0..DEPTH).map(|client| {
                let (local, log, origin) = (local.clone(), log.clone(), origin.clone());
                let count = count.clone();
                async move {
                    match cleaning {
                        Some(_) => sync_hot_pages(local, &log, client, until, count).await,
                        None => sync_hot_pages(local, &*origin, client, until, count).await,
                    }
                }
            });
            join_all(clients).await;
        }
    });
    all.get() * 1_000_000_000 / COUNTED.0
}

#[test]
fn flushes_of_hot_pages_are_absorbed_where_no_order_is_kept() {
    let through = syncs(None, RUN);
    let ordered = syncs(Some(Cleaning::Ordered), RUN);
    let coalesced = syncs(Some(Cleaning::Coalesced), Nanos::from_secs(30));
    println!("write-through {through}, ordered {ordered}, coalesced {coalesced} a second");
    assert!(coalesced >= 10 * through, "{coalesced} and {through}");
    // The disk gets intervals of one page, one after the other.
    assert!(ordered < through, "{ordered} and {through}");
}

/// Writes at random until `over`.
async fn write_until(
    local: Local<SimDriver>,
    log: WriteBack<Leaf>,
    client: u64,
    over: Rc<Cell<bool>>,
) {
    let (env, mut rng) = (local.env(), Rng::fork(13, client));
    while !over.get() && env.timer.now() < RUN {
        let data = env.pool.get(4096).await.share();
        log.write(anywhere(&mut rng), data, Fua::No).await.unwrap();
    }
}

/// How long a log that owes much takes to get empty beside writing clients, and how long that
/// seemed after a while.
fn retired(cleaning: Cleaning) -> (Nanos, Nanos) {
    let took = Rc::new(Cell::new((Nanos::ZERO, Nanos::ZERO)));
    let taken = took.clone();
    run((cleaning, 68), move |local, log, _| {
        let (env, taken, over) = (local.env(), taken.clone(), Rc::new(Cell::new(false)));
        async move {
            let mut rng = Rng::fork(9, 0);
            for _ in 0..3500 {
                let data = env.pool.get(4096).await.share();
                log.write(anywhere(&mut rng), data, Fua::No).await.unwrap();
            }
            let clients: Vec<_> = (0..DEPTH)
                .map(|client| write_until(local.clone(), log.clone(), client, over.clone()))
                .collect();
            let drained = async {
                let (begun, owed) = (env.timer.now(), log.status().dirty_bytes);
                log.retire(true);
                env.timer.sleep(Nanos::from_secs(5)).await;
                // A window is done with as a whole.
                while log.status().dirty_bytes >= owed {
                    env.timer.sleep(Nanos::from_millis(100)).await;
                }
                let gone = owed - log.status().dirty_bytes;
                let all = (env.timer.now() - begun).0 * owed / gone;
                log.drain().await.unwrap();
                taken.set((env.timer.now() - begun, Nanos(all)));
                over.set(true);
            };
            join(join_all(clients), drained).await;
        }
    });
    took.get()
}

#[test]
fn a_log_that_is_given_up_is_empty_when_it_was_said_though_clients_write() {
    for cleaning in Cleaning::ALL {
        let (took, said) = retired(cleaning);
        println!("{cleaning:?}: {took:?}, said {said:?}");
        assert!(took < Nanos(RUN.0 / 2), "{cleaning:?}: {took:?}");
        let apart = took.0.abs_diff(said.0);
        assert!(apart * 5 <= took.0, "{cleaning:?}: {took:?}, said {said:?}");
    }
}
