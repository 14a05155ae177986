//! The client's side of transmission: a stream of replies into events.
//!
//! Invariants:
//!   - every event names a request that the caller says is pending;
//!   - data, holes and extents lie inside that request's range;
//!   - `End` comes once for each request, after everything else of it.
//!
//! Not here: a check that the pieces cover all of a read ([`super::coverage`]).

use super::gather::Gather;
use super::printable::printable;
use super::reply::{ReplyHead, ReplyHeads};
use super::wire::{STRING_BYTES_MAX, chunk};

/// The caller's request under a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingCookie {
    /// Kind of the expected answer: data, extents or neither.
    pub wants: Wants,
    /// Byte offset in the export.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

/// Kind of the answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// The data of a READ.
    Data,
    /// The extents of a BLOCK_STATUS.
    Extents,
    /// An error or its absence.
    Nothing,
}

/// A part of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyEvent<'a> {
    /// Bytes read, at `at` bytes from the start of the request.
    Data {
        /// The request.
        cookie: u64,
        /// Bytes from the start of the request.
        at: u32,
        /// The bytes; more of the same piece may follow.
        bytes: &'a [u8],
    },
    /// Zeroes read.
    Hole {
        /// The request.
        cookie: u64,
        /// Bytes from the start of the request.
        at: u32,
        /// Length in bytes.
        len: u32,
    },
    /// The next extent of a metadata context, in order from the start.
    Extent {
        /// The request.
        cookie: u64,
        /// The metadata context.
        context: u32,
        /// Length in bytes.
        len: u32,
        /// The state, see [`super::wire::state`].
        flags: u32,
    },
    /// The request failed.
    Error {
        /// The request.
        cookie: u64,
        /// The error value, not 0.
        code: u32,
        /// The server's message about the error; may be empty.
        message: String,
    },
    /// The answer is complete.
    End {
        /// The request; its cookie is free again.
        cookie: u64,
    },
}

/// A server's violation of the protocol. The connection has to be dropped.
pub type Violation = &'static str;

#[derive(Clone, Debug)]
enum ReplyState {
    Head,
    /// The chunk's fixed part is gathered.
    Fixed(ReplyChunk),
    Data(ReplyData),
    Extents(ReplyExtents),
    Error(ReplyError),
    End {
        cookie: u64,
    },
}

