//! The start of an array's members, once they are found, before the array serves.
//!
//! The journals of RAID 5 are replayed after a crash: every stripe's parity is made right before
//! anything is served. The cases are a table in `docs/array-format.md`. A record that cannot be
//! read is not an absent one. Each slot holds a record, nothing, a torn record, or unknown bytes. A
//! loss of power leaves a torn record; its stripe was not written yet. Unknown are
//!     a slot with a first header that cannot be read, and no legible copy
//!     a slot that lost its record, which a later record names as durable
//!
//! Invariants:
//!     a start has failed, or was given up ⟹ it asks nothing more of a member,
//!                which may be one of another start by then
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

use crate::array::Array;
use crate::core::ArrayCore;
use crate::levels::ParityStripe;
use crate::member::ArrayMember;
use crate::runs::without;
use crate::stripe::{xor, zero_buf};
use block::{
    Buf, Extent, Fua, IoErrorKind, IoResult, Lba, Nanos, Proof, SECTOR_BYTES, Sectors, SharedBuf,
};
use layout::BLOCK_BYTES;
use layout::array::bitmap;
use layout::array::journal::{ChunkRun, JournalEntry, JournalRecord};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Number of tries of a read that a start depends on, and the pause after each failure.
const READ_TRIES: u32 = 4;
const READ_PAUSE: Nanos = Nanos::from_millis(20);

/// Policy for a start when the newest data may be elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ArrayStart {
    /// Refuses such a start.
    #[default]
    Complete,
    /// Starts although absent members may hold newer data.
    WithoutAbsent,
    /// As before, and accepts older images of members, or data that an unreadable journal leaves
    /// undecided.
    Degraded,
}

impl ArrayStart {
    /// Returns the policy of a start by hand.
    pub fn by_hand(degraded: bool) -> ArrayStart {
        match degraded {
            true => ArrayStart::Degraded,
            false => ArrayStart::Complete,
        }
    }
}

/// Members that return, with their roles, and true if they lack everything.
pub(crate) type Returned = Vec<(usize, Rc<ArrayMember>, bool)>;

/// Repairs the members until they can serve, and starts the array.
pub(crate) async fn activate(
    core: Rc<ArrayCore>,
    returned: Returned,
    start: ArrayStart,
) -> IoResult<Array> {
    let starting = Starting(Some(core.clone()));
    let begun = core.until_unresponsive(begin(&core, returned, start)).await;
    if let Err(error) = begun {
        drop(starting);
        core.released().await;
        return Err(error);
    }
    starting.succeeded();
    Ok(Array::start(core))
}

/// Abandons the array unless its start succeeds.
struct Starting(Option<Rc<ArrayCore>>);

impl Starting {
    fn succeeded(mut self) {
        self.0 = None;
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(core) = &self.0 {
            core.abandon("it has not started");
        }
    }
}

async fn begin(core: &Rc<ArrayCore>, mut returned: Returned, start: ArrayStart) -> IoResult {
    let maps = read_maps(core).await;
    let outdated = leave_outdated(core, &maps, start)?;
    let maps = maps.into_iter();
    let maps: Vec<_> = maps.filter(|map| !outdated.contains(&map.role)).collect();
    let behind = leave_behind(core, &maps);
    returned.extend(give_again(core, &outdated, true));
    returned.extend(give_again(core, &behind, false));
    core.want_commit();
    core.commit().await?;
    take_over_bitmap(core, &maps).await?;
    if !core.journals.is_empty() {
        let stripes = core.replay(start == ArrayStart::Degraded).await?;
        if stripes > 0 {
            let were = match stripes {
                1 => "stripe was",
                _ => "stripes were",
            };
            core.log(format!("{stripes} {were} done again from the journal"));
        }
    }
    for (role, member, whole) in returned {
        let name = member.name.clone();
        let adopted = take_back(core, role, member, whole).await;
        // The member was missing in any case; the others carry the array, or say that they cannot.
        if let Err(error) = adopted {
            core.check_up()?;
            core.log(format!(
                "member {role}, {name}, cannot be filled: {error}; replace it, or give it again \
                 once it works"
            ));
        }
    }
    Ok(())
}

