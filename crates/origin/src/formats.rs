//! Recognises the format of a device by its first bytes. Names the sectors that any software must
//! rewrite when it changes data of this format.
//!
//! The numbers are those of the formats' documentation: ext4 and jbd2 in the
//! Linux kernel's `Documentation/filesystems/ext4`, the XFS Algorithms & Data
//! Structures book, the Btrfs on-disk format page, LVM2's `format_text`, and of the UEFI
//! specification for tables of partitions.
//!
//! A partition table says little of the data behind it. So each partition is read too; on a device
//! without a table also the place at 1 MiB, where tools leave room for one.
//!
//! The bytes read may be anything: a field that leads outside the device is left out, and no input
//! causes a panic.

use block::{Extent, Lba, SECTOR_BYTES, Sectors};

/// Bytes of a device's start that [`recognise`] needs.
pub const HEAD_BYTES: usize = 256 << 10;
/// Bytes of a partition's start that [`recognise_at`] needs.
pub const PARTITION_BYTES: usize = 128 << 10;
/// Most partitions that are read.
const PARTITIONS_MAX: usize = 16;
/// Start of the first partition as tools place it, or of a file system placed so without a table.
const ALIGNED: Lba = Lba(2048);

macro_rules! whats {
    ($($variant:ident = $code:literal, $name:literal;)*) => {
        /// The kind of a watched place.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum What {
            $(#[doc = $name] $variant = $code,)*
        }

        impl What {
            /// The name in messages.
            pub const fn name(self) -> &'static str {
                match self { $(What::$variant => $name,)* }
            }

            /// The kind with the code `code` in a record.
            pub(crate) const fn from_code(code: u8) -> Option<What> {
                match code { $($code => Some(What::$variant),)* _ => None }
            }
        }
    };
}

whats! {
    Sample = 0, "a sample";
    Ext4Superblock = 1, "the superblock of ext4";
    Ext4Journal = 2, "the journal superblock of ext4";
    XfsSuperblock = 3, "the superblock of XFS";
    XfsLog = 4, "the log head of XFS";
    BtrfsSuperblock = 5, "the superblock of Btrfs";
    LvmLabel = 6, "the label of LVM";
    LvmMetadata = 7, "the metadata header of LVM";
    Table = 8, "the partition table";
}

impl What {
    /// True if the place contains an identifier drawn at random when its format was made.
    pub(crate) fn has_number(self) -> bool {
        match self {
            What::Ext4Superblock
            | What::Ext4Journal
            | What::XfsSuperblock
            | What::BtrfsSuperblock
            | What::LvmLabel => true,
            What::Sample | What::XfsLog | What::LvmMetadata | What::Table => false,
        }
    }
}

/// A log that is written in rounds; its head has to be searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CircularLog {
    /// The whole log.
    pub extent: Extent,
}

/// The formats that a device's first bytes show.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recognised {
    /// Places to watch, each written as a whole by its owner.
    pub sentinels: Vec<(What, Extent)>,
    /// XFS logs; their heads are to be watched too.
    pub logs: Vec<CircularLog>,
    /// Starts of possible further formats, of which the first [`PARTITION_BYTES`] are to be read.
    pub partitions: Vec<Lba>,
}

/// Names the sentinels of a device of `sectors` with the first bytes `head`.
pub fn recognise(head: &[u8], sectors: Sectors) -> Recognised {
    let mut found = content(head);
    if found.sentinels.is_empty() {
        table(head, &mut found);
        gpt(head, &mut found);
        mbr(head, &mut found);
        if found.partitions.is_empty() {
            found.partitions.push(ALIGNED);
        }
        found.partitions.truncate(PARTITIONS_MAX);
        found.partitions.retain(|start| start.0 < sectors.0);
    }
    found.within(sectors)
}

/// Names the sentinels of a format at `start`, with the first bytes `head`, on a device of
/// `sectors`.
pub fn recognise_at(start: Lba, head: &[u8], sectors: Sectors) -> Recognised {
    let mut found = content(head);
    let moved = |extent: &mut Extent| {
        extent.start = Lba(extent.start.0.saturating_add(start.0));
    };
    found
        .sentinels
        .iter_mut()
        .for_each(|(_, extent)| moved(extent));
    found.logs.iter_mut().for_each(|log| moved(&mut log.extent));
    found.within(sectors)
}