impl ReplyState {
    /// The state after all of a simple reply or of a chunk; with `done`, the reply ends there.
    fn after(cookie: u64, done: bool) -> ReplyState {
        match done {
            true => ReplyState::End { cookie },
            false => ReplyState::Head,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct ReplyChunk {
    cookie: u64,
    kind: u16,
    done: bool,
    /// Bytes of payload not yet taken.
    left: u32,
    pending: PendingCookie,
}

impl ReplyChunk {
    /// The state once the payload is used up.
    fn after(&self) -> ReplyState {
        ReplyState::after(self.cookie, self.done)
    }

    /// Length of the chunk's fixed part, gathered before anything is decoded.
    fn fixed_bytes(&self) -> u32 {
        match self.kind {
            chunk::OFFSET_DATA => 8,
            chunk::OFFSET_HOLE => 12,
            chunk::BLOCK_STATUS => 4,
            _ => 6,
        }
    }

    /// "Structured reply types": lengths and where each type may be used.
    fn check(&self) -> Result<(), Violation> {
        let (fits, wants) = match self.kind {
            chunk::NONE => {
                if self.left != 0 || !self.done {
                    return Err("an empty chunk has a payload or does not end its reply");
                }
                return Ok(());
            }
            chunk::OFFSET_DATA => (self.left >= 9, Wants::Data),
            chunk::OFFSET_HOLE => (self.left == 12, Wants::Data),
            chunk::BLOCK_STATUS => (self.left >= 12 && self.left % 8 == 4, Wants::Extents),
            kind if kind & chunk::ERROR_BIT != 0 => (self.left >= 6, self.pending.wants),
            _ => return Err("a chunk of unknown type"),
        };
        if !fits {
            return Err("a chunk with a length that its type does not allow");
        }
        if wants != self.pending.wants {
            return Err("a chunk that does not answer its request");
        }
        Ok(())
    }

    /// Offset of `[offset, offset + len)` in the request.
    fn place(&self, offset: u64, len: u32) -> Result<u32, Violation> {
        let at = offset.wrapping_sub(self.pending.offset);
        if at > u64::from(self.pending.len) || u64::from(len) > u64::from(self.pending.len) - at {
            return Err("data outside the range that was asked for");
        }
        Ok(at as u32)
    }
}

/// The data of a simple reply or of a chunk.
#[derive(Clone, Debug)]
struct ReplyData {
    cookie: u64,
    at: u32,
    left: u32,
    done: bool,
}

impl ReplyData {
    fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<ReplyEvent<'a>> {
        if input.is_empty() {
            return None;
        }
        let n = input.len().min(self.left as usize);
        let (bytes, rest) = input.split_at(n);
        *input = rest;
        let (cookie, at) = (self.cookie, self.at);
        self.at += n as u32;
        self.left -= n as u32;
        Some(ReplyEvent::Data { cookie, at, bytes })
    }
}

/// The extents of a chunk.
#[derive(Clone, Debug)]
struct ReplyExtents {
    chunk: ReplyChunk,
    context: u32,
    /// Bytes of the request not yet described.
    room: u32,
}

impl ReplyExtents {
    /// The event of the next extent, unless that lies past the request.
    fn next(&mut self, wire: [u8; 12]) -> Result<Option<ReplyEvent<'static>>, Violation> {
        let word = u64::from_be_bytes(*wire.first_chunk().expect("12 bytes"));
        let (len, flags) = ((word >> 32) as u32, word as u32);
        if len == 0 {
            return Err("an empty extent");
        }
        // The last extent may reach past the request ("REQ_ONE").
        let len = len.min(self.room);
        self.room -= len;
        self.chunk.left -= 8;
        Ok((len > 0).then_some(ReplyEvent::Extent {
            cookie: self.chunk.cookie,
            context: self.context,
            len,
            flags,
        }))
    }
}

/// The error of a chunk, with its message so far.
#[derive(Clone, Debug)]
struct ReplyError {
    chunk: ReplyChunk,
    code: u32,
    message_left: u32,
    message: Vec<u8>,
}

impl ReplyError {
    /// The event, once all of the chunk has arrived.
    fn next(&mut self, input: &mut &[u8]) -> Option<ReplyEvent<'static>> {
        let n = input.len().min(self.chunk.left as usize);
        let (bytes, rest) = input.split_at(n);
        *input = rest;
        self.chunk.left -= n as u32;
        let text = &bytes[..n.min(self.message_left as usize)];
        self.message_left -= text.len() as u32;
        let keep = text.len().min(STRING_BYTES_MAX - self.message.len());
        self.message.extend(&text[..keep]);
        (self.chunk.left == 0).then(|| ReplyEvent::Error {
            cookie: self.chunk.cookie,
            code: self.code,
            message: printable(&self.message),
        })
    }
}

/// Turns the stream of replies into events.
#[derive(Debug)]
pub struct ReplyParser {
    heads: ReplyHeads,
    fixed: Gather<12>,
    state: ReplyState,
    structured: bool,
}

impl ReplyParser {
    /// A reader for a session with or without structured replies.
    pub fn new(structured: bool) -> ReplyParser {
        ReplyParser {
            heads: ReplyHeads::default(),
            fixed: Gather::default(),
            state: ReplyState::Head,
            structured,
        }
    }

