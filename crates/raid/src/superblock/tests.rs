use super::*;
use crc_fast::CrcAlgorithm;
use layout::BLOCK_BYTES;
use layout::array::MEMBERS_MAX;
use proptest::prelude::*;

pub(crate) fn sample() -> ArraySuperblock {
    let entry = |i: u8, state| MemberEntry {
        uuid: Uuid::from_bytes([i; 16]),
        state,
        sectors: Sectors(4096),
        checkpoint: Sectors(u64::from(i)),
        failed_at: u64::from(i),
        map_writes: u32::from(i),
    };
    ArraySuperblock {
        array: Uuid::from_bytes([9; 16]),
        member: Uuid::from_bytes([1; 16]),
        role: 1,
        events: 77,
        generation: Uuid::from_bytes([8; 16]),
        history: vec![start(7, 70), start(6, 9)],
        sealed: 76,
        scrubbed: Scrubbed {
            since: 1_800_000_000,
            ended: true,
        },
        name: "slow".into(),
        level: Level::Raid5,
        block: Sectors(8),
        chunk: Sectors(128),
        data_at: Sectors(8192),
        region: Sectors(1024),
        journal_slots: 16,
        table: vec![
            entry(0, MemberState::InSync),
            entry(1, MemberState::Rebuilding { whole: true }),
            entry(2, MemberState::Failed { whole: false }),
        ],
        bad: vec![Extent::new(Lba(8), Sectors(16))],
        gaps: vec![Gap {
            role: 1,
            extent: Extent::new(Lba(24), Sectors(8)),
        }],
    }
}

fn start(generation: u8, event: u64) -> Position {
    Position {
        generation: Uuid::from_bytes([generation; 16]),
        event,
    }
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

fn set_checksum(block: &mut [u8]) {
    block[12..16].fill(0);
    let sum = crc32c::crc32c(block);
    put(block, 12, &sum.to_le_bytes());
}

#[test]
fn what_is_written_is_read() {
    let mut block = vec![0xff; BLOCK_BYTES];
    sample().encode(&mut block);
    assert_eq!(ArraySuperblock::decode(&block), Some(sample()));
}

fn read_back(superblock: &ArraySuperblock) -> Option<ArraySuperblock> {
    let mut block = vec![0xff; BLOCK_BYTES];
    superblock.encode(&mut block);
    ArraySuperblock::decode(&block)
}

#[test]
fn a_full_one_is_read() {
    let states = (0..5).map(|code| MemberState::from_code(code).unwrap());
    let entries = (1..).zip(states.cycle()).map(|(i, state)| MemberEntry {
        uuid: Uuid::from_bytes([i; 16]),
        state,
        ..sample().table[0]
    });
    let full = ArraySuperblock {
        name: "n".repeat(NAME_BYTES_MAX),
        data_at: Sectors(67584),
        region: Sectors(31 * 128),
        table: entries.take(MEMBERS_MAX).collect(),
        history: (0..17).map(|i| start(i, 70 - u64::from(i))).collect(),
        bad: vec![Extent::new(Lba(8), Sectors(16)); BAD_MAX - 1],
        ..sample()
    };
    assert_eq!(read_back(&full), Some(full.clone()));
    assert_eq!(
        full.table[1].uuid.to_string(),
        "02020202-0202-0202-0202-020202020202"
    );
    assert_eq!(
        format!("{:?}", full.table[1].uuid),
        full.table[1].uuid.to_string()
    );
}

type Change = fn(&mut ArraySuperblock, u64);

const LIMIT: u64 = 1 << 50;
/// Possible numbers of each field, and impossible ones.
const CHANGES: [(Change, &[u64], &[u64]); 20] = [
    (|s, n| s.role = n as u16, &[0, 2, ROLE_SPARE as u64], &[3]),
    (
        |s, n| s.events = n,
        &[76, NUMBER_MAX - 1],
        &[75, NUMBER_MAX],
    ),
    (|s, n| s.sealed = n, &[0, 77], &[78]),
    (|s, n| s.history[0].event = n, &[10, 76], &[9, 77]),
    (|s, n| s.block = Sectors(n), &[1, 8], &[0, 2, 16]),
    (|s, n| s.chunk = Sectors(n), &[64, 128], &[0, 4, 8192]),
    (
        |s, n| s.data_at = Sectors(n),
        &[8192, LIMIT - 2048],
        &[0, 6144, 8193, LIMIT],
    ),
    (|s, n| s.region = Sectors(n), &[256, 1024], &[0, 128, 300]),
    (|s, n| s.journal_slots = n as u32, &[1, 16, 20], &[0, 21]),
    (
        |s, n| s.table[2].sectors = Sectors(n),
        &[LIMIT - 1],
        &[0, LIMIT, u64::MAX],
    ),
    (|s, n| s.table[1].checkpoint = Sectors(n), &[8192], &[8193]),
    (
        |s, n| s.table[2].failed_at = n,
        &[NUMBER_MAX - 1],
        &[NUMBER_MAX],
    ),
    (
        |s, n| s.bad[0].start = Lba(n),
        &[0, 8192 - 16],
        &[8192 - 15, u64::MAX],
    ),
    (
        |s, n| s.bad[0].len = Sectors(n),
        &[1, 8192 - 8],
        &[0, 8192 - 7, u64::MAX],
    ),
    (|s, n| s.table.truncate(n as usize), &[3], &[2]),
    // As many regions as the bitmap has bits.
    (
        |s, n| {
            let sectors = |entry: &mut MemberEntry| entry.sectors = Sectors(n);
            s.table.iter_mut().for_each(sectors);
        },
        &[251_658_240],
        &[251_658_240 + 128],
    ),
    // Other levels have no journal.
    (
        |s, n| (s.level, s.journal_slots) = (Level::Raid1, n as u32),
        &[0],
        &[16],
    ),
    // Members one after the other are added up.
    (
        |s, n| {
            (s.level, s.journal_slots) = (Level::Linear, 0);
            s.table[2].sectors = Sectors(n);
        },
        &[LIMIT - 8],
        &[u64::MAX],
    ),
    // A level without redundancy has no use for a bitmap.
    (
        |s, n| {
            (s.level, s.journal_slots) = (Level::Raid0, 0);
            s.region = Sectors(n);
        },
        &[1],
        &[0],
    ),
    // A record has to fit a buffer.
    (
        |s, n| {
            (s.data_at, s.region) = (Sectors(1 << 30), Sectors(8192));
            s.chunk = Sectors(n);
        },
        &[2048],
        &[4096],
    ),
];

/// A checksum does not prove that the numbers are possible.
#[test]
fn numbers_that_cannot_be_are_refused() {
    for (i, (change, possible, impossible)) in CHANGES.into_iter().enumerate() {
        let all = possible.iter().map(|n| (n, true));
        for (n, is_possible) in all.chain(impossible.iter().map(|n| (n, false))) {
            let mut changed = sample();
            change(&mut changed, *n);
            let read = read_back(&changed);
            assert_eq!(read, is_possible.then_some(changed), "change {i} to {n}");
        }
    }
}

#[test]
fn every_changed_byte_is_seen() {
    let mut block = vec![0; BLOCK_BYTES];
    sample().encode(&mut block);
    for at in 0..BLOCK_BYTES {
        block[at] ^= 1;
        assert_eq!(ArraySuperblock::decode(&block), None, "byte {at}");
        block[at] ^= 1;
    }
}

/// Returns a checksum of all written bytes.
fn sum(write: impl FnOnce(&mut [u8])) -> u64 {
    let mut block = vec![0xff; BLOCK_BYTES];
    write(&mut block);
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &block)
}