async fn take_back(
    core: &Rc<ArrayCore>,
    role: usize,
    member: Rc<ArrayMember>,
    whole: bool,
) -> IoResult {
    let claim = core.claim(role)?;
    let writes = core.entry(role).map_writes;
    let whole = whole || !core.take_marks(&member, writes).await?;
    core.adopt(claim, member, whole).await
}

/// Takes the members of `roles`, which were evicted, so that they are filled again.
fn give_again(core: &Rc<ArrayCore>, roles: &[usize], whole: bool) -> Returned {
    let of = |role: &usize| {
        let member = core.dismiss(*role)?;
        Some((*role, member, whole))
    };
    roles.iter().filter_map(of).collect()
}

/// The write-intent map of a member in sync.
struct IntentMap {
    role: usize,
    /// Number of writes of the map; `None` if no block is legible.
    writes: Option<u32>,
    blocks: Vec<Buf>,
}

impl IntentMap {
    fn is_clear(&self, core: &ArrayCore) -> bool {
        let mut clear = true;
        let array = core.meta().array;
        for (number, block) in self.blocks.iter().enumerate() {
            // The marks of a torn write may be in the sectors not reached.
            clear &= bitmap::is_of_one_write(block, array, number);
            bitmap::decode(block, array, number, |_| clear = false);
        }
        clear
    }
}

/// Reads the maps of the members in sync.
async fn read_maps(core: &Rc<ArrayCore>) -> Vec<IntentMap> {
    let mut maps = Vec::new();
    for (role, member) in core.live() {
        if core.bitmap.is_some() && core.is_in_sync(role) {
            let (writes, blocks) = core.read_map(&member).await;
            maps.push(IntentMap {
                role,
                writes,
                blocks,
            });
        }
    }
    maps
}

/// Evicts the members that lack more than one write of the map: older images of themselves.
fn leave_outdated(
    core: &Rc<ArrayCore>,
    maps: &[IntentMap],
    start: ArrayStart,
) -> IoResult<Vec<usize>> {
    let newest = maps.iter().filter_map(|map| map.writes);
    let newest = newest.reduce(bitmap::newest).unwrap_or(0);
    let is_old = |map: &&IntentMap| map.writes.is_some_and(|its| newest.wrapping_sub(its) > 1);
    let old: Vec<_> = maps.iter().filter(is_old).map(|map| map.role).collect();
    let names = |roles: &[usize]| {
        let of = |role: &usize| core.member_of(*role);
        let names = roles
            .iter()
            .filter_map(of)
            .map(|member| member.name.clone());
        names.collect::<Vec<_>>().join(", ")
    };
    let can_run = core
        .shape
        .can_run(|role| core.is_in_sync(role) && !old.contains(&role));
    if !can_run && start != ArrayStart::Degraded {
        return Err(core.error(
            IoErrorKind::Invalid,
            format!(
                "older images of members were put back ({}), and the array cannot do without them: \
                 bring back what they were, or start it degraded to take what they hold",
                names(&old)
            ),
        ));
    }
    let left = match can_run {
        true => old,
        false => Vec::new(),
    };
    if let Some(bitmap) = &core.bitmap {
        // Two interrupted starts would otherwise each begin a write that some members lack.
        let is_written = maps.iter().all(|map| map.writes == Some(newest));
        bitmap.resume_after(core, newest, is_written);
    }
    if !left.is_empty() {
        core.log(format!(
            "{} is an older image of a member; all of it is filled",
            names(&left)
        ));
    }
    left.iter().for_each(|role| core.leave(*role, true));
    core.lost_at(newest);
    Ok(left)
}

/// Evicts the members that lack the last write of the map, by which an orderly end left no marks:
/// images from right before it. Their marked regions are filled, if the others can do without them.
/// A loss of power leaves such members too, but with marks, or with a write that was torn.
fn leave_behind(core: &Rc<ArrayCore>, maps: &[IntentMap]) -> Vec<usize> {
    let newest = maps.iter().filter_map(|map| map.writes);
    let newest = newest.reduce(bitmap::newest);
    let has_last = |map: &&IntentMap| map.writes == newest;
    if !maps.iter().filter(has_last).all(|map| map.is_clear(core)) {
        return Vec::new();
    }
    let mut left = Vec::new();
    for map in maps {
        let is_behind = map.writes.is_some() && map.writes != newest;
        if is_behind && core.is_in_sync(map.role) && !core.is_needed(map.role) {
            core.leave(map.role, false);
            left.push(map.role);
        }
    }
    left
}

