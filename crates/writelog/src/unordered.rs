//! Write-back without writes to the log: the log is full, or partly damaged, and the operator has
//! asked for the rest.
//!
//! Invariant: this write-back keeps no order; the origin is no earlier state before all is written
//! back.

use super::index::LogIndex;
use super::load::RUN_BLOCKS;
use super::{WriteBack, WriteBackShared, missing};
use block::{Device, IoErrorKind, IoResult};
use std::ops::Range;

impl<P: Device> WriteBack<P> {
    /// Writes all dirty data to the origin, durably. Returns the blocks that neither copy has: the
    /// origin keeps its own version of them.
    pub async fn write_back_all(&self) -> IoResult<Vec<Range<u64>>> {
        self.write_back_all_to(&self.0.origin).await
    }

    /// As [`WriteBack::write_back_all`], to a device with the contents of the origin.
    pub async fn write_back_all_to(&self, to: &impl Device) -> IoResult<Vec<Range<u64>>> {
        let log = &self.0;
        if let Some(journal) = &log.journal {
            match journal.replay(to).await {
                // The log has each record of a damaged group.
                Err(error) if error.kind() == IoErrorKind::Corrupt => {}
                replayed => drop(replayed?),
            }
        }
        let index = std::mem::take(&mut log.state.borrow_mut().index);
        let carried = log.write_back_index(&index, to).await;
        log.state.borrow_mut().index = index;
        let lost = carried?;
        to.flush().await?;
        Ok(lost)
    }

    /// Gives up a log that is written back, durably: the next opening begins a new one.
    pub async fn end(&self) -> IoResult {
        if let Some(journal) = self.0.journal.as_ref().filter(|j| j.pending().is_some()) {
            journal.retire().await?;
        }
        let copies = &self.0.copies;
        let trusted = [0, 1].map(|copy| copies.is_trusted(copy));
        copies.standing.end(trusted).await
    }

    /// Numbers of records that were in the log and that no present device has; `None` if the log is
    /// complete. An incomplete log supports only [`WriteBack::write_back_all`].
    pub fn missing(&self) -> Option<String> {
        let missing = &self.0.missing;
        (!missing.is_empty()).then(|| missing::listed(missing))
    }
}

impl<P: Device> WriteBackShared<P> {
    async fn write_back_index(
        &self,
        index: &LogIndex,
        to: &impl Device,
    ) -> IoResult<Vec<Range<u64>>> {
        self.write_back_cleared(index, to).await?;
        let mut lost = Vec::new();
        for run in index.runs(RUN_BLOCKS) {
            match self.write_back_run(index, run.clone(), to).await {
                Err(error) if error.kind() == IoErrorKind::Corrupt => {}
                carried => {
                    carried?;
                    continue;
                }
            }
            for block in run {
                match self.write_back_run(index, block..block + 1, to).await {
                    Err(error) if error.kind() == IoErrorKind::Corrupt => lose(&mut lost, block),
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
