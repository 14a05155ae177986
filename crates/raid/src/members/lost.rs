//! Lost sectors and gaps: data that an array or one of its members lacks, durably.
//!
//! Lost sectors of the array cannot be read until they are rewritten. A gap is in one member alone:
//! the member was filled while no other member could be read there.
//!
//! Invariants:
//!     a member is read in a gap of it       ⟹ the read fails with [`IoErrorKind::Media`] (`read_of`), so
//!                                             that the other members are asked
//!     a gap is forgotten                    ⟹ the data written there is durable
//!     a gap is made                         ⟹ nothing is written to any member for it

use super::ArrayMembers;
use crate::member::ArrayMember;
use crate::runs::{closest, join_closest, with, without};
use crate::superblock::{BAD_MAX, Gap};
use block::{Buf, Extent, IoError, IoErrorKind, IoResult, Lba, SECTOR_BYTES, Sectors};

/// Lost sectors of the array, and gaps of each role's data.
type Rewritten = (Option<Extent>, Vec<(usize, Extent)>);

impl ArrayMembers {
    /// Fails if a lost sector lies in `extent`.
    pub fn check_bad(&self, extent: Extent) -> IoResult {
        let roster = self.roster.now();
        let Some(bad) = roster.bad.iter().find(|bad| bad.overlaps(extent)) else {
            return Ok(());
        };
        let what = "these sectors were lost; rewrite them";
        Err(self.error(IoErrorKind::Media, what).at(*bad))
    }

    /// Returns the sectors of the array that are lost, or on fewer members than they should be,
    /// sorted.
    pub fn lost(&self) -> Vec<Extent> {
        let roster = self.roster.now();
        let lacked = |gap: &Gap| self.shape.sectors_at(gap.role, gap.extent);
        let gaps = roster.gaps.iter().flat_map(lacked);
        gaps.fold(roster.bad.clone(), |runs, extent| with(&runs, extent))
    }

    /// Records that the data of `extent` is lost; durable with the next commit. With more runs than
    /// can be remembered, the data between the closest two is given up with them: a rebuild has to
    /// end, or the next loss takes all.
    pub fn add_bad(&self, extent: Extent) {
        self.log(format!("the data of {extent:?} is lost"));
        let runs = with(&self.roster.now().bad, extent);
        self.roster.change(|roster| roster.bad = runs);
        self.limit_lost();
    }

    /// Records a gap of the member of `role`, by its data; durable with the next commit.
    pub fn add_gap(&self, role: usize, extent: Extent) {
        self.put_gaps(role, |runs| with(runs, extent));
        self.limit_lost();
    }

    /// Replaces the gaps of `role`, which another member has now.
    pub fn replace_gaps(&self, role: usize, gaps: Vec<Extent>) {
        self.put_gaps(role, |_| gaps);
        self.limit_lost();
    }

    /// Removes `extent` from the gaps of `role`: its member, which is not in sync, got the data.
    pub fn fill_gap(&self, role: usize, extent: Extent) {
        if self.check_gaps(role, extent).is_err() {
            self.put_gaps(role, |runs| without(runs, extent));
        }
    }

    /// Returns the gaps of all members.
    pub fn gaps(&self) -> Vec<Gap> {
        self.roster.now().gaps.clone()
    }

    /// Returns the gaps of `role`.
    fn gaps_of(&self, role: usize) -> Vec<Extent> {
        let roster = self.roster.now();
        let of = roster.gaps.iter().filter(|gap| gap.role == role);
        of.map(|gap| gap.extent).collect()
    }

    fn put_gaps(&self, role: usize, change: impl FnOnce(&[Extent]) -> Vec<Extent>) {
        let before = self.gaps_of(role);
        let after = change(&before);
        if after == before {
            return;
        }
        self.roster.change(|roster| {
            roster.gaps.retain(|gap| gap.role != role);
            let gaps = after.into_iter().map(|extent| Gap { role, extent });
            roster.gaps.extend(gaps);
            roster.gaps.sort_by_key(|gap| (gap.role, gap.extent.start));
        });
    }

