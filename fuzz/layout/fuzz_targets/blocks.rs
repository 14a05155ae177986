#![no_main]
//! Every decoder of a pool device's metadata, on bytes with right checksums.

use layout::{
    BLOCK_BYTES, SUPERBLOCK_BLOCKS, Superblock, LogReader, LogSuperblock, MapPage, Bitmap, Record,
    Segment, Uuid,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    bytes.resize(SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES, 0);
    let _ = Superblock::decode(&bytes);
    let crc = crc32c::crc32c(&bytes[..BLOCK_BYTES - 4]);
    bytes[BLOCK_BYTES - 4..BLOCK_BYTES].copy_from_slice(&crc.to_le_bytes());
    if let Ok(superblock) = Superblock::decode(&bytes) {
        assert!(superblock.fits());
        let mut again = vec![0; bytes.len()];
        superblock.encode(&mut again);
        assert_eq!(Superblock::decode(&again), Ok(superblock));
    }
    if let Ok(log) = LogSuperblock::decode(&bytes[..BLOCK_BYTES]) {
        let mut again = vec![0; BLOCK_BYTES];
        log.encode(&mut again);
        assert_eq!(LogSuperblock::decode(&again), Ok(log));
    }
    let crc = crc32c::crc32c(&bytes[4..BLOCK_BYTES]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    let block = &bytes[..BLOCK_BYTES];
    let field = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let device = Uuid(field(8).into());
    let line_blocks = 1 << (block[28] % 9);
    let _ = Bitmap::decode(block, device);
    let mut again = vec![0; BLOCK_BYTES];
    if let Ok(segment) = Segment::decode(block, device) {
        segment.encode(device, &mut again);
        assert_eq!(Segment::decode(&again, device), Ok(segment));
    }
    if let Ok(record) = Record::decode(block, device) {
        record.encode(device, &mut again);
        assert_eq!(Record::decode(&again, device), Ok(record));
    }
    let _ = MapPage::decode(block, device, line_blocks, field(16), (field(24) >> 32) as u32);
    if let Ok(log) = LogReader::open(block, device, line_blocks, field(16)) {
        assert!(log.count() <= BLOCK_BYTES);
    }
});
