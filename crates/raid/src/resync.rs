//! Resyncs: copies that may differ after a crash are brought into agreement.
//!
//! Invariant: copies of an extent may differ ⟹ data read from it is the data of all copies from
//! then on.

use crate::core::ArrayCore;
use crate::levels::{Leg, LegPiece};
use crate::member::is_loss;
use block::{Access, Extent, Fua, IoErrorKind, IoResult, Lba, SharedBuf};
use futures_util::future::join_all;
use std::rc::Rc;

impl ArrayCore {
    /// True if copies of `extent` may differ.
    pub fn is_unsynced(&self, extent: Extent) -> bool {
        let unsynced = self.unsynced.borrow();
        let Some(bitmap) = self.bitmap.as_ref().filter(|_| !unsynced.is_empty()) else {
            return false;
        };
        unsynced.range(bitmap.region_of(extent)).next().is_some()
    }

    /// Brings the copies of `extent` into agreement: the data of the first leg that can be read
    /// goes to the others. The result is durable at once with `fua`, otherwise with the next flush.
    pub async fn resync_extent(self: Rc<ArrayCore>, extent: Extent, fua: Fua) -> IoResult {
        let _busy = self.busy.lock(extent, Access::Exclusive).await;
        let pieces = self
            .shape
            .pieces(extent)
            .map(|piece| self.resync_piece(piece, fua));
        // All of them end before the range is unlocked, whatever one meets.
        join_all(pieces).await.into_iter().collect()
    }

    async fn resync_piece(self: &Rc<ArrayCore>, piece: LegPiece, fua: Fua) -> IoResult {
        let mut buf = self.env.pool.take(piece.extent.len.bytes() as usize);
        let mut last = Err(self.unheld());
        let (mut source, mut tried) = (None, 0);
        let legs = self.readable(&piece);
        if legs.len() == 1 {
            return Ok(());
        }
        for (leg, member) in legs {
            tried += 1;
            (buf, last) = self.read_of(leg.member, &member, leg.at, buf).await;
            match &last {
                Ok(()) => {
                    source = Some(leg.member);
                    break;
                }
                // The others may be read without it, or agree as they are.
                Err(error) if is_loss(error) && self.fail(&member, error) => {
                    drop(buf);
                    return Box::pin(self.resync_piece(piece, fua)).await;
                }
                Err(_) => {}
            }
        }
        let Some(source) = source else {
            let lost = last.as_ref().is_err_and(is_loss);
            return match piece.extent.len > self.geometry.block {
                _ if lost => last,
                true => self.resync_blocks(piece.extent, fua).await,
                // Sectors that no leg can read are the same on all: unreadable.
                false => Ok(()),
            };
        };
        // As where a read mends sectors.
        let fua = if tried > 1 { Fua::Yes } else { fua };
        self.spread(piece, buf.share(), fua, |role| {
            role != source && self.is_in_sync(role)
        })
        .await
    }

    /// Brings the readable blocks of `extent` into agreement, one by one.
    async fn resync_blocks(self: &Rc<ArrayCore>, extent: Extent, fua: Fua) -> IoResult {
        let block = self.geometry.block;
        for at in (extent.start.0..extent.end().0).step_by(block.0 as usize) {
            let piece = self.shape.first_piece(Extent::new(Lba(at), block));
            Box::pin(self.resync_piece(piece, fua)).await?;
        }
        Ok(())
    }

    /// Writes `data` to the legs of `piece` that `wanted` names.
    pub async fn spread(
        self: &Rc<ArrayCore>,
        piece: LegPiece,
        data: SharedBuf,
        fua: Fua,
        wanted: impl Fn(usize) -> bool,
    ) -> IoResult {
        let targets = piece.legs().iter().filter(|leg| wanted(leg.member));
        let writes = targets.filter_map(|leg| {
            let member = self.writable(leg.member)?;
            let data = data.clone();
            Some(async move {
                let result = member.write(leg.at, data, fua).await;
                (member, result)
            })
        });
        let writes: Vec<_> = writes.collect();
        for (member, result) in join_all(writes).await {
            if let Err(error) = result
                && !self.fail(&member, &error)
            {
                return Err(error);
            }
        }
        let there = |leg: &Leg| (leg.member, Extent::new(leg.at, piece.extent.len));
        let written = piece.legs().iter().filter(|leg| wanted(leg.member));
        let written: Vec<_> = written.map(there).collect();
        match self.clear_lost(None, written.into_iter()).await {
            // The legs have more than before in any case.
            Err(error) if error.kind() == IoErrorKind::Media => self.commit().await,
            cleared => cleared.and(self.commit().await),
        }
    }
}
