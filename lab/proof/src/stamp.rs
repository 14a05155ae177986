//! The content of a sector, which identifies its writer.
//!
//! A stamped sector names its version and its place and repeats both, mixed, to its end. So bytes
//! of two writes, or of another place, are seen.

use block::SECTOR_BYTES;

/// The content of a sector: a version, or one of the constants below.
pub type Value = u64;
/// Zeroes.
pub const ZERO: Value = 0;
/// Any bytes, after a discard.
pub const ANYTHING: Value = u64::MAX;

const WORDS: u64 = SECTOR_BYTES / 8;

/// The words of a sector after its first: an arithmetic sequence, which processors compute several
/// at a time.
fn words(version: Value, sector: u64) -> impl Iterator<Item = u64> {
    let mixed = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ sector.rotate_left(32);
    let first = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (0..WORDS - 1).map(move |i| first.wrapping_add(i.wrapping_mul(0x94d0_49bb_1331_11eb)))
}

/// Fills `bytes`, whole sectors from `first`, with `version`.
pub fn stamp(bytes: &mut [u8], first: u64, version: Value) {
    for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR_BYTES as usize)) {
        bytes[..8].copy_from_slice(&version.to_le_bytes());
        for (chunk, word) in bytes[8..].chunks_exact_mut(8).zip(words(version, sector)) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// The value of one sector's bytes; `None` for bytes without a sound stamp.
pub fn read(bytes: &[u8], sector: u64) -> Option<Value> {
    let word = |w: &[u8]| u64::from_le_bytes(w.try_into().expect("eight bytes"));
    let (version, rest) = (word(&bytes[..8]), bytes[8..].chunks_exact(8).map(word));
    // All words are compared, without a branch for each.
    let different = match version {
        ZERO => rest.fold(0, |different, is| different | is),
        _ => rest
            .zip(words(version, sector))
            .fold(0, |different, (is, expected)| different | (is ^ expected)),
    };
    (different == 0).then_some(version)
}

/// Describes a sector that holds a value not in `allowed`, for people.
pub fn describe(value: Option<Value>, allowed: &[Value]) -> String {
    let name = |v: &Value| match *v {
        ZERO => "zeroes".to_string(),
        ANYTHING => "anything".to_string(),
        version => format!("version {version}"),
    };
    let held = value
        .as_ref()
        .map_or("bytes that nobody wrote".into(), name);
    let allowed: Vec<String> = allowed.iter().map(name).collect();
    format!("{held} where only {} may be", allowed.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_or_place_is_seen() {
        let mut bytes = vec![0; 1024];
        assert_eq!(read(&bytes[..512], 3), Some(ZERO));
        stamp(&mut bytes, 3, 9);
        assert_eq!(read(&bytes[..512], 3), Some(9));
        assert_eq!(read(&bytes[512..], 4), Some(9));
        assert_eq!(read(&bytes[512..], 3), None);
        for at in 0..512 {
            bytes[at] ^= 4;
            assert_eq!(read(&bytes[..512], 3), None);
            bytes[at] ^= 4;
        }
    }
}
