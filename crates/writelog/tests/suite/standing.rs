//! The standing is written to three places, each of which may fail for a while at any write:
//! nothing hangs, no data is lost, and the log goes on.

use crate::rig::{Leaf, Rig, config, run};
use block::{BoxDevice, Device, Fua, IoError, IoErrorKind, IoResult, Layer, Lba, Nanos, SharedBuf};
use layout::{BLOCK_SECTORS, LOG_AREA, Uuid};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use writelog::{LedgerWitness, LogCandidate, LogLedger, WantedLog, WriteBack};

/// Time for which the metadata of a device cannot be written.
const AWAY: Nanos = Nanos::from_secs(7);
/// Time limit of any operation.
const MOST: Nanos = Nanos::from_secs(30);
const WITNESS: usize = 2;

/// Metadata writes of one device that fail: from a number on, for a while.
struct Fault {
    devices: [bool; 3],
    from: u64,
    writes: Cell<u64>,
    hits: Cell<u64>,
    since: Cell<Option<Nanos>>,
}

/// A device of the log, or the witness.
#[derive(Clone)]
struct Flaky {
    leaf: Rc<Leaf>,
    which: usize,
    fault: Rc<Fault>,
    rig: Rig,
}

impl Flaky {
    fn is_struck(&self, at: Lba) -> bool {
        let fault = &self.fault;
        let metadata = self.which == WITNESS || at < Lba(LOG_AREA * BLOCK_SECTORS);
        if !metadata || !fault.devices[self.which] {
            return false;
        }
        fault.writes.set(fault.writes.get() + 1);
        let now = self.rig.now();
        let strikes = fault.writes.get() >= fault.from
            && fault.since.get().is_none_or(|since| now - since < AWAY);
        if strikes {
            fault.hits.set(fault.hits.get() + 1);
            fault.since.set(fault.since.get().or(Some(now)));
        }
        strikes
    }
}

impl Layer for Flaky {
    type Below = Rc<Leaf>;

    fn below(&self) -> &Rc<Leaf> {
        &self.leaf
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        match self.is_struck(at) {
            true => Err(IoError::new(IoErrorKind::Media, "write failed")),
            false => self.leaf.write(at, data, fua).await,
        }
    }
}

/// Results of all lives.
#[derive(Default)]
struct Outcomes {
    struck: Cell<u64>,
    refused: Cell<u64>,
    stuck: Cell<u64>,
    degraded: Cell<u64>,
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

struct Life {
    rig: Rig,
    fault: Rc<Fault>,
    acknowledged: RefCell<BTreeMap<u64, u8>>,
    written: Cell<u8>,
    outcomes: Rc<Outcomes>,
}

impl Life {
    async fn within<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let done = self.rig.local.env().timer.timeout(MOST, work).await;
        let (devices, from) = (self.fault.devices, self.fault.from);
        done.unwrap_or_else(|| panic!("{what} hangs: {devices:?} fail from write {from} on"))
    }

    async fn try_open(&self) -> IoResult<WriteBack<Flaky>> {
        let (rig, env) = (&self.rig, self.rig.local.env());
        let device = |which: usize, disk: usize| Flaky {
            leaf: Rc::new(rig.leaf(disk)),
            which,
            fault: self.fault.clone(),
            rig: rig.clone(),
        };
        let candidate = |copy: usize| LogCandidate {
            holes: Vec::new(),
            name: format!("log{copy}"),
            domain: format!("pcie{copy}").into(),
            device: Ok(device(copy, 1 + copy)),
        };
        let wanted = WantedLog {
            volume: "db".into(),
            sectors: 64 << 11,
            identity: vec![1],
            host: "h".into(),
            uuid: Uuid(7),
            now: Nanos(1),
            is_forced: false,
        };
        let witness = LedgerWitness::Kept(BoxDevice::new(device(WITNESS, 4)));
        let copies = [candidate(0), candidate(1)];
        let opened = LogLedger::open(wanted, env.clone(), witness, copies, None).await?;
        let config = writelog::Config {
            log: opened.log,
            ..config(opened.incarnation)
        };
        let origin = BoxDevice::new(rig.leaf(0));
        let log = WriteBack::open(config, env, opened.ledger, opened.areas, None, origin).await?;
        log.establish().await?;
        log.begin().await.map(|()| log)
    }

