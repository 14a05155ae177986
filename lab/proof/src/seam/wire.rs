//! The smallest protocol that carries blocks: fixed headers, then payload.
//!
//! Request, 32 bytes: op u8, flags u8, 6 spare, tag u64, offset u64, length
//! u32, 4 spare. Reply, 16 bytes: tag u64, status u32, length u32. All
//! little-endian. A write's payload follows its request, a read's its reply.

use block::{Buf, IoError, IoErrorKind, IoResult, Pool, Stream};

pub(crate) const REQUEST_BYTES: usize = 32;
pub(crate) const REPLY_BYTES: usize = 16;

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SeamAsk {
    Read,
    Write,
    Zero,
    Flush,
    /// Takes the mirror's second disk away.
    Lose,
}

pub(crate) const FLAG_FUA: u8 = 1;
/// The server begins the operation and drops its future.
pub(crate) const FLAG_ABANDON: u8 = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SeamRequest {
    pub(crate) ask: SeamAsk,
    pub(crate) flags: u8,
    pub(crate) tag: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum SeamStatus {
    Done = 0,
    Failed = 1,
    Abandoned = 2,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SeamReply {
    pub(crate) tag: u64,
    pub(crate) status: SeamStatus,
    pub(crate) len: u32,
}

const ASKS: [SeamAsk; 5] = [
    SeamAsk::Read,
    SeamAsk::Write,
    SeamAsk::Zero,
    SeamAsk::Flush,
    SeamAsk::Lose,
];

impl SeamRequest {
    pub(crate) fn encode(&self, out: &mut [u8]) {
        out[..REQUEST_BYTES].fill(0);
        out[0] = ASKS.iter().position(|a| *a == self.ask).expect("listed") as u8;
        out[1] = self.flags;
        out[8..16].copy_from_slice(&self.tag.to_le_bytes());
        out[16..24].copy_from_slice(&self.offset.to_le_bytes());
        out[24..28].copy_from_slice(&self.len.to_le_bytes());
    }

    pub(crate) fn decode(bytes: &[u8]) -> IoResult<SeamRequest> {
        let unknown = || IoError::new(IoErrorKind::Stream, "an unknown request");
        Ok(SeamRequest {
            ask: *ASKS.get(bytes[0] as usize).ok_or_else(unknown)?,
            flags: bytes[1],
            tag: u64_at(bytes, 8),
            offset: u64_at(bytes, 16),
            len: u64_at(bytes, 24) as u32,
        })
    }
}

impl SeamReply {
    pub(crate) fn encode(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.tag.to_le_bytes());
        out[8..12].copy_from_slice(&(self.status as u32).to_le_bytes());
        out[12..16].copy_from_slice(&self.len.to_le_bytes());
    }

    pub(crate) fn decode(bytes: &[u8]) -> IoResult<SeamReply> {
        let word = u64_at(bytes, 8);
        let status = match word as u32 {
            0 => SeamStatus::Done,
            1 => SeamStatus::Failed,
            2 => SeamStatus::Abandoned,
            _ => return Err(IoError::new(IoErrorKind::Stream, "an unknown status")),
        };
        Ok(SeamReply {
            tag: u64_at(bytes, 0),
            status,
            len: (word >> 32) as u32,
        })
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Receives exactly `len` bytes; `None` if the stream ends before the first.
pub(crate) async fn recv_exact(
    stream: &impl Stream,
    pool: &Pool,
    len: usize,
) -> IoResult<Option<Buf>> {
    let (mut filled, mut rest) = pool.get(len).await.split_at(0);
    while !rest.is_empty() {
        let (tail, result) = stream.recv(rest).await;
        let n = result?;
        if n == 0 && filled.is_empty() {
            return Ok(None);
        }
        if n == 0 {
            let what = "the stream ended inside a message";
            return Err(IoError::new(IoErrorKind::Stream, what));
        }
        let (got, tail) = tail.split_at(n);
        filled = Buf::rejoin(filled, got).expect("neighbours");
        rest = tail;
    }
    Ok(Some(filled))
}
