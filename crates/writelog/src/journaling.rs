//! Loads go through the journal: written, flushed and committed before the origin gets any part of
//! a load.
//!
//! A journal that fails is given up until the next opening. That is durable before the origin gets
//! anything else. From then on the origin gets dirty data in order.

use super::index::LogIndex;
use super::journal::WriteJournal;
use super::load::OriginLoad;
use super::stage::LogStage;
use super::{Cleaning, WriteBackShared};
use block::{Buf, Device, Fua, IoResult};
use layout::{
    BLOCK_BYTES, Became, JournalCommit, LOG_NUMBER, LogRecord, RECORD_BLOCKS_MAX,
    RECORD_EXTENTS_MAX, RecordExtent, block_crc,
};

/// Result of a load's commit.
pub(super) enum Journaled {
    /// The load may go to the origin.
    Committed,
    /// No part of the load may go to the origin, and the next load is of another order.
    Forsaken,
}

impl<P: Device> WriteBackShared<P> {
    /// The journal, while it is online.
    pub(super) fn journal(&self) -> Option<&WriteJournal<P>> {
        self.journal.as_ref().filter(|journal| journal.is_online())
    }

    /// Present order in which the origin gets writes.
    pub(super) fn cleaning(&self) -> Cleaning {
        match self.config.cleaning {
            Cleaning::Journaled if self.journal().is_none() => Cleaning::Ordered,
            cleaning => cleaning,
        }
    }

    /// End of the records that a former incarnation has committed and may have written back in
    /// part: they are the next load.
    pub(super) fn redo_to(&self) -> Option<u64> {
        let written_back_to = self.state.borrow().written_back_to;
        let pending = self.journal()?.pending()?;
        Some(pending.to).filter(|to| *to > written_back_to)
    }

    /// Commits a load. An error is one of the log.
    pub(super) async fn commit(&self, load: &OriginLoad) -> IoResult<Journaled> {
        let Some(journal) = self.journal() else {
            return Ok(Journaled::Committed);
        };
        let _held = journal.changing.lock().await;
        let (group, mut at) = journal.next();
        let mut commit = JournalCommit {
            group,
            incarnation: self.config.incarnation,
            to: load.next.number,
            written_at: load.written_at,
            records: 0,
            blocks: 0,
        };
        let mut written = Ok(());
        {
            let _under = self.stages.enter(LogStage::JournalBody);
            for extents in parts(&load.newest) {
                let part = self.part(journal, &load.newest, &commit, extents).await?;
                let blocks = (part.len() / BLOCK_BYTES) as u64;
                written = journal.write(at, part.share(), Fua::No).await;
                if written.is_err() {
                    break;
                }
                at += blocks;
                commit.records += 1;
                commit.blocks += blocks;
            }
        }
        if written.is_ok() {
            let _under = self.stages.enter(LogStage::JournalFlush);
            written = journal.flush().await;
        }
        if written.is_ok() {
            let _under = self.stages.enter(LogStage::JournalCommit);
            written = journal.commit(commit).await;
        }
        if written.is_err() {
            self.forsake(journal).await?;
            return Ok(Journaled::Forsaken);
        }
        Ok(Journaled::Committed)
    }

    /// Builds the next record of a group, with its data.
    async fn part(
        &self,
        journal: &WriteJournal<P>,
        newest: &LogIndex,
        commit: &JournalCommit,
        extents: Vec<RecordExtent>,
    ) -> IoResult<Buf> {
        let data = extents.iter().filter(|e| e.became == Became::Data);
        let blocks = |extent: &RecordExtent| extent.block..extent.block + u64::from(extent.count);
        let pieces = data.flat_map(|extent| newest.pieces(blocks(extent)));
        let pieces: Vec<_> = pieces.collect();
        let bytes = (1 + count(&extents) as usize) * BLOCK_BYTES;
        let (mut head, mut data) = self.memory(bytes).await.split_at(BLOCK_BYTES);
        if !data.is_empty() {
            let (read, result) = self.read_pieces(pieces, data).await;
            data = read;
            result?;
        }
        let record = LogRecord {
            number: commit.records,
            incarnation: commit.incarnation,
            segment: commit.group,
            interval: 0,
            written_back_to: 0,
            fence: 0,
            written_at: commit.written_at,
            durable_to: 0,
            complete_to: 0,
            log: LOG_NUMBER,
            extents,
            crcs: data.chunks(BLOCK_BYTES).map(block_crc).collect(),
        };
        record.encode(journal.superblock().journal, &mut head);
        Ok(Buf::join(vec![head, data], &self.env.pool))
    }

