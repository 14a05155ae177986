//! The two copies of a log: writes to both, and the loss of one.
//!
//! A copy that fails an operation other than a read is lost until the log is opened again. Writes
//! and flushes end only after the loss is durable (`standing`), so that no later incarnation trusts
//! that copy. The last copy is never reported lost: it alone has the dirty data.
//!
//! Invariant: a write or a flush has ended, and a copy is left
//!                ⟹ each copy that a later incarnation trusts has it

use super::stage::{LogStage, Stages};
use super::standing::{Members, Standings, gone};
use block::{
    Buf, Device, Env, Extent, Fua, IoError, IoErrorKind, IoResult, Lba, Sectors, SharedBuf, Signal,
};
use futures_util::future::join;
use layout::{BLOCK_BYTES, BLOCK_SECTORS, LogRecord, SEGMENT_BLOCKS, Uuid};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A part of a pool device that holds one copy of a log.
pub struct CopyArea<P> {
    /// The device.
    pub device: P,
    /// First sector of the part.
    pub base: Lba,
    /// Segments in the part.
    pub segments: u32,
    /// Number of the pool's member.
    pub member: u16,
    /// Failure domain of the device.
    pub domain: Rc<str>,
    /// True if its contents may be read. The contents of a copy that was lost are void.
    pub trusted: bool,
    /// Parts of the device, in order, that are known to read as zeroes.
    pub holes: Vec<Extent>,
}

impl<P> CopyArea<P> {
    /// True if the first block of a segment is known to be blank without a read.
    pub(super) fn is_blank(&self, slot: u32) -> bool {
        let at = u64::from(slot) * u64::from(SEGMENT_BLOCKS) * BLOCK_SECTORS;
        let header = Extent::new(self.base + Sectors(at), Sectors(BLOCK_SECTORS));
        let next = self
            .holes
            .partition_point(|hole| hole.start <= header.start);
        let hole = next.checked_sub(1).map(|before| self.holes[before]);
        hole.is_some_and(|hole| header.end() <= hole.end())
    }
}

pub(super) struct LogCopies<P> {
    pub(super) areas: [Option<CopyArea<P>>; 2],
    pub(super) standing: Standings,
    env: Env,
    pub(super) changed: Rc<Signal>,
    pub(super) stages: Rc<Stages>,
}

/// The whole of a segment on one copy.
pub(super) struct SegmentRead {
    /// Unreadable blocks are zeroes.
    bytes: Vec<u8>,
    unread: BTreeSet<u32>,
}

impl SegmentRead {
    /// Decodes the header of a record at `offset`, and returns its data unverified.
    fn blocks(&self, offset: u32, pool: Uuid) -> Option<(LogRecord, &[u8])> {
        let rest = &self.bytes[offset as usize * BLOCK_BYTES..];
        let record = LogRecord::decode(&rest[..BLOCK_BYTES], pool).ok()?;
        let data = rest.get(BLOCK_BYTES..record.blocks() as usize * BLOCK_BYTES)?;
        Some((record, data))
    }

    /// Decodes the header of a record at `offset`, whose data may be torn.
    pub(super) fn header(&self, offset: u32, pool: Uuid) -> Option<LogRecord> {
        let header = &self.bytes[offset as usize * BLOCK_BYTES..][..BLOCK_BYTES];
        LogRecord::decode(header, pool).ok()
    }

    /// Returns the record at `offset`, if it is whole.
    pub(super) fn record(&self, offset: u32, pool: Uuid) -> Option<LogRecord> {
        let (record, data) = self.blocks(offset, pool)?;
        record.has(data).then_some(record)
    }

    /// True if an unreadable record may be at `offset`.
    pub(super) fn is_unread(&self, offset: u32, pool: Uuid) -> bool {
        let record = self.blocks(offset, pool);
        let blocks = record.map_or(1, |(record, _)| record.blocks());
        self.unread.range(offset..offset + blocks).next().is_some()
    }
}

impl<P: Device> LogCopies<P> {
    pub(super) fn new(
        areas: [Option<CopyArea<P>>; 2],
        members: Rc<dyn Members>,
        env: Env,
        changed: Rc<Signal>,
        stages: Rc<Stages>,
    ) -> LogCopies<P> {
        let here = areas.each_ref().map(Option::is_some);
        let (signal, under) = (changed.clone(), stages.clone());
        LogCopies {
            standing: Standings::new(here, members, env.clone(), signal, under),
            areas,
            env,
            changed,
            stages,
        }
    }

    pub(super) fn segments(&self) -> u32 {
        let areas = self.areas.iter().flatten();
        areas.map(|area| area.segments).min().unwrap_or(0)
    }

    fn is_online(&self, copy: usize) -> bool {
        self.standing.online()[copy]
    }

    /// True if the contents of a copy may be read.
    pub(super) fn is_trusted(&self, copy: usize) -> bool {
        self.areas[copy].as_ref().is_some_and(|area| area.trusted)
    }

    /// True if a copy is online and was trusted when the log was opened.
    pub(super) fn has_all(&self, copy: usize) -> bool {
        self.is_online(copy) && self.is_trusted(copy)
    }

    /// Copies that are online.
    pub(super) fn online(&self) -> impl Iterator<Item = usize> {
        (0..2).filter(|copy| self.is_online(*copy))
    }

    /// Copies that are present, those online first.
    pub(super) fn readable(&self) -> [Option<usize>; 2] {
        let order = match self.standing.online() {
            [false, true] => [1, 0],
            _ => [0, 1],
        };
        order.map(|copy| self.areas[copy].is_some().then_some(copy))
    }

