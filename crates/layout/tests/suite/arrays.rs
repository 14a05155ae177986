//! The bytes written of an array's bitmap and journal, pinned by a checksum of all of them.

use block::Sectors;
use crc_fast::{CrcAlgorithm, checksum};
use layout::array::bitmap;
use layout::array::journal::{ChunkRun, JournalEntry, JournalRecord};
use layout::{BLOCK_BYTES, Uuid};

fn sum(write: impl FnOnce(&mut [u8])) -> u64 {
    let mut block = vec![0xff; BLOCK_BYTES];
    write(&mut block);
    checksum(CrcAlgorithm::Crc64Nvme, &block)
}

fn uuid(first: u8) -> Uuid {
    Uuid::from_bytes(std::array::from_fn(|i| first + i as u8))
}

#[test]
fn a_bitmap_has_the_bytes_that_it_always_had() {
    let regions: Vec<_> = (0..bitmap::REGIONS).filter(|r| r * r % 7 == 2).collect();
    let none = sum(|block| bitmap::encode(block, uuid(1), 0, 0, &[]));
    let some = sum(|block| bitmap::encode(block, uuid(2), 11, 0, &regions));
    assert_eq!([none, some], [0xdfc7_03ff_947c_f751, 0xbd83_8c51_ba02_f2c0]);
}

#[test]
fn a_write_of_a_bitmap_that_was_torn_shows() {
    let mut older = vec![0; BLOCK_BYTES];
    let mut newer = older.clone();
    bitmap::encode(&mut older, uuid(1), 0, 7, &[0]);
    bitmap::encode(&mut newer, uuid(1), 0, 8, &[]);
    for at in (0..=BLOCK_BYTES).step_by(512) {
        let torn = [&newer[..at], &older[at..]].concat();
        let is_whole = at == 0 || at == BLOCK_BYTES;
        assert_eq!(bitmap::is_of_one_write(&torn, uuid(1), 0), is_whole, "{at}");
    }
    assert!(!bitmap::is_of_one_write(&older, uuid(2), 0));
}

#[test]
fn a_journal_record_has_the_bytes_that_it_always_had() {
    let run = |i: u32| ChunkRun {
        member: 31 - i,
        from: Sectors(0x0102_0304 + u64::from(i)),
        len: Sectors(0x1112_1314 + u64::from(i)),
    };
    let record = |headers, entry| JournalRecord {
        array: uuid(3),
        number: 0x2122_2324_2526_2728,
        tail: 0x3132_3334_3536_3738,
        durable: 0x4142_4344_4546_4748,
        headers,
        stripe: 0x5152_5354_5556_5758,
        entry,
    };
    let redo = |runs: u32| JournalEntry::Redo {
        runs: (0..runs).map(run).collect(),
        sum: 0x6162_6364,
    };
    let whole = (0..32).map(|i| 0x7172_7374 + i).collect();
    let records = [
        record(1, redo(1)),
        record(2, redo(32)),
        record(2, JournalEntry::Whole(whole)),
        record(1, JournalEntry::Retire),
        record(2, JournalEntry::Revoked),
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
