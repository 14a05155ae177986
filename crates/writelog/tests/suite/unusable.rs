//! One of two devices cannot be used at an opening, in any way: it counts as absent.

use crate::rig::{Leaf, Rig, config, run};
use block::{
    BoxDevice, Buf, Device, Fua, Geometry, IoError, IoErrorKind, IoResult, Layer, Lba, Nanos,
    Sectors, SharedBuf,
};
use layout::{BLOCK_SECTORS, LOG_AREA, Uuid};
use std::rc::Rc;
use writelog::{LedgerWitness, LogCandidate, LogLedger, WantedLog, WriteBack};

/// Fault of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// The device cannot be opened.
    Closed,
    /// Reads succeed and writes fail.
    ReadOnly,
    /// The device does not answer past its superblocks.
    Unresponsive,
    /// The device has lost a part of its end.
    Short,
    /// The device has lost nearly all.
    Tiny,
    /// Foreign data is on the device.
    Foreign,
}

#[derive(Clone)]
struct Faulty {
    leaf: Rc<Leaf>,
    geometry: Geometry,
    fault: Fault,
}

impl Faulty {
    fn new(leaf: Leaf, fault: Fault) -> Faulty {
        let mut geometry = leaf.geometry().clone();
        match fault {
            Fault::Short => geometry.sectors = Sectors::from_mib(10),
            Fault::Tiny => geometry.sectors = Sectors(8),
            _ => {}
        }
        Faulty {
            leaf: Rc::new(leaf),
            geometry,
            fault,
        }
    }

    fn fails(&self, fault: Fault, kind: IoErrorKind) -> IoResult {
        match self.fault == fault {
            true => Err(IoError::new(kind, "it is as it is")),
            false => Ok(()),
        }
    }
}

impl Layer for Faulty {
    type Below = Rc<Leaf>;

    fn below(&self) -> &Rc<Leaf> {
        &self.leaf
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        if at >= Lba(LOG_AREA * BLOCK_SECTORS)
            && let Err(error) = self.fails(Fault::Unresponsive, IoErrorKind::Timeout)
        {
            return (buf, Err(error));
        }
        self.leaf.read(at, buf).await
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.fails(Fault::ReadOnly, IoErrorKind::ReadOnly)?;
        self.leaf.write(at, data, fua).await
    }
}

/// Opens a log with these faults. Returns the number of devices reported missing too.
async fn open(rig: &Rig, faults: [Fault; 2]) -> IoResult<(WriteBack<Faulty>, usize)> {
    let candidate = |copy: usize| LogCandidate {
        holes: Vec::new(),
        name: format!("log{copy}"),
        domain: format!("pcie{copy}").into(),
        device: match faults[copy] {
            Fault::Closed => Err("is on a read-only file system".into()),
            fault => Ok(Faulty::new(rig.leaf(1 + copy), fault)),
        },
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
    let env = rig.local.env();
    let witness = LedgerWitness::Kept(BoxDevice::new(rig.leaf(4)));
    let copies = [candidate(0), candidate(1)];
    let opened = LogLedger::open(wanted, env.clone(), witness, copies, None).await?;
    let config = writelog::Config {
        log: opened.log,
        ..config(opened.incarnation)
    };
    let absent = opened.absent.len();
    let origin = BoxDevice::new(rig.leaf(0));
    let log = WriteBack::open(config, env, opened.ledger, opened.areas, None, origin).await?;
    log.establish().await?;
    log.begin().await?;
    let lost = (0..2).filter(|copy| log.lost_by(*copy).is_some()).count();
    Ok((log, absent + lost))
}

async fn serve(rig: &Rig, fault: Fault, copy: usize) {
    let (log, _) = open(rig, [Fault::None; 2]).await.unwrap();
    let data = rig.data(200, 1).await;
    log.write(Lba(0), data, Fua::Yes).await.unwrap();
    // No data of the log is at the origin.
    log.close().await;
    if fault == Fault::Foreign {
        let mut buf = rig.local.env().pool.get(17 * 4096).await;
        buf.fill(0x5a);
        let leaf = rig.leaf(1 + copy);
        leaf.write(Lba(0), buf.share(), Fua::Yes).await.unwrap();
    }
    let mut faults = [Fault::None; 2];
    faults[copy] = fault;
    let opened = open(rig, faults).await;
    let (log, missing) = opened.unwrap_or_else(|why| panic!("{fault:?} of {copy}: {why}"));
    assert_eq!(
        (missing, log.status().copies),
        (1, 1),
        "{fault:?} of {copy}"
    );
    rig.expect(&log, 0, 200, 1).await;
    let data = rig.data(1, 2).await;
    log.write(Lba(8), data, Fua::Yes).await.unwrap();
    log.drain().await.unwrap();
    rig.expect(&rig.leaf(0), 0, 1, 1).await;
    rig.expect(&rig.leaf(0), 1, 1, 2).await;
    log.close().await;
    if fault == Fault::Foreign {
        rig.expect(&rig.leaf(1 + copy), 0, 2, 0x5a).await;
        return;
    }
    // Once the device is healthy both are used again.
    let (log, missing) = open(rig, [Fault::None; 2]).await.unwrap();
    assert_eq!((missing, log.status().copies), (0, 2));
    rig.expect(&log, 1, 1, 2).await;
    log.close().await;
}

#[test]
fn a_device_that_cannot_be_used_costs_nothing_while_the_other_has_all() {
    for fault in [
        Fault::Closed,
        Fault::ReadOnly,
        Fault::Unresponsive,
        Fault::Short,
        Fault::Tiny,
        Fault::Foreign,
    ] {
        for copy in 0..2 {
            run(move |rig| async move { serve(&rig, fault, copy).await });
        }
    }
}
