//! The bytes of a read that have been answered.
//!
//! A structured reply may come in pieces in any order. A server that repeats one
//! piece and leaves out another must not pass stale memory off as data, so the
//! pieces are accounted for, not only counted.

/// The answered parts of one request of `len` bytes.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// All bytes before this one are answered.
    prefix: u32,
    /// Answered pieces `[start, end)` beyond the prefix: sorted, neither touching nor overlapping.
    /// Empty as long as the server answers in order.
    islands: Vec<(u32, u32)>,
}

/// Reason for the refusal of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPiece {
    /// The piece overlaps an earlier one.
    Overlap,
    /// The answer is scattered into more pieces than [`ISLANDS_MAX`].
    Scattered,
}

/// Separate pieces that are accounted for at one time.
pub const ISLANDS_MAX: usize = 1024;

impl Coverage {
    /// Records that `[start, start + len)` is answered.
    pub fn add(&mut self, start: u32, len: u32) -> Result<(), BadPiece> {
        let end = start + len;
        if start < self.prefix {
            return Err(BadPiece::Overlap);
        }
        if start == self.prefix && self.islands.is_empty() {
            self.prefix = end;
            return Ok(());
        }
        let at = self.islands.partition_point(|island| island.0 < start);
        let before = at.checked_sub(1).map(|i| self.islands[i]);
        let after = self.islands.get(at).copied();
        if before.is_some_and(|b| b.1 > start) || after.is_some_and(|a| a.0 < end) {
            return Err(BadPiece::Overlap);
        }
        match (
            before.is_some_and(|b| b.1 == start),
            after.is_some_and(|a| a.0 == end),
        ) {
            (true, true) => self.islands[at - 1].1 = self.islands.remove(at).1,
            (true, false) => self.islands[at - 1].1 = end,
            (false, true) => self.islands[at].0 = start,
            (false, false) if self.islands.len() == ISLANDS_MAX => {
                return Err(BadPiece::Scattered);
            }
            (false, false) => self.islands.insert(at, (start, end)),
        }
        if self.islands[0].0 == self.prefix {
            self.prefix = self.islands.remove(0).1;
        }
        Ok(())
    }

    /// True if all of the first `len` bytes are answered.
    pub fn is_whole(&self, len: u32) -> bool {
        self.prefix == len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_repeated_piece_does_not_stand_in_for_a_missing_one() {
        let mut c = Coverage::default();
        c.add(0, 512).unwrap();
        assert_eq!(c.add(0, 512), Err(BadPiece::Overlap));
        assert!(!c.is_whole(1024));
        c.add(512, 512).unwrap();
        assert!(c.is_whole(1024));
    }

    #[test]
    fn scattered_pieces_are_bounded() {
        let mut c = Coverage::default();
        for i in 0..ISLANDS_MAX as u32 {
            c.add(2 * i + 1, 1).unwrap();
        }
        assert_eq!(
            c.add(2 * ISLANDS_MAX as u32 + 1, 1),
            Err(BadPiece::Scattered)
        );
    }

    proptest! {
        /// Against one flag a byte.
        #[test]
        fn agrees_with_a_map_of_bytes(pieces in prop::collection::vec((0u32..64, 1u32..16), 0..60)) {
            let mut coverage = Coverage::default();
            let mut map = [false; 80];
            for (start, len) in pieces {
                let range = start as usize..(start + len) as usize;
                let fresh = map[range.clone()].iter().all(|byte| !byte);
                prop_assert_eq!(coverage.add(start, len).is_ok(), fresh);
                if fresh {
                    map[range].fill(true);
                }
                for whole in 0..80 {
                    let want = map[..whole].iter().all(|byte| *byte) && !map[whole];
                    prop_assert_eq!(coverage.is_whole(whole as u32), want);
                }
            }
        }
    }
}
