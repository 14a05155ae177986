//! A log is carried out without being written to: it is full, or a part of it is damaged, and the
//! operator has asked for the rest.
//!
//! Invariant: the origin keeps no order meanwhile, so that nothing but the log makes it whole until
//! all is carried out.

use super::load::RUN_BLOCKS;
use super::{Inner, WriteBack};
use block::{Device, IoResult, Kind};
use std::ops::Range;

impl<P: Device> WriteBack<P> {
    /// Carries all dirty data to the origin, durably. Returns the blocks that neither copy has: the
    /// origin keeps what it has of them.
    pub async fn carry_out(&self) -> IoResult<Vec<Range<u64>>> {
        let log = &self.0;
        if let Some(journal) = &log.journal {
            match journal.replay(&log.origin).await {
                // Of a group that is damaged the log has each record.
                Err(error) if error.kind() == Kind::Corrupt => {}
                replayed => drop(replayed?),
            }
        }
        let index = std::mem::take(&mut log.state.borrow_mut().index);
        let mut lost = Vec::new();
        let carried = log.carry_cleared(&index).await;
        let mut carried = carried.map(|()| index.runs(RUN_BLOCKS));
        if let Ok(runs) = &carried {
            for run in runs {
                if let Err(error) = log.carry_readable(&index, run, &mut lost).await {
                    carried = Err(error);
                    break;
                }
            }
        }
        log.state.borrow_mut().index = index;
        carried?;
        log.origin.flush().await?;
        Ok(lost)
    }

    /// Gives up a log of which all is carried out, durably: the next opening begins a new one.
    pub async fn end(&self) -> IoResult {
        if let Some(journal) = self.0.journal.as_ref().filter(|j| j.pending().is_some()) {
            journal.retire().await?;
        }
        let copies = &self.0.copies;
        let trusted = [0, 1].map(|copy| copies.is_trusted(copy));
        copies.standing.end(trusted).await
    }
}

impl<P: Device> Inner<P> {
    /// Carries a run, or the blocks of it that can be read.
    async fn carry_readable(
        &self,
        index: &super::index::Index,
        run: &Range<u64>,
        lost: &mut Vec<Range<u64>>,
    ) -> IoResult {
        match self.carry_run(index, run.clone()).await {
            Err(error) if error.kind() == Kind::Corrupt => {}
            carried => return carried,
        }
        for block in run.clone() {
            match self.carry_run(index, block..block + 1).await {
                Err(error) if error.kind() == Kind::Corrupt => match lost.last_mut() {
                    Some(last) if last.end == block => last.end += 1,
                    _ => lost.push(block..block + 1),
                },
                carried => carried?,
            }
        }
        Ok(())
    }
}