fn content(head: &[u8]) -> Recognised {
    let mut found = Recognised::default();
    ext4(head, &mut found);
    xfs(head, &mut found);
    btrfs(head, &mut found);
    lvm(head, &mut found);
    found
}

impl Recognised {
    /// Drops the places that are not on a device of `sectors`.
    fn within(mut self, sectors: Sectors) -> Recognised {
        let fits = |e: &Extent| {
            let end = e.start.0.checked_add(e.len.0);
            !e.is_empty() && end.is_some_and(|end| end <= sectors.0)
        };
        self.sentinels.retain(|(_, extent)| fits(extent));
        self.logs.retain(|log| fits(&log.extent));
        self
    }
}

fn extent(byte: u64, bytes: u64) -> Extent {
    Extent::new(Lba(byte / SECTOR_BYTES), Sectors(bytes / SECTOR_BYTES))
}

fn bytes<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn le16(head: &[u8], at: usize) -> Option<u64> {
    bytes(head, at).map(|b| u64::from(u16::from_le_bytes(b)))
}

fn le32(head: &[u8], at: usize) -> Option<u64> {
    bytes(head, at).map(|b| u64::from(u32::from_le_bytes(b)))
}

fn le64(head: &[u8], at: usize) -> Option<u64> {
    bytes(head, at).map(u64::from_le_bytes)
}

fn be32(head: &[u8], at: usize) -> Option<u64> {
    bytes(head, at).map(|b| u64::from(u32::from_be_bytes(b)))
}

fn be64(head: &[u8], at: usize) -> Option<u64> {
    bytes(head, at).map(u64::from_be_bytes)
}

/// Mounting writes the superblock. The journal's superblock is written when its tail moves, and at
/// every clean unmount.
fn ext4(head: &[u8], found: &mut Recognised) {
    const SUPERBLOCK: usize = 1024;
    const HAS_JOURNAL: u64 = 4;
    if le16(head, SUPERBLOCK + 0x38) != Some(0xef53) {
        return;
    }
    let whole = extent(SUPERBLOCK as u64, 1024);
    found.sentinels.push((What::Ext4Superblock, whole));
    let journal = || {
        let shift = le32(head, SUPERBLOCK + 0x18).filter(|s| *s <= 6)?;
        let has = le32(head, SUPERBLOCK + 0x5c)? & HAS_JOURNAL != 0;
        // The superblock holds a backup of the block map in the journal's inode.
        let backed_up = *head.get(SUPERBLOCK + 0xfd)? == 1;
        let map = SUPERBLOCK + 0x10c;
        let block = if le16(head, map)? == 0xf30a {
            let (entries, depth) = (le16(head, map + 2)?, le16(head, map + 6)?);
            let is_first = entries > 0 && depth == 0 && le32(head, map + 12)? == 0;
            let start = le16(head, map + 18)? << 32 | le32(head, map + 20)?;
            is_first.then_some(start)?
        } else {
            le32(head, map)?
        };
        let byte = block.checked_mul(1024 << shift)?;
        (has && backed_up && block > 0).then(|| extent(byte, 1024))
    };
    if let Some(extent) = journal() {
        found.sentinels.push((What::Ext4Journal, extent));
    }
}

/// Mounting writes to the log; the superblock is written at unmount.
fn xfs(head: &[u8], found: &mut Recognised) {
    if bytes(head, 0) != Some(*b"XFSB") {
        return;
    }
    let superblock = extent(0, SECTOR_BYTES);
    found.sentinels.push((What::XfsSuperblock, superblock));
    let log = || {
        let block_bytes = be32(head, 4).filter(|b| b.is_power_of_two() && *b <= 65536)?;
        let (start, group_blocks) = (be64(head, 48)?, be32(head, 84)?);
        let (blocks, group_bits) = (be32(head, 96)?, u32::from(*head.get(124)?));
        let group = start.checked_shr(group_bits)?;
        let in_group = start & (1u64.checked_shl(group_bits)?.wrapping_sub(1));
        let block = group.checked_mul(group_blocks)?.checked_add(in_group)?;
        let byte = block.checked_mul(block_bytes)?;
        // The start is 0 if the log is on a device of its own.
        (start > 0 && blocks > 0).then(|| extent(byte, blocks * block_bytes))
    };
    found
        .logs
        .extend(log().map(|extent| CircularLog { extent }));
}