/// Takes over the marked regions of every member in sync.
async fn take_over_bitmap(core: &Rc<ArrayCore>, maps: &[IntentMap]) -> IoResult {
    let Some(bitmap) = &core.bitmap else {
        return Ok(());
    };
    for map in maps {
        for (number, block) in map.blocks.iter().enumerate() {
            bitmap.adopt(number, block, core.meta().array);
        }
    }
    if core.journals.is_empty() {
        core.work.suspects.add(bitmap.marked_regions());
    }
    match bitmap.is_known() {
        true => Ok(()),
        false => bitmap.write_now(core).await,
    }
}

/// Contents of a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FoundSlot {
    Record(JournalRecord),
    Empty,
    Torn,
    Unknown,
}

/// Completeness of the records that were found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum JournalDamage {
    /// All records are there.
    None,
    /// A write to the journal was cut short.
    Torn,
    /// The record of a slot cannot be known.
    Unknown,
}

/// Contents of a journal.
pub(crate) struct JournalScan {
    /// The records that are not done with, by stripe, the oldest first.
    pub stripes: BTreeMap<u64, Vec<JournalRecord>>,
    /// Completeness of these records.
    pub damage: JournalDamage,
    /// The torn and the unknown slots.
    pub illegible: Vec<u64>,
    /// Records before this one were durable.
    pub durable: u64,
    /// No record has a higher number.
    pub last: u64,
}

/// Decodes the two header blocks of slot `index`, of which one may be unreadable.
fn slot(index: u64, slots: u64, blocks: [Option<&[u8]>; 2], decode: impl Decode) -> FoundSlot {
    let records = blocks.iter().flatten().filter_map(|block| decode(block));
    let mine = records.filter(|record| record.number % slots == index);
    match (mine.max_by_key(|record| record.number), blocks[0]) {
        (Some(record), _) => FoundSlot::Record(record),
        (None, None) => FoundSlot::Unknown,
        (None, Some(first)) if first.iter().all(|byte| *byte == 0) => FoundSlot::Empty,
        (None, Some(_)) => FoundSlot::Torn,
    }
}

trait Decode: Fn(&[u8]) -> Option<JournalRecord> {}

impl<F: Fn(&[u8]) -> Option<JournalRecord>> Decode for F {}

