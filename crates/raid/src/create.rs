//! Making arrays.
//!
//! Not here: finding the array of a device (`assemble`).

use crate::array::Array;
use crate::bitmap::region_for;
use crate::core::ArrayCore;
use crate::levels::{ArrayShape, Level};
use crate::member::{ArrayMember, ExtentChange, MemberCandidate, ended_on};
use crate::members::{ArrayParts, Meta, Options, Past, Roster};
use crate::membership::{TIMEOUT, examine, invalid};
use crate::stripe::zero_buf;
use crate::superblock::{MEMBER_SECTORS_MAX, MemberEntry, NAME_BYTES_MAX};
use block::{Device, Env, Extent, IoErrorKind, IoResult, Lba, Sectors};
use futures_util::future::{join_all, try_join_all};
use layout::array::bitmap;
use layout::array::journal::slot_sectors;
use layout::array::{ALIGNMENT, BITMAP, JOURNAL, SUPERBLOCKS};
use layout::{BLOCK_BYTES, Uuid};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Number of records in the journal of a member: more of them let more stripes be written between
/// two flushes (the bench group `array-throughput`).
const JOURNAL_SLOTS: RangeInclusive<u64> = 16..=64;
/// Size limit of the records beyond the least number; a sixteenth of the member limits them too.
const JOURNAL_SIZE: Sectors = Sectors::from_mib(32);
/// Sectors that are zeroed between two flushes when an array is made, since a server may have
/// buffered them in memory.
const ZEROED_MAX: u64 = 1 << 19;
/// Members from this size on are not used to the end: between a half and one and a half of a part
/// in this many, rounded down to a power of two, is left.
const SLACK_FROM: Sectors = Sectors::from_mib(16 << 10);
const SLACK_PART: u64 = 1024;
/// Blocks that are sampled of a member that should read as zeroes, first to last.
const SAMPLES: u64 = 32;

/// Properties of a new array.
#[derive(Clone, Debug)]
pub struct ArrayPlan {
    /// Name of the array.
    pub name: String,
    /// Level of the array.
    pub level: Level,
    /// Chunk of striped levels.
    pub chunk: Sectors,
    /// True if members may be overwritten that belong to an array.
    pub overwrite: bool,
    /// True if the members are known to read as zeroes all over, as new images do. They are not
    /// zeroed then, which takes hours on large disks. If that is wrong, copies differ and parity
    /// does not fit in sectors that were never written; a sample of each member is read, and a
    /// sample that is not zero is refused.
    pub zeroed: bool,
}

/// Returns the number of records on members of which the smallest has `member` sectors.
fn journal_slots(slot: Sectors, member: Sectors) -> u32 {
    let size = JOURNAL_SIZE.0.min(member.0 / 16);
    let (least, most) = JOURNAL_SLOTS.into_inner();
    (size / slot.0).clamp(least, most) as u32
}

/// Returns the used size of a member of `size`. Levels that can replace a member use less than
/// there is, as another drive of as many gigabytes may be a little smaller.
fn used(level: Level, size: Sectors, data_at: Sectors) -> Sectors {
    let room = Sectors(size.0.saturating_sub(data_at.0));
    if !level.is_redundant() || size < SLACK_FROM {
        return room;
    }
    let unit = 1 << (size.0 / SLACK_PART).ilog2();
    Sectors((room.0 - unit / 2) / unit * unit)
}

fn smallest(candidates: &[MemberCandidate]) -> Sectors {
    let sizes = candidates.iter().map(|c| c.device.geometry().sectors);
    sizes.min().unwrap_or_default()
}

fn block_of(candidates: &[MemberCandidate]) -> Sectors {
    let blocks = candidates.iter().map(|c| c.device.geometry().block);
    blocks.max().unwrap_or(Sectors(8))
}

/// Makes an array without superblocks over whole devices, for the levels without redundancy.
/// Earlier operations on the devices have ended by then.
pub async fn raw(
    env: &Env,
    name: &str,
    level: Level,
    candidates: Vec<MemberCandidate>,
    chunk: Sectors,
    options: Options,
) -> IoResult<Array> {
    if level.is_redundant() {
        return Err(invalid(format!(
            "{} needs superblocks, or a stale member would be taken for a current one after a \
             restart; create it instead",
            level.name()
        )));
    }
    let timeout = options.timeout.unwrap_or(TIMEOUT);
    let ended = candidates.iter().map(|c| ended_on(env, &c.device, timeout));
    join_all(ended).await.into_iter().collect::<IoResult>()?;
    let sizes: Vec<_> = candidates
        .iter()
        .map(|c| c.device.geometry().sectors)
        .collect();
    let shape = ArrayShape::new(level, &sizes, chunk)?;
    let block = block_of(&candidates);
    let members = candidates.into_iter().map(|candidate| {
        let (timeout, env) = (options.timeout, env.clone());
        let member = ArrayMember::new(candidate, Uuid::default(), Sectors::ZERO, timeout, env);
        Some(Rc::new(member))
    });
    let parts = ArrayParts {
        name: name.into(),
        block,
        members: members.collect(),
        spares: Vec::new(),
        meta: None,
        past: Past::default(),
        roster: Roster {
            table: vec![MemberEntry::default(); sizes.len()],
            ..Roster::default()
        },
        shape,
    };
    let core = ArrayCore::new(parts, env.clone(), options)?;
    core.keep_no_roster();
    Ok(Array::start(core))
}

