//! The client's side of the handshake, fixed newstyle with EXPORT_NAME as the
//! last resort for old servers.
//!
//! Invariants:
//!   - if TLS is required, no name and no other option is sent before TLS;
//!   - at most [`REPLY_BYTES_MAX`] bytes are held, and a server that answers
//!     one option for ever is given up after [`REPLIES_MAX`] replies.

use super::gather::Gather;
use super::printable::printable;
use super::session::{NbdSession, PAYLOAD_BYTES_MAX};
use super::wire::{
    BASE_ALLOCATION, EXPORT_NAME_PADDING, IHAVEOPT, NBDMAGIC, OLDSTYLE_MAGIC, OPTION_REPLY_MAGIC,
    STRING_BYTES_MAX, WireCursor, flag, handshake_flag, info, option, rep,
};
use block::{IoError, IoErrorKind, IoResult};

/// The longest reply to an option that is looked at.
pub const REPLY_BYTES_MAX: usize = 2 * STRING_BYTES_MAX;
/// Replies to one option before the server is given up.
pub const REPLIES_MAX: u32 = 256;

/// The next action after a call of [`ClientHandshake::feed`].
///
/// In every case the bytes in `out` are sent first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientStep {
    /// The input is used up; receive more.
    More,
    /// Begin TLS, then call [`ClientHandshake::encrypted`].
    StartTls,
    /// The export is open; replies follow.
    Ready(NbdSession),
}

#[derive(Clone, Debug)]
enum ClientState {
    Greeting(Gather<18>),
    /// Waiting for the reply to `option`.
    ReplyHead(Gather<20>),
    ReplyData {
        kind: u32,
        left: u32,
    },
    /// Waiting for the answer to EXPORT_NAME, then its padding.
    Export(Gather<10>),
    Padding(Gather<EXPORT_NAME_PADDING>),
    /// Waiting for the caller to report that TLS is up.
    Tls,
    Ended,
}

/// A handshake in progress.
#[derive(Clone, Debug)]
pub struct ClientHandshake {
    export: Box<str>,
    tls: bool,
    state: ClientState,
    data: Vec<u8>,
    /// The option that was sent last.
    option: u32,
    replies: u32,
    no_zeroes: bool,
    session: NbdSession,
}

fn broken(what: &'static str) -> IoError {
    IoError::new(IoErrorKind::Stream, format!("the NBD server sent {what}"))
}

impl ClientHandshake {
    /// Begins a handshake for an export; with `tls`, a server without TLS is
    /// refused. The server speaks first.
    ///
    /// `Err` if the name is longer than NBD allows.
    pub fn new(export: &str, tls: bool) -> IoResult<ClientHandshake> {
        if export.len() > STRING_BYTES_MAX {
            let what = format!("the export name has more than {STRING_BYTES_MAX} bytes");
            return Err(IoError::new(IoErrorKind::Invalid, what));
        }
        Ok(ClientHandshake {
            export: export.into(),
            tls,
            state: ClientState::Greeting(Gather::default()),
            data: Vec::new(),
            option: 0,
            replies: 0,
            no_zeroes: false,
            session: NbdSession {
                size_bytes: 0,
                flags: 0,
                structured: false,
                allocation: None,
                block_bytes_min: 1,
                block_bytes_preferred: 4096,
                payload_bytes_max: PAYLOAD_BYTES_MAX,
            },
        })
    }

