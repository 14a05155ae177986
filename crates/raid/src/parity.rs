//! RAID 5: writing stripes, and reading without a member.
//!
//! A stripe is written by one request at a time. If all of its data is new, nothing is read.
//! Otherwise the old bytes of the changed data and of the parity are read, and the difference goes
//! into the parity. Where one of these members is missing, the others' bytes of the same band are
//! read instead.
//!
//! Not here: the protection against a loss of power (`journal`).

use crate::core::ArrayCore;
use crate::journal::{StripeCover, StripeJournal};
use crate::levels::{LegPiece, ParityStripe, Roles};
use crate::maintenance::ScrubReport;
use crate::member::{ArrayMember, ExtentChange, is_loss};
use crate::stripe::{ChunkPart, StripeUpdate, bytes, rebuild_in, xor, xor_of, zeroes};
use block::{
    Access, Buf, Extent, Fua, Grant, IoError, IoErrorKind, IoResult, Lba, Proof, SECTOR_BYTES,
    Sectors, SharedBuf,
};
use futures_util::future::{join_all, try_join_all};
use layout::BLOCK_BYTES;
use layout::array::journal::{ChunkRun, JournalEntry};
use std::rc::Rc;

/// A record's headers, the bytes of its runs and the new parity, in one buffer.
struct RecordImage {
    block: Buf,
    /// Number of copies of the header.
    headers: u8,
    /// Number of bytes of runs after the headers.
    body: usize,
    /// Offset of the new parity, if any member takes parity.
    parity: Option<usize>,
}

impl ArrayCore {
    /// Changes `extent`, stripe by stripe.
    pub async fn change_parity(
        self: Rc<ArrayCore>,
        extent: Extent,
        change: ExtentChange,
    ) -> IoResult {
        let _under_way = self.begin_change();
        match change {
            ExtentChange::Data(data, fua) => self.write_stripes(extent, &data, fua).await,
            // Members that forgot bytes would leave the parity of others wrong.
            ExtentChange::Discard => Ok(()),
            ExtentChange::Zero => {
                let step = zeroes(&self.shape);
                // A task with zeroes waits for the grants of their stripes: one at a time.
                let _alone = self.limits().zeroing().await;
                let mut at = extent.start;
                while at < extent.end() {
                    let end = Lba((at.0 / step.0 + 1) * step.0).min(extent.end());
                    let grant = self.limits().zeroes(bytes(end - at)).await;
                    let mut zeroes = grant.take(bytes(end - at));
                    zeroes.fill(0);
                    let part = Extent::new(at, end - at);
                    self.write_stripes(part, &zeroes.share(), Fua::No).await?;
                    at = end;
                }
                Ok(())
            }
        }
    }

    async fn write_stripes(
        self: &Rc<ArrayCore>,
        extent: Extent,
        data: &SharedBuf,
        fua: Fua,
    ) -> IoResult {
        self.check_up()?;
        let bitmap = self.bitmap.as_ref().expect("a level with redundancy");
        let marked = bitmap.begin(self, extent).await;
        let result = match marked {
            Err(error) => Err(error),
            Ok(marked) => {
                let first = self.shape.stripe_at(extent.start).number;
                let last = self.shape.stripe_at(extent.end() + Sectors(0)).number;
                let stripes = (first..=last).map(|number| self.shape.stripe(number));
                let updates = stripes.filter_map(|stripe| {
                    let part = stripe.extent().intersect(extent);
                    let from = bytes(part.start.max(extent.start) - extent.start);
                    let part_data =
                        (!part.is_empty()).then(|| data.slice(from..from + bytes(part.len)))?;
                    Some(self.write_stripe(stripe, part, part_data, fua, &marked))
                });
                let results = join_all(updates.collect::<Vec<_>>()).await;
                // The acknowledgement needs the proof of each stripe.
                let known: IoResult<Vec<Proof>> = results.into_iter().collect();
                known.map(drop)
            }
        };
        bitmap.end(extent, self.env.timer.now());
        result
    }

    async fn write_stripe(
        self: &Rc<ArrayCore>,
        stripe: ParityStripe,
        extent: Extent,
        data: SharedBuf,
        fua: Fua,
        marked: &Proof,
    ) -> IoResult<Proof> {
        loop {
            let written = self.try_stripe(stripe, extent, &data, fua, marked);
            match Box::pin(written).await {
                Ok(Some(known)) => return Ok(known),
                Ok(None) => {}
                Err(error) => {
                    Box::pin(self.fill_parity(stripe)).await;
                    return Err(error);
                }
            }
        }
    }

