//! Uses of the parts of the format, beside being read back: bitmaps, a log's room, places of areas,
//! the room of a superblock, printed forms.

use block::{Extent, Lba, Sectors};
use layout::{
    BITMAP_BITS, BLOCK_BYTES, Bitmap, Foreign, LayoutPlan, LogBlock, LogReader, MEMBERS_MAX,
    MapEntry, MapPage, Mask, MemberRecord, NAME_BYTES_MAX, ORIGIN_RECORD_BYTES_MAX, PageError,
    PageHeader, PlannedArea, PoolRole, PoolSuperblock, SUPERBLOCK_BLOCKS, SlotChange,
    SuperblockError, Uuid, VOLUMES_MAX, VolumeRecord, VolumeTable, WITNESS_TABLES,
    entries_per_page, is_checksum, newest,
};
use std::collections::BTreeSet;

#[test]
fn every_bit_can_be_set_and_volumes_spread_over_all_of_them() {
    let mut bitmap = Bitmap::none();
    bitmap.regions.add_all();
    assert_eq!(bitmap.regions.count(), BITMAP_BITS as usize);
    let starts: BTreeSet<u32> = (1..1000).map(|volume| Bitmap::bit(volume, 0)).collect();
    assert!(starts.iter().all(|bit| *bit < BITMAP_BITS));
    // Thrown at random, 999 places of so many would be met by over 960.
    assert!(starts.len() > 960, "{}", starts.len());
    // 2,654,435,761 modulo 32,256, and seven times that modulo 2^32 first.
    assert_eq!((Bitmap::bit(1, 0), Bitmap::bit(7, 0)), (25009, 12759));
    assert_eq!(Bitmap::bit(7, 5), (Bitmap::bit(7, 0) + 5) % BITMAP_BITS);
    assert_eq!(Bitmap::bit(7, u64::from(BITMAP_BITS)), Bitmap::bit(7, 0));
}

fn change(blocks: usize) -> SlotChange {
    let mut changed = Mask::default();
    (0..blocks).for_each(|block| changed[block / 64] |= 1 << (block % 64));
    SlotChange {
        slot: 3,
        key: Some(4),
        valid: changed,
        changed,
        crcs: (0..blocks as u32).collect(),
    }
}

#[test]
fn a_block_of_the_log_takes_records_until_it_has_no_room() {
    let room = BLOCK_BYTES - PageHeader::BYTES;
    for blocks in 0..=16 {
        let change = change(blocks);
        let mut block = vec![0; BLOCK_BYTES];
        let mut out = LogBlock::new(&mut block, 16);
        assert!(out.is_empty());
        let mut records = 0;
        while out.push(&change) {
            assert!(!out.is_empty());
            records += 1;
        }
        assert_eq!(records, room / change.bytes(16));
        out.seal(Uuid(1), 5, 6);
        let read = LogReader::open(&block, Uuid(1), 16, 5).unwrap();
        assert_eq!(
            read.filter(|read| read.as_ref() == Ok(&change)).count(),
            records
        );
    }
    // Sixteen that fill the block to its last byte: 4 + 1 + 2 * 8 and checksums each, for a line of
    // 64.
    let of = |crcs: usize| SlotChange {
        key: None,
        changed: [(1 << crcs) - 1, 0, 0, 0],
        crcs: vec![9; crcs],
        ..change(0)
    };
    assert_eq!(15 * of(58).bytes(64) + of(62).bytes(64), room);
    let mut block = vec![0; BLOCK_BYTES];
    let mut out = LogBlock::new(&mut block, 64);
    for _ in 0..15 {
        assert!(out.push(&of(58)));
    }
    assert!(!out.push(&of(63)));
    assert!(out.push(&of(62)));
    assert!(!out.push(&of(0)));
}