/// Every commit writes the superblock, and its copies.
fn btrfs(head: &[u8], found: &mut Recognised) {
    const SUPERBLOCK: usize = 64 << 10;
    if bytes(head, SUPERBLOCK + 0x40) == Some(*b"_BHRfS_M") {
        for byte in [SUPERBLOCK as u64, 64 << 20] {
            let whole = extent(byte, 4096);
            found.sentinels.push((What::BtrfsSuperblock, whole));
        }
    }
}

/// Every change of a volume group writes the header of each metadata area.
fn lvm(head: &[u8], found: &mut Recognised) {
    let labelled = |sector: &usize| {
        let at = sector * SECTOR_BYTES as usize;
        bytes(head, at) == Some(*b"LABELONE") && bytes(head, at + 24) == Some(*b"LVM2 001")
    };
    let Some(sector) = (0..4).find(labelled) else {
        return;
    };
    let at = sector * SECTOR_BYTES as usize;
    found
        .sentinels
        .push((What::LvmLabel, extent(at as u64, SECTOR_BYTES)));
    // The list of data areas ends with zeroes; the list of metadata areas follows.
    const AREAS: usize = 16;
    let mut next = at + le32(head, at + 20).unwrap_or(0) as usize + 40;
    let mut lists = 0;
    for _ in 0..AREAS {
        let (Some(offset), Some(size)) = (le64(head, next), le64(head, next + 8)) else {
            return;
        };
        next += 16;
        if offset == 0 && size == 0 {
            lists += 1;
            if lists == 2 {
                return;
            }
        } else if lists == 1 {
            let header = extent(offset, SECTOR_BYTES);
            found.sentinels.push((What::LvmMetadata, header));
        }
    }
}

/// A partition table shows only repartitioning, but a GPT's header
/// holds a checksum of its entries.
fn table(head: &[u8], found: &mut Recognised) {
    if head.get(510..512) == Some(&[0x55, 0xaa]) {
        found.sentinels.push((What::Table, extent(0, SECTOR_BYTES)));
    }
    if bytes(head, 512) == Some(*b"EFI PART") {
        found
            .sentinels
            .push((What::Table, extent(512, SECTOR_BYTES)));
    }
}

/// The partitions of a GPT, which counts in logical blocks.
fn gpt(head: &[u8], found: &mut Recognised) {
    const ENTRIES_MAX: u64 = 128;
    for block in [512, 4096] {
        if bytes(head, block) != Some(*b"EFI PART") {
            continue;
        }
        let field = |at| le32(head, block + at);
        let (Some(first), Some(count), Some(size)) = (le64(head, block + 72), field(80), field(84))
        else {
            return;
        };
        for entry in 0..count.min(ENTRIES_MAX) {
            let at = || {
                let at = first.checked_mul(block as u64)?;
                usize::try_from(at.checked_add(entry.checked_mul(size)?)?).ok()
            };
            let Some(at) = at() else { return };
            let (Some(kind), Some(start)) = (bytes::<16>(head, at), le64(head, at + 32)) else {
                return;
            };
            let sectors = start.checked_mul(block as u64 / SECTOR_BYTES);
            if let (true, Some(start)) = (kind != [0; 16], sectors) {
                found.partitions.push(Lba(start));
            }
        }
        return;
    }
}

