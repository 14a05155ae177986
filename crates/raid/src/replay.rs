//! Replay of RAID 5 journals after a crash: every stripe's parity is made right before anything is
//! served. The cases are a table in `docs/array-format.md`.
//!
//! Invariants:
//!     all members are in sync and a stripe's data can be read
//!         ⟹ its parity is computed, and no record changes its data
//!     a sector is written again ⟹ once, with the bytes of the newest record that names it:
//!                                  a loss of power then uncovers nothing older than was there
//!     a stripe is changed ⟹ its region is marked: a member that is away by then is rebuilt
//!                           there, although the bit of the write itself may be cleared
//!     a slot's record cannot be known, and the first case does not hold
//!         ⟹ refused, or what cannot be computed is lost durably; never guessed
//!
//! Replay may be interrupted and start over: records stay until a flush has covered the writes that
//! they announce.

use crate::core::ArrayCore;
use crate::found::{JournalDamage, JournalScan};
use crate::levels::ParityStripe;
use crate::member::ArrayMember;
use crate::runs::without;
use crate::xor::xor;
use block::{
    Buf, Extent, Fua, IoErrorKind, IoResult, Lba, Proof, SECTOR_BYTES, Sectors, SharedBuf,
};
use layout::array::journal::{ChunkRun, JournalEntry, JournalRecord};
use std::rc::Rc;

/// A journal that is replayed.
struct Replayed<'a> {
    role: usize,
    parity_member: &'a ArrayMember,
    found: &'a JournalScan,
    /// A person confirmed a start although the journal cannot be read.
    confirmed: bool,
}

/// Result of a redone record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Redone {
    Done,
    /// The record was torn, so that its stripe is unchanged.
    Torn,
    /// The record was durable, and cannot be read.
    Unreadable,
}

/// The runs that the newer records of a stripe have written.
#[derive(Default)]
struct Newer(Vec<ChunkRun>);

impl Newer {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, runs: &[ChunkRun]) {
        self.0.extend(runs);
    }

    /// Returns the parts of `run` that newer records leave.
    fn leave(&self, run: &ChunkRun) -> Vec<ChunkRun> {
        let extent = |run: &ChunkRun| Extent::new(Lba(run.from.0), run.len);
        let newer = self.0.iter().filter(|newer| newer.member == run.member);
        let left = newer.fold(vec![extent(run)], |left, newer| {
            without(&left, extent(newer))
        });
        let parts = left.into_iter().map(|part| ChunkRun {
            from: Sectors(part.start.0),
            len: part.len,
            ..*run
        });
        parts.collect()
    }
}

/// Returns the run of parity that belongs to data in `runs`.
fn parity_run(stripe: ParityStripe, runs: &[ChunkRun]) -> ChunkRun {
    let from = runs.iter().map(|run| run.from).min().unwrap_or_default();
    let end = runs.iter().map(|run| run.from + run.len).max();
    ChunkRun {
        member: stripe.parity as u32,
        from,
        len: end.unwrap_or_default() - from,
    }
}

impl ArrayCore {
    /// Applies the records of the journals; returns the number of their stripes. `confirmed`: data
    /// that cannot be known is taken as unchanged.
    pub async fn replay(self: &Rc<ArrayCore>, confirmed: bool) -> IoResult<usize> {
        let (mut stripes, mut illegible) = (0, Vec::new());
        for role in 0..self.journals.len() {
            let Some(member) = self.in_sync(role) else {
                continue;
            };
            let found = match self.find_records(role, &member).await {
                Ok(found) => found,
                // The journal of a member does not concern the data of the others.
                Err(error) if self.fail(&member, &error) => continue,
                Err(error) => return Err(error),
            };
            self.journals[role].resume_after(found.last);
            let journal = Replayed {
                role,
                parity_member: &member,
                found: &found,
                confirmed,
            };
            stripes += self.replay_journal(journal).await?;
            illegible.push((role, found.illegible));
        }
        self.flush_members().await?;
        for journal in &self.journals {
            journal.retire(self).await?;
        }
        for (role, slots) in illegible {
            let Some(member) = self.in_sync(role) else {
                continue;
            };
            let journal = &self.journals[role];
            // The record that retires the others may have taken one.
            let free = slots.into_iter().filter(|slot| journal.is_free(*slot));
            let wiped = journal.wipe_slots(self, &member, free).await;
            match wiped {
                Err(error) if !self.fail(&member, &error) => return Err(error),
                _ => self.commit().await?,
            }
        }
        Ok(stripes)
    }

