//! The remains of a volume with a destroyed log: the bytes of its origin, once the journal is
//! replayed as found.

use block::{
    Buf, Content, Device, Extent, Fua, Geometry, IoError, IoErrorKind, IoResult, Lba, Pool,
    SECTOR_BYTES, Sectors, SharedBuf,
};
use futures_util::FutureExt;
use layout::{SuperblockError, Uuid};
use sim::Medium;
use std::cell::RefCell;
use writelog::WriteJournal;

/// Replays `journal`, or whatever is there, to the origin. Returns true if the journal had records.
pub(crate) fn replay(
    journal: &Medium,
    sectors: Sectors,
    durable: bool,
    uuid: Option<Uuid>,
    memory: &Pool,
    origin: &mut Vec<u8>,
) -> Result<bool, String> {
    let found = FoundDisk {
        geometry: Geometry::new("journal", sectors, Sectors(8)),
        medium: journal.clone(),
        durable,
    };
    let bytes = std::mem::take(origin);
    let len = Sectors(bytes.len() as u64 / SECTOR_BYTES);
    let target = ReplayDisk {
        geometry: Geometry::new("origin", len, Sectors(1)),
        bytes: RefCell::new(bytes),
    };
    let work = async {
        let journal = WriteJournal::open(found, memory.clone()).await?;
        if uuid.is_none() && matches!(journal, Err(SuperblockError::Blank)) {
            return Ok(None);
        }
        let journal = journal.map_err(|e| IoError::new(IoErrorKind::Corrupt, e.to_string()))?;
        if uuid.is_some_and(|uuid| journal.superblock().journal != uuid) {
            return Err(IoError::new(IoErrorKind::Corrupt, "the journal is another"));
        }
        journal.replay(&target).await
    };
    let replayed = work.now_or_never().expect("nothing takes time");
    *origin = target.bytes.into_inner();
    let replayed = replayed.map_err(|error| format!("the journal is not replayed: {error}"))?;
    Ok(replayed.is_some())
}

fn refused() -> IoError {
    IoError::new(IoErrorKind::Other, "it is only read")
}

/// A disk as found, for reading alone.
struct FoundDisk {
    geometry: Geometry,
    medium: Medium,
    durable: bool,
}

impl Device for FoundDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    async fn read(&self, at: Lba, mut buf: Buf) -> (Buf, IoResult) {
        match self.durable {
            true => self.medium.durable(at, &mut buf),
            false => self.medium.latest(at, &mut buf),
        }
        (buf, Ok(()))
    }

    async fn write(&self, _: Lba, _: SharedBuf, _: Fua) -> IoResult {
        Err(refused())
    }

    async fn zero(&self, _: Extent) -> IoResult {
        Err(refused())
    }

    async fn flush(&self) -> IoResult {
        Ok(())
    }

    async fn discard(&self, _: Extent) -> IoResult {
        Err(refused())
    }

    async fn extents(&self, _: Extent, _: &mut Vec<(Extent, Content)>) -> IoResult {
        Err(refused())
    }
}

/// Bytes as a disk.
struct ReplayDisk {
    geometry: Geometry,
    bytes: RefCell<Vec<u8>>,
}

impl ReplayDisk {
    fn with(&self, extent: Extent, change: impl FnOnce(&mut [u8])) -> IoResult {
        self.geometry.check(extent)?;
        let from = (extent.start.0 * SECTOR_BYTES) as usize;
        let to = from + extent.len.bytes() as usize;
        change(&mut self.bytes.borrow_mut()[from..to]);
        Ok(())
    }
}

impl Device for ReplayDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    async fn read(&self, at: Lba, mut buf: Buf) -> (Buf, IoResult) {
        let extent = Extent::new(at, Sectors(buf.len() as u64 / SECTOR_BYTES));
        let read = self.with(extent, |bytes| buf.copy_from_slice(bytes));
        (buf, read)
    }

    async fn write(&self, at: Lba, data: SharedBuf, _: Fua) -> IoResult {
        let extent = Extent::new(at, Sectors(data.len() as u64 / SECTOR_BYTES));
        self.with(extent, |bytes| bytes.copy_from_slice(&data))
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.with(extent, |bytes| bytes.fill(0))
    }

    async fn flush(&self) -> IoResult {
        Ok(())
    }

    /// Discarded bytes may have any value.
    async fn discard(&self, extent: Extent) -> IoResult {
        self.with(extent, |_| {})
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        out.push((extent, Content::Data));
        Ok(())
    }
}
