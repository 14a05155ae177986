//! The write-back log: written blocks are read back, and damage is detected.

use layout::{
    BLOCK_BYTES, Became, BlockPair, JOURNAL_HALF_MIN, JournalCommit, JournalSuperblock, LOG_NUMBER,
    LogRecord, LogSuperblock, PageError, PageHeader, RECORD_BLOCKS_MAX, RecordExtent,
    RecordExtentRow, RecordRow, SEGMENT_BLOCKS, Segment, SegmentCopy, SummaryWriter,
    SuperblockError, Uuid, block_crc,
};
use proptest::prelude::*;

const POOL: Uuid = Uuid(0x1234_5678);

fn data(blocks: usize, seed: u64) -> Vec<u8> {
    let byte = |i: usize| (i as u64).wrapping_mul(seed | 1).to_le_bytes()[3];
    (0..blocks * BLOCK_BYTES).map(byte).collect()
}

prop_compose! {
    fn record()(
        ids in any::<[u64; 7]>(),
        extents in prop::collection::vec((0..1u64 << 52, 1u32..9, 0u32..3), 0..24),
    ) -> (LogRecord, Vec<u8>) {
        let mut blocks = 0;
        let extents: Vec<_> = extents
            .into_iter()
            .map(|(block, count, what)| {
                let room = blocks + count <= RECORD_BLOCKS_MAX;
                let became = match what {
                    0 if room => Became::Data,
                    1 => Became::Zero,
                    _ => Became::Discarded,
                };
                blocks += if became == Became::Data { count } else { 0 };
                RecordExtent { block, count, became }
            })
            .collect();
        let data = data(blocks as usize, ids[6]);
        let record = LogRecord {
            number: ids[0],
            incarnation: ids[1] as u32,
            segment: ids[2],
            interval: ids[3],
            written_back_to: ids[4],
            fence: ids[5],
            written_at: ids[6],
            durable_to: ids[2],
            complete_to: ids[5],
            log: (ids[1] >> 32) as u32,
            extents,
            crcs: data.chunks(BLOCK_BYTES).map(block_crc).collect(),
        };
        (record, data)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn records((record, mut data) in record(), flip in any::<prop::sample::Index>(), torn in any::<prop::sample::Index>()) {
        let mut block = vec![0xa5; BLOCK_BYTES];
        record.encode(POOL, &mut block);
        prop_assert_eq!(LogRecord::decode(&block, POOL), Ok(record.clone()));
        prop_assert_eq!(LogRecord::decode(&block, Uuid(9)), Err(PageError::Foreign));
        prop_assert_eq!(Segment::decode(&block, POOL), Err(PageError::Foreign));
        prop_assert!(record.has(&data));
        prop_assert_eq!(record.blocks() as usize, 1 + data.len() / BLOCK_BYTES);
        if !data.is_empty() {
            prop_assert!(!record.has(&data[BLOCK_BYTES..]));
            let at = torn.index(data.len());
            data[at] ^= 0x10;
            prop_assert!(!record.has(&data));
        }
        let bit = flip.index(BLOCK_BYTES * 8);
        block[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(LogRecord::decode(&block, POOL), Err(PageError::Checksum));
    }

    #[test]
    fn segments(
        ids in any::<[u64; 3]>(),
        members in any::<[u16; 2]>(),
        records in prop::collection::vec(record(), 0..12),
        incarnations in prop::collection::vec(1..4u32, 12),
        flip in 0..BLOCK_BYTES * 8,
    ) {
        let mut records: Vec<LogRecord> = records.into_iter().map(|(record, _)| record).collect();
        let mut offset = 3;
        let mut summary = SummaryWriter::new(ids[0], 1 << 40, offset);
        for ((number, record), incarnation) in (1 << 40..).zip(&mut records).zip(incarnations) {
            record.number = number;
            record.incarnation = incarnation;
            record.fence = 100 + u64::from(incarnation);
            record.segment = ids[0];
            record.written_back_to = ids[1];
            (record.durable_to, record.complete_to) = (ids[2], 0);
            record.log = 9;
            summary.push(record);
        }
        let blocks: u32 = records.iter().map(LogRecord::blocks).sum();
        let summary = summary.finish(ids[2], ids[1]);
        prop_assert_eq!(summary.end(), (!records.is_empty()).then_some((1 << 40) + records.len() as u64));
        let copy = |member, slot| SegmentCopy { member, slot };
        let segment = Segment {
            number: ids[0],
            incarnation: ids[1] as u32,
            log: (ids[1] >> 32) as u32,
            copies: [copy(members[0], (ids[2] >> 32) as u32), copy(members[1], ids[0] as u32)],
            summary: (ids[2] & 1 == 0).then_some(summary),
        };
        let mut block = vec![0xa5; BLOCK_BYTES];
        segment.encode(POOL, &mut block);
        let decoded = Segment::decode(&block, POOL);
        prop_assert_eq!(&decoded, &Ok(segment));
        if let Some(summary) = decoded.unwrap().summary {
            prop_assert_eq!((summary.durable_to, summary.written_back_to), (ids[2], ids[1]));
            let listed = summary.records(9);
            if offset + blocks > SEGMENT_BLOCKS {
                prop_assert_eq!(listed, Err(PageError::Nonsense));
            } else {
                for ((at, found), record) in listed.unwrap().iter().zip(&records) {
                    prop_assert_eq!((*at, found), (offset, record));
                    offset += record.blocks();
                }
            }
        }
        prop_assert_eq!(LogRecord::decode(&block, POOL), Err(PageError::Foreign));
        block[flip / 8] ^= 1 << (flip % 8);
        prop_assert_eq!(Segment::decode(&block, POOL), Err(PageError::Checksum));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(mut block in prop::collection::vec(any::<u8>(), BLOCK_BYTES), used in 0u32..4096, counts in any::<[u8; 2]>()) {
        for kind in [*b"HSSG", *b"HSRC"] {
            block[4..8].copy_from_slice(&kind);
            block[8..16].copy_from_slice(&POOL.salt().to_le_bytes());
            block[24..28].copy_from_slice(&used.to_le_bytes());
            // Counts that may be true, so that the checks behind them are reached.
            block[32 + 44..32 + 48].copy_from_slice(&[counts[0], 0, counts[1], 0]);
            let crc = crc32c::crc32c(&block[4..]);
            block[..4].copy_from_slice(&crc.to_le_bytes());
            if let Ok(Segment { summary: Some(summary), .. }) = Segment::decode(&block, POOL) {
                let _ = summary.records(1);
            }
            if let Ok(record) = LogRecord::decode(&block, POOL) {
                prop_assert!(record.blocks() <= 1 + RECORD_BLOCKS_MAX);
            }
        }
    }
}

/// The records are as many as a segment has room for, each as short as possible.
#[test]
fn a_summary_has_room_for_the_records_of_databases_and_says_if_it_has_not() {
    let filled = |blocks: u32, extents: u32, step: u64| {
        let mut summary = SummaryWriter::new(0, 0, 1);
        let (mut at, mut number) = (1, 0);
        while at + 1 + blocks <= SEGMENT_BLOCKS {
            let each = blocks / extents;
            let extents = (0..u64::from(extents)).map(|i| RecordExtent {
                block: (number * 1000 + i) * step,
                count: each.max(1),
                became: if blocks == 0 {
                    Became::Zero
                } else {
                    Became::Data
                },
            });
            let record = LogRecord {
                number,
                incarnation: 1 << 20,
                segment: 0,
                interval: number,
                written_back_to: 0,
                fence: 0,
                written_at: number * 10_000_000,
                durable_to: 0,
                complete_to: 0,
                log: 0,
                extents: extents.collect(),
                crcs: vec![u32::MAX; blocks as usize],
            };
            summary.push(&record);
            at += record.blocks();
            number += 1;
        }
        (summary.finish(0, 0).end(), number)
    };
    // Single blocks anywhere on 1 PiB, in records of their own and of many; and longer runs.
    for (blocks, extents) in [(1, 1), (32, 32), (127, 127), (127, 1), (0, 1)] {
        let (end, number) = filled(blocks, extents, 1 << 21);
        assert_eq!(end, Some(number), "{blocks} in {extents}");
    }
    assert_eq!(filled(0, 8, 1 << 40).0, None);
}

/// The number of every log so far: devices that have one stay readable.
#[test]
fn a_segment_and_its_volume_are_numbered_one() {
    let segment = Segment {
        number: 5,
        incarnation: 6,
        log: LOG_NUMBER,
        copies: [0, 1].map(|member| SegmentCopy { member, slot: 7 }),
        summary: None,
    };
    let mut block = vec![0; BLOCK_BYTES];
    segment.encode(POOL, &mut block);
    let numbers = &block[PageHeader::BYTES..PageHeader::BYTES + 8];
    assert_eq!(numbers, [1, 0, 0, 0, 1, 0, 0, 0]);
}

fn sealed(change: impl FnOnce(&mut [u8])) -> Result<LogRecord, PageError> {
    let extent = RecordExtent {
        block: 7,
        count: 1,
        became: Became::Data,
    };
    let record = LogRecord {
        number: 1,
        incarnation: 1,
        segment: 1,
        interval: 1,
        written_back_to: 0,
        fence: 0,
        written_at: 0,
        durable_to: 0,
        complete_to: 0,
        log: 0,
        extents: vec![extent],
        crcs: vec![block_crc(&data(1, 1))],
    };
    let mut block = vec![0; BLOCK_BYTES];
    record.encode(POOL, &mut block);
    change(&mut block[PageHeader::BYTES..]);
    let crc = crc32c::crc32c(&block[4..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
    LogRecord::decode(&block, POOL)
}

#[test]
fn a_record_whose_parts_disagree_is_nonsense() {
    let first = RecordRow::BYTES;
    assert!(sealed(|_| {}).is_ok());
    let nonsense = |change: &dyn Fn(&mut [u8])| {
        assert_eq!(sealed(|body| change(body)), Err(PageError::Nonsense));
    };
    nonsense(&|body| body[44] = 2);
    nonsense(&|body| body[46] = 0);
    nonsense(&|body| body[first + 8] = 0);
    nonsense(&|body| body[first + 8] = 2);
    nonsense(&|body| body[first + 12] = 1);
    nonsense(&|body| body[first + 12] = 3);
    nonsense(&|body| body[first..first + 8].fill(0xff));
    assert_eq!(RecordExtentRow::BYTES, 16);
}

fn superblock(ids: [u64; 5], text: &str) -> LogSuperblock {
    LogSuperblock {
        copy: [None, Some(0), Some(1)][ids[0] as usize % 3],
        may_be_dirty: ids[0] & 4 != 0,
        mask: [ids[0] & 8 != 0, ids[0] & 16 != 0],
        log: Uuid(u128::from(ids[1]) << 64 | u128::from(ids[2])),
        sequence: ids[3],
        epoch: ids[4],
        incarnation: ids[1] as u32,
        segments: ids[2] as u32,
        sectors: ids[3] ^ 7,
        opened_at: ids[4] ^ 9,
        volume: text.into(),
        devices: [text.into(), String::new()],
        host: text.into(),
        identity: text.as_bytes().to_vec(),
        journal: (ids[0] & 32 != 0).then(|| (Uuid(u128::from(ids[4]) | 1), text.into())),
        record: text.repeat(ids[3] as usize % 33).into_bytes(),
    }
}

proptest! {
    #[test]
    fn superblocks_of_logs(ids in any::<[u64; 5]>(), text in "[a-z0-9.]{0,60}", flip in any::<prop::sample::Index>()) {
        let superblock = superblock(ids, &text);
        let mut block = vec![0xa5; BLOCK_BYTES];
        superblock.encode(&mut block);
        prop_assert_eq!(LogSuperblock::decode(&block), Ok(superblock.clone()));
        let blank = vec![0; BLOCK_BYTES];
        // The remnants of a cut in the first write of all, and in a later one.
        prop_assert_eq!(LogSuperblock::newest([Some(&blank), Some(&block)]), Ok(superblock.clone()));
        prop_assert_eq!(LogSuperblock::newest([None, Some(&block)]), Ok(superblock));
        let bit = flip.index(BLOCK_BYTES * 8);
        block[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(LogSuperblock::decode(&block).is_err());
    }
}

#[test]
fn of_two_superblocks_of_a_log_the_newer_holds_and_noise_in_the_first_hides_nothing() {
    let block = |sequence| {
        let mut block = vec![0; BLOCK_BYTES];
        superblock([1, 2, 3, sequence, 5], "db").encode(&mut block);
        block
    };
    let (older, newer) = (block(6), block(7));
    for blocks in [[&older, &newer], [&newer, &older]] {
        let blocks = blocks.map(|block| Some(&block[..]));
        assert_eq!(LogSuperblock::newest(blocks).unwrap().sequence, 7);
    }
    let mut torn = newer.clone();
    torn[..512].fill(0);
    let newest = |first: &[u8]| LogSuperblock::newest([Some(first), Some(&older)]);
    assert_eq!(newest(&torn).unwrap().sequence, 6);
    torn[600] = 1;
    torn[511] = 1;
    assert_eq!(newest(&torn).unwrap().sequence, 6);
    assert_eq!(newest(&[0xa5; BLOCK_BYTES]).unwrap().sequence, 6);
    // A wrong bit in its magic.
    torn = newer.clone();
    torn[3] ^= 0x10;
    assert_eq!(newest(&torn).unwrap().sequence, 6);
    // A new file system there, though the second copy is left.
    torn[1080..1082].copy_from_slice(b"\x53\xef");
    assert!(matches!(newest(&torn), Err(SuperblockError::Foreign(_))));
    let legible = BlockPair::<LogSuperblock>::legible([Some(&torn), Some(&older)]);
    assert_eq!(legible.unwrap().sequence, 6);
    let blank = vec![0; BLOCK_BYTES];
    let both = [Some(&blank[..]), Some(&blank[..])];
    assert_eq!(LogSuperblock::newest(both), Err(SuperblockError::Blank));
}

proptest! {
    #[test]
    fn journals(ids in any::<[u64; 5]>(), text in "[a-z0-9.]{0,60}", flip in any::<prop::sample::Index>()) {
        let superblock = JournalSuperblock {
            journal: Uuid(u128::from(ids[0])),
            log: Uuid(u128::from(ids[1])),
            sequence: ids[2],
            retired: ids[3],
            half: JOURNAL_HALF_MIN + (ids[4] >> 6),
            sectors: ids[4] ^ 7,
            volume: text.clone(),
            identity: text.into_bytes(),
        };
        let commit = JournalCommit {
            group: ids[0],
            incarnation: ids[1] as u32,
            to: ids[2],
            written_at: ids[3],
            records: ids[4],
            blocks: ids[4] ^ 7,
        };
        let mut blocks = [vec![0xa5; BLOCK_BYTES], vec![0xa5; BLOCK_BYTES]];
        superblock.encode(&mut blocks[0]);
        commit.encode(POOL, &mut blocks[1]);
        prop_assert_eq!(JournalSuperblock::decode(&blocks[0]), Ok(superblock));
        prop_assert_eq!(JournalCommit::decode(&blocks[1], POOL), Ok(commit));
        prop_assert_eq!(JournalCommit::decode(&blocks[1], Uuid(1)), Err(PageError::Foreign));
        prop_assert_eq!(LogRecord::decode(&blocks[1], POOL), Err(PageError::Foreign));
        let bit = flip.index(BLOCK_BYTES * 8);
        blocks.iter_mut().for_each(|block| block[bit / 8] ^= 1 << (bit % 8));
        prop_assert!(JournalSuperblock::decode(&blocks[0]).is_err());
        prop_assert!(JournalCommit::decode(&blocks[1], POOL).is_err());
    }
}
