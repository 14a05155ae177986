//! A write-back volume in whole nodes: killed, cut from the power, without a device of its
//! log for a while, and at the end of each life with everything but its origin, and its journal,
//! destroyed.
//!
//! What the engine does at each of its steps is the campaign's of `writeback`; here its
//! superblocks, its witness and the cache behind it take part.

use super::logged::{BUFFER_BYTES, LOG_MIB, configuration, disk};
use crate::stamp;
use crate::writeback::{History, replay_journal as replay};
use block::{Env, Fua, Lba, Nanos, Pool, SECTOR_BYTES, Sectors};
use cache::log::Cleaning;
use control::check::check_alone;
use control::config::Config;
use node::{Event, Platform};
use shard::Local;
use sim::{Budget, Medium, Outcome, Rng, Sim, SimDriver, World};
use simnode::{Client, Direct, Machine, Running, SimPlatform, run_alone};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

const LOGS: [&str; 2] = ["/log0", "/log1"];
const MAX_LAG: Nanos = Nanos::from_millis(500);
const SECTORS: u64 = 2048;
const CLIENTS: u64 = 3;
const CASES: u64 = 4;
const LIVES: u64 = 5;
const PIECE: u64 = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Kill,
    Cut,
    Stop,
}

/// What outlives a node.
#[derive(Clone)]
struct Outside {
    seed: u64,
    cleaning: Cleaning,
    config: Rc<Config>,
    machine: Rc<Machine>,
    origin: Medium,
    journal: Medium,
    history: Rc<RefCell<History>>,
    version: Rc<Cell<u64>>,
    /// Groups that a replay of the journal has carried out.
    replays: Rc<Cell<u64>>,
    /// The origin has answered writes in this life.
    direct: Rc<Cell<bool>>,
    /// Clients are to end.
    over: Rc<Cell<bool>>,
}

impl Outside {
    /// The origin alone is an earlier state, or each sector of it is, also after a power cut
    /// of its own; where it has a journal, once that is replayed.
    fn judge(&self) {
        for durable in [false, true] {
            let mut bytes = vec![0; (SECTORS * SECTOR_BYTES) as usize];
            match durable {
                true => self.origin.durable(Lba::ZERO, &mut bytes),
                false => self.origin.latest(Lba::ZERO, &mut bytes),
            }
            let mut images = vec![bytes];
            if self.cleaning == Cleaning::Journaled {
                images = vec![images[0].clone(), images.remove(0)];
                for (bytes, durable) in images.iter_mut().zip([false, true]) {
                    let (sectors, memory) = (Sectors::from_mib(LOG_MIB), Pool::new(2 << 20));
                    let replayed = replay(&self.journal, sectors, durable, None, &memory, bytes);
                    let replayed = replayed.unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
                    self.replays.set(self.replays.get() + u64::from(replayed));
                }
            }
            images
                .iter()
                .for_each(|bytes| self.judge_image(bytes, durable));
        }
    }

    fn judge_image(&self, bytes: &[u8], durable: bool) {
        let sectors = bytes.chunks_exact(SECTOR_BYTES as usize).zip(0..);
        let image: Vec<_> = sectors.map(|(b, at)| stamp::read(b, at)).collect();
        let judged = match self.cleaning {
            Cleaning::Ordered | Cleaning::Journaled => self.history.borrow().judge(&image),
            Cleaning::Coalesced => self.history.borrow().judge_apart(&image),
        };
        let earlier = judged.unwrap_or_else(|what| {
            panic!(
                "seed {}: the origin alone (durable: {durable}): {what}",
                self.seed
            )
        });
        let lag = earlier.lag();
        let may_lack = !durable || !self.direct.get();
        assert!(
            !may_lack || lag <= MAX_LAG,
            "seed {}: it lacks {lag}",
            self.seed
        );
    }