    /// Returns `None` if the stripe's parity was given up first, or a member was lost before the
    /// stripe was locked.
    async fn try_stripe(
        self: &Rc<ArrayCore>,
        stripe: ParityStripe,
        extent: Extent,
        data: &SharedBuf,
        fua: Fua,
        _marked: &Proof,
    ) -> IoResult<Option<Proof>> {
        let update = StripeUpdate::new(&self.shape, stripe, extent, data, fua);
        let is_whole =
            || update.is_complete() && update.len == self.shape.chunk() && self.is_whole();
        let expected = is_whole();
        let grant = self.limits().update(&update, expected).await;
        // Bounds the records that a journal can have open.
        let slots = self.journals[stripe.parity].slots();
        let _lane = self.limits().lane(&stripe, slots).await;
        let _busy = self.lock(stripe.extent(), Access::Exclusive).await;
        let whole = is_whole();
        if expected && !whole {
            // Its record has bytes now, which need more memory.
            return Ok(None);
        }
        if !whole && self.journals[stripe.parity].has_whole(stripe.number) {
            self.flush_members().await?;
        }
        let Some(image) = self.new_parity(&update, whole, &grant).await? else {
            self.give_up_parity(&update).await?;
            return Ok(None);
        };
        let has_parity = image.parity.is_some();
        let mut put = self.put(&update, image, whole).await;
        if whole && put.is_ok() && !self.is_whole() {
            // Its record has no bytes for the chunk of a member that was lost meanwhile.
            self.flush_members().await?;
            put = self.committed().await;
        }
        if put.is_err() {
            self.mark_out_of_sync(extent);
        }
        let known = put?;
        let runs = update.parts.iter().map(|part| part.run);
        let runs = runs.chain(has_parity.then(|| update.parity_run()));
        let there = |run: ChunkRun| (run.role(), Extent::new(stripe.row() + run.from, run.len));
        let written: Vec<_> = runs.map(there).collect();
        self.clear_lost(Some(extent), written.into_iter()).await?;
        Ok(Some(known))
    }

    /// Takes room for a record's headers, the new data unless the stripe is written whole, and the
    /// new parity. A parity that follows from complete data is no part of a record. Returns `None`
    /// if the parity cannot be computed, and the old one is of no use.
    async fn new_parity(
        self: &Rc<ArrayCore>,
        update: &StripeUpdate,
        whole: bool,
        grant: &Grant,
    ) -> IoResult<Option<RecordImage>> {
        let parts: &[ChunkPart] = if whole { &[] } else { &update.parts };
        let data: usize = parts.iter().map(|part| part.data.len()).sum();
        let mut takes_parity = self.writable(update.stripe.parity).is_some();
        let parity_len = if takes_parity { bytes(update.len) } else { 0 };
        let follows = update.is_complete();
        let body = data + if follows { 0 } else { parity_len };
        let headers = self.journals[update.stripe.parity].headers(body, data + parity_len - body);
        let at = usize::from(headers) * BLOCK_BYTES + data;
        let (mut head, mut parity) = grant.take(at + parity_len).split_at(at);
        if takes_parity {
            parity = match self.difference(update, parity, grant).await {
                Ok(parity) => parity,
                Err(parity) => match self.from_band(update, parity, grant).await? {
                    Some(parity) => parity,
                    None if self.is_gap(update.stripe.parity, update.band()) => {
                        takes_parity = false;
                        self.env.pool.take(BLOCK_BYTES)
                    }
                    None => return Ok(None),
                },
            };
        }
        let mut to = at - data;
        for part in parts {
            head[to..to + part.data.len()].copy_from_slice(&part.data);
            to += part.data.len();
        }
        let block = match takes_parity {
            true => Buf::join(vec![head, parity], &self.env.pool),
            false => head,
        };
        Ok(Some(RecordImage {
            block,
            headers,
            body,
            parity: takes_parity.then_some(at),
        }))
    }

    /// Gives up the stripe's parity in the band of `update`: nothing is computed from it, and no
    /// record restores it.
    async fn give_up_parity(self: &Rc<ArrayCore>, update: &StripeUpdate) -> IoResult {
        self.add_gap(update.stripe.parity, update.band());
        self.flush_members().await?;
        self.retire(&self.journals[update.stripe.parity]).await
    }