    /// The next event, taken off `input`; `None` once `input` is used up.
    ///
    /// `pending` returns the request under a cookie, or `None`.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        pending: impl Fn(u64) -> Option<PendingCookie>,
    ) -> Result<Option<ReplyEvent<'a>>, Violation> {
        loop {
            match &mut self.state {
                ReplyState::Head => {
                    let Some(head) = self
                        .heads
                        .take(input)
                        .map_err(|_| "something that is no reply")?
                    else {
                        return Ok(None);
                    };
                    let cookie = match head {
                        ReplyHead::Simple { cookie, .. } | ReplyHead::Chunk { cookie, .. } => {
                            cookie
                        }
                    };
                    let asked = pending(cookie).ok_or("a reply to a request that was not made")?;
                    if let Some(event) = self.head(head, asked)? {
                        return Ok(Some(event));
                    }
                }
                ReplyState::Fixed(chunk) => {
                    let n = chunk.fixed_bytes();
                    let Some(fixed) = self.fixed.take_first(n as usize, input) else {
                        return Ok(None);
                    };
                    let mut chunk = *chunk;
                    chunk.left -= n;
                    if let Some(event) = self.fixed(chunk, fixed)? {
                        return Ok(Some(event));
                    }
                }
                ReplyState::Data(data) => {
                    let event = data.next(input);
                    if event.is_some() && data.left == 0 {
                        self.state = ReplyState::after(data.cookie, data.done);
                    }
                    return Ok(event);
                }
                ReplyState::Extents(extents) => {
                    let Some(wire) = self.fixed.take_first(8, input) else {
                        return Ok(None);
                    };
                    let event = extents.next(wire)?;
                    if extents.chunk.left == 0 {
                        self.state = extents.chunk.after();
                    }
                    if event.is_some() {
                        return Ok(event);
                    }
                }
                ReplyState::Error(error) => {
                    let event = error.next(input);
                    if event.is_some() {
                        self.state = error.chunk.after();
                    }
                    return Ok(event);
                }
                ReplyState::End { cookie } => {
                    let cookie = *cookie;
                    self.state = ReplyState::Head;
                    return Ok(Some(ReplyEvent::End { cookie }));
                }
            }
        }
    }

    fn head(
        &mut self,
        head: ReplyHead,
        pending: PendingCookie,
    ) -> Result<Option<ReplyEvent<'static>>, Violation> {
        match head {
            ReplyHead::Simple { error, cookie } => {
                if self.structured && pending.wants != Wants::Nothing && error == 0 {
                    return Err("a simple reply where a structured one was agreed");
                }
                if error == 0 && pending.wants == Wants::Data {
                    self.state = ReplyState::Data(ReplyData {
                        cookie,
                        at: 0,
                        left: pending.len,
                        done: true,
                    });
                    return Ok(None);
                }
                self.state = ReplyState::End { cookie };
                Ok((error != 0).then(|| ReplyEvent::Error {
                    cookie,
                    code: error,
                    message: String::new(),
                }))
            }
            ReplyHead::Chunk {
                flags,
                kind,
                cookie,
                len,
            } => {
                if !self.structured {
                    return Err("a structured reply that was not agreed");
                }
                let chunk = ReplyChunk {
                    cookie,
                    kind,
                    done: flags & chunk::DONE != 0,
                    left: len,
                    pending,
                };
                chunk.check()?;
                self.state = if kind == chunk::NONE {
                    chunk.after()
                } else {
                    ReplyState::Fixed(chunk)
                };
                Ok(None)
            }
        }
    }

    /// Acts on the fixed part of a chunk; `left` no longer counts that part.
    fn fixed(
        &mut self,
        chunk: ReplyChunk,
        fixed: [u8; 12],
    ) -> Result<Option<ReplyEvent<'static>>, Violation> {
        let cookie = chunk.cookie;
        let offset = u64::from_be_bytes(*fixed.first_chunk().expect("12 bytes"));
        let first = (offset >> 32) as u32;
        match chunk.kind {
            chunk::OFFSET_DATA => {
                self.state = ReplyState::Data(ReplyData {
                    cookie,
                    at: chunk.place(offset, chunk.left)?,
                    left: chunk.left,
                    done: chunk.done,
                });
                Ok(None)
            }
            chunk::OFFSET_HOLE => {
                let len = u32::from_be_bytes(*fixed.last_chunk().expect("12 bytes"));
                if len == 0 {
                    return Err("an empty hole");
                }
                let at = chunk.place(offset, len)?;
                self.state = chunk.after();
                Ok(Some(ReplyEvent::Hole { cookie, at, len }))
            }
            chunk::BLOCK_STATUS => {
                self.state = ReplyState::Extents(ReplyExtents {
                    chunk,
                    context: first,
                    room: chunk.pending.len,
                });
                Ok(None)
            }
            _ => {
                let message_len = u32::from(u16::from_be_bytes([fixed[4], fixed[5]]));
                if message_len > chunk.left {
                    return Err("an error message longer than its chunk");
                }
                if first == 0 {
                    return Err("an error chunk without an error");
                }
                self.state = ReplyState::Error(ReplyError {
                    chunk,
                    code: first,
                    message_left: message_len,
                    message: Vec::new(),
                });
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests;