    /// True if both copies are online: the log alone may acknowledge writes.
    pub(super) fn are_both(&self) -> bool {
        self.standing.online() == [true; 2]
    }

    /// True if no copy is online.
    pub(super) fn are_gone(&self) -> bool {
        self.standing.are_gone()
    }

    /// True if each loss is durable.
    pub(super) fn are_losses_durable(&self) -> bool {
        self.standing.are_losses_durable()
    }

    /// True if the log has to be opened again to go on: no copy is left, and the durable standing
    /// may still have dirty data.
    pub(super) fn are_stuck(&self) -> bool {
        self.are_gone() && !self.standing.is_settled()
    }

    fn area(&self, copy: usize) -> &CopyArea<P> {
        self.areas[copy].as_ref().expect("it is online")
    }

    fn lba(&self, copy: usize, at: u32) -> Lba {
        self.area(copy).base + Sectors(u64::from(at) * BLOCK_SECTORS)
    }

    /// Reads blocks of the area; two attempts.
    pub(super) async fn read(&self, copy: usize, at: u32, buf: Buf) -> (Buf, IoResult) {
        let device = &self.area(copy).device;
        match device.read(self.lba(copy, at), buf).await {
            (buf, Err(error)) if error.kind() == IoErrorKind::Media => {
                device.read(self.lba(copy, at), buf).await
            }
            read => read,
        }
    }

    /// Does `work` with each online copy. Returns the number of copies that succeeded.
    async fn each(&self, between: LogStage, work: impl AsyncFn(&P, usize) -> IoResult) -> usize {
        let done = Cell::new(0);
        let one = async |copy: usize| {
            if self.is_online(copy) {
                match work(&self.area(copy).device, copy).await {
                    Ok(()) if self.is_online(copy) => done.set(done.get() + 1),
                    Ok(()) => {}
                    Err(error) => self.standing.lose(copy, error),
                }
            }
            let other = self.is_online(1 - copy);
            (done.get() == 1 && other).then(|| self.stages.enter(between))
        };
        let _ = join(one(0), one(1)).await;
        self.losses_durable().await;
        done.get()
    }

    /// Writes the same data to all copies. Returns the number of copies that have it.
    pub(super) async fn write(&self, at: u32, data: SharedBuf, fua: Fua) -> usize {
        let write = async |device: &P, copy: usize| {
            let at = self.lba(copy, at);
            device.write(at, data.clone(), fua).await
        };
        self.each(LogStage::BetweenCopies, write).await
    }

    /// Writes to one copy, which has to be online.
    pub(super) async fn write_one(&self, copy: usize, at: u32, data: SharedBuf) {
        let device = &self.area(copy).device;
        let written = device.write(self.lba(copy, at), data, Fua::Yes).await;
        if let Err(error) = written {
            self.standing.lose(copy, error);
        }
    }

    /// Flushes all copies; fails if none is left.
    pub(super) async fn flush(&self) -> IoResult {
        let _under = self.stages.enter(LogStage::Flush);
        let flush = async |device: &P, _| device.flush().await;
        self.each(LogStage::BetweenFlushes, flush).await;
        match self.are_gone() {
            true => Err(self.error()),
            false => Ok(()),
        }
    }

    /// Waits until each loss is durable, or no copy is left.
    async fn losses_durable(&self) {
        let known = || self.are_losses_durable() || self.are_gone();
        self.changed.until(known).await;
    }

    pub(super) fn error(&self) -> IoError {
        gone()
    }

    /// Reads all readable blocks of a segment of a copy.
    pub(super) async fn read_segment(&self, copy: usize, slot: u32) -> IoResult<SegmentRead> {
        let (first, bytes) = (slot * SEGMENT_BLOCKS, SEGMENT_BLOCKS as usize * BLOCK_BYTES);
        let (buf, read) = self.read(copy, first, self.env.pool.take(bytes)).await;
        match read {
            Ok(()) => {
                let (bytes, unread) = (buf.to_vec(), BTreeSet::new());
                return Ok(SegmentRead { bytes, unread });
            }
            Err(error) if error.kind() != IoErrorKind::Media => return Err(error),
            Err(_) => drop(buf),
        }
        let (mut bytes, mut unread) = (vec![0; bytes], BTreeSet::new());
        for (at, block) in (first..).zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            let buf = self.env.pool.take(BLOCK_BYTES);
            match self.read(copy, at, buf).await {
                (buf, Ok(())) => block.copy_from_slice(&buf),
                (_, Err(error)) if error.kind() == IoErrorKind::Media => {
                    unread.insert(at - first);
                }
                (_, Err(error)) => return Err(error),
            }
        }
        Ok(SegmentRead { bytes, unread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_blank_if_it_is_in_one_hole() {
        let segment = u64::from(SEGMENT_BLOCKS) * BLOCK_SECTORS;
        let hole = |from: u64, to: u64| Extent::new(Lba(from), Sectors(to - from));
        let area = CopyArea {
            device: (),
            base: Lba(64),
            segments: 6,
            member: 0,
            domain: "".into(),
            trusted: true,
            holes: vec![
                hole(0, 64 + 8),
                hole(64 + segment, 64 + segment + 7),
                hole(64 + 2 * segment + 1, 64 + 3 * segment),
                hole(64 + 4 * segment, 64 + 6 * segment),
            ],
        };
        let blank: Vec<u32> = (0..6).filter(|slot| area.is_blank(*slot)).collect();
        assert_eq!(blank, [0, 4, 5]);
    }
}
