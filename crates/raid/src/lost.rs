//! Sectors of an array whose data is lost: they are remembered, durably, and
//! cannot be read until they are written anew.

use crate::core::Core;
use crate::format::BAD_MAX;
use block::{Extent, IoResult, Kind, Lba, Sectors};
use std::rc::Rc;

impl Core {
    /// Whether a lost sector lies in `extent`.
    pub fn check_bad(&self, extent: Extent) -> IoResult {
        match self.bad.borrow().iter().find(|bad| bad.overlaps(extent)) {
            None => Ok(()),
            Some(bad) => Err(self
                .error(Kind::Media, "these sectors were lost; write them anew")
                .at(*bad)),
        }
    }

    /// Remembers that the data of `extent` is lost; durable with the next
    /// commit. `Err` if there are too many such runs.
    pub fn add_bad(&self, extent: Extent) -> IoResult {
        let mut bad = self.bad.borrow_mut();
        let (mut start, mut end) = (extent.start, extent.end());
        let mut all: Vec<Extent> = Vec::new();
        for run in bad.iter() {
            if run.end() < start || end < run.start {
                all.push(*run);
            } else {
                (start, end) = (start.min(run.start), end.max(run.end()));
            }
        }
        all.push(Extent::new(start, end - start));
        all.sort_by_key(|run| run.start);
        if all.len() > BAD_MAX {
            return Err(self.error(
                Kind::Media,
                "more runs of lost sectors than can be remembered; restore it from a copy",
            ));
        }
        *bad = all;
        drop(bad);
        self.tell(format!("{}: the data of {extent:?} is lost", self.name));
        self.want_commit();
        Ok(())
    }

    /// `extent` has been written anew: it counts as lost until that is durable.
    pub async fn heal(self: &Rc<Core>, extent: Extent) -> IoResult {
        if !self.bad.borrow().iter().any(|run| run.overlaps(extent)) {
            return Ok(());
        }
        Box::pin(self.flush_members()).await?;
        self.remove_bad(extent);
        self.commit().await
    }

    fn remove_bad(&self, extent: Extent) {
        let mut bad = self.bad.borrow_mut();
        let parts = bad.iter().flat_map(|run| {
            let before = run.intersect(Extent::new(Lba::ZERO, extent.start - Lba::ZERO));
            let after = Extent::new(
                extent.end(),
                Sectors(run.end().0.saturating_sub(extent.end().0)),
            );
            [before, run.intersect(after)]
        });
        let parts: Vec<_> = parts.filter(|run| !run.is_empty()).collect();
        *bad = parts;
        drop(bad);
        self.want_commit();
    }
}
