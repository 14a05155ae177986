//! Foreign content of a device, by its first bytes.

use std::fmt;

/// The first bytes of a device that are looked at.
pub const PROBE_BYTES: usize = 128 << 10;

/// The magic of a write-back log's superblock; far from the magic of a pool's.
pub(crate) const LOG_MAGIC: [u8; 8] = *b"WRITEBAK";

/// The magic of its journal's superblock.
pub(crate) const JOURNAL_MAGIC: [u8; 8] = *b"WRITEJNL";

/// Magic bytes, their place, and their owner.
///
/// From the superblocks as documented by the file systems: ext (1080, 0xEF53),
/// XFS, Btrfs (65600), LVM's label (one of the first four sectors), LUKS, swap
/// (end of the first page), bcache's superblock (4096 + 24), md 1.2 (4096),
/// GPT (sector 1), NTFS, F2FS (1024), ZFS shows nothing this early.
const MAGICS: [(usize, &[u8], &str); 16] = [
    (0, &LOG_MAGIC, "the log of a write-back volume"),
    (0, &JOURNAL_MAGIC, "the journal of a write-back volume"),
    (1080, b"\x53\xef", "an ext file system"),
    (0, b"XFSB", "an XFS file system"),
    (65600, b"_BHRfS_M", "a Btrfs file system"),
    (0, b"LABELONE", "an LVM physical volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"LABELONE", "an LVM physical volume"),
    (1536, b"LABELONE", "an LVM physical volume"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of an md array"),
    (
        4120,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "a bcache device",
    ),
    (512, b"EFI PART", "a partition table"),
    (3, b"NTFS    ", "an NTFS file system"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
];

/// Content of a device that is not hotset's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreign(pub &'static str);

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Content that matches no known magic.
pub(crate) const UNKNOWN: Foreign = Foreign("data of an unknown kind");

/// The content by the first bytes of a device; `None` if all are zero.
pub fn foreign(bytes: &[u8]) -> Option<Foreign> {
    let known = MAGICS.iter().find(|(at, magic, _)| {
        let there = bytes.get(*at..*at + magic.len());
        there == Some(*magic)
    });
    if let Some((_, _, what)) = known {
        return Some(Foreign(what));
    }
    if bytes.get(510..512) == Some(b"\x55\xaa") {
        return Some(Foreign("a partition table or a boot sector"));
    }
    let other = bytes.iter().any(|byte| *byte != 0);
    other.then_some(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_magic_is_known_and_zeroes_are_nothing() {
        assert_eq!(foreign(&vec![0; PROBE_BYTES]), None);
        for (at, magic, what) in MAGICS {
            let mut bytes = vec![0; PROBE_BYTES];
            bytes[at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(foreign(&bytes), Some(Foreign(what)));
        }
        let mut bytes = vec![0; PROBE_BYTES];
        bytes[PROBE_BYTES - 1] = 1;
        assert_eq!(foreign(&bytes).unwrap().0, "data of an unknown kind");
        bytes[510..512].copy_from_slice(b"\x55\xaa");
        assert!(foreign(&bytes).unwrap().0.contains("boot"));
    }
}
