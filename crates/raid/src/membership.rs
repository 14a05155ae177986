//! The current members: reading the superblocks of devices, and a look-up in the histories of these.
//!
//! A read that fails is tried once more before it counts, and none is waited for beyond its time
//! limit: a device that does not answer is one that cannot be read.
//!
//! Each start has a random identity, which its superblocks carry before those of the starts that it
//! follows. An event goes to one copy of the superblock of every live member, and to the other
//! copies once all have that. Hence
//!     an event was acknowledged ⟹ each member that was live in it has it, or one that
//!                                  follows it, in both copies
//!     a copy says that an event is sealed ⟹ each member that was live in it has it,
//!                                  or one that follows it, in a copy
//! A copy that cannot be read then hides nothing that was acknowledged. An event that a member has
//! in one of two copies only may be undone.
//!
//! Not here: the decision that an array can run (`assemble`).

#[cfg(test)]
mod tests;

use crate::superblock::{ArraySuperblock, MemberEntry, MemberState, Position, ROLE_SPARE};
use block::{
    BoxDevice, Deadline, Device, Env, Geometry, IoError, IoErrorKind, IoResult, Lba, Nanos, Sectors,
};
use layout::array::SUPERBLOCKS;
use layout::array::superblock::{VERSION, version};
use layout::{BLOCK_BYTES, Uuid};

/// Number of starts of a history that are printed.
const PRINTED_MAX: usize = 3;

/// The sound copies of a device's superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KnownMember {
    /// With the index of the copy; at least one, the newest first.
    copies: Vec<(usize, ArraySuperblock)>,
    /// The other copy cannot be read, or is no superblock of this member.
    hidden: bool,
}

/// Freshness of a member that the newest superblock knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArrayMembership {
    /// The member has everything that was acknowledged.
    Fresh,
    /// The member lacks acknowledged data: the regions marked in the write-intent bitmap, or
    /// anything.
    Stale { whole: bool },
    /// The superblocks show neither; one copy cannot be read.
    Unknown,
}

impl KnownMember {
    /// Returns `None` if neither copy is sound.
    pub fn new(copies: [Option<ArraySuperblock>; 2]) -> Option<KnownMember> {
        let mut found: Vec<_> = (0..).zip(copies).collect::<Vec<_>>();
        let hidden = found.iter().any(|(_, copy)| copy.is_none());
        found.sort_by_key(|(_, copy)| std::cmp::Reverse(copy.as_ref().map(|copy| copy.events)));
        let mut copies: Vec<_> = found
            .into_iter()
            .filter_map(|(index, copy)| Some((index, copy?)))
            .collect();
        let (_, newest) = copies.first()?;
        let is_same = |s: &ArraySuperblock| (s.array, s.member) == (newest.array, newest.member);
        let foreign = copies.iter().any(|(_, copy)| !is_same(copy));
        if foreign {
            copies.truncate(1);
        }
        let hidden = hidden || foreign;
        Some(KnownMember { copies, hidden })
    }

    pub fn newest(&self) -> &ArraySuperblock {
        &self.copies[0].1
    }

    pub fn member(&self) -> Uuid {
        self.newest().member
    }

    /// True if this is a device that waits to replace a member.
    pub fn is_spare(&self) -> bool {
        self.copies.iter().any(|(_, copy)| copy.role == ROLE_SPARE)
    }

    /// Returns the newest copy that `truth` follows.
    fn common(&self, truth: &ArraySuperblock) -> Option<&(usize, ArraySuperblock)> {
        let mut copies = self.copies.iter();
        copies.find(|(_, copy)| follows(truth, copy))
    }

    /// Returns the copy to be written first: not the one that counts.
    pub fn worse_copy(&self, truth: &ArraySuperblock) -> usize {
        1 - self.common(truth).unwrap_or(&self.copies[0]).0
    }

    /// True if both copies have `member` in sync.
    pub fn has_in_sync(&self, member: Uuid) -> bool {
        let in_sync = |e: &MemberEntry| e.uuid == member && e.state == MemberState::InSync;
        let mut copies = self.copies.iter();
        copies.all(|(_, copy)| copy.table.iter().any(in_sync))
    }

    /// True if the member has not diverged from `truth`.
    pub fn is_part_of(&self, truth: &ArraySuperblock) -> bool {
        self.common(truth).is_some()
    }

