//! A two-leg mirror, as small as a mirror can be and still survive.
//!
//! The first 4 KiB of each leg hold its mark. A leg is evicted by raising the other leg's epoch and
//! marking the other leg sole, durably, before any write is acknowledged without the evicted leg.
//!
//! Invariants:
//!     a leg is read ⟹ the leg holds every acknowledged write
//!     epoch(a) > epoch(b) ⟹ b is stale, and is copied from a before b serves
//!     a leg starts without the other ⟹ the leg is marked sole
//!
//! Not here: a write-intent bitmap. Every start copies the first leg to the
//! second, for unflushed writes may have reached either.

use super::Sabotage;
use block::Mutex;
use block::{
    Buf, Content, Device, Env, Extent, Fua, Geometry, IoError, IoErrorKind, IoResult, Lba, Sectors,
    SharedBuf,
};
use std::cell::Cell;

const HEAD: Sectors = Sectors(8);
/// Repetitions of a failed read of a copy. A failed copy leaves a single leg, so a copy tolerates
/// passing errors.
const COPY_RETRIES: u32 = 6;
const MAGIC: u64 = 0x6873_6d69_7272_6f72;

/// A leg's metadata.
#[derive(Clone, Copy, Default)]
struct Mark {
    epoch: u64,
    /// The other leg was evicted.
    sole: bool,
}

pub(crate) struct Mirror<D> {
    legs: [D; 2],
    live: [Cell<bool>; 2],
    epoch: Cell<u64>,
    demoting: Mutex,
    next_read: Cell<usize>,
    geometry: Geometry,
    env: Env,
    sabotage: Sabotage,
}

impl<D: Device> Mirror<D> {
    /// Assembles the mirror: finds the newer leg and copies it to the other.
    pub(crate) async fn assemble(
        legs: [D; 2],
        env: Env,
        sabotage: Sabotage,
    ) -> IoResult<Mirror<D>> {
        let leg = legs[0].geometry();
        let geometry = Geometry::new("mirror", leg.sectors - HEAD, leg.block);
        let mirror = Mirror {
            legs,
            live: [Cell::new(true), Cell::new(true)],
            epoch: Cell::new(0),
            demoting: Mutex::default(),
            next_read: Cell::new(0),
            geometry,
            env,
            sabotage,
        };
        let alone = match [mirror.read_mark(0).await, mirror.read_mark(1).await] {
            [Ok(a), Ok(b)] => {
                let source = usize::from(b.epoch > a.epoch);
                mirror.epoch.set(a.epoch.max(b.epoch));
                match mirror.copy(source, a.epoch != b.epoch).await {
                    Ok(()) => return Ok(mirror),
                    Err(whole) => whole,
                }
            }
            [Ok(mark), Err(_)] if mark.sole => mirror.alone(0, mark),
            [Err(_), Ok(mark)] if mark.sole => mirror.alone(1, mark),
            _ => {
                return Err(IoError::new(
                    IoErrorKind::Gone,
                    "a leg that may be newer is lost",
                ));
            }
        };
        mirror.demote(1 - alone).await?;
        Ok(mirror)
    }

    fn alone(&self, leg: usize, mark: Mark) -> usize {
        self.epoch.set(mark.epoch);
        leg
    }

    async fn read_mark(&self, leg: usize) -> IoResult<Mark> {
        let buf = self.env.pool.get(HEAD.bytes() as usize).await;
        let (buf, result) = self.legs[leg].read(Lba::ZERO, buf).await;
        result?;
        let word = |i: usize| u64::from_le_bytes(buf[i..i + 8].try_into().expect("8 bytes"));
        if word(0) != MAGIC {
            return Ok(Mark::default());
        }
        Ok(Mark {
            epoch: word(8),
            sole: word(16) != 0,
        })
    }

