//! Bytes that may be compressed by zstd or gzip.

use crate::format::SNIFFED_BYTES;
use std::io::{self, BufRead, BufReader, Read};

pub(crate) const BUFFER_BYTES: usize = 1 << 16;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Bytes of a trace.
pub type Input = Box<dyn BufRead + Send>;

/// True if compressed bytes begin with `start`.
pub(crate) fn is_compressed(start: &[u8]) -> bool {
    start.starts_with(&ZSTD_MAGIC) || start.starts_with(&GZIP_MAGIC)
}

/// The bytes of `input`, decompressed: the first of them, and a reader that still yields these.
pub(crate) fn decompressed(input: impl Read + Send + 'static) -> io::Result<(Vec<u8>, Input)> {
    let (start, input) = peek(input)?;
    let input = buffered(input);
    let plain: Box<dyn Read + Send> = if start.starts_with(&ZSTD_MAGIC) {
        Box::new(zstd::Decoder::with_buffer(input)?)
    } else if start.starts_with(&GZIP_MAGIC) {
        Box::new(flate2::bufread::MultiGzDecoder::new(input))
    } else {
        return Ok((start, input));
    };
    let (start, plain) = peek(plain)?;
    Ok((start, buffered(plain)))
}

pub(crate) fn buffered(input: impl Read + Send + 'static) -> Input {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, input))
}

/// The first bytes of `input`, and a reader that still yields them.
pub(crate) fn peek<R: Read>(mut input: R) -> io::Result<(Vec<u8>, impl Read + use<R>)> {
    let mut start = Vec::new();
    input
        .by_ref()
        .take(SNIFFED_BYTES as u64)
        .read_to_end(&mut start)?;
    Ok((start.clone(), io::Cursor::new(start).chain(input)))
}