    /// True if this is a copy of the same member from before the last event of `other`.
    pub fn is_behind(&self, other: &KnownMember) -> bool {
        let (this, other) = (self.newest(), other.newest());
        follows(other, this) && !follows(this, other)
    }

    /// Prints the known starts, for people.
    pub fn history(&self) -> String {
        let short = |at: &Position| {
            let name = at.generation.to_string();
            format!("event {} of start {}", at.event, &name[..8])
        };
        let chain = self.newest().chain();
        let starts: Vec<_> = chain.iter().take(PRINTED_MAX).map(short).collect();
        starts.join(" after ")
    }

    /// Freshness of this member, which has `entry` in the table of `truth`; `None` if it diverged.
    pub fn membership(
        &self,
        truth: &ArraySuperblock,
        entry: &MemberEntry,
    ) -> Option<ArrayMembership> {
        let (_, common) = self.common(truth)?;
        Some(match entry.state {
            MemberState::Failed { whole } => ArrayMembership::Stale {
                // The missed regions are marked, unless the member was lost before it was filled,
                // or is a copy from before the loss.
                whole: whole || common.events + 1 < entry.failed_at,
            },
            _ if common.events >= truth.sealed => ArrayMembership::Fresh,
            _ if self.hidden => ArrayMembership::Unknown,
            _ => ArrayMembership::Stale { whole: true },
        })
    }
}

/// True if the event of `copy` became part of the life that led to `truth`. A spare has no say in
/// it.
fn follows(truth: &ArraySuperblock, copy: &ArraySuperblock) -> bool {
    let at = copy.position();
    let mut chain = truth.chain().into_iter();
    let is_in = chain.any(|then| then.generation == at.generation && then.event >= at.event);
    copy.role == ROLE_SPARE || is_in
}

/// Finds the newest superblock of members of one array, which speaks for all of them: each member
/// that it knows has a copy that it follows. Returns `None` if members diverged from each other, so
/// that there is none.
pub(crate) fn newest(found: &[&KnownMember]) -> Option<ArraySuperblock> {
    let copies = found.iter().flat_map(|known| &known.copies);
    let mut copies: Vec<_> = copies.map(|(_, copy)| copy).collect();
    if copies.iter().any(|copy| copy.role != ROLE_SPARE) {
        copies.retain(|copy| copy.role != ROLE_SPARE);
    }
    copies.sort_by_key(|copy| std::cmp::Reverse((copy.events, copy.generation)));
    let speaks_for_all = |truth: &&&ArraySuperblock| {
        let knows = |k: &&&KnownMember| truth.table.iter().any(|entry| entry.uuid == k.member());
        let mut known = found.iter().filter(knows);
        known.all(|known| known.is_part_of(truth))
    };
    let truth = *copies.iter().find(speaks_for_all)?;
    let same = copies.iter().filter(|c| c.position() == truth.position());
    let sealed = same.map(|copy| copy.sealed).max();
    Some(ArraySuperblock {
        sealed: sealed.unwrap_or(truth.sealed),
        ..truth.clone()
    })
}

/// Makes the history of a start that follows `truth`: with its last event, and the starts in which
/// members were lost that may still return before others.
pub(crate) fn history_after(truth: &ArraySuperblock, most: usize) -> Vec<Position> {
    let chain = truth.chain();
    let failed = truth.table.iter().filter(|entry| entry.state.is_failed());
    let lost_in = |entry: &MemberEntry| {
        let had = entry.failed_at.saturating_sub(1);
        chain.iter().rposition(|start| start.event >= had)
    };
    let needed: Vec<_> = failed.filter_map(lost_in).collect();
    let mut kept: Vec<usize> = (0..chain.len()).collect();
    while kept.len() > most {
        let others = kept.iter().rposition(|at| *at > 0 && !needed.contains(at));
        kept.remove(others.unwrap_or(kept.len() - 1));
    }
    kept.into_iter().map(|at| chain[at]).collect()
}

/// Returns the highest event of any of `found`, whether it counts or not.
pub(crate) fn last_event(found: &[&KnownMember]) -> u64 {
    let copies = found.iter().flat_map(|known| &known.copies);
    copies.map(|(_, copy)| copy.events).max().unwrap_or(0)
}

