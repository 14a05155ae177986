//! Written metadata are read back, and a flipped bit is detected.

use layout::{
    BITMAP_BITS, BLOCK_BYTES, Bitmap, LayoutPlan, LogBlock, LogReader, MapEntry, MapPage, Mask,
    MemberRecord, PageError, PageHeader, PoolRole, PoolSuperblock, SUPERBLOCK_BLOCKS, SlotChange,
    SuperblockError, Uuid, VolumeRecord, VolumeTable, entries_per_page, is_checksum, newest,
};
use proptest::prelude::*;

const SUPERBLOCK_BYTES: usize = SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES;

fn name() -> impl Strategy<Value = String> {
    "[a-zäß0-9]{0,20}"
}

prop_compose! {
    fn superblock()(
        ids in any::<[u64; 8]>(),
        clean in any::<bool>(),
        names in [name(), name(), name()],
        members in prop::collection::vec((any::<u128>(), any::<u32>(), name(), name()), 0..16),
        volumes in prop::collection::vec(
            (any::<[u32; 2]>(), any::<u64>(), name(), prop::collection::vec(any::<u8>(), 0..2048)),
            0..60,
        ),
        line in 0u32..9,
        blocks in 200_000u64..1 << 30,
        hints in prop::option::of((0u8..2, any::<u32>(), any::<u32>(), any::<u32>())),
        map in prop::option::of(0u8..2),
    ) -> PoolSuperblock {
        let plan = LayoutPlan::new(block::Sectors(blocks * 8), 1 << line).unwrap();
        let [label, name, host] = names;
        PoolSuperblock {
            role: PoolRole::Member,
            clean,
            pool: Uuid(ids[0].into()),
            device: Uuid(ids[1].into()),
            sequence: ids[2],
            epoch: ids[3],
            blocks,
            slots: plan.slots,
            line_blocks: 1 << line,
            region_blocks: 1024,
            map,
            generation: ids[4] as u32,
            log_start: ids[5],
            log_end: ids[6],
            next_volume: ids[7] as u32,
            given: 0,
            hints,
            label,
            name,
            host,
            members: members
                .into_iter()
                .map(|(uuid, slots, name, domain)| MemberRecord { device: Uuid(uuid), slots, name, domain })
                .collect(),
            volumes: VolumeTable::of(
                &volumes
                    .into_iter()
                    .map(|([id, flags], sectors, name, origin)| VolumeRecord { id, flags, sectors, name, origin })
                    .collect::<Vec<_>>(),
            ),
        }
    }
}

fn mask(line_blocks: u32) -> impl Strategy<Value = Mask> {
    any::<[u64; 4]>().prop_map(move |words| {
        let mut mask = Mask::default();
        for block in 0..line_blocks as usize {
            mask[block / 64] |= words[block / 64] & 1 << (block % 64);
        }
        mask
    })
}