    /// Retries the opening, as a node does.
    async fn open(&self) -> WriteBack<Flaky> {
        let opening = async {
            loop {
                match self.try_open().await {
                    Ok(log) => return log,
                    Err(_) => self.rig.local.env().timer.sleep(Nanos::from_secs(1)).await,
                }
            }
        };
        self.within("an opening", opening).await
    }

    /// Writes a block. Returns false if the log has no copy any more.
    async fn write(&self, log: &WriteBack<Flaky>, block: u64) -> bool {
        let byte = self.written.get() + 1;
        self.written.set(byte);
        let data = self.rig.data(1, byte).await;
        let write = log.write(Lba(block * 8), data, Fua::Yes);
        match self.within("a write", write).await {
            Ok(()) => {
                self.acknowledged.borrow_mut().insert(block, byte);
                true
            }
            Err(error) => {
                assert!(log.is_stuck(), "a write failed: {error}");
                count(&self.outcomes.stuck);
                false
            }
        }
    }

    /// Brings the log to rest for a moment, if possible.
    async fn rest(&self, log: &WriteBack<Flaky>) {
        if let Err(error) = self.within("a rest", log.rest()).await {
            count(&self.outcomes.refused);
            let text = error.to_string();
            assert!(text.contains("failed") || text.contains("lost"), "{text}");
        }
        log.go_on();
    }

    /// Serves with both devices, then without the second, until no copy is left.
    async fn serve(&self, log: &WriteBack<Flaky>) {
        let timer = self.rig.local.env().timer;
        for block in 0..2 {
            if !self.write(log, block).await {
                return;
            }
            self.rest(log).await;
            if !self.write(log, 8 + block).await {
                return;
            }
        }
        self.rig.control.kill(self.rig.disks[2]);
        for block in 16..18 {
            if !self.write(log, block).await {
                return;
            }
            timer.sleep(Nanos::from_secs(3)).await;
            self.rest(log).await;
            if !self.write(log, 8 + block).await {
                return;
            }
        }
        let flushed = self.within("a flush", log.flush()).await;
        assert!(flushed.is_ok() || log.is_stuck());
        let copies = self.fault.devices.iter().take(2);
        if copies
            .zip(log.online())
            .any(|(struck, online)| *struck && !online)
        {
            count(&self.outcomes.degraded);
        }
    }
}

async fn live(rig: Rig, fault: Rc<Fault>, outcomes: Rc<Outcomes>) {
    let life = Life {
        rig: rig.clone(),
        fault,
        acknowledged: RefCell::default(),
        written: Cell::new(0),
        outcomes,
    };
    let log = life.open().await;
    life.serve(&log).await;
    life.within("an end", log.close()).await;
    drop(log);
    rig.control.revive(rig.disks[2]);
    rig.local.env().timer.sleep(AWAY).await;
    let log = life.open().await;
    let acknowledged = life.acknowledged.borrow().clone();
    for (block, byte) in acknowledged {
        rig.expect(&log, block, 1, byte).await;
    }
    life.within("a drain", log.drain()).await.unwrap();
    life.within("an end", log.close()).await;
    if life.fault.hits.get() > 0 {
        count(&life.outcomes.struck);
    }
}

#[test]
fn metadata_that_cannot_be_written_for_a_while_loses_nothing_and_hangs_nothing() {
    let outcomes: Rc<Outcomes> = Rc::default();
    let [one, two, witness] = [0, 1, WITNESS];
    for devices in [&[one][..], &[two], &[witness], &[one, two], &[two, witness]] {
        for from in 1.. {
            let fault = Rc::new(Fault {
                devices: [0, 1, 2].map(|which| devices.contains(&which)),
                from,
                writes: Cell::new(0),
                hits: Cell::new(0),
                since: Cell::new(None),
            });
            let (given, counted) = (fault.clone(), outcomes.clone());
            run(move |rig| live(rig, given.clone(), counted.clone()));
            if fault.hits.get() == 0 {
                assert!(from > 8, "{devices:?}: few writes");
                break;
            }
        }
    }
    let met = [
        &outcomes.struck,
        &outcomes.refused,
        &outcomes.stuck,
        &outcomes.degraded,
    ];
    println!("struck, refused, stuck, degraded: {met:?}");
    assert!(met.iter().all(|met| met.get() > 0), "{met:?}");
}