    /// Makes room where there are more runs than can be remembered. A gap that grows loses nothing,
    /// for other members are read there; so gaps are joined first.
    fn limit_lost(&self) {
        loop {
            let roster = self.roster.now();
            if roster.bad.len() + roster.gaps.len() <= BAD_MAX {
                return;
            }
            drop(roster);
            let roles = 0..self.slots.len();
            let closest = |role: &usize| closest(&self.gaps_of(*role)).map(|(_, gap)| gap);
            let role = roles
                .filter(|role| closest(role).is_some())
                .min_by_key(closest);
            if let Some(role) = role {
                let mut runs = self.gaps_of(role);
                join_closest(&mut runs);
                self.put_gaps(role, |_| runs);
                continue;
            }
            let mut runs = self.roster.now().bad.clone();
            let between = join_closest(&mut runs);
            self.log(format!(
                "{between:?} count as lost too, for there are more runs of lost sectors than can \
                 be remembered; restore them from a copy"
            ));
            self.roster.change(|roster| roster.bad = runs);
        }
    }

    /// True if all of `extent` is in a gap of `role`.
    pub fn is_gap(&self, role: usize, extent: Extent) -> bool {
        self.roster.now().has_gap(role, extent)
    }

    /// Fails if a gap of `role` lies in `extent`.
    pub fn check_gaps(&self, role: usize, extent: Extent) -> IoResult {
        if !self.roster.now().lacks(role, extent) {
            return Ok(());
        }
        let what = "this member was never given these sectors";
        Err(self.error(IoErrorKind::Media, what))
    }

    /// Reads at `at` of the data of `member`, which has `role`.
    pub async fn read_of(
        &self,
        role: usize,
        member: &ArrayMember,
        at: Lba,
        buf: Buf,
    ) -> (Buf, IoResult) {
        let extent = Extent::new(at, Sectors(buf.len() as u64 / SECTOR_BYTES));
        match self.check_gaps(role, extent) {
            Ok(()) => member.read(at, buf).await,
            Err(error) => (buf, Err(error)),
        }
    }

    /// Returns the part of `extent` and of `written` that counts as lost, or as gaps; `None` if
    /// nothing does.
    pub fn lost_of(
        &self,
        extent: Option<Extent>,
        written: impl Iterator<Item = (usize, Extent)>,
    ) -> Option<Rewritten> {
        let roster = self.roster.now();
        if roster.bad.is_empty() && roster.gaps.is_empty() {
            return None;
        }
        let lacked: Vec<_> = written
            .filter(|(role, there)| roster.lacks(*role, *there))
            .collect();
        let extent = extent.filter(|extent| roster.bad.iter().any(|run| run.overlaps(*extent)));
        (extent.is_some() || !lacked.is_empty()).then_some((extent, lacked))
    }

    pub fn forget_lost(&self, extent: Option<Extent>, lacked: &[(usize, Extent)]) -> IoResult {
        let roster = self.roster.now();
        let bad = extent.map_or(roster.bad.clone(), |extent| without(&roster.bad, extent));
        let mut gaps = roster.gaps.clone();
        drop(roster);
        for (role, there) in lacked {
            // A member that was lost meanwhile may lack the data.
            if self.writable(*role).is_some() {
                gaps = gaps
                    .into_iter()
                    .flat_map(|gap| gap.without(*role, *there))
                    .collect();
            }
        }
        if bad.len() + gaps.len() > BAD_MAX {
            return Err(self.too_many_runs());
        }
        self.roster
            .change(|roster| (roster.bad, roster.gaps) = (bad, gaps));
        Ok(())
    }

    fn too_many_runs(&self) -> IoError {
        let what = "more runs of lost sectors than can be remembered; write one of them as a whole";
        self.error(IoErrorKind::Media, what)
    }
}

impl Gap {
    /// Returns the parts of the gap that are left once `extent` of `role` was written.
    fn without(self, role: usize, extent: Extent) -> Vec<Gap> {
        match self.role == role {
            true => without(&[self.extent], extent)
                .into_iter()
                .map(|extent| Gap { role, extent })
                .collect(),
            false => vec![self],
        }
    }
}