fn change(line_blocks: u32) -> impl Strategy<Value = SlotChange> {
    let crcs = prop::collection::vec(any::<u32>(), line_blocks as usize);
    let parts = (
        any::<u32>(),
        any::<Option<u64>>(),
        mask(line_blocks),
        mask(line_blocks),
        crcs,
    );
    parts.prop_map(|(slot, key, valid, changed, mut crcs)| {
        crcs.truncate(changed.iter().map(|word| word.count_ones()).sum::<u32>() as usize);
        SlotChange {
            slot,
            key,
            valid,
            changed,
            crcs,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn superblocks(superblock in superblock(), flip in any::<u64>()) {
        let mut bytes = vec![0xa5; SUPERBLOCK_BYTES];
        let used = superblock.encode(&mut bytes);
        prop_assert!(used <= SUPERBLOCK_BYTES && used % BLOCK_BYTES == 0);
        // Only the used part is written; earlier bytes follow.
        bytes[used..].fill(0x5a);
        let (_, tail) = superblock.volumes.parts();
        let mut tail = tail.to_vec();
        prop_assert_eq!(PoolSuperblock::decode(&bytes, &tail), Ok(superblock.clone()));
        let area = PoolSuperblock::table_area(&bytes, 0);
        prop_assert_eq!(area.map_or(0, |area| area.blocks), tail.len().div_ceil(BLOCK_BYTES) as u64);
        let at = (flip % ((used + tail.len()) as u64 * 8)) as usize;
        let all = bytes[..used].iter_mut().chain(&mut tail);
        *all.into_iter().nth(at / 8).unwrap() ^= 1 << (at % 8);
        match PoolSuperblock::decode(&bytes, &tail) {
            // Past the last volume nothing is meant.
            Ok(other) => prop_assert_eq!(&other, &superblock),
            Err(error) => prop_assert!(matches!(error, SuperblockError::Damaged(_)), "{:?}", error),
        }
        let mut older = superblock.clone();
        older.sequence = superblock.sequence.saturating_sub(1);
        let chosen = newest(Ok(older), Ok(superblock.clone())).unwrap();
        prop_assert_eq!(chosen.sequence, superblock.sequence);
    }

    #[test]
    fn bitmaps(bits in prop::collection::vec(0..BITMAP_BITS as usize, 0..200), ids in any::<[u64; 3]>(), flip in 0usize..BLOCK_BYTES * 8) {
        let mut bitmap = Bitmap::none();
        (bitmap.version, bitmap.epoch, bitmap.log_end) = (ids[0], ids[1], ids[2]);
        bits.iter().for_each(|bit| _ = bitmap.regions.add(*bit));
        let mut block = vec![0; BLOCK_BYTES];
        bitmap.encode(Uuid(5), &mut block);
        prop_assert_eq!(&Bitmap::decode(&block, Uuid(5)).unwrap(), &bitmap);
        let mut sorted = bits.clone();
        sorted.sort();
        sorted.dedup();
        prop_assert_eq!(bitmap.regions.iter().collect::<Vec<_>>(), sorted);
        block[flip / 8] ^= 1 << (flip % 8);
        prop_assert_eq!(Bitmap::decode(&block, Uuid(5)), Err(PageError::Checksum));
    }

    #[test]
    fn pages(shift in 0u32..9, fill in any::<[u64; 4]>(), number in any::<u64>(), flip in 0usize..BLOCK_BYTES * 8) {
        let line_blocks = 1 << shift;
        let entry = |n: u64| {
            let mut valid = Mask::default();
            for block in 0..line_blocks as usize {
                valid[block / 64] |= fill[block / 64] & 1 << (block % 64);
            }
            MapEntry {
                key: fill[0] ^ n,
                heat: n as u16,
                valid,
                crcs: (0..line_blocks).map(|b| b ^ fill[1] as u32).collect(),
                ..MapEntry::default()
            }
        };
        let entries = (0..u64::from(entries_per_page(line_blocks))).map(entry).collect();
        let page = MapPage { number, generation: fill[2] as u32, entries };
        let mut block = vec![0; BLOCK_BYTES];
        page.encode(Uuid(9), line_blocks, &mut block);
        let read = |block: &[u8], device, number| {
            MapPage::decode(block, device, line_blocks, number, page.generation)
        };
        prop_assert_eq!(read(&block, Uuid(9), number), Ok(page.clone()));
        prop_assert_eq!(read(&block, Uuid(9), number ^ 1), Err(PageError::Misplaced));
        prop_assert_eq!(read(&block, Uuid(8), number), Err(PageError::Foreign));
        let mut others = page.clone();
        let crcs = others.entries.iter_mut().flat_map(|entry| &mut entry.crcs);
        crcs.for_each(|crc| *crc = !*crc);
        let mut inverse = vec![0; BLOCK_BYTES];
        others.encode(Uuid(9), line_blocks, &mut inverse);
        for at in PageHeader::BYTES..BLOCK_BYTES {
            prop_assert_eq!(is_checksum(line_blocks, at), block[at] != inverse[at], "byte {}", at);
        }
        block[flip / 8] ^= 1 << (flip % 8);
        prop_assert_eq!(read(&block, Uuid(9), number), Err(PageError::Checksum));
    }

    #[test]
    fn logs(changes in prop::collection::vec(change(16), 0..60), sequence in any::<u64>(), flip in 0usize..BLOCK_BYTES * 8) {
        let mut block = vec![0; BLOCK_BYTES];
        let mut out = LogBlock::new(&mut block, 16);
        let kept: Vec<_> = changes.into_iter().take_while(|change| out.push(change)).collect();
        out.seal(Uuid(3), sequence, 7);
        let read = LogReader::open(&block, Uuid(3), 16, sequence).unwrap();
        prop_assert_eq!(read.incarnation(), 7);
        let read: Result<Vec<_>, _> = read.collect();
        prop_assert_eq!(read.unwrap(), kept);
        block[flip / 8] ^= 1 << (flip % 8);
        let flipped = LogReader::open(&block, Uuid(3), 16, sequence).map(|_| ());
        prop_assert_eq!(flipped, Err(PageError::Checksum));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(mut bytes in prop::collection::vec(any::<u8>(), SUPERBLOCK_BYTES), shift in 0u32..9) {
        let _ = (PoolSuperblock::decode(&bytes, &bytes), PoolSuperblock::table_area(&bytes, 1));
        // With a right checksum, so that the checks behind it are reached.
        let crc = crc32c::crc32c(&bytes[4..BLOCK_BYTES]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        let block = &bytes[..BLOCK_BYTES];
        let salt = u64::from_le_bytes(block[8..16].try_into().unwrap());
        let _ = Bitmap::decode(block, Uuid(salt.into()));
        let _ = MapPage::decode(block, Uuid(salt.into()), 1 << shift, 0, 0);
        for kind in [*b"HSLG", *b"HSMP", *b"HSMK"] {
            bytes[4..8].copy_from_slice(&kind);
            let used = 1000 + u32::from(bytes[999]);
            bytes[24..28].copy_from_slice(&used.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[4..BLOCK_BYTES]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
            let block = &bytes[..BLOCK_BYTES];
            let number = u64::from_le_bytes(block[16..24].try_into().unwrap());
            let generation = u32::from_le_bytes(block[28..32].try_into().unwrap());
            let _ = MapPage::decode(block, Uuid(salt.into()), 1 << shift, number, generation);
            let _ = Bitmap::decode(block, Uuid(salt.into()));
            if let Ok(reader) = LogReader::open(block, Uuid(salt.into()), 1 << shift, number) {
                assert!(reader.count() <= BLOCK_BYTES);
            }
        }
    }
}

/// The way to compute a checksum depends on its length and on the processor; its value may not.
#[test]
fn checksums_are_crc32c_at_every_length_and_alignment() {
    let bytes: Vec<u8> = (0..2 * BLOCK_BYTES + 64)
        .map(|i| ((i * i) >> 3) as u8)
        .collect();
    for len in 0..=2 * BLOCK_BYTES {
        let from = len % 64;
        let bytes = &bytes[from..from + len];
        let (ours, theirs) = (crc_fast::crc32_iscsi(bytes), crc32c::crc32c(bytes));
        assert_eq!(ours, theirs, "{len} bytes from {from}");
    }
}