/// Refuses an array that the format has no room for, whatever its members are.
pub fn check_form(name: &str, level: Level, members: usize, chunk: Sectors) -> IoResult {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(invalid(format!(
            "the name {name:?} does not fit: give from 1 to {NAME_BYTES_MAX} bytes"
        )));
    }
    let room = vec![Sectors::from_mib(1 << 20); members];
    ArrayShape::new(level, &room, chunk)?;
    let slot = slot_sectors(members, chunk);
    if level.has_parity() && slot.bytes() > block::BUF_BYTES_MAX as u64 {
        let most = block::BUF_BYTES_MAX / members / BLOCK_BYTES;
        return Err(invalid(format!(
            "stripes of {members} chunks of {} KiB are too large: give a chunk of less than {} KiB",
            chunk.bytes() >> 10,
            most * 4
        )));
    }
    Ok(())
}

/// Refuses devices that belong to an array.
async fn are_free(env: &Env, devices: impl Iterator<Item = &MemberCandidate>) -> IoResult {
    for candidate in devices {
        if let Some(found) = examine(env, &candidate.device).await? {
            return Err(invalid(format!(
                "{} belongs to array {}; confirm that it may be overwritten",
                candidate.device.geometry().name,
                found.name
            )));
        }
    }
    Ok(())
}

/// The shape of a new array, and the places of its metadata.
fn placed(
    plan: &ArrayPlan,
    candidates: &[MemberCandidate],
    array: Uuid,
) -> IoResult<(ArrayShape, Meta)> {
    let slot = slot_sectors(candidates.len(), plan.chunk);
    let journal_slots = match plan.level.has_parity() {
        true => journal_slots(slot, smallest(candidates)),
        false => 0,
    };
    let meta_end = JOURNAL.0 + u64::from(journal_slots) * slot.0;
    let shape_at = |data_at: Sectors| {
        let room = |c: &MemberCandidate| used(plan.level, c.device.geometry().sectors, data_at);
        let sizes: Vec<_> = candidates.iter().map(room).collect();
        if sizes.iter().any(|size| *size >= MEMBER_SECTORS_MAX) {
            return Err(invalid("a member of 512 PiB or more: give smaller ones"));
        }
        ArrayShape::new(plan.level, &sizes, plan.chunk)
    };
    // A bitmap that is not small lies before the data, which leaves less room for data.
    let aligned = |end: u64| Sectors(end.next_multiple_of(ALIGNMENT.0));
    let most = shape_at(aligned(meta_end))?;
    let region = region_for(most.sectors(), most.width());
    let regions = most.sectors().0.div_ceil(region.0);
    let data_at = aligned(meta_end + bitmap::before_data(regions as usize).0);
    let shape = shape_at(data_at)?;
    let meta = Meta {
        array,
        data_at,
        region: region_for(shape.sectors(), shape.width()),
        journal_slots,
    };
    Ok((shape, meta))
}

/// Makes an array of `candidates`, in this order, with `spares`. Their data is lost. Redundant
/// levels zero the members, so that copies agree and parity fits, unless [`ArrayPlan::zeroed`] is set.
pub async fn create(
    env: &Env,
    plan: &ArrayPlan,
    candidates: Vec<MemberCandidate>,
    spares: Vec<MemberCandidate>,
    fresh: &mut dyn FnMut() -> Uuid,
    options: Options,
) -> IoResult<Array> {
    check_form(&plan.name, plan.level, candidates.len(), plan.chunk)?;
    if !plan.overwrite {
        are_free(env, candidates.iter().chain(&spares)).await?;
    }
    let (shape, meta) = placed(plan, &candidates, fresh())?;
    let (block, data_at) = (block_of(&candidates), meta.data_at);
    let new = |candidate: MemberCandidate, uuid| {
        Rc::new(ArrayMember::new(
            candidate,
            uuid,
            data_at,
            options.timeout,
            env.clone(),
        ))
    };
    let (mut members, mut roster) = (Vec::new(), Roster::default());
    for (role, candidate) in candidates.into_iter().enumerate() {
        let entry = MemberEntry {
            uuid: fresh(),
            sectors: shape.member_sectors(role),
            ..MemberEntry::default()
        };
        members.push(Some(new(candidate, entry.uuid)));
        roster.table.push(entry);
    }
    let spares: Vec<_> = spares
        .into_iter()
        .map(|spare| new(spare, fresh()))
        .collect();
    let parts = ArrayParts {
        name: plan.name.as_str().into(),
        shape,
        block,
        members,
        spares: Vec::new(),
        meta: Some(meta),
        past: Past {
            generation: fresh(),
            ..Past::default()
        },
        roster,
    };
    let core = ArrayCore::new(parts, env.clone(), options)?;
    let fills = core
        .live()
        .into_iter()
        .map(|(role, member)| prepare(&core, role, member, plan.zeroed));
    try_join_all(fills).await?;
    core.want_commit();
    core.commit().await?;
    for spare in spares {
        core.check_spare(spare.device.geometry())?;
        core.write_spare(&spare).await?;
        core.put_spare(spare);
    }
    Ok(Array::start(core))
}