#[test]
fn records_of_every_length_of_line_are_read_as_they_were() {
    for blocks in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        let mut last = Mask::default();
        last[(blocks - 1) / 64] |= 1 << ((blocks - 1) % 64);
        let record = SlotChange {
            slot: 3,
            key: None,
            valid: last,
            changed: last,
            crcs: vec![u32::MAX],
        };
        let mut block = vec![0; BLOCK_BYTES];
        let mut out = LogBlock::new(&mut block, blocks as u32);
        assert!(out.push(&record) && out.push(&record));
        out.seal(Uuid(1), 5, 6);
        let read = LogReader::open(&block, Uuid(1), blocks as u32, 5).unwrap();
        let read: Result<Vec<_>, _> = read.collect();
        assert_eq!(read, Ok(vec![record.clone(), record]), "{blocks}");
    }
}

#[test]
fn blocks_begin_as_the_format_says() {
    let mut block = vec![0; BLOCK_BYTES];
    let kind = |block: &[u8]| block[4..8].to_vec();
    LogBlock::new(&mut block, 4).seal(Uuid(1), 5, 6);
    assert_eq!(kind(&block), b"HSLG");
    Bitmap::none().encode(Uuid(1), &mut block);
    assert_eq!(kind(&block), b"HSMK");
    let page = MapPage {
        number: 1,
        generation: 2,
        entries: Vec::new(),
    };
    page.encode(Uuid(1), 4, &mut block);
    assert_eq!(kind(&block), b"HSMP");
}

#[test]
fn a_record_with_blocks_that_no_line_has_makes_no_sense() {
    for (valid, changed, sound) in [
        (0b1000, 1, true),
        (0b1_0000, 1, false),
        (1, 0b1_0000, false),
    ] {
        let record = SlotChange {
            valid: [valid, 0, 0, 0],
            changed: [changed, 0, 0, 0],
            crcs: vec![7],
            ..change(0)
        };
        let mut block = vec![0; BLOCK_BYTES];
        let mut out = LogBlock::new(&mut block, 4);
        assert!(out.push(&record));
        out.seal(Uuid(1), 5, 6);
        let read = LogReader::open(&block, Uuid(1), 4, 5).unwrap().next();
        let expected = if sound {
            Ok(record)
        } else {
            Err(PageError::Nonsense)
        };
        assert_eq!(read, Some(expected));
    }
}

#[test]
fn a_page_with_what_no_line_has_makes_no_sense() {
    let read = |change: &dyn Fn(&mut MapEntry)| {
        let line_blocks = 4;
        let mut entry = MapEntry {
            key: 1,
            crcs: vec![0; line_blocks as usize],
            ..MapEntry::default()
        };
        change(&mut entry);
        let page = MapPage {
            number: 1,
            generation: 2,
            entries: vec![entry],
        };
        let mut block = vec![0; BLOCK_BYTES];
        page.encode(Uuid(3), line_blocks, &mut block);
        MapPage::decode(&block, Uuid(3), line_blocks, 1, 2).map(|read| read == page)
    };
    assert_eq!(read(&|_| ()), Ok(true));
    assert_eq!(read(&|entry| entry.valid[0] = 0b1111), Ok(true));
    assert_eq!(
        read(&|entry| entry.valid[0] = 0b1_0000),
        Err(PageError::Nonsense)
    );
    assert_eq!(read(&|entry| entry.dirty[0] = 1), Err(PageError::Nonsense));
}

#[test]
fn no_byte_past_the_last_entry_is_a_checksum() {
    for line_blocks in [1, 4, 16, 64, 256] {
        let checksums = (0..BLOCK_BYTES).filter(|at| is_checksum(line_blocks, *at));
        let expected = 4 * line_blocks * entries_per_page(line_blocks);
        assert_eq!(checksums.count() as u32, expected);
    }
}

