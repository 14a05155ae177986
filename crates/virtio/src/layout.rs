//! The format of virtio-blk (Virtual I/O Device 1.2, 5.2): features, the configuration space, and
//! the header of a request.

use block::{Geometry, PAGE_BYTES, SECTOR_BYTES};
use virtio_bindings::bindings::virtio_blk as blk;
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC,
};

/// Bytes of the longest segment of a request.
const SEGMENT_MAX: u32 = 16 << 10;
/// Most segments of a request. Their bytes are less than `block::Gate` takes.
pub(crate) const SEGMENTS_MAX: u32 = 126;
/// Most bytes of a request.
pub(crate) const REQUEST_MAX: u32 = SEGMENT_MAX * SEGMENTS_MAX;
/// Sectors of the longest discard or zeroing: a request holds its range meanwhile.
pub(crate) const DISCARD_MAX: u32 = (32 << 20) / SECTOR_BYTES as u32;
/// Bytes of a request's header.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of the range of a discard or zeroing.
pub(crate) const RANGE_BYTES: usize = 16;
/// Bytes of the identifier of the disk that a guest may read.
pub(crate) const ID_BYTES: usize = blk::VIRTIO_BLK_ID_BYTES as usize;
/// Bytes of the configuration space in use.
const CONFIG_BYTES: usize = 60;

/// Operations that a guest requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GuestVerb {
    Read,
    Write,
    Flush,
    Id,
    Discard,
    Zero,
}

impl GuestVerb {
    /// Returns the verb of a header; `None` if it is not offered.
    pub(crate) fn decode(kind: u32) -> Option<GuestVerb> {
        Some(match kind {
            blk::VIRTIO_BLK_T_IN => GuestVerb::Read,
            blk::VIRTIO_BLK_T_OUT => GuestVerb::Write,
            blk::VIRTIO_BLK_T_FLUSH => GuestVerb::Flush,
            blk::VIRTIO_BLK_T_GET_ID => GuestVerb::Id,
            blk::VIRTIO_BLK_T_DISCARD => GuestVerb::Discard,
            blk::VIRTIO_BLK_T_WRITE_ZEROES => GuestVerb::Zero,
            _ => return None,
        })
    }
}

/// The bit of a feature.
const fn bit(feature: u32) -> u64 {
    1 << feature
}

/// Returns true if a guest with `features` flushes writes that are to be durable.
pub(crate) fn flushes(features: u64) -> bool {
    features & bit(blk::VIRTIO_BLK_F_FLUSH) != 0
}

/// Returns true if `features` has notifications by index.
pub(crate) fn has_event_index(features: u64) -> bool {
    features & bit(VIRTIO_RING_F_EVENT_IDX) != 0
}

/// Returns the features of a disk.
pub(crate) fn features(read_only: bool) -> u64 {
    let mut features = bit(VIRTIO_F_VERSION_1)
        | bit(VIRTIO_RING_F_EVENT_IDX)
        | bit(VIRTIO_RING_F_INDIRECT_DESC)
        | bit(blk::VIRTIO_BLK_F_SIZE_MAX)
        | bit(blk::VIRTIO_BLK_F_SEG_MAX)
        | bit(blk::VIRTIO_BLK_F_BLK_SIZE)
        | bit(blk::VIRTIO_BLK_F_TOPOLOGY)
        | bit(blk::VIRTIO_BLK_F_FLUSH)
        | bit(blk::VIRTIO_BLK_F_MQ);
    features |= match read_only {
        true => bit(blk::VIRTIO_BLK_F_RO),
        false => bit(blk::VIRTIO_BLK_F_DISCARD) | bit(blk::VIRTIO_BLK_F_WRITE_ZEROES),
    };
    features
}

/// Returns the configuration space of a disk with this geometry.
pub(crate) fn config(geometry: &Geometry, queues: u16) -> [u8; CONFIG_BYTES] {
    let block = geometry.block.bytes() as u32;
    // A volume is cached in pages: smaller writes are read, merged and written.
    let physical = (PAGE_BYTES as u32).max(block);
    let optimal = geometry.optimal.bytes() as u32;
    let mut bytes = [0; CONFIG_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &geometry.sectors.0.to_le_bytes());
    put(8, &SEGMENT_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(20, &block.to_le_bytes());
    put(24, &[(physical / block).ilog2() as u8]);
    put(26, &((physical / block) as u16).to_le_bytes());
    put(28, &(optimal.max(physical) / block).to_le_bytes());
    put(32, &[1]);
    put(34, &queues.to_le_bytes());
    put(36, &DISCARD_MAX.to_le_bytes());
    put(40, &1u32.to_le_bytes());
    put(44, &(block / SECTOR_BYTES as u32).to_le_bytes());
    put(48, &DISCARD_MAX.to_le_bytes());
    put(52, &1u32.to_le_bytes());
    put(56, &[1]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Sectors;

    #[test]
    fn a_guest_sees_the_size_and_the_limits() {
        let mut geometry = Geometry::new("disk", Sectors(0x1_0000_0008), Sectors(1));
        geometry.optimal = Sectors(128);
        let bytes = config(&geometry, 3);
        assert_eq!(bytes[..8], [8, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[20..24], 512u32.to_le_bytes());
        assert_eq!((bytes[24], bytes[26], bytes[28]), (3, 8, 128));
        assert_eq!((bytes[34], bytes[35]), (3, 0));
        assert!(u64::from(REQUEST_MAX) <= 2 << 20);
        let blocks = Geometry::new("disk", Sectors(64), Sectors(8));
        let bytes = config(&blocks, 1);
        assert_eq!((bytes[24], bytes[26], bytes[44]), (0, 1, 8));
    }

    #[test]
    fn a_read_only_disk_offers_nothing_that_writes() {
        let writes = features(false) & !features(true);
        let expected = bit(blk::VIRTIO_BLK_F_DISCARD) | bit(blk::VIRTIO_BLK_F_WRITE_ZEROES);
        assert_eq!(writes, expected);
        assert!(features(true) & bit(blk::VIRTIO_BLK_F_RO) != 0);
        assert!(flushes(features(false)) && has_event_index(features(false)));
    }
}
