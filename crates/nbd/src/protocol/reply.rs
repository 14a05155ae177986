//! Reply headers ("Simple reply message", "Structured reply chunk message").
//!
//! A server encodes into fixed arrays; a client parses the same bytes.

use super::errno::Errno;
use super::gather::Gather;
use super::wire::{CHUNK_BYTES, CHUNK_MAGIC, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, chunk};

/// The longest message sent with an error, in bytes; the rest is cut off.
pub const MESSAGE_BYTES_MAX: usize = 255;

/// Bytes before the data of a structured read reply: a chunk and its offset.
pub const DATA_HEAD_BYTES: usize = CHUNK_BYTES + 8;

/// A simple reply; `error` is 0 for success. A read's data follows success.
#[inline]
pub fn simple(error: u32, cookie: u64) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut wire = [0; SIMPLE_REPLY_BYTES];
    wire[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    wire[4..8].copy_from_slice(&error.to_be_bytes());
    wire[8..16].copy_from_slice(&cookie.to_be_bytes());
    wire
}

/// The header of a structured chunk with `len` bytes of payload.
#[inline]
pub fn chunk(flags: u16, kind: u16, cookie: u64, len: u32) -> [u8; CHUNK_BYTES] {
    let mut wire = [0; CHUNK_BYTES];
    wire[0..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    wire[4..6].copy_from_slice(&flags.to_be_bytes());
    wire[6..8].copy_from_slice(&kind.to_be_bytes());
    wire[8..16].copy_from_slice(&cookie.to_be_bytes());
    wire[16..20].copy_from_slice(&len.to_be_bytes());
    wire
}

/// The header before `len` bytes of data in a structured reply.
#[inline]
pub fn data_head(flags: u16, cookie: u64, offset: u64, len: u32) -> [u8; DATA_HEAD_BYTES] {
    let mut wire = [0; DATA_HEAD_BYTES];
    let head = chunk(flags, chunk::OFFSET_DATA, cookie, len + 8);
    wire[..CHUNK_BYTES].copy_from_slice(&head);
    wire[CHUNK_BYTES..].copy_from_slice(&offset.to_be_bytes());
    wire
}

/// Appends the error chunk that ends a structured reply.
pub fn put_error(out: &mut Vec<u8>, cookie: u64, errno: Errno, message: &str) {
    let mut cut = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(cut) {
        cut -= 1;
    }
    let message = &message[..cut];
    let len = cut as u16;
    out.extend(chunk(chunk::DONE, chunk::ERROR, cookie, 6 + u32::from(len)));
    out.extend(errno.code().to_be_bytes());
    out.extend(len.to_be_bytes());
    out.extend(message.as_bytes());
}

/// Appends a final BLOCK_STATUS chunk; `extents` (length in bytes, flags) is
/// not empty.
pub fn put_block_status(out: &mut Vec<u8>, cookie: u64, context: u32, extents: &[(u32, u32)]) {
    assert!(!extents.is_empty(), "a block status needs an extent");
    let len = 4 + 8 * extents.len() as u32;
    out.extend(chunk(chunk::DONE, chunk::BLOCK_STATUS, cookie, len));
    out.extend(context.to_be_bytes());
    for (len, flags) in extents {
        out.extend(len.to_be_bytes());
        out.extend(flags.to_be_bytes());
    }
}

/// The header of a reply, as a client reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyHead {
    /// A simple reply; a successful read's data follows.
    Simple {
        /// 0 for success.
        error: u32,
        /// The request's cookie.
        cookie: u64,
    },
    /// A structured chunk; `len` bytes of payload follow.
    Chunk {
        /// See [`super::wire::chunk`].
        flags: u16,
        /// See [`super::wire::chunk`].
        kind: u16,
        /// The request's cookie.
        cookie: u64,
        /// Bytes of payload.
        len: u32,
    },
}

/// Finds reply headers in a stream split anywhere.
#[derive(Clone, Debug, Default)]
pub struct ReplyHeads {
    /// Both kinds share these bytes: magic, error or flags and type, cookie.
    first: Gather<SIMPLE_REPLY_BYTES>,
    len: Gather<4>,
    chunk: Option<(u16, u16, u64)>,
}

/// The bytes in the stream are no reply; its framing is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostFraming;