    /// True if nothing can be computed from the parity in the band of `update` once that is
    /// written. The data of the roles `lost` cannot be read there. Either the parity was given up
    /// before. Or two data chunks cannot be read, of which one is a gap of its member, and one is
    /// overwritten.
    fn outdates_parity(&self, update: &StripeUpdate, lost: Roles) -> bool {
        let parity = update.stripe.parity;
        let is_gap = |role: usize| self.is_gap(role, update.band());
        let data: Vec<_> = lost.iter().filter(|role| *role != parity).collect();
        let is_outdated = || {
            let mut all = data.iter().copied();
            data.len() == 2 && all.clone().any(is_gap) && all.any(|role| update.overwrites(role))
        };
        self.is_whole() && !data.is_empty() && (is_gap(parity) || is_outdated())
    }

    /// Computes the new parity from the old one and the old data; gives the buffer back if these
    /// cannot all be read, or need not be.
    async fn difference(
        self: &Rc<ArrayCore>,
        update: &StripeUpdate,
        parity: Buf,
        grant: &Grant,
    ) -> Result<Buf, Buf> {
        let old = update.parts.iter().map(|p| self.in_sync(p.run.role()));
        let holder = self.in_sync(update.stripe.parity);
        let (Some(old), Some(holder)) = (old.collect::<Option<Vec<_>>>(), holder) else {
            return Err(parity);
        };
        if update.is_complete() {
            return Err(parity);
        }
        let row = update.stripe.row();
        let len = parity.len();
        let mut rest = grant.take(update.data_bytes());
        let mut reads = Vec::new();
        for (part, member) in update.parts.iter().zip(&old) {
            let (mine, tail) = rest.split_at(part.data.len());
            reads.push((part.run.role(), member, row + part.run.from, mine));
            rest = tail;
        }
        let reads = reads.into_iter().map(|(role, member, at, buf)| async move {
            let (buf, result) = self.read_of(role, member, at, buf).await;
            self.judge_read(member, &result);
            result.map(|()| buf)
        });
        let (role, at) = (update.stripe.parity, row + update.from);
        let read_parity = self.read_of(role, &holder, at, parity);
        let both = futures_util::future::join(read_parity, try_join_all(reads)).await;
        let ((mut parity, result), old) = both;
        self.judge_read(&holder, &result);
        let (Ok(()), Ok(old)) = (result, old) else {
            return Err(parity);
        };
        debug_assert_eq!(parity.len(), len);
        for (part, old) in update.parts.iter().zip(old) {
            let range = update.inside(part);
            xor(&mut parity[range.clone()], &old);
            xor(&mut parity[range], &part.data);
        }
        Ok(parity)
    }

    /// Computes the new parity from all data of the band, one chunk of which may have to be
    /// computed from the others.
    async fn from_band(
        self: &Rc<ArrayCore>,
        update: &StripeUpdate,
        mut parity: Buf,
        grant: &Grant,
    ) -> IoResult<Option<Buf>> {
        if update.is_complete() {
            xor_of(&mut parity, update.parts.iter().map(|part| &part.data[..]));
            return Ok(Some(parity));
        }
        let (stripe, len) = (update.stripe, bytes(update.len));
        let roles: Vec<usize> = (0..self.shape.members()).collect();
        let all = grant.take(len * roles.len());
        let at = stripe.row() + update.from;
        let (mut band, lost) = self.read_band(at, &roles, all).await;
        // Overwritten data need not be known.
        let unknown = |role: &usize| *role != stripe.parity && !update.overwrites(*role);
        let unknown: Vec<_> = lost.iter().filter(unknown).collect();
        if !unknown.is_empty() && self.outdates_parity(update, lost) {
            return Ok(None);
        }
        if !unknown.is_empty() && lost.iter().count() > 1 {
            let what = "two members cannot be read; these sectors cannot be written in part";
            return Err(self.two_illegible(what).at(stripe.extent()));
        }
        if let [lost] = unknown[..] {
            rebuild_in(&mut band, len, lost);
        }
        for part in &update.parts {
            let chunk = &mut band[part.run.role() * len..][..len];
            chunk[update.inside(part)].copy_from_slice(&part.data);
        }
        let data = band.chunks_exact(len).enumerate();
        let data = data.filter(|(role, _)| *role != stripe.parity);
        xor_of(&mut parity, data.map(|(_, chunk)| chunk));
        Ok(Some(parity))
    }

    /// Computes the parity of `stripe` where it was given up. Otherwise the loss of another member
    /// would take data that can be read.
    async fn fill_parity(self: &Rc<ArrayCore>, stripe: ParityStripe) {
        let all = Extent::new(stripe.row(), self.shape.chunk());
        if self.check_gaps(stripe.parity, all).is_err() {
            let mut report = ScrubReport::default();
            // A gap that is left is filled in the background.
            let _ = self.scrub_extent(stripe.extent(), false, &mut report).await;
        }
    }

