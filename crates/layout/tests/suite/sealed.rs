//! Decoders on blocks with right checksums and arbitrary numbers; the fuzzer goes on with them.

mod decoders;

use block::Sectors;
use decoders::{Kind, OWNER, is_taken, reads_alike, seal};
use layout::array::{bitmap, journal, superblock};
use layout::{
    BLOCK_BYTES, Became, JOURNAL_HALF_MIN, JournalCommit, JournalSuperblock, LogRecord,
    LogSuperblock, RecordExtent, Segment, SegmentCopy, SummaryWriter, Uuid, block_crc,
};
use proptest::prelude::*;

fn record() -> LogRecord {
    let extent = |block, became| RecordExtent {
        block,
        count: 1,
        became,
    };
    LogRecord {
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
        extents: vec![extent(7, Became::Data), extent(9, Became::Zero)],
        crcs: vec![block_crc(&[0; BLOCK_BYTES])],
    }
}

fn log_superblock() -> LogSuperblock {
    let text = || String::from("db");
    LogSuperblock {
        copy: Some(1),
        may_be_dirty: true,
        mask: [true; 2],
        log: Uuid(3),
        sequence: 4,
        epoch: 5,
        incarnation: 6,
        segments: 7,
        sectors: 8,
        opened_at: 9,
        volume: text(),
        devices: [text(), text()],
        host: text(),
        identity: vec![1, 2, 3],
        journal: Some((Uuid(1), text())),
        record: vec![9; 33],
    }
}

fn array_record() -> journal::JournalRecord {
    let run = |member| journal::ChunkRun {
        member,
        from: Sectors(8),
        len: Sectors(8),
    };
    let runs = vec![run(0), run(2)];
    journal::JournalRecord {
        array: OWNER,
        number: 4,
        tail: 2,
        durable: 3,
        headers: 2,
        stripe: 5,
        entry: journal::JournalEntry::Redo { runs, sum: 6 },
    }
}

fn sound(kind: Kind) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    match kind {
        Kind::LogSuperblock => log_superblock().encode(&mut block),
        Kind::Segment => {
            let copy = |member, slot| SegmentCopy { member, slot };
            let mut summary = SummaryWriter::new(0, 0, 1);
            summary.push(&record());
            let segment = Segment {
                number: 1,
                incarnation: 2,
                log: 3,
                copies: [copy(0, 5), copy(1, 6)],
                summary: Some(summary.finish(1, 1)),
            };
            segment.encode(OWNER, &mut block);
        }
        Kind::Record => record().encode(OWNER, &mut block),
        Kind::JournalSuperblock => JournalSuperblock {
            journal: Uuid(1),
            log: Uuid(2),
            sequence: 3,
            retired: 4,
            half: JOURNAL_HALF_MIN,
            sectors: 5,
            volume: "db".into(),
            identity: vec![1],
        }
        .encode(&mut block),
        Kind::JournalCommit => {
            let commit = JournalCommit {
                group: 1,
                incarnation: 2,
                to: 3,
                written_at: 4,
                records: 5,
                blocks: 6,
            };
            commit.encode(OWNER, &mut block);
        }
        Kind::ArraySuperblock => superblock::SuperblockRow::ZERO.seal(&mut block),
        Kind::ArrayBitmap => bitmap::encode(&mut block, OWNER, 0, 7, &[0, 9, bitmap::REGIONS - 1]),
        Kind::ArrayRecord => array_record().encode(&mut block),
    }
    block
}

/// `seal` gives the same bytes as the encoders, or the cases below would reach nothing.
#[test]
fn every_decoder_is_reached() {
    for kind in Kind::ALL {
        let block = sound(kind);
        assert!(is_taken(kind, &block), "{kind:?}");
        let mut sealed = block.clone();
        seal(kind, &mut sealed);
        assert_eq!(sealed, block, "{kind:?}");
        sealed[0] ^= 1;
        assert!(!is_taken(kind, &sealed), "{kind:?}");
    }
}

#[test]
#[should_panic = "assertion"]
fn what_is_not_read_alike_is_seen() {
    let decode = |block: &[u8]| Some(block[0]);
    let _ = reads_alike(&[3], decode, |byte, out| out[0] = byte & 1);
}

/// A journal's superblock with halves beyond every device, and a record of blocks that have no
/// sectors: the checksums of both are right.
#[test]
fn places_that_have_no_address_are_refused() {
    let patched = |kind, at: usize, value: u64| {
        let mut block = sound(kind);
        block[at..at + 8].copy_from_slice(&value.to_le_bytes());
        seal(kind, &mut block);
        is_taken(kind, &block)
    };
    let half = |value| patched(Kind::JournalSuperblock, 64, value);
    assert!(half(JOURNAL_HALF_MIN) && half(1 << 59));
    assert!(!half(0) && !half(JOURNAL_HALF_MIN - 1) && !half(1 << 60) && !half(u64::MAX));
    let first = 32 + layout::RecordRow::BYTES;
    let extent = |value| patched(Kind::Record, first, value);
    assert!(extent((1 << 61) - 2));
    assert!(!extent((1 << 61) - 1) && !extent(u64::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn what_is_taken_is_in_bounds_and_read_alike(
        kind in prop::sample::select(&Kind::ALL[..]),
        patches in prop::collection::vec((0..320usize, any::<u8>()), 0..12),
    ) {
        let mut block = sound(kind);
        for (at, byte) in patches {
            block[at] = byte;
        }
        seal(kind, &mut block);
        is_taken(kind, &block);
    }
}
