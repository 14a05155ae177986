//! Reads: the index first.
//!
//! A dirty block comes from copy A, by its checksum, else from copy B, else the read fails; never
//! from the origin.

use super::WriteBackShared;
use super::blocks::BlockSpot;
use super::index::IndexPiece;
use super::share::HIT_MAX;
use block::{Buf, Content, Device, Extent, IoError, IoErrorKind, IoResult};
use futures_util::future::join_all;
use layout::{BLOCK_BYTES, SEGMENT_BLOCKS, block_crc};
use std::ops::Range;

impl<P: Device> WriteBackShared<P> {
    pub(super) async fn read(&self, extent: Extent, buf: Buf) -> (Buf, IoResult) {
        let pieces = self.state.borrow().index.pieces(Self::blocks(extent));
        if let [IndexPiece::Origin(_)] = &pieces[..] {
            return self.read_origin(extent, buf).await;
        }
        self.read_pieces(pieces, buf).await
    }

    /// Reads the pieces, which cover the buffer.
    pub(super) async fn read_pieces(&self, pieces: Vec<IndexPiece>, buf: Buf) -> (Buf, IoResult) {
        let mut rest = Some(buf);
        let works = pieces.into_iter().map(|piece| {
            let blocks = match &piece {
                IndexPiece::Log(run, _) | IndexPiece::Zero(run) | IndexPiece::Origin(run) => {
                    run.end - run.start
                }
            };
            let whole = rest.take().expect("the pieces cover the buffer");
            let (part, after) = whole.split_at(blocks as usize * BLOCK_BYTES);
            rest = Some(after);
            // A segment is not reused during a read from it.
            let pinned = match &piece {
                IndexPiece::Log(_, spots) => Some(self.pin(spots[0].at / SEGMENT_BLOCKS)),
                _ => None,
            };
            async move {
                let read = self.read_piece(piece, part).await;
                if let Some(segment) = pinned {
                    self.unpin(segment);
                }
                read
            }
        });
        let works: Vec<_> = works.collect();
        let mut parts = Vec::new();
        let mut result = Ok(());
        for (part, read) in join_all(works).await {
            parts.push(part);
            result = result.and(read);
        }
        (Buf::join(parts, &self.env.pool), result)
    }

    async fn read_piece(&self, piece: IndexPiece, mut part: Buf) -> (Buf, IoResult) {
        match piece {
            IndexPiece::Origin(run) => self.read_origin(Self::extent(run), part).await,
            IndexPiece::Zero(_) => {
                part.fill(0);
                (part, Ok(()))
            }
            IndexPiece::Log(run, spots) => self.read_log(run, &spots, part).await,
        }
    }

    async fn read_origin(&self, extent: Extent, part: Buf) -> (Buf, IoResult) {
        let timer = &self.env.timer;
        let begun = timer.now();
        let read = self.origin.read(extent.start, part).await;
        if timer.now() - begun > HIT_MAX {
            self.read_at.set(Some(timer.now()));
        }
        read
    }

    async fn read_log(
        &self,
        run: Range<u64>,
        spots: &[BlockSpot],
        mut part: Buf,
    ) -> (Buf, IoResult) {
        // A copy may be lost meanwhile, and is not to be tried twice.
        let copies = self.copies.readable();
        for copy in copies.into_iter().flatten() {
            let (buf, read) = self.copies.read(copy, spots[0].at, part).await;
            part = buf;
            let blocks = || part.chunks(BLOCK_BYTES).zip(spots);
            if read.is_ok() && blocks().all(|(block, spot)| block_crc(block) == spot.crc) {
                return (part, Ok(()));
            }
        }
        let what = "neither copy of what the origin does not have yet can be read; attach the \
                    device that is absent, or restore this from a backup";
        let error = IoError::new(IoErrorKind::Corrupt, what).at(Self::extent(run));
        (part, Err(error))
    }

    fn pin(&self, slot: u32) -> u64 {
        let segments = &mut self.state.borrow_mut().segments;
        let live = segments.iter_mut().find(|live| live.slot == slot);
        let live = live.expect("what is indexed is in a live segment");
        live.readers += 1;
        live.number
    }

    fn unpin(&self, number: u64) {
        let state = &mut *self.state.borrow_mut();
        let live = state.segments.iter_mut().find(|live| live.number == number);
        live.expect("it was pinned").readers -= 1;
        state.free_segments();
        self.changed.notify();
    }

    /// Reports blocks in the log by the index, and the rest by the origin.
    pub(super) async fn extents(
        &self,
        extent: Extent,
        out: &mut Vec<(Extent, Content)>,
    ) -> IoResult {
        let pieces = self.state.borrow().index.pieces(Self::blocks(extent));
        for piece in pieces {
            match piece {
                IndexPiece::Log(run, _) => out.push((Self::extent(run), Content::Data)),
                IndexPiece::Zero(run) => out.push((Self::extent(run), Content::Zero)),
                IndexPiece::Origin(run) => self.origin.extents(Self::extent(run), out).await?,
            }
        }
        Ok(())
    }
}