    /// Journals an update and writes it in place.
    async fn put(
        self: &Rc<ArrayCore>,
        update: &StripeUpdate,
        image: RecordImage,
        whole: bool,
    ) -> IoResult<Proof> {
        let (stripe, parity) = (update.stripe, image.parity);
        let (block, headers, body) = (image.block, image.headers, image.body);
        let journal = &self.journals[stripe.parity];
        let parity_member = self.in_sync(stripe.parity).filter(|_| parity.is_some());
        let (mut record, mut recorded) = (None, None);
        let shared = match parity_member {
            None => block.share(),
            Some(parity_member) => {
                let entry = match whole {
                    true => self.sums(update, &block[parity.expect("it has a parity member")..]),
                    false => {
                        let parity = (!update.is_complete()).then(|| update.parity_run());
                        let runs = update.parts.iter().map(|p| p.run).chain(parity);
                        let head = usize::from(headers) * BLOCK_BYTES;
                        JournalEntry::Redo {
                            runs: runs.collect(),
                            sum: crc_fast::crc32_iscsi(&block[head..head + body]),
                        }
                    }
                };
                let image = (block, headers, body);
                let flush = async || self.flush_members().await;
                let written = journal.write(&parity_member, stripe.number, entry, image, flush);
                let (number, shared, written) = written.await;
                record = number;
                match written {
                    Ok(written) => recorded = Some(written),
                    Err(error) if !self.fail(&parity_member, &error) => {
                        journal.end(record, false);
                        return Err(error);
                    }
                    Err(_) => {}
                }
                shared
            }
        };
        // The record makes parity durable; data must be even if the record is lost with its member.
        let parity_fua = match record {
            Some(_) if !whole && self.is_in_sync(stripe.parity) => Fua::No,
            _ => update.fua,
        };
        // Without a record, a reader of the data must know that its parity is out of sync.
        let cover = match recorded {
            Some(recorded) => Ok(StripeCover::Record(recorded)),
            None => {
                let without = self.commit_without(stripe.parity, update.band()).await;
                without.map(StripeCover::NoParity)
            }
        };
        let result = match cover {
            Ok(cover) => {
                let parity = parity.map(|at| (at, parity_fua));
                self.put_in_place(update, shared, parity, cover).await
            }
            Err(error) => Err(error),
        };
        journal.end(record, result.is_ok());
        self.make_room_early(journal);
        result
    }

    /// Flushes the members once half of a journal's slots are taken: later changes need not wait
    /// for room.
    fn make_room_early(self: &Rc<ArrayCore>, journal: &StripeJournal) {
        if !journal.is_half_full() || self.makes_room.replace(true) {
            return;
        }
        let core = self.clone();
        self.env.spawn.spawn(async move {
            // A change that finds no room flushes too, and meets the error.
            let _ = core.flush_members().await;
            core.makes_room.set(false);
            core.room_made.notify();
        });
    }

    fn sums(&self, update: &StripeUpdate, parity: &[u8]) -> JournalEntry {
        let mut sums = vec![crc_fast::crc32_iscsi(parity); self.shape.members()];
        for part in &update.parts {
            sums[part.run.role()] = crc_fast::crc32_iscsi(&part.data);
        }
        JournalEntry::Whole(sums)
    }

    async fn put_in_place(
        self: &Rc<ArrayCore>,
        update: &StripeUpdate,
        block: SharedBuf,
        parity: Option<(usize, Fua)>,
        _cover: StripeCover,
    ) -> IoResult<Proof> {
        let row = update.stripe.row();
        let data = update
            .parts
            .iter()
            .map(|part| (part.run, part.data.clone(), update.fua));
        let parity = parity.map(|(at, fua)| {
            let data = block.slice(at..block.len());
            (update.parity_run(), data, fua)
        });
        let writes = data.chain(parity).filter_map(|(run, data, fua)| {
            let member = self.writable(run.role())?;
            Some(async move {
                let result = member.write(row + run.from, data, fua).await;
                (member, result)
            })
        });
        let writes: Vec<_> = writes.collect();
        let mut failed: Option<IoError> = None;
        for (member, result) in join_all(writes).await {
            failed = self.judge(&member, result).err().or(failed);
        }
        if let Some(error) = failed {
            self.check_up()?;
            self.lose_missing(update).await?;
            return Err(error);
        }
        let known = self.committed().await?;
        self.check_up()?;
        Ok(known)
    }

