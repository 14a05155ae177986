//! An origin that refuses writes for good: clients write up to the limits, and then get the
//! origin's error. Nothing waits for ever. All goes on once the origin accepts writes.

use crate::rig::{Leaf, config, run};
use block::{
    Device, Extent, Fua, IoError, IoErrorKind, IoResult, Layer, Lba, Nanos, Sectors, SharedBuf,
};
use std::cell::Cell;
use std::rc::Rc;
use writelog::Config;

/// Operations that an origin refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Writes,
    Zeroes,
}

struct Refusing {
    leaf: Leaf,
    /// The refused operation, and its error.
    refuses: Rc<Cell<Option<(What, IoErrorKind)>>>,
}

impl Refusing {
    fn check(&self, what: What) -> IoResult {
        match self.refuses.get() {
            Some((refused, kind)) if refused == what => Err(IoError::new(kind, "it is refused")),
            _ => Ok(()),
        }
    }
}

impl Layer for Refusing {
    type Below = Leaf;

    fn below(&self) -> &Leaf {
        &self.leaf
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.check(What::Writes)?;
        self.leaf.write(at, data, fua).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.check(What::Zeroes)?;
        self.leaf.zero(extent).await
    }
}

fn refused_with(what: What, kind: IoErrorKind) {
    run(move |rig| async move {
        let refuses = Rc::new(Cell::new(Some((what, kind))));
        let origin = Refusing {
            leaf: rig.leaf(0),
            refuses: refuses.clone(),
        };
        let limits = Config {
            max_lag: Nanos::from_secs(5),
            ..config(1)
        };
        let opened = rig.open_before(origin, limits, rig.both(), None);
        let log = opened.await.unwrap();
        log.begin().await.unwrap();
        let timer = rig.local.env().timer;
        let write = async |block: u64| {
            let data = rig.data(1, 7).await;
            let written = log.write(Lba(block * 8), data, Fua::No);
            let written = timer.timeout(Nanos::from_secs(30), written).await;
            written.unwrap_or_else(|| panic!("{what:?} refused with {kind:?}: a write hangs"))
        };
        log.zero(Extent::new(Lba(0), Sectors(64))).await.unwrap();
        write(1).await.unwrap();
        timer.sleep(Nanos::from_secs(10)).await;
        // The log is past the limit by now, and each write reports the cause.
        let error = write(2).await.expect_err("it is past the limit");
        assert_eq!(error.kind(), kind);
        assert_eq!(log.drain().await.unwrap_err().kind(), kind);
        assert_eq!(log.status().trouble.map(|error| error.kind()), Some(kind));
        refuses.set(None);
        timer.sleep(Nanos::from_secs(60)).await;
        write(3).await.unwrap();
        log.drain().await.unwrap();
        for (block, byte) in [(0, 0), (1, 7), (3, 7)] {
            rig.expect(&rig.leaf(0), block, 1, byte).await;
        }
        log.close().await;
    });
}

#[test]
fn what_an_origin_refuses_for_good_ends_in_an_error() {
    for kind in [
        IoErrorKind::NoSpace,
        IoErrorKind::ReadOnly,
        IoErrorKind::Unsupported,
        IoErrorKind::Denied,
    ] {
        refused_with(What::Zeroes, kind);
        refused_with(What::Writes, kind);
    }
}