    async fn write_mark(&self, leg: usize, sole: bool) -> IoResult {
        let mut buf = self.env.pool.get(HEAD.bytes() as usize).await;
        buf.fill(0);
        for (i, word) in [MAGIC, self.epoch.get(), u64::from(sole)]
            .iter()
            .enumerate()
        {
            buf[i * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        self.legs[leg].write(Lba::ZERO, buf.share(), Fua::Yes).await
    }

    /// Copies every block from `source`. A block that cannot be read there comes from the other
    /// leg, unless the other leg is `stale`. The error is the number of the leg that then has all
    /// blocks.
    async fn copy(&self, source: usize, stale: bool) -> Result<(), usize> {
        let other = 1 - source;
        // Two legs marked sole would each start without the other.
        self.write_mark(source, false).await.map_err(|_| source)?;
        self.copy_blocks(source, stale).await.map_err(|_| source)?;
        self.legs[other].flush().await.map_err(|_| source)?;
        self.legs[source].flush().await.map_err(|_| other)?;
        self.write_mark(other, false).await.map_err(|_| source)
    }

    async fn copy_blocks(&self, source: usize, stale: bool) -> IoResult {
        let end = HEAD + self.geometry.sectors;
        for at in (HEAD.0..end.0).step_by(HEAD.0 as usize).map(Lba) {
            let buf = self.env.pool.get(HEAD.bytes() as usize).await;
            let (mut buf, mut result) = self.legs[source].read(at, buf).await;
            for _ in 0..COPY_RETRIES {
                if result.is_err() {
                    (buf, result) = self.legs[source].read(at, buf).await;
                }
            }
            match result {
                Ok(()) => {
                    self.legs[1 - source]
                        .write(at, buf.share(), Fua::No)
                        .await?
                }
                Err(_) if !stale => {
                    let (buf, result) = self.legs[1 - source].read(at, buf).await;
                    result?;
                    self.legs[source].write(at, buf.share(), Fua::No).await?;
                }
                // The block is lost: reads of the block fail on either leg.
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Evicts `leg`: once this returns, no restart takes the leg for current.
    async fn demote(&self, leg: usize) -> IoResult {
        let _one_at_a_time = self.demoting.lock().await;
        if !self.live[leg].get() {
            return Ok(());
        }
        if !self.live[1 - leg].get() {
            return Err(self
                .geometry
                .error(IoErrorKind::Gone, "the last leg failed"));
        }
        self.live[leg].set(false);
        self.epoch.set(self.epoch.get() + 1);
        let result = self.write_mark(1 - leg, true).await;
        if result.is_err() {
            self.live[1 - leg].set(false);
        }
        result
    }

    /// Combines the answers of both legs to a write or flush.
    async fn settle(&self, results: [Option<IoResult>; 2]) -> IoResult {
        for (leg, result) in results.iter().enumerate() {
            if let Some(Err(_)) = result
                && self.sabotage != Sabotage::IgnoreError
            {
                self.demote(leg).await?;
            }
        }
        // A leg that is being evicted is evicted durably before any write counts without that leg.
        if !self.live.iter().all(Cell::get) {
            drop(self.demoting.lock().await);
        }
        // A leg evicted by others in the meantime no longer counts.
        let counts = |leg: usize| self.live[leg].get() && matches!(results[leg], Some(Ok(())));
        if counts(0) || counts(1) || self.sabotage == Sabotage::IgnoreError {
            Ok(())
        } else {
            Err(self
                .geometry
                .error(IoErrorKind::Gone, "no leg took the write"))
        }
    }

    async fn both(&self, act: impl AsyncFn(&D) -> IoResult) -> IoResult {
        let on = async |leg: usize| match self.live[leg].get() {
            true => Some(act(&self.legs[leg]).await),
            false => None,
        };
        let (a, b) = futures_util::future::join(on(0), on(1)).await;
        self.settle([a, b]).await
    }

    fn inner(&self, extent: Extent) -> IoResult<Extent> {
        self.geometry.check(extent)?;
        Ok(Extent::new(extent.start + HEAD, extent.len))
    }
}

impl<D: Device> Device for Mirror<D> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    async fn read(&self, at: Lba, mut buf: Buf) -> (Buf, IoResult) {
        if let Err(error) = self.geometry.transfer(at, buf.len()) {
            return (buf, Err(error));
        }
        let first = self.next_read.get();
        self.next_read.set(1 - first);
        let mut result = Err(self.geometry.error(IoErrorKind::Gone, "no leg is left"));
        for leg in [first, 1 - first] {
            if !self.live[leg].get() {
                continue;
            }
            (buf, result) = self.legs[leg].read(at + HEAD, buf).await;
            if result.is_ok() && self.live[leg].get() {
                return (buf, result);
            }
        }
        (
            buf,
            result.and(Err(self
                .geometry
                .error(IoErrorKind::Gone, "the leg failed meanwhile"))),
        )
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.geometry.transfer(at, data.len())?;
        self.both(async |leg| leg.write(at + HEAD, data.clone(), fua).await)
            .await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let extent = self.inner(extent)?;
        self.both(async |leg| leg.zero(extent).await).await
    }

    async fn flush(&self) -> IoResult {
        if self.sabotage == Sabotage::SkipFlush && self.live[0].get() {
            return self.legs[0].flush().await;
        }
        self.both(async |leg| leg.flush().await).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        let extent = self.inner(extent)?;
        self.both(async |leg| leg.discard(extent).await).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.geometry.check(extent)?;
        out.push((extent, Content::Data));
        Ok(())
    }
}