    /// Gives up what does not follow from the others in the band of `update`, since not all of them
    /// have taken the update: the data of missing members, or the parity if none is missing.
    async fn lose_missing(self: &Rc<ArrayCore>, update: &StripeUpdate) -> IoResult {
        if self.is_whole() {
            self.add_gap(update.stripe.parity, update.band());
        }
        let missing = (0..self.shape.members()).filter(|role| !self.is_in_sync(*role));
        for column in missing.filter_map(|role| update.stripe.column(role)) {
            let lost = update.stripe.place(column, update.from, update.len);
            self.add_bad(lost);
        }
        self.commit().await
    }

    /// Reads a piece of a member that cannot be read itself. `missing` means that the member was
    /// not in sync.
    pub async fn read_from_others(
        self: &Rc<ArrayCore>,
        piece: LegPiece,
        missing: bool,
        mut buf: Buf,
    ) -> (Buf, IoResult) {
        let stripe = self.shape.stripe_at(piece.extent.start);
        let leg = piece.legs()[0];
        let grant = self.limits().reconstruct(0, buf.len()).await;
        let _busy = self.lock(stripe.extent(), Access::Shared).await;
        // Updates were cut short, which only replaying the journals makes whole.
        if let Some(why) = self.why_down() {
            let what = format!("what a missing member held cannot be computed: {why}");
            return (buf, Err(self.error(IoErrorKind::Gone, what)));
        }
        // A rebuild may have ended while this waited for it, and another member may have been lost
        // since.
        if let Some(member) = self.in_sync(leg.member).filter(|_| missing) {
            let result;
            (buf, result) = self.read_of(leg.member, &member, leg.at, buf).await;
            self.judge_read(&member, &result);
            if result.is_ok() {
                return (buf, Ok(()));
            }
        }
        self.reconstruct(stripe, leg.member, leg.at - stripe.row(), buf, &grant)
            .await
    }

    /// Computes the data of `role` from `from` on in its chunk of `stripe`. No write to the stripe
    /// may be in flight. Takes memory from `grant` and gives it back.
    pub async fn reconstruct(
        self: &Rc<ArrayCore>,
        stripe: ParityStripe,
        role: usize,
        from: Sectors,
        mut buf: Buf,
        grant: &Grant,
    ) -> (Buf, IoResult) {
        let others: Vec<usize> = (0..self.shape.members()).filter(|r| *r != role).collect();
        let step = self.limits().step(buf.len());
        let mut done = 0;
        while done < buf.len() {
            let len = step.min(buf.len() - done);
            let all = grant.take(len * others.len());
            let at = stripe.row() + from + Sectors((done / SECTOR_BYTES as usize) as u64);
            let (all, lost) = self.read_band(at, &others, all).await;
            if !lost.is_empty() {
                grant.give_back(all);
                let error = self.two_illegible("another member cannot be read either");
                return (buf, Err(error));
            }
            xor_of(&mut buf[done..done + len], all.chunks_exact(len));
            grant.give_back(all);
            done += len;
        }
        (buf, Ok(()))
    }

    /// Makes the error for data that needs two unreadable members: the array is lost, or sectors
    /// are.
    fn two_illegible(&self, what: &'static str) -> IoError {
        let roles = 0..self.shape.members();
        let missing = roles.filter(|role| self.in_sync(*role).is_none()).count();
        let is_lost = missing > 1 || self.is_down();
        let kind = match is_lost {
            true => IoErrorKind::Gone,
            false => IoErrorKind::Media,
        };
        self.error(kind, what)
    }

    /// Reads the same run of all `roles` into `all`; returns the roles that could not be read.
    async fn read_band(self: &Rc<ArrayCore>, at: Lba, roles: &[usize], all: Buf) -> (Buf, Roles) {
        let len = all.len() / roles.len();
        let (mut reads, mut rest) = (Vec::new(), all);
        for role in roles {
            let (mine, tail) = rest.split_at(len);
            reads.push(async move {
                let Some(member) = self.in_sync(*role) else {
                    return (mine, false);
                };
                let (mine, result) = self.read_of(*role, &member, at, mine).await;
                self.judge_read(&member, &result);
                (mine, result.is_ok())
            });
            rest = tail;
        }
        drop(rest);
        let (mut parts, mut lost) = (Vec::with_capacity(roles.len()), Roles::default());
        for (role, (part, good)) in roles.iter().zip(join_all(reads).await) {
            if !good {
                lost.add(*role);
            }
            parts.push(part);
        }
        (Buf::join(parts, &self.env.pool), lost)
    }

    pub fn judge_read(self: &Rc<ArrayCore>, member: &ArrayMember, result: &IoResult) {
        if let Err(error) = result
            && is_loss(error)
        {
            self.fail(member, error);
        }
    }
}
