//! Policy hints: the learnt state of the policy, and the rank of each line among all, on the device
//! of that line.
//!
//! ```text
//! bytes of learnt state u32 | those bytes | HintRow ...
//! ```
//!
//! Their length and checksum are in the superblock. Not here: the owner of hints, and the cost of
//! damage (`cache`).

use crate::record::{Plain, record};

record! {
    /// A line's place in the order in which a policy takes lines up again.
    HintRow, 10 {
        0 rank: u32, "where the line comes among the lines of all members";
        4 slot: u32, "the line's slot, counted from the first of this device";
        8 heat: u16, "how hot the line is";
    }
}

/// The learnt state of a policy, at most 4 GiB, and the lines of one device.
pub fn encode_hints(learnt: &[u8], lines: &[HintRow]) -> Vec<u8> {
    let mut bytes = (learnt.len() as u32).to_le_bytes().to_vec();
    bytes.extend(learnt);
    let at = bytes.len();
    bytes.resize(at + lines.len() * HintRow::BYTES, 0);
    for (line, out) in lines
        .iter()
        .zip(bytes[at..].chunks_exact_mut(HintRow::BYTES))
    {
        line.put(out);
    }
    bytes
}

/// The two parts of the bytes from [`encode_hints`]; `None` of bytes that it cannot have made.
pub fn decode_hints(bytes: &[u8]) -> Option<(&[u8], Vec<HintRow>)> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (learnt, lines) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    let lines = lines.chunks_exact(HintRow::BYTES);
    let whole = lines.remainder().is_empty();
    whole.then(|| (learnt, lines.map(HintRow::get).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let lines = [1, 2].map(|rank| HintRow {
            rank,
            slot: rank * 7,
            heat: rank as u16,
        });
        let bytes = encode_hints(b"learnt", &lines);
        assert_eq!(bytes[4 + 6..][..10], [1, 0, 0, 0, 7, 0, 0, 0, 1, 0]);
        let (learnt, again) = decode_hints(&bytes).unwrap();
        assert_eq!((learnt, &again[..]), (&b"learnt"[..], &lines[..]));
        assert_eq!(decode_hints(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode_hints(&[9, 0, 0, 0]), None);
    }
}
