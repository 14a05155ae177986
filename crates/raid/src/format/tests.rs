//! What is written of everything, as a checksum of all its bytes: it stays what it was.

use super::bitmap;
use super::journal::{Entry, Record, Run};
use super::*;
use crate::levels::{Level, MEMBERS_MAX};
use block::{Extent, Lba};
use crc_fast::{CrcAlgorithm, checksum};

fn sum(write: impl FnOnce(&mut [u8])) -> u64 {
    let mut block = vec![0xff; BLOCK_BYTES];
    write(&mut block);
    checksum(CrcAlgorithm::Crc64Nvme, &block)
}

fn uuid(first: u8) -> Uuid {
    Uuid(std::array::from_fn(|i| first + i as u8))
}

fn superblock() -> Superblock {
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
    };
    let position = |i: u64| Position {
        generation: uuid(100 + i as u8),
        event: 0x3132_3334_3536_3738 - i,
    };
    let lost = |i: u64| Extent::new(Lba(0x0042_4344_4546_4748 + i), Sectors(0x51_5253 + i));
    Superblock {
        array: uuid(200),
        member: uuid(210),
        role: 0x6162,
        events: 0x7172_7374_7576_7778,
        generation: uuid(220),
        history: (0..17).map(position).collect(),
        sealed: 0x0122_4364_8586_a7c8,
        revision: 9,
        name: "a name of 32 bytes, all of it ü".into(),
        level: Level::Raid5,
        block: Sectors(8),
        chunk: Sectors(0x8182_8384),
        data_at: Sectors(0x9192_9394_9596_9798),
        region: Sectors(0xa1a2_a3a4_a5a6_a7a8),
        journal_slots: 0xb1b2_b3b4,
        table: (1..33).zip(states.into_iter().cycle()).map(entry).collect(),
        bad: (0..120).map(lost).collect(),
        scrubbed: Scrubbed {
            since: 0xc1c2_c3c4_c5c6_c7c8,
            ended: true,
        },
    }
}

#[test]
fn a_superblock_has_the_bytes_that_it_always_had() {
    let full = superblock();
    assert_eq!(
        (full.table.len(), full.name.len()),
        (MEMBERS_MAX, NAME_BYTES_MAX)
    );
    let few = Superblock {
        role: ROLE_SPARE,
        history: Vec::new(),
        name: "few".into(),
        level: Level::Raid1,
        block: Sectors(1),
        table: full.table[..2].to_vec(),
        bad: Vec::new(),
        scrubbed: Scrubbed::default(),
        ..full.clone()
    };
    let sums = [full, few].map(|superblock| sum(|block| superblock.encode(block)));
    assert_eq!(sums, [0xadae_6a4b_373d_0e38, 0xb7a7_1af1_2485_d313]);
}

#[test]
fn a_bitmap_has_the_bytes_that_it_always_had() {
    let regions: Vec<_> = (0..bitmap::REGIONS).filter(|r| r * r % 7 == 2).collect();
    let none = sum(|block| bitmap::encode(block, uuid(1), 0, &[]));
    let some = sum(|block| bitmap::encode(block, uuid(2), 11, &regions));
    assert_eq!([none, some], [0xdfc7_03ff_947c_f751, 0xbd83_8c51_ba02_f2c0]);
}

#[test]
fn a_journal_record_has_the_bytes_that_it_always_had() {
    let run = |i: usize| Run {
        member: 31 - i,
        from: Sectors(0x0102_0304 + i as u64),
        len: Sectors(0x1112_1314 + i as u64),
    };
    let record = |headers, entry| Record {
        array: uuid(3),
        number: 0x2122_2324_2526_2728,
        tail: 0x3132_3334_3536_3738,
        durable: 0x4142_4344_4546_4748,
        headers,
        stripe: 0x5152_5354_5556_5758,
        entry,
    };
    let redo = |runs| Entry::Redo {
        runs: (0..runs).map(run).collect(),
        sum: 0x6162_6364,
    };
    let whole = (0..32).map(|i| 0x7172_7374 + i).collect();
    let records = [
        record(1, redo(1)),
        record(2, redo(32)),
        record(2, Entry::Whole(whole)),
        record(1, Entry::Retire),
        record(2, Entry::Revoked),
    ];
    let sums = records.map(|record| sum(|block| record.encode(block)));
    assert_eq!(
        sums,
        [
            0x645a_20de_de2e_3d42,
            0x0ab8_3813_08d2_5d41,
            0xd542_8fe8_3ddb_fadc,
            0x9138_05b9_f04d_8edd,
            0x2c6b_0577_00b0_ddf2
        ]
    );
}
