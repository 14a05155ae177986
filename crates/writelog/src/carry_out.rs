//! A log is written back without being written to: it is full, or a part of it is damaged, and the
//! operator has asked for the rest.
//!
//! Invariant: the origin gets no order meanwhile, so that it is no earlier state before all is
//! written back.

use super::index::Index;
use super::load::RUN_BLOCKS;
use super::{Inner, WriteBack, missing};
use block::{Device, IoResult, Kind};
use std::ops::Range;

impl<P: Device> WriteBack<P> {
    /// Writes all dirty data to the origin, durably. Returns the blocks that neither copy has: the
    /// origin keeps what it has of them.
    pub async fn carry_out(&self) -> IoResult<Vec<Range<u64>>> {
        self.carry_out_to(&self.0.origin).await
    }

    /// As [`WriteBack::carry_out`], to a device that has what the origin has.
    pub async fn carry_out_to(&self, to: &impl Device) -> IoResult<Vec<Range<u64>>> {
        let log = &self.0;
        if let Some(journal) = &log.journal {
            match journal.replay(to).await {
                // Of a group that is damaged the log has each record.
                Err(error) if error.kind() == Kind::Corrupt => {}
                replayed => drop(replayed?),
            }
        }
        let index = std::mem::take(&mut log.state.borrow_mut().index);
        let carried = log.carry_index(&index, to).await;
        log.state.borrow_mut().index = index;
        let lost = carried?;
        to.flush().await?;
        Ok(lost)
    }

    /// Gives up a log of which all is written back, durably: the next opening begins a new one.
    pub async fn end(&self) -> IoResult {
        if let Some(journal) = self.0.journal.as_ref().filter(|j| j.pending().is_some()) {
            journal.retire().await?;
        }
        let copies = &self.0.copies;
        let trusted = [0, 1].map(|copy| copies.is_trusted(copy));
        copies.standing.end(trusted).await
    }

    /// Records that were in the log and that no device that is here has, by their numbers; none if
    /// all is here. Of a log that lacks some nothing but [`WriteBack::carry_out`] is to be asked.
    pub fn missing(&self) -> Option<String> {
        let missing = &self.0.missing;
        (!missing.is_empty()).then(|| missing::listed(missing))
    }
}

impl<P: Device> Inner<P> {
    async fn carry_index(&self, index: &Index, to: &impl Device) -> IoResult<Vec<Range<u64>>> {
        self.carry_cleared(index, to).await?;
        let mut lost = Vec::new();
        for run in index.runs(RUN_BLOCKS) {
            match self.carry_run(index, run.clone(), to).await {
                Err(error) if error.kind() == Kind::Corrupt => {}
                carried => {
                    carried?;
                    continue;
                }
            }
            for block in run {
                match self.carry_run(index, block..block + 1, to).await {
                    Err(error) if error.kind() == Kind::Corrupt => lose(&mut lost, block),
                    carried => carried?,
                }
            }
        }
        Ok(lost)
    }
}

fn lose(lost: &mut Vec<Range<u64>>, block: u64) {
    match lost.last_mut() {
        Some(last) if last.end == block => last.end += 1,
        _ => lost.push(block..block + 1),
    }
}
