//! A device whose changes stay in memory: what opens it finds them, and what is below stays as
//! it is.
//!
//! Invariant: nothing is written below, nor flushed.
//!
//! Meant for the little that an opening writes: each sector that was written takes memory.

use block::{
    Buf, Content, Device, Extent, Fua, Geometry, IoResult, Lba, SECTOR_BYTES, Sectors, Shared,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

type Sector = [u8; SECTOR_BYTES as usize];

/// Clones are the same.
#[derive(Clone)]
pub(super) struct Aside<D> {
    /// None: zeroes.
    below: Option<D>,
    geometry: Geometry,
    changed: Rc<RefCell<BTreeMap<u64, Sector>>>,
}

impl<D: Device> Aside<D> {
    /// As `below`, but for what is written from now on.
    pub(super) fn of(below: D) -> Aside<D> {
        Aside {
            geometry: below.geometry().clone(),
            below: Some(below),
            changed: Rc::default(),
        }
    }

    /// Zeroes.
    pub(super) fn blank(name: &str, sectors: Sectors) -> Aside<D> {
        Aside {
            geometry: Geometry::new(name, sectors, Sectors(1)),
            below: None,
            changed: Rc::default(),
        }
    }

    fn put(&self, at: Lba, sectors: impl Iterator<Item = Sector>) {
        self.changed.borrow_mut().extend((at.0..).zip(sectors));
    }
}

impl<D: Device> Device for Aside<D> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    async fn read(&self, at: Lba, mut buf: Buf) -> (Buf, IoResult) {
        let checked = self.geometry.transfer(at, buf.len());
        let extent = match checked {
            Ok(extent) => extent,
            Err(error) => return (buf, Err(error)),
        };
        let mut result = Ok(());
        match &self.below {
            Some(below) => (buf, result) = below.read(at, buf).await,
            None => buf.fill(0),
        }
        let changed = self.changed.borrow();
        for (sector, bytes) in changed.range(extent.start.0..extent.end().0) {
            let from = ((sector - at.0) * SECTOR_BYTES) as usize;
            buf[from..from + bytes.len()].copy_from_slice(bytes);
        }
        (buf, result)
    }

    async fn write(&self, at: Lba, data: Shared, _: Fua) -> IoResult {
        self.geometry.transfer(at, data.len())?;
        let (sectors, _) = data.as_chunks();
        self.put(at, sectors.iter().copied());
        Ok(())
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.geometry.check(extent)?;
        let zeroes = (0..extent.len.0).map(|_| [0; SECTOR_BYTES as usize]);
        self.put(extent.start, zeroes);
        Ok(())
    }

    async fn flush(&self) -> IoResult {
        Ok(())
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        self.geometry.check(extent)
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.geometry.check(extent)?;
        out.push((extent, Content::Data));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{BoxDevice, Pool};
    use futures_util::FutureExt;

    fn filled(memory: &Pool, sectors: u64, byte: u8) -> Buf {
        let mut buf = memory.take((sectors * SECTOR_BYTES) as usize);
        buf.fill(byte);
        buf
    }

    fn held(device: &impl Device, memory: &Pool) -> Vec<u8> {
        let buf = filled(memory, device.geometry().sectors.0, 0xff);
        let (buf, read) = device.read(Lba::ZERO, buf).now_or_never().unwrap();
        read.unwrap();
        let (sectors, _) = buf.as_chunks::<{ SECTOR_BYTES as usize }>();
        sectors
            .iter()
            .map(|sector| sector[0] | sector[511])
            .collect()
    }

    #[test]
    fn changes_are_found_above_and_never_below() {
        let memory = Pool::new(1 << 20);
        let below = Aside::<BoxDevice>::blank("below", Sectors(8));
        let write = |device: &dyn Fn(Lba, Shared) -> IoResult, at, sectors, byte| {
            device(Lba(at), filled(&memory, sectors, byte).share()).unwrap();
        };
        let now = |device: Aside<_>| {
            move |at, data| device.write(at, data, Fua::No).now_or_never().unwrap()
        };
        write(&now(below.clone()), 0, 8, 1);
        let above = Aside::of(BoxDevice::new(below.clone()));
        write(&now(above.clone()), 2, 3, 2);
        let zeroed = Extent::new(Lba(4), Sectors(2));
        above.zero(zeroed).now_or_never().unwrap().unwrap();
        above.flush().now_or_never().unwrap().unwrap();
        assert_eq!(held(&above, &memory), [1, 1, 2, 2, 0, 0, 1, 1]);
        assert_eq!(held(&below, &memory), [1; 8]);
        let past = filled(&memory, 2, 3).share();
        let refused = above.write(Lba(7), past, Fua::No).now_or_never().unwrap();
        refused.unwrap_err();
    }
}