#[test]
fn areas_are_where_the_plan_says() {
    let area = PlannedArea {
        start: 100,
        blocks: 7,
    };
    assert_eq!(area.lba(Lba(64), 3), Lba(64 + 103 * 8));
    let extent = Extent::new(Lba(64 + 100 * 8), Sectors(7 * 8));
    assert_eq!(area.extent(Lba(64)), extent);
    for (mib, line_blocks) in [(16, 16), (700, 1), (3000, 16), (9000, 256)] {
        let plan = LayoutPlan::new(Sectors::from_mib(mib), line_blocks).unwrap();
        let slots = u64::from(plan.places);
        let pages = slots.div_ceil(u64::from(entries_per_page(line_blocks)));
        assert_eq!(plan.log.blocks, (4 * pages).max(16));
        assert_eq!(plan.maps.map(|map| map.blocks), [pages; 2]);
        // Sixteen bytes for each slot, after one block for the rest.
        let hints = 1 + slots.div_ceil(BLOCK_BYTES as u64 / 16);
        assert_eq!(plan.hints.map(|hints| hints.blocks), [hints; 2]);
        assert_eq!(plan.lines.blocks, u64::from(plan.slots * line_blocks));
        let first = plan.tables[0].start;
        let lines = plan.lines.end()..plan.lines.end() + u64::from(line_blocks);
        assert!(lines.contains(&first), "{plan:?}");
    }
}

fn superblock() -> PoolSuperblock {
    PoolSuperblock {
        role: PoolRole::Witness,
        clean: false,
        pool: Uuid(1),
        device: Uuid(2),
        sequence: 3,
        epoch: 4,
        blocks: 0,
        slots: 0,
        line_blocks: 1,
        region_blocks: 1,
        map: None,
        generation: 0,
        log_start: 0,
        log_end: 0,
        next_volume: 1,
        given: 0,
        hints: None,
        label: "pool".into(),
        name: "witness".into(),
        host: "host".into(),
        members: Vec::new(),
        volumes: VolumeTable::default(),
    }
}

#[test]
fn a_superblock_fits_as_long_as_members_volumes_and_their_records_do() {
    let member = || MemberRecord {
        device: Uuid(1),
        slots: 1,
        name: String::new(),
        domain: String::new(),
    };
    let volume = |bytes: usize| VolumeRecord {
        id: 1,
        flags: 0,
        sectors: 1,
        name: String::new(),
        origin: vec![0; bytes],
    };
    let with = |members: usize, volumes: Vec<VolumeRecord>| PoolSuperblock {
        members: (0..members).map(|_| member()).collect(),
        volumes: VolumeTable::of(&volumes),
        ..superblock()
    };
    assert!(with(MEMBERS_MAX, vec![volume(ORIGIN_RECORD_BYTES_MAX)]).fits());
    assert!(!with(MEMBERS_MAX + 1, Vec::new()).fits());
    // As many as there is room for are written and read back, and no more fit.
    let many = |n: usize| (0..n).map(|_| volume(ORIGIN_RECORD_BYTES_MAX)).collect();
    assert!(!with(1, many(VOLUMES_MAX + 1)).fits());
    let full = with(1, many(VOLUMES_MAX));
    assert!(full.fits());
    let mut bytes = vec![0; SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES];
    full.encode(&mut bytes);
    let (_, tail) = full.volumes.parts();
    let area = PoolSuperblock::table_area(&bytes, 1).unwrap();
    assert_eq!(area, WITNESS_TABLES[1]);
    assert_eq!(PoolSuperblock::decode(&bytes, tail), Ok(full.clone()));
    // The rest of the table is as much of a superblock as its beginning.
    let mut flipped = tail.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    for tail in [&flipped[..], &tail[..tail.len() - 1], &[]] {
        let damaged = SuperblockError::Damaged("the volumes' checksum does not match");
        assert_eq!(PoolSuperblock::decode(&bytes, tail), Err(damaged));
    }
}

#[test]
fn a_small_device_has_room_for_as_many_volumes_as_before_and_a_large_one_for_all() {
    let volumes = |mib| {
        LayoutPlan::new(Sectors::from_mib(mib), 16)
            .unwrap()
            .volumes()
    };
    assert_eq!(LayoutPlan::new(Sectors(8 * 120), 1).unwrap().volumes(), 28);
    assert_eq!([1, 8, 64, 512].map(volumes), [32, 59, 273, 1984]);
    assert_eq!([1100, 1 << 20].map(volumes), [VOLUMES_MAX; 2]);
    // The table areas take the last lines, and no line if there is one alone.
    let plan = LayoutPlan::new(Sectors::from_mib(8), 16).unwrap();
    assert_eq!(
        (plan.places, plan.slots, plan.tables[0].blocks),
        (124, 122, 16)
    );
    let plan = LayoutPlan::new(Sectors(8 * 530), 256).unwrap();
    assert_eq!((plan.places, plan.slots, plan.volumes()), (1, 1, 28));
}

