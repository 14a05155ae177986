//! Lines seen lately that are not resident: when, and how often.
//!
//! A set-associative table of four-byte entries that never fails to insert: the
//! oldest entry of a set makes room. Tags of 14 bits take another line for this
//! one once in two thousand look-ups, which costs a little precision only.

use crate::LineKey;
use crate::index::mix;

const WAYS: usize = 8;
const TIME_BITS: u32 = 14;
const TAG_BITS: u32 = 14;
const TIME_MASK: u32 = (1 << TIME_BITS) - 1;

/// Tag, time in units of 8 ticks, count; zero if empty (a count is never zero).
#[derive(Clone, Debug)]
pub(crate) struct Ghosts {
    sets: Vec<[u32; WAYS]>,
}

/// The memory of a ghost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ghost {
    pub(crate) age: u32,
    pub(crate) count: u8,
}

/// Ticks in a unit of a ghost's time: ages up to 2^17 ticks are distinguished.
const TICKS_PER_UNIT: u32 = 8;

impl Ghosts {
    /// Room for about `lines` ghosts.
    pub(crate) fn new(lines: u32) -> Ghosts {
        Ghosts {
            sets: vec![[0; WAYS]; (lines as usize).div_ceil(WAYS).max(1)],
        }
    }

    fn place(&self, key: LineKey) -> (usize, u32) {
        let hash = mix(key.0);
        let set = ((hash >> 32) * self.sets.len() as u64) >> 32;
        let tag = hash as u32 & ((1 << TAG_BITS) - 1);
        (set as usize, tag << (32 - TAG_BITS))
    }

    /// Forgets and returns the record of `key`.
    pub(crate) fn take(&mut self, key: LineKey, now: u32) -> Option<Ghost> {
        let (set, tag) = self.place(key);
        let mask = !0 << (32 - TAG_BITS);
        let found = self.sets[set]
            .iter_mut()
            .find(|e| **e & 15 != 0 && **e & mask == tag)?;
        let entry = std::mem::take(found);
        Some(Ghost {
            age: age_units(entry, now) * TICKS_PER_UNIT,
            count: (entry & 15) as u8,
        })
    }

    /// Remembers `key`, of which nothing is known.
    pub(crate) fn put(&mut self, key: LineKey, count: u8, last: u32, now: u32) {
        let (set, tag) = self.place(key);
        let time = ((last / TICKS_PER_UNIT) & TIME_MASK) << 4;
        let entry = tag | time | u32::from(count.clamp(1, 15));
        let oldest = self.sets[set].iter_mut().max_by_key(|e| {
            if **e & 15 == 0 {
                u32::MAX
            } else {
                age_units(**e, now)
            }
        });
        if let Some(oldest) = oldest {
            *oldest = entry;
        }
    }
}

fn age_units(entry: u32, now: u32) -> u32 {
    (now / TICKS_PER_UNIT).wrapping_sub(entry >> 4) & TIME_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_latest() {
        let mut ghosts = Ghosts::new(800);
        for i in 0..2000u32 {
            ghosts.put(LineKey(u64::from(i)), 3, i * 8, i * 8);
        }
        let now = 2000 * 8;
        let kept =
            (1500..2000u32).filter_map(|i| Some((i, ghosts.take(LineKey(u64::from(i)), now)?)));
        let kept: Vec<_> = kept.collect();
        assert!(kept.len() > 400, "{}", kept.len());
        assert!(
            kept.iter()
                .all(|(i, g)| g.count == 3 && g.age == now - i * 8)
        );
        assert!(ghosts.take(LineKey(1999), now).is_none());
    }
}