    /// Takes bytes off `input` and appends the bytes to send to `out`.
    ///
    /// `Err`: the server refused or broke the protocol; close the stream.
    pub fn feed(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> IoResult<ClientStep> {
        let step = self.step(input, out);
        if !matches!(step, Ok(ClientStep::More | ClientStep::StartTls)) {
            self.state = ClientState::Ended;
        }
        step
    }

    /// Continues with the next option, now that TLS is up.
    pub fn encrypted(&mut self, out: &mut Vec<u8>) {
        assert!(
            matches!(self.state, ClientState::Tls),
            "TLS was not asked for"
        );
        self.send(option::STRUCTURED_REPLY, &[], out);
    }

    fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> IoResult<ClientStep> {
        loop {
            match &mut self.state {
                ClientState::Greeting(gather) => {
                    let Some(greeting) = gather.take(input) else {
                        return Ok(ClientStep::More);
                    };
                    self.greeted(&greeting, out)?;
                }
                ClientState::ReplyHead(gather) => {
                    let Some(head) = gather.take(input) else {
                        return Ok(ClientStep::More);
                    };
                    self.reply_head(&head)?;
                }
                ClientState::ReplyData { kind, left } => {
                    let n = input.len().min(*left as usize);
                    let (bytes, rest) = input.split_at(n);
                    *input = rest;
                    *left -= n as u32;
                    self.data.extend(bytes);
                    if *left > 0 {
                        return Ok(ClientStep::More);
                    }
                    let kind = *kind;
                    self.state = ClientState::ReplyHead(Gather::default());
                    let data = std::mem::take(&mut self.data);
                    if let Some(step) = self.replied(kind, &data, out)? {
                        return Ok(step);
                    }
                }
                ClientState::Export(gather) => {
                    let Some(wire) = gather.take(input) else {
                        return Ok(ClientStep::More);
                    };
                    self.described(&wire)?;
                    if self.no_zeroes {
                        return self.ready();
                    }
                    self.state = ClientState::Padding(Gather::default());
                }
                ClientState::Padding(gather) => {
                    return match gather.take(input) {
                        Some(_) => self.ready(),
                        None => Ok(ClientStep::More),
                    };
                }
                ClientState::Tls => return Err(broken("plain text after it agreed to TLS")),
                ClientState::Ended => {
                    return Err(IoError::new(
                        IoErrorKind::Stream,
                        "the NBD handshake is over",
                    ));
                }
            }
        }
    }

    fn greeted(&mut self, greeting: &[u8; 18], out: &mut Vec<u8>) -> IoResult {
        let mut greeting = WireCursor(greeting);
        if greeting.u64() != Some(NBDMAGIC) {
            return Err(broken("something else than NBD's greeting"));
        }
        match greeting.u64() {
            Some(IHAVEOPT) => {}
            Some(OLDSTYLE_MAGIC) => {
                return Err(IoError::new(
                    IoErrorKind::Unsupported,
                    "the NBD server speaks oldstyle negotiation only",
                ));
            }
            _ => return Err(broken("an unknown kind of greeting")),
        }
        let flags = greeting.u16().expect("18 bytes");
        let fixed = flags & handshake_flag::FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & handshake_flag::NO_ZEROES != 0;
        let known = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        out.extend(u32::from(flags & known).to_be_bytes());
        match (self.tls, fixed) {
            (true, false) => return Err(no_tls("it is too old for it")),
            (true, true) => self.send(option::STARTTLS, &[], out),
            (false, true) => self.send(option::STRUCTURED_REPLY, &[], out),
            (false, false) => self.send_export_name(out),
        }
        Ok(())
    }

    fn send(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        out.extend(IHAVEOPT.to_be_bytes());
        out.extend(option.to_be_bytes());
        out.extend((data.len() as u32).to_be_bytes());
        out.extend(data);
        self.option = option;
        self.replies = 0;
        self.state = ClientState::ReplyHead(Gather::default());
    }

    fn send_export_name(&mut self, out: &mut Vec<u8>) {
        let name = self.export.clone();
        self.send(option::EXPORT_NAME, name.as_bytes(), out);
        self.state = ClientState::Export(Gather::default());
    }

    fn send_meta_context(&mut self, out: &mut Vec<u8>) {
        let mut data = self.name_field();
        data.extend(1u32.to_be_bytes());
        data.extend((BASE_ALLOCATION.len() as u32).to_be_bytes());
        data.extend(BASE_ALLOCATION.as_bytes());
        self.send(option::SET_META_CONTEXT, &data, out);
    }

    fn send_go(&mut self, out: &mut Vec<u8>) {
        let mut data = self.name_field();
        data.extend(1u16.to_be_bytes());
        data.extend(info::BLOCK_SIZE.to_be_bytes());
        self.send(option::GO, &data, out);
    }

    fn name_field(&self) -> Vec<u8> {
        let mut field = (self.export.len() as u32).to_be_bytes().to_vec();
        field.extend(self.export.as_bytes());
        field
    }

    fn reply_head(&mut self, head: &[u8; 20]) -> IoResult {
        let mut head = WireCursor(head);
        if head.u64() != Some(OPTION_REPLY_MAGIC) {
            return Err(broken("something that is no reply to an option"));
        }
        if head.u32() != Some(self.option) {
            return Err(broken("a reply to another option than was sent"));
        }
        let kind = head.u32().expect("20 bytes");
        let left = head.u32().expect("20 bytes");
        if left as usize > REPLY_BYTES_MAX {
            return Err(broken("a reply to an option that is too long"));
        }
        self.replies += 1;
        if self.replies > REPLIES_MAX {
            return Err(broken("more replies to an option than make sense"));
        }
        self.state = ClientState::ReplyData { kind, left };
        Ok(())
    }

    /// Acts on one reply to the option that was sent last.
    fn replied(
        &mut self,
        kind: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> IoResult<Option<ClientStep>> {
        match (self.option, kind) {
            (option::STARTTLS, rep::ACK) => {
                self.state = ClientState::Tls;
                return Ok(Some(ClientStep::StartTls));
            }
            (option::STARTTLS, _) => return Err(no_tls(&self.explain(kind, data))),
            (option::STRUCTURED_REPLY, rep::ACK) => {
                self.session.structured = true;
                self.send_meta_context(out);
            }
            (option::SET_META_CONTEXT, rep::META_CONTEXT) => {
                let mut data = WireCursor(data);
                let id = data
                    .u32()
                    .ok_or_else(|| broken("a context without an id"))?;
                if data.0 == BASE_ALLOCATION.as_bytes() {
                    self.session.allocation = Some(id);
                }
            }
            (option::SET_META_CONTEXT, rep::ACK) => self.send_go(out),
            (option::GO, rep::INFO) => self.informed(data)?,
            (option::GO, rep::ACK) => return self.ready().map(Some),
            (option::GO, rep::ERR_UNSUP) => self.send_export_name(out),
            (_, rep::ERR_TLS_REQD) => return Err(self.refused(kind, data)),
            (option::STRUCTURED_REPLY, _) if kind & rep::ERROR_BIT != 0 => self.send_go(out),
            (option::SET_META_CONTEXT, _) if kind & rep::ERROR_BIT != 0 => {
                self.session.allocation = None;
                self.send_go(out);
            }
            (_, _) if kind & rep::ERROR_BIT != 0 => return Err(self.refused(kind, data)),
            _ => return Err(broken("a reply that does not fit its option")),
        }
        Ok(None)
    }

    fn informed(&mut self, data: &[u8]) -> IoResult {
        let mut data = WireCursor(data);
        match data.u16() {
            Some(info::EXPORT) => self.described(data.0),
            Some(info::BLOCK_SIZE) => {
                let (Some(min), Some(preferred), Some(max)) = (data.u32(), data.u32(), data.u32())
                else {
                    return Err(broken("block sizes that are cut short"));
                };
                // "Block size constraints": the maximum may be 2^32 - 1.
                let max = max.min(PAYLOAD_BYTES_MAX) & !(min.wrapping_sub(1));
                if !min.is_power_of_two() || min > 1 << 16 || max < min {
                    return Err(broken("block sizes that make no sense"));
                }
                self.session.block_bytes_min = min;
                self.session.block_bytes_preferred = preferred.max(min);
                self.session.payload_bytes_max = max;
                Ok(())
            }
            Some(_) => Ok(()),
            None => Err(broken("information without a type")),
        }
    }

    /// Size and transmission flags, in NBD_INFO_EXPORT or after EXPORT_NAME.
    fn described(&mut self, data: &[u8]) -> IoResult {
        let mut data = WireCursor(data);
        let (Some(size), Some(flags)) = (data.u64(), data.u16()) else {
            return Err(broken("a size that is cut short"));
        };
        self.session.size_bytes = size;
        self.session.flags = flags;
        Ok(())
    }

    fn ready(&self) -> IoResult<ClientStep> {
        if self.session.flags & flag::HAS_FLAGS == 0 {
            return Err(broken("no description of the export"));
        }
        if self.session.size_bytes > i64::MAX as u64 {
            return Err(broken("a size of more than 2^63 bytes"));
        }
        Ok(ClientStep::Ready(self.session))
    }

    fn explain(&self, kind: u32, data: &[u8]) -> String {
        let said = match kind {
            rep::ERR_UNSUP => "not supported",
            rep::ERR_POLICY => "forbidden by its policy",
            rep::ERR_TLS_REQD => "TLS is required",
            rep::ERR_UNKNOWN => "no such export",
            rep::ERR_SHUTDOWN => "it is shutting down",
            rep::ERR_BLOCK_SIZE_REQD => "block sizes must be asked for",
            _ => "refused",
        };
        let text = printable(data);
        if kind & rep::ERROR_BIT == 0 || text.is_empty() {
            said.into()
        } else {
            format!("{said} ({text})")
        }
    }

    fn refused(&self, kind: u32, data: &[u8]) -> IoError {
        let of = match kind {
            rep::ERR_UNKNOWN => IoErrorKind::Invalid,
            rep::ERR_TLS_REQD | rep::ERR_POLICY => IoErrorKind::Denied,
            rep::ERR_SHUTDOWN => IoErrorKind::Gone,
            _ => IoErrorKind::Unsupported,
        };
        let why = self.explain(kind, data);
        let what = format!(
            "the NBD server refuses export {:?}: {why}",
            self.export.as_ref()
        );
        IoError::new(of, what)
    }
}

fn no_tls(why: &str) -> IoError {
    IoError::new(
        IoErrorKind::Denied,
        format!("TLS is asked for and the NBD server does not offer it: {why}"),
    )
}

#[cfg(test)]
mod tests;
