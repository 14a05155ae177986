//! Requests ("Request message"): 28 bytes each, then a write's payload.

use super::wire::{REQUEST_BYTES, REQUEST_MAGIC};

/// A request as on the wire; nothing in it is trusted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireRequest {
    /// Command flags, see [`super::wire::cmd_flag`].
    pub flags: u16,
    /// The type, see [`super::wire::cmd`].
    pub cmd: u16,
    /// The client's name for the request; its replies carry the same.
    pub cookie: u64,
    /// Byte offset in the export.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

impl WireRequest {
    /// Reads a request; `None` if the magic is wrong: the stream has then lost its framing, and no
    /// later byte can be trusted.
    #[inline]
    pub fn parse(wire: &[u8; REQUEST_BYTES]) -> Option<WireRequest> {
        let word = |at: usize| u64::from_be_bytes(*wire[at..].first_chunk().expect("in bounds"));
        let head = word(0);
        if head >> 32 != u64::from(REQUEST_MAGIC) {
            return None;
        }
        Some(WireRequest {
            flags: (head >> 16) as u16,
            cmd: head as u16,
            cookie: word(8),
            offset: word(16),
            len: word(20) as u32,
        })
    }

    /// Writes a request.
    #[inline]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut wire = [0; REQUEST_BYTES];
        wire[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        wire[4..6].copy_from_slice(&self.flags.to_be_bytes());
        wire[6..8].copy_from_slice(&self.cmd.to_be_bytes());
        wire[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        wire[16..24].copy_from_slice(&self.offset.to_be_bytes());
        wire[24..28].copy_from_slice(&self.len.to_be_bytes());
        wire
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::{cmd, cmd_flag};
    use proptest::prelude::*;

    /// "Request message": magic, flags, type, cookie, offset, length.
    #[test]
    fn layout_is_that_of_the_specification() {
        let wire = [
            0x25, 0x60, 0x95, 0x13, // magic
            0x00, 0x01, // flags: FUA
            0x00, 0x01, // type: WRITE
            0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xca, 0xfe, // cookie
            0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x02, 0x00, // offset
            0x00, 0x00, 0x10, 0x00, // length
        ];
        let request = WireRequest {
            flags: cmd_flag::FUA,
            cmd: cmd::WRITE,
            cookie: 0xcafe,
            offset: 0x1_0000_0200,
            len: 4096,
        };
        assert_eq!(WireRequest::parse(&wire), Some(request));
        assert_eq!(request.encode(), wire);
    }

    #[test]
    fn a_wrong_magic_is_no_request() {
        let mut wire = WireRequest::default().encode();
        for byte in 0..4 {
            wire[byte] ^= 1;
            assert_eq!(WireRequest::parse(&wire), None);
            wire[byte] ^= 1;
        }
        assert_eq!(WireRequest::parse(&wire), Some(WireRequest::default()));
    }

    proptest! {
        #[test]
        fn encode_and_parse_are_inverse(flags: u16, cmd: u16, cookie: u64, offset: u64, len: u32) {
            let request = WireRequest { flags, cmd, cookie, offset, len };
            prop_assert_eq!(WireRequest::parse(&request.encode()), Some(request));
        }
    }
}