/// Judges the slots of a journal, for an array of `count` stripes.
pub(crate) fn weigh(slots: &[FoundSlot], count: u64) -> JournalScan {
    let len = slots.len() as u64;
    let records = || {
        slots.iter().filter_map(|slot| match slot {
            FoundSlot::Record(record) => Some(record),
            _ => None,
        })
    };
    let last = records().map(|r| r.number).max().unwrap_or(0);
    let tail = records().map(|r| r.tail).max().unwrap_or(0);
    let durable = records().map(|r| r.durable).max().unwrap_or(0);
    let is_there = |number: u64| records().any(|record| record.number == number);
    // The slots of records that were done with may have been used again.
    let first = tail.max(durable.saturating_sub(len));
    let mut damage = match (first..durable).all(is_there) {
        true => JournalDamage::None,
        false => JournalDamage::Unknown,
    };
    let mut illegible = Vec::new();
    for (index, slot) in (0..).zip(slots) {
        match slot {
            FoundSlot::Record(_) | FoundSlot::Empty => continue,
            FoundSlot::Torn => damage = damage.max(JournalDamage::Torn),
            FoundSlot::Unknown => damage = JournalDamage::Unknown,
        }
        illegible.push(index);
    }
    let mut left: Vec<&JournalRecord> = records()
        .filter(|r| r.number >= tail && r.entry != JournalEntry::Retire && r.stripe < count)
        .collect();
    left.sort_by_key(|record| record.number);
    let mut stripes: BTreeMap<u64, Vec<JournalRecord>> = BTreeMap::new();
    for record in left {
        // A write of the whole stripe, or a revocation, supersedes all earlier records of the
        // stripe.
        if matches!(record.entry, JournalEntry::Whole(_) | JournalEntry::Revoked) {
            stripes.remove(&record.stripe);
        }
        if record.entry != JournalEntry::Revoked {
            stripes
                .entry(record.stripe)
                .or_default()
                .push(record.clone());
        }
    }
    let last = match damage {
        JournalDamage::None => last,
        // An illegible record may be read another time: later records must have higher numbers.
        JournalDamage::Torn | JournalDamage::Unknown => last + 2 * len,
    };
    JournalScan {
        stripes,
        damage,
        illegible,
        durable,
        last,
    }
}

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
    /// Reads the blocks of the map of `member`; zeroes where they cannot be read.
    async fn read_map(&self, member: &ArrayMember) -> (Option<u32>, Vec<Buf>) {
        let (mut writes, mut blocks) = (None, Vec::new());
        let Some(bitmap) = &self.bitmap else {
            return (writes, blocks);
        };
        for block in 0..bitmap.blocks() {
            let buf = self.env.pool.take(BLOCK_BYTES);
            let (mut buf, result) = member.read_meta(bitmap.place(block), buf).await;
            if result.is_err() {
                buf.fill(0);
            }
            let of_block = bitmap::writes(&buf, self.meta().array, block);
            writes = writes.into_iter().chain(of_block).reduce(bitmap::newest);
            blocks.push(buf);
        }
        (writes, blocks)
    }

    /// Takes over the marks of `member`, which was lost at write number `writes` of the map.
    /// Returns true if its map is of that write, of the one before or of a later one: the member
    /// then lacks the regions marked on either side, and no more. An older image of the member has
    /// a map with fewer writes.
    pub async fn take_marks(
        self: &Rc<ArrayCore>,
        member: &ArrayMember,
        writes: u32,
    ) -> IoResult<bool> {
        let Some(bitmap) = &self.bitmap else {
            return Ok(true);
        };
        let (its, blocks) = self.read_map(member).await;
        let is_older = |its: u32| bitmap::newest(its, writes.wrapping_sub(1)) != its;
        if its.is_none_or(is_older) {
            self.log(format!(
                "{} is not as it was when it was lost; all of it is filled",
                member.name
            ));
            return Ok(false);
        }
        for (number, block) in blocks.iter().enumerate() {
            bitmap.adopt(number, block, self.meta().array);
        }
        bitmap.write_now(self).await?;
        member.lacks_map.set(true);
        Ok(true)
    }

    /// Reads the journal of `role`, which `member` has.
    pub(crate) async fn find_records(
        &self,
        role: usize,
        member: &ArrayMember,
    ) -> IoResult<JournalScan> {
        let journal = &self.journals[role];
        let (array, members, chunk) = (self.meta().array, self.shape.members(), self.shape.chunk());
        let decode = |block: &[u8]| JournalRecord::decode(block, array, members, chunk);
        let mut slots = Vec::new();
        for index in 0..journal.slots() {
            let mut blocks = [None, None];
            for (copy, block) in (0..).zip(&mut blocks) {
                let at = journal.place(index) + Sectors(copy * BLOCK_BYTES as u64 / SECTOR_BYTES);
                let buf = self.env.pool.take(BLOCK_BYTES);
                *block = self.read_meta_retrying(member, at, buf).await?.ok();
            }
            let blocks = [0, 1].map(|copy: usize| blocks[copy].as_deref());
            slots.push(slot(index, journal.slots(), blocks, decode));
        }
        let count = self.geometry.sectors.0 / self.shape.width().0;
        Ok(weigh(&slots, count))
    }

    /// Reads at `at` of the device. The outer error is the loss of the member, the inner one that
    /// these bytes cannot be read.
    pub(crate) async fn read_meta_retrying(
        &self,
        member: &ArrayMember,
        at: Sectors,
        buf: Buf,
    ) -> IoResult<IoResult<Buf>> {
        self.retrying(buf, async |buf| member.read_meta(at, buf).await)
            .await
    }

    /// Does the same with data.
    pub(crate) async fn read_retrying(
        &self,
        role: usize,
        member: &ArrayMember,
        at: Lba,
        buf: Buf,
    ) -> IoResult<IoResult<Buf>> {
        self.retrying(buf, async |buf| self.read_of(role, member, at, buf).await)
            .await
    }

    async fn retrying(
        &self,
        mut buf: Buf,
        read: impl AsyncFn(Buf) -> (Buf, IoResult),
    ) -> IoResult<IoResult<Buf>> {
        let mut tries = 1;
        loop {
            let result;
            (buf, result) = read(buf).await;
            match result {
                Ok(()) => return Ok(Ok(buf)),
                Err(error) if crate::member::is_loss(&error) => return Err(error),
                Err(error) if tries == READ_TRIES => return Ok(Err(error)),
                Err(_) => self.env.timer.sleep(READ_PAUSE).await,
            }
            tries += 1;
        }
    }

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
            self.retire(journal).await?;
        }
        for (role, slots) in illegible {
            let Some(member) = self.in_sync(role) else {
                continue;
            };
            let journal = &self.journals[role];
            // The record that retires the others may have taken one.
            let free = slots.into_iter().filter(|slot| journal.is_free(*slot));
            let wiped = journal.wipe_slots(&member, free).await;
            self.judge(&member, wiped)?;
            self.commit().await?;
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
        let roles = (0..self.shape.members()).filter(|role| !self.is_in_sync(*role));
        let roles: Vec<_> = roles.map(|role| role.to_string()).collect();
        let what = format!(
            "the journal of member {} ({}) cannot be read and not all others are in sync (roles \
             {}): what was being written when the array ended cannot be known",
            journal.role,
            journal.parity_member.name,
            roles.join(", ")
        );
        if journal.confirmed {
            self.log(format!("{what}; check what was written last"));
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
        let mut parity = zero_buf(&self.env, len);
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
            let mut parity = zero_buf(&self.env, bytes);
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
            let zeroes = zero_buf(&self.env, bytes).share();
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
        let missing = (0..self.shape.members()).filter(|role| !self.is_in_sync(*role));
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
        let mut parity = zero_buf(&self.env, run.len.bytes() as usize);
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
        let written = member.write(there.start, data, Fua::No).await;
        match self.judge(&member, written)? {
            true => self.clear_lost(None, [(role, there)].into_iter()).await,
            false => Ok(()),
        }
    }

    /// Completes a stripe that was being written whole. With all chunks there, the parity is
    /// computed. One chunk that cannot be read is computed if all others are new, and lost if not.
    async fn settle_whole(self: &Rc<ArrayCore>, stripe: ParityStripe, sums: &[u32]) -> IoResult {
        let len = self.shape.chunk().bytes() as usize;
        let mut parity = zero_buf(&self.env, len);
        let mut absent = zero_buf(&self.env, len);
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
        let zeroes = zero_buf(&self.env, len).share();
        for role in missing {
            self.rewrite(role, stripe, Sectors::ZERO, zeroes.clone())
                .await?;
        }
        self.rewrite(stripe.parity, stripe, Sectors::ZERO, parity.share())
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::Uuid;

    /// A slot that cannot be read now may be read at the next start. Its record must be older then
    /// than those of this start.
    #[test]
    fn a_journal_goes_on_above_what_cannot_be_read() {
        let record = |number| {
            FoundSlot::Record(JournalRecord {
                array: Uuid::default(),
                number,
                tail: 1,
                durable: 1,
                headers: 2,
                stripe: 0,
                entry: JournalEntry::Revoked,
            })
        };
        assert_eq!(
            weigh(&[record(4), record(1), record(2), record(3)], 1).last,
            4
        );
        for unread in [FoundSlot::Unknown, FoundSlot::Torn] {
            // The two that are not read may be the fifth and the sixth.
            let slots = [record(4), unread.clone(), unread.clone(), record(3)];
            assert!(weigh(&slots, 1).last >= 6, "{unread:?}");
        }
    }
}