    async fn replay_journal(self: &Rc<ArrayCore>, journal: Replayed<'_>) -> IoResult<usize> {
        let found = journal.found;
        self.check_known(&journal)?;
        for (stripe, records) in &found.stripes {
            self.settle(&journal, self.shape.stripe(*stripe), records)
                .await?;
        }
        let mut stripes = found.stripes.len();
        if found.damage > JournalDamage::None && self.is_whole() {
            for stripe in self.marked_stripes(journal.role) {
                if !found.stripes.contains_key(&stripe.number) {
                    self.settle(&journal, stripe, &[]).await?;
                    stripes += 1;
                }
            }
        }
        Ok(stripes)
    }

    /// Refuses a start that would need a guess.
    fn check_known(&self, journal: &Replayed<'_>) -> IoResult {
        if journal.found.damage < JournalDamage::Unknown || self.is_whole() {
            return Ok(());
        }
        let roles = (0..self.slots.len()).filter(|role| !self.is_in_sync(*role));
        let roles: Vec<_> = roles.map(|role| role.to_string()).collect();
        let what = format!(
            "the journal of member {} ({}) cannot be read and not all others are in sync (roles \
             {}): what was being written when the array ended cannot be known",
            journal.role,
            journal.parity_member.name,
            roles.join(", ")
        );
        if journal.confirmed {
            self.log(format!(
                "{}: {what}; check what was written last",
                self.name
            ));
            return Ok(());
        }
        let remedy = "bring them back, or start it degraded and check what was written last";
        Err(self.error(IoErrorKind::Media, format!("{what}; {remedy}")))
    }

    /// Returns the stripes of marked regions with parity on `role`.
    fn marked_stripes(&self, role: usize) -> impl Iterator<Item = ParityStripe> {
        let bitmap = self.bitmap.as_ref().expect("a level with redundancy");
        let regions = bitmap.marked_regions().into_iter();
        let numbers = regions.flat_map(|region| {
            let extent = bitmap.extent(region, self.geometry.sectors);
            let width = self.shape.width().0;
            extent.start.0 / width..extent.end().0.div_ceil(width)
        });
        let stripes = numbers.map(|number| self.shape.stripe(number));
        stripes.filter(move |stripe| stripe.parity == role)
    }

    /// Makes a stripe whole that `records` name, or might name.
    async fn settle(
        self: &Rc<ArrayCore>,
        journal: &Replayed<'_>,
        stripe: ParityStripe,
        records: &[JournalRecord],
    ) -> IoResult {
        let bitmap = self.bitmap.as_ref().expect("a level with redundancy");
        let settled = match bitmap.begin(self, stripe.extent()).await {
            Ok(marked) => self.settle_marked(journal, stripe, records, marked).await,
            Err(error) => Err(error),
        };
        bitmap.end(stripe.extent(), self.env.timer.now());
        settled
    }

    async fn settle_marked(
        self: &Rc<ArrayCore>,
        journal: &Replayed<'_>,
        stripe: ParityStripe,
        records: &[JournalRecord],
        _marked: Proof,
    ) -> IoResult {
        if self.is_whole()
            && let Some(parity) = self.parity_of_data(stripe).await?
        {
            return self.fit_parity(stripe, parity).await;
        }
        self.check_known(journal)?;
        let unknown = journal.found.damage == JournalDamage::Unknown;
        let is_whole = matches!(
            records.last().map(|r| &r.entry),
            Some(JournalEntry::Whole(_))
        );
        if unknown && self.is_whole() && !is_whole {
            return self.lose_unreadable(stripe).await;
        }
        let mut newer = Newer::default();
        for record in records.iter().rev() {
            match &record.entry {
                // A partial write begins only once an earlier write of the whole stripe has been
                // flushed.
                JournalEntry::Whole(sums) if newer.is_empty() => {
                    return self.settle_whole(stripe, sums).await;
                }
                JournalEntry::Redo { runs, sum } => {
                    let redone = self
                        .redo(journal, stripe, record, (runs, *sum), &newer)
                        .await?;
                    match redone {
                        Redone::Torn => continue,
                        Redone::Done => {}
                        Redone::Unreadable if self.is_whole() => {
                            return self.lose_unreadable(stripe).await;
                        }
                        Redone::Unreadable => self.lose_band(stripe, runs).await?,
                    }
                    newer.add(runs);
                    newer.add(&[parity_run(stripe, runs)]);
                }
                JournalEntry::Whole(_) | JournalEntry::Retire | JournalEntry::Revoked => {}
            }
        }
        Ok(())
    }

