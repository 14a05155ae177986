//! The write-back log: what was written is read again, and damage is detected.

use layout::{
    BLOCK_BYTES, Became, PageError, PageHeader, RECORD_BLOCKS_MAX, Record, RecordExtent,
    RecordExtentRow, RecordRow, Segment, SegmentCopy, Uuid, block_crc,
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
    ) -> (Record, Vec<u8>) {
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
        let record = Record {
            number: ids[0],
            incarnation: ids[1] as u32,
            segment: ids[2],
            interval: ids[3],
            done_to: ids[4],
            fence: ids[5],
            written_at: ids[6],
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
        prop_assert_eq!(Record::decode(&block, POOL), Ok(record.clone()));
        prop_assert_eq!(Record::decode(&block, Uuid(9)), Err(PageError::Foreign));
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
        prop_assert_eq!(Record::decode(&block, POOL), Err(PageError::Checksum));
    }

    #[test]
    fn segments(ids in any::<[u64; 3]>(), members in any::<[u16; 2]>(), flip in 0..BLOCK_BYTES * 8) {
        let copy = |member, slot| SegmentCopy { member, slot };
        let segment = Segment {
            number: ids[0],
            incarnation: ids[1] as u32,
            log: (ids[1] >> 32) as u32,
            volume: ids[2] as u32,
            copies: [copy(members[0], (ids[2] >> 32) as u32), copy(members[1], ids[0] as u32)],
        };
        let mut block = vec![0xa5; BLOCK_BYTES];
        segment.encode(POOL, &mut block);
        prop_assert_eq!(Segment::decode(&block, POOL), Ok(segment));
        prop_assert_eq!(Record::decode(&block, POOL), Err(PageError::Foreign));
        block[flip / 8] ^= 1 << (flip % 8);
        prop_assert_eq!(Segment::decode(&block, POOL), Err(PageError::Checksum));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(mut block in prop::collection::vec(any::<u8>(), BLOCK_BYTES), used in 0u32..4096, counts in any::<[u8; 2]>()) {
        for kind in [*b"HSSG", *b"HSRC"] {
            block[4..8].copy_from_slice(&kind);
            block[8..16].copy_from_slice(&POOL.salt().to_le_bytes());
            block[24..28].copy_from_slice(&used.to_le_bytes());
            // Counts that may be true, so that what follows them is reached.
            block[32 + 44..32 + 48].copy_from_slice(&[counts[0], 0, counts[1], 0]);
            let crc = crc32c::crc32c(&block[4..]);
            block[..4].copy_from_slice(&crc.to_le_bytes());
            let _ = Segment::decode(&block, POOL);
            if let Ok(record) = Record::decode(&block, POOL) {
                prop_assert!(record.blocks() <= 1 + RECORD_BLOCKS_MAX);
            }
        }
    }
}

fn sealed(change: impl FnOnce(&mut [u8])) -> Result<Record, PageError> {
    let extent = RecordExtent {
        block: 7,
        count: 1,
        became: Became::Data,
    };
    let record = Record {
        number: 1,
        incarnation: 1,
        segment: 1,
        interval: 1,
        done_to: 0,
        fence: 0,
        written_at: 0,
        log: 0,
        extents: vec![extent],
        crcs: vec![block_crc(&data(1, 1))],
    };
    let mut block = vec![0; BLOCK_BYTES];
    record.encode(POOL, &mut block);
    change(&mut block[PageHeader::BYTES..]);
    let crc = crc32c::crc32c(&block[4..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
    Record::decode(&block, POOL)
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
