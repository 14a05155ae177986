//! The start of an array's members, once they are found, before the array serves.
//!
//! Invariant: a start has failed, or was given up ⟹ it asks nothing more of a member,
//!            which may be one of another start by then

use crate::array::Array;
use crate::core::ArrayCore;
use crate::member::ArrayMember;
use block::{Buf, IoErrorKind, IoResult, Version};
use layout::BLOCK_BYTES;
use layout::array::bitmap;
use std::rc::{Rc, Weak};

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
            core.log(format!(
                "{}: {stripes} {} done again from the journal",
                core.name,
                if stripes == 1 {
                    "stripe was"
                } else {
                    "stripes were"
                }
            ));
        }
    }
    for (role, member, whole) in returned {
        let name = member.name.clone();
        let adopted = take_back(core, role, member, whole).await;
        // The member was missing in any case; the others carry the array, or say that they cannot.
        if let Err(error) = adopted {
            core.check_up()?;
            core.log(format!(
                "{}: member {role}, {name}, cannot be filled: {error}; replace it, or give it \
                 again once it works",
                core.name
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
        let member = core.slots[*role].member.take()?;
        // The member is asked again, as one that is about to take a role.
        *member.array.borrow_mut() = Weak::new();
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

impl ArrayCore {
    /// Reads the blocks of the map of `member`; zeroes where they cannot be read.
    async fn read_map(&self, member: &ArrayMember) -> (Option<u32>, Vec<Buf>) {
        let (mut writes, mut blocks) = (None, Vec::new());
        let bitmap = self.bitmap.as_ref();
        for (block, bitmap) in bitmap
            .iter()
            .flat_map(|b| (0..b.blocks()).map(move |i| (i, b)))
        {
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
                "{}: {} is not as it was when it was lost; all of it is filled",
                self.name, member.name
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
        let of = |role: &usize| core.slots[*role].member.borrow().clone();
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
        bitmap.resume_after(newest, is_written);
    }
    if !left.is_empty() {
        core.log(format!(
            "{}: {} is an older image of a member; all of it is filled",
            core.name,
            names(&left)
        ));
    }
    left.iter().for_each(|role| core.leave(*role, true));
    // The members that this start evicted were lost at the present write of the map.
    for (role, slot) in core.slots.iter().enumerate() {
        if core.state(role).is_failed() && slot.lost_from.get() > Version::default() {
            core.set_entry(role, |entry| entry.map_writes = newest);
        }
    }
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
        *core.unsynced.borrow_mut() = bitmap.marked_regions().into_iter().collect();
    }
    match bitmap.is_known() {
        true => Ok(()),
        false => bitmap.write_now(core).await,
    }
}