/// The places of lines and metadata do not change, so that lines stay.
#[test]
fn a_superblock_of_the_former_version_is_upgraded_as_it_is_read() {
    let plan = LayoutPlan::new(Sectors::from_mib(8), 16).unwrap();
    let member = PoolSuperblock {
        role: PoolRole::Member,
        blocks: plan.blocks,
        slots: plan.places,
        line_blocks: 16,
        region_blocks: 16,
        ..superblock()
    };
    let mut bytes = vec![0; SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES];
    let mut read = |superblock: &PoolSuperblock, version: u8| {
        superblock.encode(&mut bytes);
        bytes[8] = version;
        let crc = crc32c::crc32c(&bytes[..BLOCK_BYTES - 4]);
        bytes[BLOCK_BYTES - 4..BLOCK_BYTES].copy_from_slice(&crc.to_le_bytes());
        PoolSuperblock::decode(&bytes, &[])
    };
    let damaged = SuperblockError::Damaged("its size and its lines do not agree");
    let upgraded = PoolSuperblock {
        slots: plan.slots,
        ..member.clone()
    };
    assert_eq!(read(&member, 1), Ok(upgraded.clone()));
    assert_eq!(read(&upgraded, 2), Ok(upgraded.clone()));
    assert_eq!(
        read(&upgraded, 1).map(|superblock| superblock.slots),
        Err(damaged.clone())
    );
    assert_eq!(read(&member, 2), Err(damaged));
    assert_eq!(read(&superblock(), 1), Ok(superblock()));
    for version in [0, 3] {
        let other = SuperblockError::Version(version.into());
        assert_eq!(read(&upgraded, version), Err(other));
    }
}

#[test]
fn a_long_name_is_cut_between_two_characters() {
    for extra in 0..4 {
        let name = "x".repeat(NAME_BYTES_MAX - 3 + extra) + "äöü";
        let mut bytes = vec![0; SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES];
        PoolSuperblock {
            label: name.clone(),
            ..superblock()
        }
        .encode(&mut bytes);
        let label = PoolSuperblock::decode(&bytes, &[]).unwrap().label;
        assert!(name.starts_with(&label));
        assert!((NAME_BYTES_MAX - 1..=NAME_BYTES_MAX).contains(&label.len()));
    }
}

#[test]
fn of_two_copies_that_cannot_be_read_the_better_one_is_reported() {
    let ranked = [
        SuperblockError::Version(9),
        SuperblockError::Damaged("one"),
        SuperblockError::Foreign(Foreign("something")),
        SuperblockError::Blank,
    ];
    for (i, a) in ranked.iter().enumerate() {
        for (j, b) in ranked.iter().enumerate() {
            let better = ranked[i.min(j)].clone();
            assert_eq!(newest(Err(a.clone()), Err(b.clone())), Err(better));
        }
    }
    let (one, two) = (
        SuperblockError::Damaged("one"),
        SuperblockError::Damaged("two"),
    );
    assert_eq!(newest(Err(one.clone()), Err(two)), Err(one));
}

#[test]
fn names_and_errors_are_reported_in_words() {
    let uuid = Uuid(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
    assert_eq!(uuid.to_string(), "01234567-89ab-cdef-0011-223344556677");
    assert_eq!(format!("{uuid:?}"), uuid.to_string());
    assert_eq!(uuid.salt(), 0x0123_4567_89ab_cdef ^ 0x0011_2233_4455_6677);
    assert_eq!(Uuid(u128::MAX).salt(), 0);
    assert_eq!(
        Foreign("an ext file system").to_string(),
        "an ext file system"
    );
    assert!(SuperblockError::Damaged("how").to_string().contains("how"));
    assert!(
        SuperblockError::Foreign(Foreign("what"))
            .to_string()
            .contains("what")
    );
    assert!(SuperblockError::Version(7).to_string().contains('7'));
    assert!(!SuperblockError::Blank.to_string().is_empty());
}