    /// Retires all groups, so that the origin may get other writes. `Err`: no copy is left for the
    /// record of that.
    pub(super) async fn retire_journal(&self) -> IoResult {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        if journal.pending().is_none() {
            return Ok(());
        }
        let _held = journal.changing.lock().await;
        if journal.pending().is_some() {
            let _under = self.stages.enter(LogStage::Retire);
            if journal.retire().await.is_err() {
                return self.forsake(journal).await;
            }
        }
        Ok(())
    }

    async fn forsake(&self, journal: &WriteJournal<P>) -> IoResult {
        let _under = self.stages.enter(LogStage::Forsake);
        self.copies.standing.forsake().await?;
        journal.forsaken();
        self.changed.notify();
        Ok(())
    }
}

/// Blocks of data.
fn count(extents: &[RecordExtent]) -> u32 {
    let data = extents.iter().filter(|e| e.became == Became::Data);
    data.map(|extent| extent.count).sum()
}

/// Extents of each record of a group: every record but the last is full of blocks or of extents.
fn parts(newest: &LogIndex) -> Vec<Vec<RecordExtent>> {
    let cleared = newest.cleared().map(|(blocks, became)| RecordExtent {
        block: blocks.start,
        count: (blocks.end - blocks.start) as u32,
        became,
    });
    let runs = newest.runs(u64::from(RECORD_BLOCKS_MAX)).into_iter();
    let runs = runs.map(|blocks| RecordExtent {
        block: blocks.start,
        count: (blocks.end - blocks.start) as u32,
        became: Became::Data,
    });
    let mut parts: Vec<Vec<RecordExtent>> = Vec::new();
    for mut extent in cleared.chain(runs) {
        loop {
            let open = parts.last_mut().filter(|part| {
                part.len() < RECORD_EXTENTS_MAX as usize && count(part) < RECORD_BLOCKS_MAX
            });
            let Some(part) = open else {
                parts.push(Vec::new());
                continue;
            };
            let fits = match extent.became {
                Became::Data => extent.count.min(RECORD_BLOCKS_MAX - count(part)),
                Became::Zero | Became::Discarded => extent.count,
            };
            part.push(RecordExtent {
                count: fits,
                ..extent
            });
            extent.block += u64::from(fits);
            extent.count -= fits;
            if extent.count == 0 {
                break;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Parts have the contents of the index, and there are no more parts than fit.
        #[test]
        fn parts_have_it_all_and_are_full(
            records in prop::collection::vec((0u64..4000, 1u32..128, 0u8..4), 1..200),
        ) {
            let mut index = LogIndex::default();
            for (number, (block, count, kind)) in (0..).zip(records) {
                let became = [Became::Data, Became::Zero, Became::Discarded, Became::Data];
                let became = became[kind as usize];
                let crcs = vec![0; if became == Became::Data { count as usize } else { 0 }];
                let at = number as u32 * 256 + 1;
                index.insert(number, &[RecordExtent { block, count, became }], at, &crcs);
            }
            let parts = parts(&index);
            let mut changed = std::collections::BTreeMap::new();
            for extent in parts.iter().flatten() {
                let blocks = extent.block..extent.block + u64::from(extent.count);
                for block in blocks {
                    prop_assert_eq!(changed.insert(block, extent.became), None);
                }
            }
            let cleared = index.cleared().flat_map(|(run, became)| run.map(move |b| (b, became)));
            let data = index.runs(u64::MAX).into_iter().flatten().map(|b| (b, Became::Data));
            let expected = cleared.chain(data).collect();
            prop_assert_eq!(changed, expected);
            for part in &parts {
                prop_assert!(!part.is_empty() && count(part) <= RECORD_BLOCKS_MAX);
                prop_assert!(part.len() <= RECORD_EXTENTS_MAX as usize);
            }
            let most = index.changes() / u64::from(RECORD_BLOCKS_MAX) + 1;
            prop_assert!(parts.len() as u64 <= most, "{} of {most}", parts.len());
        }
    }
}