/// The primary partitions of an MBR.
fn mbr(head: &[u8], found: &mut Recognised) {
    // Unused, the guard of a GPT, and extended partitions, which contain others.
    const PASSED_OVER: [u8; 5] = [0, 0xee, 0x05, 0x0f, 0x85];
    if head.get(510..512) != Some(&[0x55, 0xaa]) || !found.partitions.is_empty() {
        return;
    }
    for at in (446..510).step_by(16) {
        let start = le32(head, at + 8).filter(|start| *start > 0);
        if let (Some(start), false) = (start, PASSED_OVER.contains(&head[at + 4])) {
            found.partitions.push(Lba(start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The head of a device with a table, and the starts of its partitions.
    fn tables() -> Vec<(&'static str, Vec<u8>, Vec<Lba>)> {
        let gpt = |block: usize| {
            let mut head = vec![0; HEAD_BYTES];
            head[block..block + 8].copy_from_slice(b"EFI PART");
            head[block + 72..block + 80].copy_from_slice(&2u64.to_le_bytes());
            head[block + 80..block + 84].copy_from_slice(&128u32.to_le_bytes());
            head[block + 84..block + 88].copy_from_slice(&128u32.to_le_bytes());
            for (n, start) in [(0, 100u64), (3, 300)] {
                let at = 2 * block + n * 128;
                head[at] = 1;
                head[at + 32..at + 40].copy_from_slice(&start.to_le_bytes());
            }
            let per = block as u64 / SECTOR_BYTES;
            (head, vec![Lba(100 * per), Lba(300 * per)])
        };
        let mut mbr = vec![0; HEAD_BYTES];
        mbr[510..512].copy_from_slice(&[0x55, 0xaa]);
        for (n, kind, start) in [(0, 0x83u8, 63u32), (1, 0x05, 100), (2, 0x83, 200)] {
            mbr[446 + n * 16 + 4] = kind;
            mbr[446 + n * 16 + 8..][..4].copy_from_slice(&start.to_le_bytes());
        }
        let ((small, small_at), (large, large_at)) = (gpt(512), gpt(4096));
        vec![
            ("gpt", small, small_at),
            ("gpt of 4 KiB", large, large_at),
            ("mbr", mbr, vec![Lba(63), Lba(200)]),
            ("none", vec![0; HEAD_BYTES], vec![ALIGNED]),
        ]
    }

    #[test]
    fn partitions_are_found_by_either_table() {
        for (name, head, starts) in tables() {
            let found = recognise(&head, Sectors(1 << 20));
            assert_eq!(found.partitions, starts, "{name}");
            // A partition that begins behind the device's end is left out.
            let found = recognise(&head, Sectors(starts[0].0));
            assert!(found.partitions.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_is_in_a_partition_is_where_that_is() {
        let mut head = vec![0; PARTITION_BYTES];
        head[1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xef]);
        let found = recognise_at(Lba(100), &head, Sectors(1000));
        let superblock = Extent::new(Lba(102), Sectors(2));
        assert_eq!(found.sentinels, [(What::Ext4Superblock, superblock)]);
        let cut = recognise_at(Lba(100), &head, Sectors(103));
        assert!(cut.sentinels.is_empty());
        assert!(
            recognise_at(Lba(u64::MAX), &head, Sectors(1000))
                .sentinels
                .is_empty()
        );
    }

    #[test]
    fn nothing_is_recognised_in_nothing() {
        for head in [&[][..], &[0; 512], &[0xff; HEAD_BYTES]] {
            let found = recognise(head, Sectors(1 << 20));
            assert!(
                found.sentinels.is_empty() && found.logs.is_empty(),
                "{found:?}"
            );
            assert_eq!(found.partitions, [ALIGNED]);
        }
    }

    proptest! {
        #[test]
        fn damaged_heads_lead_nowhere_outside(
            magic in 0..6usize,
            noise in prop::collection::vec(any::<u8>(), 4096),
            sectors in 8u64..1 << 40,
        ) {
            let mut head = vec![0; HEAD_BYTES];
            head[..4096].copy_from_slice(&noise);
            let (at, text): (usize, &[u8]) = [
                (1024 + 0x38, &[0x53, 0xef][..]),
                (0, b"XFSB"),
                ((64 << 10) + 0x40, b"_BHRfS_M"),
                (512, b"LABELONE"),
                (510, &[0x55, 0xaa]),
                (512, b"EFI PART"),
            ][magic];
            head[at..at + text.len()].copy_from_slice(text);
            if magic == 3 {
                head[512 + 24..512 + 32].copy_from_slice(b"LVM2 001");
            }
            let found = recognise(&head, Sectors(sectors));
            let part = recognise_at(Lba(sectors / 2), &head, Sectors(sectors));
            for (_, extent) in found.sentinels.iter().chain(&part.sentinels) {
                prop_assert!(extent.end().0 <= sectors && !extent.is_empty());
            }
            for log in found.logs.iter().chain(&part.logs) {
                prop_assert!(log.extent.end().0 <= sectors);
            }
            prop_assert!(found.partitions.iter().all(|start| start.0 < sectors));
        }
    }
}