fn uuid(first: u8) -> Uuid {
    Uuid::from_bytes(std::array::from_fn(|i| first + i as u8))
}

fn full() -> ArraySuperblock {
    let states = [
        MemberState::InSync,
        MemberState::Rebuilding { whole: false },
        MemberState::Rebuilding { whole: true },
        MemberState::Failed { whole: false },
        MemberState::Failed { whole: true },
    ];
    let entry = |(i, state): (u64, MemberState)| MemberEntry {
        uuid: uuid(i as u8),
        state,
        sectors: Sectors(0x0001_0203_0405_0607 + i),
        checkpoint: Sectors(0x1112_1314_1516_1718 + i),
        failed_at: 0x2122_2324_2526_2728 + i,
        map_writes: 0x2a2b_2c2d + i as u32,
    };
    let position = |i: u64| Position {
        generation: uuid(100 + i as u8),
        event: 0x3132_3334_3536_3738 - i,
    };
    let lost = |i: u64| Extent::new(Lba(0x0042_4344_4546_4748 + i), Sectors(0x51_5253 + i));
    ArraySuperblock {
        array: uuid(200),
        member: uuid(210),
        role: 0x6162,
        events: 0x7172_7374_7576_7778,
        generation: uuid(220),
        history: (0..17).map(position).collect(),
        sealed: 0x0122_4364_8586_a7c8,
        name: "a name of 32 bytes, all of it ü".into(),
        level: Level::Raid5,
        block: Sectors(8),
        chunk: Sectors(0x8182_8384),
        data_at: Sectors(0x9192_9394_9596_9798),
        region: Sectors(0xa1a2_a3a4_a5a6_a7a8),
        journal_slots: 0xb1b2_b3b4,
        table: (1..33).zip(states.into_iter().cycle()).map(entry).collect(),
        bad: (0..119).map(lost).collect(),
        gaps: vec![Gap {
            role: 31,
            extent: lost(119),
        }],
        scrubbed: Scrubbed {
            since: 0xc1c2_c3c4_c5c6_c7c8,
            ended: true,
        },
    }
}

#[test]
fn a_superblock_has_the_bytes_that_it_always_had() {
    let full = full();
    assert_eq!(
        (full.table.len(), full.name.len()),
        (MEMBERS_MAX, NAME_BYTES_MAX)
    );
    let few = ArraySuperblock {
        role: ROLE_SPARE,
        history: Vec::new(),
        name: "few".into(),
        level: Level::Raid1,
        block: Sectors(1),
        table: full.table[..2].to_vec(),
        bad: Vec::new(),
        gaps: Vec::new(),
        scrubbed: Scrubbed::default(),
        ..full.clone()
    };
    let sums = [full, few].map(|superblock| sum(|block| superblock.encode(block)));
    assert_eq!(sums, [0xf4bb_a116_6782_22d5, 0x55f4_7804_b32a_4e68]);
}

proptest! {
    #[test]
    fn nonsense_with_a_right_checksum_does_no_harm(
        at in 8..BLOCK_BYTES, bytes in prop::collection::vec(any::<u8>(), 1..16)
    ) {
        let mut block = vec![0; BLOCK_BYTES];
        sample().encode(&mut block);
        let end = (at + bytes.len()).min(BLOCK_BYTES);
        block[at..end].copy_from_slice(&bytes[..end - at]);
        set_checksum(&mut block);
        if let Some(read) = ArraySuperblock::decode(&block) {
            let mut again = vec![0; BLOCK_BYTES];
            read.encode(&mut again);
            prop_assert_eq!(ArraySuperblock::decode(&again), Some(read));
        }
    }
}