    async fn client(self, env: Env, gate: Rc<Client>, number: u64, life: u64) {
        let mut rng = Rng::fork(self.seed, 100 + life * CLIENTS + number);
        let part = SECTORS / CLIENTS;
        let place = |rng: &mut Rng| -> Range<u64> {
            let start = number * part + rng.below(part - 24);
            start..start + rng.between(1, 24)
        };
        while !self.over.get() {
            match rng.below(10) {
                0..7 => {
                    let sectors = place(&mut rng);
                    let fua = if rng.chance(0.1) { Fua::Yes } else { Fua::No };
                    self.version.set(self.version.get() + 1);
                    let version = self.version.get();
                    let bytes = ((sectors.end - sectors.start) * SECTOR_BYTES) as usize;
                    let mut buf = env.pool.get(bytes).await;
                    stamp::stamp(&mut buf, sectors.start, version);
                    let range = sectors.start as usize..sectors.end as usize;
                    let op = self.history.borrow_mut().begin(range, version);
                    let at = sectors.start * SECTOR_BYTES;
                    gate.gate()
                        .write(at, buf.share(), fua)
                        .await
                        .expect("a write");
                    let now = env.timer.now();
                    self.history.borrow_mut().answer(op, fua == Fua::Yes, now);
                }
                7 => {
                    let begun = self.history.borrow_mut().begin_flush();
                    gate.gate().flush().await.expect("a flush");
                    self.history.borrow_mut().end_flush(begun);
                }
                8 => {
                    let sectors = place(&mut rng);
                    let bytes = ((sectors.end - sectors.start) * SECTOR_BYTES) as usize;
                    let at = sectors.start * SECTOR_BYTES;
                    let read = gate.gate().read(at, bytes).await.expect("a read");
                    let held = read.chunks_exact(SECTOR_BYTES as usize);
                    for (sector, bytes) in sectors.zip(held) {
                        let allowed = self.history.borrow().may_read(sector as usize);
                        let value = stamp::read(bytes, sector);
                        let what = || stamp::describe(value, &allowed);
                        let seed = self.seed;
                        let sound = value.is_some_and(|value| allowed.contains(&value));
                        assert!(sound, "seed {seed}, sector {sector}: {}", what());
                    }
                }
                _ => env.timer.sleep(Nanos(rng.between(1_000, 30_000_000))).await,
            }
        }
    }

    /// All that is read is what may be there, and from then on it is what is there.
    async fn read_back(&self, client: &Client) {
        for start in (0..SECTORS).step_by(PIECE as usize) {
            let bytes = (PIECE * SECTOR_BYTES) as usize;
            let read = client.gate().read(start * SECTOR_BYTES, bytes).await;
            let read = read.expect("a read");
            let held = read.chunks_exact(SECTOR_BYTES as usize);
            for (sector, bytes) in (start..).zip(held) {
                let value = stamp::read(bytes, sector);
                let settled = self.history.borrow_mut().settle(sector as usize, value);
                settled.unwrap_or_else(|what| panic!("seed {}: {what}", self.seed));
            }
        }
    }
}

/// One life of a node. Between lives at most one device of the log has been away.
async fn live(outside: Outside, local: Local<SimDriver>, life: u64, end: End, away: Option<usize>) {
    let (env, machine) = (local.env(), outside.machine.clone());
    let mut rng = Rng::fork(outside.seed, 10 + life);
    env.timer.sleep(Nanos(1)).await;
    let frontend = Direct::new(env.clone());
    let platform = SimPlatform::new(machine.clone(), local);
    let started = Running::start(&outside.config, platform.clone(), frontend.clone());
    let node = started.await.expect("a sound configuration");
    let status = async || node.status().await.expect("a status is given");
    let Some(client) = frontend.client("db") else {
        let why = status().await.waiting;
        panic!(
            "seed {}, life {life}: it is not served: {why:?}",
            outside.seed
        );
    };
    let copies = async || {
        status().await.volumes[0]
            .write_back
            .as_ref()
            .expect("its log")
            .copies
    };
    outside.direct.set(copies().await < 2);
    outside.read_back(&client).await;
    let client = Rc::new(client);
    for number in 0..CLIENTS {
        let work = outside
            .clone()
            .client(env.clone(), client.clone(), number, life);
        env.spawn.spawn(work);
    }
    let span = rng.between(20_000_000, 900_000_000);
    env.timer.sleep(Nanos(span / 2)).await;
    let whole = copies().await == 2;
    if let Some(copy) = away.filter(|_| whole) {
        outside.direct.set(true);
        machine.pull(LOGS[copy]);
    }
    env.timer.sleep(Nanos(span / 2)).await;
    match end {
        End::Kill => {}
        End::Cut => {
            machine.cut_power();
            env.timer.sleep(Nanos::from_secs(1)).await;
        }
        End::Stop => {
            outside.over.set(true);
            while Rc::strong_count(&client) > 1 {
                env.timer.sleep(Nanos::from_millis(1)).await;
            }
            drop(client);
            node.stop().await.expect("its origin is there");
            let owes = platform.logs().await.expect("it can be read")[0]
                .superblock
                .owes;
            assert!(
                !owes,
                "seed {}: an end in order leaves it owing",
                outside.seed
            );
        }
    }
}

