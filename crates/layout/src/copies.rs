//! The choice of a superblock from its two copies.

use crate::signature::{UNKNOWN, foreign};
use crate::{
    BITMAP_BLOCKS, BLOCK_BYTES, PlannedArea, PoolRole, PoolSuperblock, SUPERBLOCK_BLOCKS,
    SuperblockError, newest_bitmap,
};

/// The first copy, from the first [`PROBE_BYTES`](crate::PROBE_BYTES) of a device, or all if there
/// are fewer, `None` if they cannot be read, and of its table area.
pub fn first_superblock(
    start: Option<&[u8]>,
    tail: &[u8],
) -> Result<PoolSuperblock, SuperblockError> {
    match superblock(start, tail) {
        Err(SuperblockError::Blank) => Err(start
            .and_then(foreign)
            .map_or(SuperblockError::Blank, SuperblockError::Foreign)),
        other => other,
    }
}

/// The second copy, from the last bytes of a device, and of its table area. Foreign content there
/// is no evidence: the copy then counts as blank.
pub fn second_superblock(
    end: Option<&[u8]>,
    tail: &[u8],
) -> Result<PoolSuperblock, SuperblockError> {
    match superblock(end, tail) {
        Err(SuperblockError::Foreign(_)) => Err(SuperblockError::Blank),
        other => other,
    }
}

fn superblock(bytes: Option<&[u8]>, tail: &[u8]) -> Result<PoolSuperblock, SuperblockError> {
    bytes.map_or(
        Err(SuperblockError::Damaged("it cannot be read")),
        |bytes| PoolSuperblock::decode(bytes, tail),
    )
}

/// The superblock that holds, of its two copies and the bytes of the first. If neither can be read:
/// the state of the better one.
///
/// A blank device gets its second copy before its first when it becomes a member. After a power cut
/// between the two, the device is blank, or has the second copy and no first sector.
pub fn current_superblock(
    start: Option<&[u8]>,
    first: Result<PoolSuperblock, SuperblockError>,
    second: Result<PoolSuperblock, SuperblockError>,
) -> Result<PoolSuperblock, SuperblockError> {
    let begun = |start: &[u8]| start.iter().take(512).all(|byte| *byte == 0);
    match (first, second) {
        (Err(SuperblockError::Blank), Err(SuperblockError::Damaged(_))) => {
            Err(SuperblockError::Blank)
        }
        (Err(SuperblockError::Foreign(UNKNOWN)), Ok(superblock))
            if start.is_some_and(begun) || is_ours(start, &superblock) =>
        {
            Ok(superblock)
        }
        // A first copy overwritten with other foreign content: the device is not ours any more.
        (Err(SuperblockError::Foreign(what)), Ok(_)) => Err(SuperblockError::Foreign(what)),
        (first, second) => newest(first, second),
    }
}

/// True if the first copy alone is noise: the bytes after it are the device's own.
fn is_ours(start: Option<&[u8]>, superblock: &PoolSuperblock) -> bool {
    let (Some(start), from) = (start, SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES) else {
        return false;
    };
    let bitmap = start.get(from..from + BITMAP_BLOCKS as usize * BLOCK_BYTES);
    let bitmap = bitmap.and_then(|bitmap| newest_bitmap(bitmap, superblock.device));
    superblock.role == PoolRole::Witness && start.len() == from || bitmap.is_some()
}

/// The superblock of a witness, of which `read` has the blocks.
pub fn witness_superblock(
    read: impl Fn(PlannedArea) -> Option<Vec<u8>>,
) -> Result<PoolSuperblock, SuperblockError> {
    let [first, second] = [0, 1].map(|copy| {
        let area = PlannedArea {
            start: copy as u64 * SUPERBLOCK_BLOCKS,
            blocks: SUPERBLOCK_BLOCKS,
        };
        let Some(bytes) = read(area) else {
            return superblock(None, &[]);
        };
        let tail = PoolSuperblock::table_area(&bytes, copy).and_then(&read);
        superblock(Some(&bytes), &tail.unwrap_or_default())
    });
    newest(first, second)
}