impl ReplyHeads {
    /// The next header, taken off `input`; `None` once `input` is used up.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Option<ReplyHead>, LostFraming> {
        if self.chunk.is_none() {
            let Some(wire) = self.first.take(input) else {
                return Ok(None);
            };
            let head = u64::from_be_bytes(*wire.first_chunk().expect("16 bytes"));
            let cookie = u64::from_be_bytes(*wire.last_chunk().expect("16 bytes"));
            match (head >> 32) as u32 {
                SIMPLE_REPLY_MAGIC => {
                    let error = head as u32;
                    return Ok(Some(ReplyHead::Simple { error, cookie }));
                }
                CHUNK_MAGIC => self.chunk = Some(((head >> 16) as u16, head as u16, cookie)),
                _ => return Err(LostFraming),
            }
        }
        let Some(len) = self.len.take(input) else {
            return Ok(None);
        };
        let (flags, kind, cookie) = self.chunk.take().expect("set above");
        Ok(Some(ReplyHead::Chunk {
            flags,
            kind,
            cookie,
            len: u32::from_be_bytes(len),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// "Simple reply message": magic, error, cookie.
    #[test]
    fn a_simple_reply_is_laid_out_as_specified() {
        assert_eq!(
            simple(22, 0x0102_0304_0506_0708),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 1, 2, 3, 4, 5, 6, 7, 8]
        );
    }

    /// "Structured reply chunk message" and `NBD_REPLY_TYPE_OFFSET_DATA`.
    #[test]
    fn a_data_chunk_is_laid_out_as_specified() {
        let wire = [
            0x66, 0x8e, 0x33, 0xef, // magic
            0x00, 0x01, // flags: DONE
            0x00, 0x01, // type: OFFSET_DATA
            0, 0, 0, 0, 0, 0, 0, 9, // cookie
            0, 0, 0x10, 0x08, // length: the offset and 4096 bytes
            0, 0, 0, 0, 0, 0, 0x20, 0, // offset
        ];
        assert_eq!(data_head(chunk::DONE, 9, 0x2000, 4096), wire);
    }

    /// `NBD_REPLY_TYPE_ERROR`: error, message length, message.
    #[test]
    fn an_error_chunk_is_laid_out_as_specified() {
        let mut wire = Vec::new();
        put_error(&mut wire, 9, Errno::Io, "bad");
        let want = [
            0x66, 0x8e, 0x33, 0xef, 0x00, 0x01, 0x80, 0x01, // magic, DONE, ERROR
            0, 0, 0, 0, 0, 0, 0, 9, // cookie
            0, 0, 0, 9, // length
            0, 0, 0, 5, 0, 3, b'b', b'a', b'd',
        ];
        assert_eq!(wire, want);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let mut wire = Vec::new();
        put_error(&mut wire, 9, Errno::Io, &"é".repeat(200));
        assert_eq!(wire.len(), CHUNK_BYTES + 6 + 254);
        assert!(std::str::from_utf8(&wire[CHUNK_BYTES + 6..]).is_ok());
    }

    /// `NBD_REPLY_TYPE_BLOCK_STATUS`: context id, then length and flags each.
    #[test]
    fn a_status_chunk_is_laid_out_as_specified() {
        let mut wire = Vec::new();
        put_block_status(&mut wire, 9, 1, &[(4096, 0), (512, 3)]);
        let want = [
            0x66, 0x8e, 0x33, 0xef, 0x00, 0x01, 0x00, 0x05, // magic, DONE, BLOCK_STATUS
            0, 0, 0, 0, 0, 0, 0, 9, // cookie
            0, 0, 0, 20, // length
            0, 0, 0, 1, // context
            0, 0, 0x10, 0, 0, 0, 0, 0, // 4096 bytes of data
            0, 0, 2, 0, 0, 0, 0, 3, // 512 bytes of hole and zero
        ];
        assert_eq!(wire, want);
    }

    #[test]
    fn nonsense_loses_the_framing() {
        let mut heads = ReplyHeads::default();
        assert_eq!(heads.take(&mut &[0u8; 16][..]), Err(LostFraming));
    }

    proptest! {
        #[test]
        fn heads_survive_any_split(
            replies in prop::collection::vec((any::<bool>(), any::<u32>(), any::<u64>(), any::<u32>()), 0..20),
            cuts in prop::collection::vec(0usize..30, 0..30),
        ) {
            let mut stream = Vec::new();
            let mut want = Vec::new();
            for (is_simple, word, cookie, len) in replies {
                if is_simple {
                    stream.extend(simple(word, cookie));
                    want.push(ReplyHead::Simple { error: word, cookie });
                } else {
                    let (flags, kind) = ((word >> 16) as u16, word as u16);
                    stream.extend(chunk(flags, kind, cookie, len));
                    want.push(ReplyHead::Chunk { flags, kind, cookie, len });
                }
            }
            let mut heads = ReplyHeads::default();
            let mut got = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (mut piece, tail) = rest.split_at(cut.min(rest.len()));
                rest = tail;
                while let Some(head) = heads.take(&mut piece).unwrap() {
                    got.push(head);
                }
            }
            prop_assert_eq!(got, want);
        }
    }
}