/// How many groups of the journal were replayed.
fn run(seed: u64, cleaning: Cleaning) -> u64 {
    let text = configuration(
        "origin",
        cleaning,
        "max_lag = \"500ms\"\ndirty_max = \"1MiB\"",
    );
    let config = Rc::new(check_alone(&text[..], &[]).expect("a sound configuration"));
    let mut world = World::new(seed);
    let machine = Machine::new(&mut world, &config, |device| {
        let (mib, micros) = match device.name.as_str() {
            "origin" => (1, 3000),
            "ssd" => (4, 100),
            _ => (LOG_MIB, 100),
        };
        Ok(disk(device.name.as_str(), mib, micros))
    });
    let machine = machine.expect("a sound world");
    let medium = |path| {
        world
            .medium(machine.target(path))
            .expect("it keeps its bytes")
    };
    let (origin, journal) = (medium("/origin"), medium("/journal"));
    let outside = Outside {
        seed,
        cleaning,
        config,
        machine,
        origin,
        journal,
        history: Rc::new(RefCell::new(History::new(SECTORS as usize))),
        version: Rc::default(),
        replays: Rc::default(),
        direct: Rc::default(),
        over: Rc::default(),
    };
    let mut sim = Sim::new(world).pool_bytes(BUFFER_BYTES);
    let mut rng = Rng::fork(seed, 1);
    for life in 0..LIVES {
        let last = life == LIVES - 1;
        let end = match last {
            true => End::Stop,
            false => [End::Kill, End::Cut][rng.below(2) as usize],
        };
        let away = (!last && rng.chance(0.4)).then(|| rng.below(2) as usize);
        let now = sim.world().now();
        sim.set_budget(Budget {
            time_max: now + Nanos::from_secs(300),
            ..Budget::default()
        });
        let living = outside.clone();
        let (outcome, _) = run_alone(&mut sim, move |local| live(living, local, life, end, away));
        // What the dead node had in flight ends when the disks are taken over.
        drop(sim.driver());
        match (outcome, end) {
            (Outcome::PowerCut, End::Cut) => outside.history.borrow_mut().cut(false),
            (Outcome::Done, End::Kill | End::Stop) => outside.history.borrow_mut().cut(true),
            (other, _) => panic!("seed {seed}, life {life}: {other:?}"),
        }
        outside.judge();
        // One that was lost has no part in what follows before a life with both.
        LOGS.iter().for_each(|log| outside.machine.give_back(log));
    }
    let events = outside.machine.take_events();
    let lost = |event: &Event| matches!(event, Event::VolumeNotServed { .. });
    assert!(!events.iter().any(lost), "seed {seed}: {events:?}");
    outside.replays.get()
}

#[test]
fn what_a_node_acknowledged_survives_and_its_origin_alone_is_an_earlier_state() {
    (0..CASES).for_each(|seed| assert_eq!(run(seed, Cleaning::Ordered), 0));
}

#[test]
fn what_a_node_acknowledged_survives_where_its_origin_gets_windows() {
    (0..CASES).for_each(|seed| assert_eq!(run(seed, Cleaning::Coalesced), 0));
}

#[test]
fn what_a_node_acknowledged_survives_and_a_replay_makes_its_origin_an_earlier_state() {
    let replays = (0..CASES).map(|seed| run(seed, Cleaning::Journaled));
    assert!(replays.sum::<u64>() > 0, "nothing was to be replayed");
}
