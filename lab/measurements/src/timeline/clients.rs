//! Clients that write at random places, at a pace that can be changed, and the answers to these
//! writes.
//!
//! Invariant: each client has blocks of its own, so that the expected content of a block is known.

use super::BLOCK_BYTES;
use block::{BoxDevice, Device, Env, Fua, IoResult, Lba, Nanos, SECTOR_BYTES};
use sim::{Medium, SimRng};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Clients at one time.
const CLIENTS: u64 = 16;
/// Interval of flushes by one more client, as a file system commits.
const FLUSH_EVERY: Nanos = Nanos::from_secs(1);
/// Interval of checks for the end of the clients.
const LOOK: Nanos = Nanos::from_millis(1);

/// Answers so far.
#[derive(Default)]
pub(super) struct AnsweredRequests {
    /// Time of each answered write.
    pub(super) answered: Vec<Nanos>,
    pub(super) errors: u64,
    /// First error.
    pub(super) error: Option<String>,
    pub(super) not_at_origin: u64,
}

/// The clients of one volume.
pub(super) struct TimelineClients {
    env: Env,
    seed: u64,
    origin: Medium,
    rest: Cell<Nanos>,
    working: Cell<u64>,
    running: Cell<bool>,
    /// Start of write-through: writes that begin later have to be at the origin when answered.
    through_from: Cell<Option<Nanos>>,
    /// The version of each block that was acknowledged last.
    held: RefCell<HashMap<u64, u64>>,
    versions: Cell<u64>,
    pub(super) seen: RefCell<AnsweredRequests>,
}

fn content(block: u64, version: u64, out: &mut [u8]) {
    fastrand::Rng::with_seed((block << 32) ^ version).fill(out);
}

fn place(block: u64) -> Lba {
    Lba(block * BLOCK_BYTES as u64 / SECTOR_BYTES)
}

impl TimelineClients {
    pub(super) fn new(env: Env, seed: u64, origin: Medium) -> Rc<TimelineClients> {
        Rc::new(TimelineClients {
            env,
            seed,
            origin,
            rest: Cell::new(Nanos::ZERO),
            working: Cell::new(0),
            running: Cell::new(false),
            through_from: Cell::new(None),
            held: RefCell::default(),
            versions: Cell::new(0),
            seen: RefCell::default(),
        })
    }

    /// Has all of them together write so many times a second, if answers take no time.
    pub(super) fn pace(&self, writes_per_s: u64) {
        self.rest
            .set(Nanos(CLIENTS * 1_000_000_000 / writes_per_s.max(1)));
    }

    /// Makes writes from now on have to be at the origin when answered, or not.
    pub(super) fn write_through(&self, through: bool) {
        let now = self.env.timer.now();
        self.through_from.set(through.then_some(now));
    }

    pub(super) fn writes(&self) -> u64 {
        self.seen.borrow().answered.len() as u64
    }

    /// Begins to write and to flush.
    pub(super) fn start(self: &Rc<TimelineClients>, device: &BoxDevice) {
        self.running.set(true);
        self.working.set(CLIENTS + 1);
        let spawn = &self.env.spawn;
        for client in 0..CLIENTS {
            let (clients, device) = (self.clone(), device.clone());
            spawn.spawn(async move {
                clients.write(client, &device).await;
                clients.working.set(clients.working.get() - 1);
            });
        }
        let (clients, device) = (self.clone(), device.clone());
        spawn.spawn(async move {
            while clients.running.get() {
                clients.env.timer.sleep(FLUSH_EVERY).await;
                clients.ended(device.flush().await);
            }
            clients.working.set(clients.working.get() - 1);
        });
    }

    /// Ends the load, once every request has been answered.
    pub(super) async fn stop(&self) {
        self.running.set(false);
        while self.working.get() > 0 {
            self.env.timer.sleep(LOOK).await;
        }
    }

    async fn write(&self, client: u64, device: &BoxDevice) {
        let timer = &self.env.timer;
        let mut rng = SimRng::fork(self.seed ^ timer.now().0, client);
        let blocks = device.geometry().sectors.bytes() / BLOCK_BYTES as u64;
        // Not all at once.
        timer
            .sleep(Nanos(rng.below(self.rest.get().0.max(1))))
            .await;
        while self.running.get() {
            let block = rng.below(blocks / CLIENTS) * CLIENTS + client;
            let version = self.versions.replace(self.versions.get() + 1);
            let mut buf = self.env.pool.get(BLOCK_BYTES).await;
            content(block, version, &mut buf);
            let begun = timer.now();
            let result = device.write(place(block), buf.share(), Fua::No).await;
            if self.ended(result) {
                self.held.borrow_mut().insert(block, version);
                let mut seen = self.seen.borrow_mut();
                seen.answered.push(timer.now());
                let through = self.through_from.get().is_some_and(|from| begun >= from);
                let at_origin = || self.is_at_origin(Medium::latest, block, version);
                seen.not_at_origin += u64::from(through && !at_origin());
            }
            timer.sleep(self.rest.get()).await;
        }
    }

    /// Notes the end of a request; returns true if the request succeeded.
    fn ended(&self, result: IoResult) -> bool {
        let Err(error) = result else { return true };
        let mut seen = self.seen.borrow_mut();
        seen.errors += 1;
        seen.error.get_or_insert(error.to_string());
        false
    }

    fn is_at_origin(&self, read: fn(&Medium, Lba, &mut [u8]), block: u64, version: u64) -> bool {
        let (mut is, mut ought) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
        read(&self.origin, place(block), &mut is);
        content(block, version, &mut ought);
        is == ought
    }

    /// Counts the blocks with an acknowledged version that the origin by itself does not durably
    /// hold.
    pub(super) fn lost_blocks(&self) -> u64 {
        let held = self.held.borrow();
        let lost = held
            .iter()
            .filter(|(block, version)| !self.is_at_origin(Medium::durable, **block, **version));
        lost.count() as u64
    }
}