/// Time limit of a read of a superblock, if no other is given.
pub(crate) const TIMEOUT: Nanos = Nanos::from_secs(10);

/// A copy of a superblock.
enum ExaminedCopy {
    Sound(Box<ArraySuperblock>),
    /// The block is no superblock.
    None,
    /// The block may be a superblock: it cannot be read, or is damaged.
    Unknown(IoError),
}

/// Reads the superblock of a device; `None` if it has none. `Err` if there may be one that cannot
/// be read.
pub async fn examine(env: &Env, device: &BoxDevice) -> IoResult<Option<ArraySuperblock>> {
    let known = known(env, device, None).await?;
    Ok(known.map(|known| known.newest().clone()))
}

/// Reads the superblocks of a device, each within `timeout`.
pub(crate) async fn known(
    env: &Env,
    device: &BoxDevice,
    timeout: Option<Nanos>,
) -> IoResult<Option<KnownMember>> {
    let timeout = timeout.unwrap_or(TIMEOUT);
    let mut sound = [None, None];
    let mut unknown = Ok(());
    for (copy, sound) in SUPERBLOCKS.into_iter().zip(&mut sound) {
        match read_copy(env, device, copy, timeout).await {
            ExaminedCopy::Sound(superblock) => *sound = Some(*superblock),
            ExaminedCopy::None => {}
            ExaminedCopy::Unknown(error) => {
                let unresponsive = error.kind() == IoErrorKind::Timeout;
                unknown = Err(error);
                if unresponsive {
                    break;
                }
            }
        }
    }
    match KnownMember::new(sound) {
        Some(known) => Ok(Some(known)),
        None => unknown.map(|()| None),
    }
}

async fn read_copy(env: &Env, device: &BoxDevice, at: Sectors, timeout: Nanos) -> ExaminedCopy {
    let geometry = device.geometry();
    if geometry.sectors < at + Sectors(8) {
        return ExaminedCopy::None;
    }
    let mut tries = 2;
    loop {
        tries -= 1;
        let buf = env.pool.take(BLOCK_BYTES);
        let deadline = Deadline::new(&env.timer, timeout);
        let read = deadline.bound(device.read(Lba(at.0), buf)).await;
        match read {
            Some((buf, Ok(()))) => {
                return match ArraySuperblock::decode(&buf) {
                    Some(superblock) => ExaminedCopy::Sound(Box::new(superblock)),
                    None if ArraySuperblock::claims(&buf) => {
                        ExaminedCopy::Unknown(illegible(geometry, &buf))
                    }
                    None => ExaminedCopy::None,
                };
            }
            Some((_, Err(error))) if tries == 0 => return ExaminedCopy::Unknown(error),
            Some((_, Err(_))) => {}
            None => {
                let what = "no answer in time to a read of its superblock";
                return ExaminedCopy::Unknown(geometry.error(IoErrorKind::Timeout, what));
            }
        }
    }
}

/// Makes the error for a block that claims to be a superblock, but is of no use.
fn illegible(geometry: &Geometry, block: &[u8]) -> IoError {
    let what = match version(block) {
        Some(version) if version != VERSION => format!(
            "its superblock is of array format version {version}, which this hotset does not read; \
             copy what it holds with the hotset that made it, and create the array again"
        ),
        _ => "its superblock is damaged".into(),
    };
    IoError::new(IoErrorKind::Corrupt, what).on(geometry.name.to_string())
}

pub(crate) fn invalid(what: impl Into<String>) -> IoError {
    IoError::new(IoErrorKind::Invalid, what.into())
}

/// Returns the reason why a device cannot be a member, if there is one. The array has logical
/// blocks of `block`, and uses `needed` sectors of the device. Its data does not matter.
pub(crate) fn unusable(geometry: &Geometry, block: Sectors, needed: Sectors) -> Option<String> {
    let name = &geometry.name;
    if geometry.block > block {
        return Some(format!(
            "{name} has logical blocks of {} bytes, the array of {}: it counts as absent; copy it \
             to a device with smaller ones, or give another in its place",
            geometry.block.bytes(),
            block.bytes()
        ));
    }
    (geometry.sectors < needed).then(|| {
        format!(
            "{name} is smaller than it was: it needs {} MiB, and counts as absent; restore its \
             size, or give another in its place",
            needed.bytes().div_ceil(1 << 20)
        )
    })
}
