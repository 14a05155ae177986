//! Which of the two copies of a head holds.

use crate::signature::{UNKNOWN, foreign};
use crate::{Head, HeadError};

/// The first copy, from the first [`PROBE_BYTES`](crate::PROBE_BYTES) of a
/// device, or as many as it has; `None` if they cannot be read.
pub fn first_head(start: Option<&[u8]>) -> Result<Head, HeadError> {
    match head(start) {
        Err(HeadError::Blank) => Err(start
            .and_then(foreign)
            .map_or(HeadError::Blank, HeadError::Foreign)),
        other => other,
    }
}

/// The second copy, from the last bytes of a device. The end of something else
/// says nothing.
pub fn second_head(end: Option<&[u8]>) -> Result<Head, HeadError> {
    match head(end) {
        Err(HeadError::Foreign(_)) => Err(HeadError::Blank),
        other => other,
    }
}

fn head(bytes: Option<&[u8]>) -> Result<Head, HeadError> {
    bytes.map_or(Err(HeadError::Damaged("it cannot be read")), Head::decode)
}

/// The head that holds, of its two copies and the bytes of the first. If neither
/// can be read: what the better one is.
///
/// A device that held nothing gets its second copy before its first when it becomes a
/// member. If the power goes in the midst of that, it has nothing, or the second copy
/// and no first sector.
pub fn head_that_holds(
    start: Option<&[u8]>,
    first: Result<Head, HeadError>,
    second: Result<Head, HeadError>,
) -> Result<Head, HeadError> {
    let begun = |start: &[u8]| start.iter().take(512).all(|byte| *byte == 0);
    match (first, second) {
        (Err(HeadError::Blank), Err(HeadError::Damaged(_))) => Err(HeadError::Blank),
        (Err(HeadError::Foreign(UNKNOWN)), Ok(head)) if start.is_some_and(begun) => Ok(head),
        // A first copy that something else has overwritten is not ours any more.
        (Err(HeadError::Foreign(what)), Ok(_)) => Err(HeadError::Foreign(what)),
        (first, second) => newest(first, second),
    }
}

/// The newer of two copies. If neither can be read: what the better one is.
pub fn newest(a: Result<Head, HeadError>, b: Result<Head, HeadError>) -> Result<Head, HeadError> {
    let rank = |error: &HeadError| match error {
        HeadError::Version(_) => 0,
        HeadError::Damaged(_) => 1,
        HeadError::Foreign(_) => 2,
        HeadError::Blank => 3,
    };
    match (a, b) {
        // A newer version has written here since: what the other says is old.
        (Err(HeadError::Version(v)), _) | (_, Err(HeadError::Version(v))) => {
            Err(HeadError::Version(v))
        }
        (Ok(a), Ok(b)) => Ok(if a.sequence >= b.sequence { a } else { b }),
        (Ok(head), Err(_)) | (Err(_), Ok(head)) => Ok(head),
        (Err(a), Err(b)) => Err(if rank(&a) <= rank(&b) { a } else { b }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HEAD_BLOCKS, PROBE_BYTES, Role, Uuid};

    const HEAD_BYTES: usize = HEAD_BLOCKS as usize * crate::BLOCK_BYTES;

    fn bytes(sequence: u64) -> Vec<u8> {
        let head = Head {
            role: Role::Witness,
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
            memo: None,
            label: "pool".into(),
            name: "device".into(),
            host: "host".into(),
            members: Vec::new(),
            volumes: Vec::new(),
        };
        let mut out = vec![0; HEAD_BYTES];
        head.encode(&mut out);
        out
    }

    /// What holds of a device with these bytes at its start and its end.
    fn holds(start: &[u8], end: &[u8]) -> Result<u64, HeadError> {
        let mut probe = vec![0; PROBE_BYTES];
        probe[..start.len()].copy_from_slice(start);
        let first = first_head(Some(&probe));
        head_that_holds(Some(&probe), first, second_head(Some(end))).map(|head| head.sequence)
    }

    #[test]
    fn either_copy_holds_and_the_newer_one_if_both_do() {
        let (old, new, blank) = (bytes(1), bytes(2), vec![0; HEAD_BYTES]);
        assert_eq!(holds(&old, &new), Ok(2));
        assert_eq!(holds(&new, &old), Ok(2));
        assert_eq!(holds(&old, &blank), Ok(1));
        assert_eq!(holds(&blank, &old), Ok(1));
        assert_eq!(holds(&blank, &blank), Err(HeadError::Blank));
        let unread = || first_head(None);
        let second = second_head(Some(&old));
        assert_eq!(head_that_holds(None, unread(), second).unwrap().sequence, 1);
        let neither = head_that_holds(None, unread(), second_head(None));
        assert_eq!(neither, Err(HeadError::Damaged("it cannot be read")));
    }

    #[test]
    fn a_device_that_was_being_made_is_blank_or_ours() {
        let (whole, blank) = (bytes(1), vec![0; HEAD_BYTES]);
        // The second copy is torn.
        let mut torn = whole.clone();
        torn[512..].fill(0);
        assert_eq!(holds(&blank, &torn), Err(HeadError::Blank));
        torn = whole.clone();
        torn[..512].fill(0);
        assert_eq!(holds(&blank, &torn), Err(HeadError::Blank));
        // It is whole, and so are the marks.
        let mut marks = vec![0; PROBE_BYTES];
        marks[HEAD_BYTES] = 1;
        assert_eq!(holds(&marks, &whole), Ok(1));
        // The first copy is torn.
        assert_eq!(holds(&torn, &whole), Ok(1));
    }

    #[test]
    fn what_another_wrote_over_the_first_copy_is_not_ours() {
        let whole = bytes(1);
        let mut other = vec![0; PROBE_BYTES];
        other[1080..1082].copy_from_slice(b"\x53\xef");
        assert!(matches!(holds(&other, &whole), Err(HeadError::Foreign(_))));
        let mut other = vec![0; PROBE_BYTES];
        other[9] = 1;
        assert!(matches!(holds(&other, &whole), Err(HeadError::Foreign(_))));
    }
}