/// The newer of two copies. If neither can be read: the state of the better one.
pub fn newest(
    a: Result<PoolSuperblock, SuperblockError>,
    b: Result<PoolSuperblock, SuperblockError>,
) -> Result<PoolSuperblock, SuperblockError> {
    let rank = |error: &SuperblockError| match error {
        SuperblockError::Version(_) => 0,
        SuperblockError::Damaged(_) => 1,
        SuperblockError::Foreign(_) => 2,
        SuperblockError::Blank => 3,
    };
    match (a, b) {
        // A newer version has written here since: the other copy is old.
        (Err(SuperblockError::Version(v)), _) | (_, Err(SuperblockError::Version(v))) => {
            Err(SuperblockError::Version(v))
        }
        (Ok(a), Ok(b)) => Ok(if a.sequence >= b.sequence { a } else { b }),
        (Ok(superblock), Err(_)) | (Err(_), Ok(superblock)) => Ok(superblock),
        (Err(a), Err(b)) => Err(if rank(&a) <= rank(&b) { a } else { b }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bitmap, PROBE_BYTES, Uuid, VolumeTable};

    const SUPERBLOCK_BYTES: usize = SUPERBLOCK_BLOCKS as usize * crate::BLOCK_BYTES;

    fn bytes(sequence: u64) -> Vec<u8> {
        let superblock = PoolSuperblock {
            role: PoolRole::Witness,
            clean: false,
            pool: Uuid(1),
            device: Uuid(2),
            sequence,
            epoch: 1,
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
            name: "device".into(),
            host: "host".into(),
            members: Vec::new(),
            volumes: VolumeTable::default(),
        };
        let mut out = vec![0; SUPERBLOCK_BYTES];
        superblock.encode(&mut out);
        out
    }

    /// The judgement of a device with these bytes at its start and its end.
    fn holds(start: &[u8], end: &[u8]) -> Result<u64, SuperblockError> {
        let mut probe = vec![0; PROBE_BYTES];
        probe[..start.len()].copy_from_slice(start);
        let first = first_superblock(Some(&probe), &[]);
        current_superblock(Some(&probe), first, second_superblock(Some(end), &[]))
            .map(|superblock| superblock.sequence)
    }

    #[test]
    fn either_copy_holds_and_the_newer_one_if_both_do() {
        let (old, new, blank) = (bytes(1), bytes(2), vec![0; SUPERBLOCK_BYTES]);
        assert_eq!(holds(&old, &new), Ok(2));
        assert_eq!(holds(&new, &old), Ok(2));
        assert_eq!(holds(&old, &blank), Ok(1));
        assert_eq!(holds(&blank, &old), Ok(1));
        assert_eq!(holds(&blank, &blank), Err(SuperblockError::Blank));
        let unread = || first_superblock(None, &[]);
        let second = second_superblock(Some(&old), &[]);
        assert_eq!(
            current_superblock(None, unread(), second).unwrap().sequence,
            1
        );
        let neither = current_superblock(None, unread(), second_superblock(None, &[]));
        assert_eq!(neither, Err(SuperblockError::Damaged("it cannot be read")));
    }

    #[test]
    fn a_device_that_was_being_made_is_blank_or_ours() {
        let (whole, blank) = (bytes(1), vec![0; SUPERBLOCK_BYTES]);
        // The second copy is torn.
        let mut torn = whole.clone();
        torn[512..].fill(0);
        assert_eq!(holds(&blank, &torn), Err(SuperblockError::Blank));
        torn = whole.clone();
        torn[..512].fill(0);
        assert_eq!(holds(&blank, &torn), Err(SuperblockError::Blank));
        // The second copy is whole, and so is the bitmap.
        let mut bitmap = vec![0; PROBE_BYTES];
        bitmap[SUPERBLOCK_BYTES] = 1;
        assert_eq!(holds(&bitmap, &whole), Ok(1));
        // The first copy is torn.
        assert_eq!(holds(&torn, &whole), Ok(1));
    }

    #[test]
    fn what_another_wrote_over_the_first_copy_is_not_ours() {
        let whole = bytes(1);
        let mut other = vec![0; PROBE_BYTES];
        other[1080..1082].copy_from_slice(b"\x53\xef");
        assert!(matches!(
            holds(&other, &whole),
            Err(SuperblockError::Foreign(_))
        ));
        let mut other = vec![0; PROBE_BYTES];
        other[9] = 1;
        assert!(matches!(
            holds(&other, &whole),
            Err(SuperblockError::Foreign(_))
        ));
    }

    #[test]
    fn noise_in_the_first_copy_alone_hides_nothing() {
        let (whole, mut noise) = (bytes(1), vec![0xa5; SUPERBLOCK_BYTES]);
        // Of a witness there is nothing else.
        let first = first_superblock(Some(&noise), &[]);
        let second = second_superblock(Some(&whole), &[]);
        assert!(current_superblock(Some(&noise), first, second).is_ok());
        assert!(holds(&noise, &whole).is_err());
        let mut bitmap = vec![0; BLOCK_BYTES];
        Bitmap::none().encode(Uuid(2), &mut bitmap);
        noise.extend(bitmap);
        assert_eq!(holds(&noise, &whole), Ok(1));
    }
}