/// Removes all metadata from a new member that could be taken for this array's.
async fn prepare(
    core: &Rc<ArrayCore>,
    role: usize,
    member: Rc<ArrayMember>,
    zeroed: bool,
) -> IoResult {
    if zeroed && core.shape.level().is_redundant() {
        check_zeroes(core, role, &member).await?;
    }
    for copy in SUPERBLOCKS {
        let zeroes = zero_buf(&core.env, BLOCK_BYTES);
        member.write_meta(copy, zeroes.share()).await?;
    }
    if let Some(journal) = core.journals.get(role) {
        journal.wipe(&member).await?;
    }
    for block in 0..core.bitmap.as_ref().map_or(1, |bitmap| bitmap.blocks()) {
        let mut buf = core.env.pool.take(BLOCK_BYTES);
        bitmap::encode(&mut buf, core.meta().array, block, 0, &[]);
        let place = core
            .bitmap
            .as_ref()
            .map_or(BITMAP, |bitmap| bitmap.place(block));
        member.write_meta(place, buf.share()).await?;
    }
    if core.shape.level().is_redundant() && !zeroed {
        let all = core.shape.member_sectors(role).0;
        for start in (0..all).step_by(ZEROED_MAX as usize) {
            let len = ZEROED_MAX.min(all - start);
            let extent = Extent::new(Lba(start), Sectors(len));
            member.change(extent, ExtentChange::Zero).await?;
            member.flush().await?;
        }
    }
    Ok(())
}

/// Refuses a member that is not zero, as far as a sample shows.
async fn check_zeroes(core: &Rc<ArrayCore>, role: usize, member: &ArrayMember) -> IoResult {
    let block = Sectors(BLOCK_BYTES as u64 / block::SECTOR_BYTES);
    let last = (core.shape.member_sectors(role).0 / block.0).saturating_sub(1);
    for sample in 0..SAMPLES {
        let at = Sectors(last * sample / (SAMPLES - 1) * block.0);
        let buf = core.env.pool.take(BLOCK_BYTES);
        let (buf, result) = member.read_meta(core.meta().data_at + at, buf).await;
        result?;
        if buf.iter().any(|byte| *byte != 0) {
            let what = "it holds data, though it was said to read as zeroes; have it zeroed";
            return Err(member.device.geometry().error(IoErrorKind::Invalid, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_members_leave_room_for_a_smaller_replacement() {
        let data_at = Sectors(2048);
        let of = |level, size: Sectors| used(level, size, data_at);
        let small = Sectors::from_mib(8);
        assert_eq!(of(Level::Raid1, small), small - data_at);
        for gb in [16 * 1100, 500_107, 4_000_787, 20_000_588] {
            let size = Sectors(gb * 1_000_000 / 512);
            assert_eq!(of(Level::Raid0, size), size - data_at);
            let left = size - of(Level::Raid5, size);
            assert!(left.0 >= size.0 / 4096, "{gb}: {left:?}");
            assert!(left.0 <= size.0 / 512, "{gb}: {left:?}");
        }
    }

    #[test]
    fn journals_have_more_records_where_these_are_small_beside_the_member() {
        let gib = |gib: u64| Sectors::from_mib(gib << 10);
        let record = |mib| Sectors::from_mib(mib);
        for (slot, member, slots) in [
            (Sectors(264), Sectors::from_mib(8), 16),
            (Sectors(264), Sectors::from_mib(66), 32),
            (Sectors(264), gib(1), 64),
            (record(1), gib(1024), 32),
            (record(4), gib(1024), 16),
        ] {
            assert_eq!(journal_slots(slot, member), slots, "{slot:?}, {member:?}");
        }
    }
}