    /// Computes the parity of a stripe's data; `None` if not all of the data can be read.
    async fn parity_of_data(self: &Rc<ArrayCore>, stripe: ParityStripe) -> IoResult<Option<Buf>> {
        let len = self.shape.chunk().bytes() as usize;
        let mut parity = self.env.pool.take(len);
        parity.fill(0);
        for column in 0..stripe.columns() {
            let buf = self.env.pool.take(len);
            match self
                .read_at_start(stripe.data(column), stripe.row(), buf)
                .await?
            {
                Some(buf) => xor(&mut parity, &buf),
                None => return Ok(None),
            }
        }
        Ok(Some(parity))
    }

    /// Reads data of a member in sync; `None` if these sectors, or the member, cannot be read.
    async fn read_at_start(
        self: &Rc<ArrayCore>,
        role: usize,
        at: Lba,
        buf: Buf,
    ) -> IoResult<Option<Buf>> {
        let Some(member) = self.in_sync(role) else {
            return Ok(None);
        };
        match self.read_retrying(role, &member, at, buf).await {
            Ok(read) => Ok(read.ok()),
            Err(error) if self.fail(&member, &error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the parity of a stripe unless it is right already.
    async fn fit_parity(self: &Rc<ArrayCore>, stripe: ParityStripe, parity: Buf) -> IoResult {
        let buf = self.env.pool.take(parity.len());
        let there = self.read_at_start(stripe.parity, stripe.row(), buf).await?;
        if there.is_some_and(|there| there[..] == parity[..]) {
            return Ok(());
        }
        self.rewrite(stripe.parity, stripe, Sectors::ZERO, parity.share())
            .await
    }

    /// Gives up the unreadable sectors of a stripe with a parity that may not fit. Zeroes take
    /// their place, and the parity is made to fit.
    async fn lose_unreadable(self: &Rc<ArrayCore>, stripe: ParityStripe) -> IoResult {
        let unit = self.geometry.block;
        let bytes = unit.bytes() as usize;
        for from in (0..self.shape.chunk().0).step_by(unit.0 as usize) {
            let from = Sectors(from);
            let mut parity = self.env.pool.take(bytes);
            parity.fill(0);
            let mut lost = Vec::new();
            for column in 0..stripe.columns() {
                let (role, at) = (stripe.data(column), stripe.row() + from);
                let buf = self.env.pool.take(bytes);
                match self.read_at_start(role, at, buf).await? {
                    Some(buf) => xor(&mut parity, &buf),
                    None => lost.push(column),
                }
            }
            for column in &lost {
                self.add_bad(stripe.place(*column, from, unit));
            }
            self.commit().await?;
            let mut zeroes = self.env.pool.take(bytes);
            zeroes.fill(0);
            let zeroes = zeroes.share();
            for column in lost {
                self.rewrite(stripe.data(column), stripe, from, zeroes.clone())
                    .await?;
            }
            self.rewrite(stripe.parity, stripe, from, parity.share())
                .await?;
        }
        Ok(())
    }

    /// Gives up the data of missing members of the stripe in `runs`: the bytes for `runs` are
    /// unknown, and may have been written or not.
    async fn lose_band(self: &Rc<ArrayCore>, stripe: ParityStripe, runs: &[ChunkRun]) -> IoResult {
        let ChunkRun { from, len, .. } = parity_run(stripe, runs);
        let missing = (0..self.slots.len()).filter(|role| !self.is_in_sync(*role));
        for column in missing.filter_map(|role| stripe.column(role)) {
            self.add_bad(stripe.place(column, from, len));
        }
        self.commit().await
    }

    /// Writes the bytes of a record that no newer record has.
    async fn redo(
        self: &Rc<ArrayCore>,
        journal: &Replayed<'_>,
        stripe: ParityStripe,
        record: &JournalRecord,
        (runs, sum): (&[ChunkRun], u32),
        newer: &Newer,
    ) -> IoResult<Redone> {
        let bytes: u64 = runs.iter().map(|run| run.len.bytes()).sum();
        let head = Sectors(record.head_bytes() as u64 / SECTOR_BYTES);
        let place = self.journals[journal.role].place(record.number) + head;
        let buf = self.env.pool.take(bytes as usize);
        let read = self
            .read_meta_retrying(journal.parity_member, place, buf)
            .await?;
        let data = match read {
            Err(_) => return Ok(Redone::Unreadable),
            Ok(data) if crc_fast::crc32_iscsi(&data) == sum => data.share(),
            Ok(_) if record.number < journal.found.durable => return Ok(Redone::Unreadable),
            Ok(_) => return Ok(Redone::Torn),
        };
        let mut from = 0;
        let mut parts = Vec::new();
        for run in runs {
            let to = from + run.len.bytes() as usize;
            parts.push((*run, data.slice(from..to)));
            from = to;
        }
        if runs.iter().all(|run| run.role() != stripe.parity) {
            parts.push(self.parity_of_parts(stripe, &parts).await);
        }
        for (run, data) in parts {
            for part in newer.leave(&run) {
                let from = (part.from - run.from).bytes() as usize;
                let data = data.slice(from..from + part.len.bytes() as usize);
                self.rewrite(run.role(), stripe, part.from, data).await?;
            }
        }
        Ok(Redone::Done)
    }

    /// Computes the parity of data that is all there, which a record leaves out.
    async fn parity_of_parts(
        &self,
        stripe: ParityStripe,
        parts: &[(ChunkRun, SharedBuf)],
    ) -> (ChunkRun, SharedBuf) {
        let run = ChunkRun {
            member: stripe.parity as u32,
            ..parts[0].0
        };
        let mut parity = self.env.pool.take(run.len.bytes() as usize);
        parity.fill(0);
        parts.iter().for_each(|(_, data)| xor(&mut parity, data));
        (run, parity.share())
    }

    async fn rewrite(
        self: &Rc<ArrayCore>,
        role: usize,
        stripe: ParityStripe,
        from: Sectors,
        data: SharedBuf,
    ) -> IoResult {
        let Some(member) = self.writable(role) else {
            return Ok(());
        };
        let there = Extent::new(
            stripe.row() + from,
            Sectors(data.len() as u64 / SECTOR_BYTES),
        );
        match member.write(there.start, data, Fua::No).await {
            Ok(()) => self.clear_lost(None, [(role, there)].into_iter()).await,
            Err(error) if !self.fail(&member, &error) => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// Completes a stripe that was being written whole. With all chunks there, the parity is
    /// computed. One chunk that cannot be read is computed if all others are new, and lost if not.
    async fn settle_whole(self: &Rc<ArrayCore>, stripe: ParityStripe, sums: &[u32]) -> IoResult {
        let len = self.shape.chunk().bytes() as usize;
        let mut parity = self.env.pool.take(len);
        let mut absent = self.env.pool.take(len);
        parity.fill(0);
        absent.fill(0);
        let (mut missing, mut all_new) = (Vec::new(), true);
        for (role, sum) in sums.iter().enumerate() {
            let buf = self.env.pool.take(len);
            match self.read_at_start(role, stripe.row(), buf).await? {
                None => missing.push(role),
                Some(buf) => {
                    all_new &= crc_fast::crc32_iscsi(&buf) == *sum;
                    xor(&mut absent, &buf);
                    if role != stripe.parity {
                        xor(&mut parity, &buf);
                    }
                }
            }
        }
        all_new &= !missing.contains(&stripe.parity);
        missing.retain(|role| *role != stripe.parity);
        if missing.is_empty() {
            return self
                .rewrite(stripe.parity, stripe, Sectors::ZERO, parity.share())
                .await;
        }
        if let [role] = missing[..]
            && all_new
        {
            // Its readable sectors may be from before.
            return self
                .rewrite(role, stripe, Sectors::ZERO, absent.share())
                .await;
        }
        for role in &missing {
            let column = stripe.column(*role).expect("not the parity");
            self.add_bad(stripe.place(column, Sectors::ZERO, self.shape.chunk()));
        }
        self.commit().await?;
        // Zeroes take their place, with a parity that fits: a present member may hold readable
        // sectors beside an unreadable one.
        let mut zeroes = self.env.pool.take(len);
        zeroes.fill(0);
        let zeroes = zeroes.share();
        for role in missing {
            self.rewrite(role, stripe, Sectors::ZERO, zeroes.clone())
                .await?;
        }
        self.rewrite(stripe.parity, stripe, Sectors::ZERO, parity.share())
            .await
    }
}
