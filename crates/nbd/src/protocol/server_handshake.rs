//! The server's side of the handshake, fixed newstyle.
//!
//! Invariants:
//!   - every option but EXPORT_NAME and those that end the session gets
//!     exactly one final reply ("Fixed newstyle negotiation");
//!   - at most [`OPTION_BYTES_MAX`] bytes are held; a longer option is skipped
//!     as it arrives and refused;
//!   - an agreement from before STARTTLS counts for nothing after it: an attacker
//!     between the two peers may have made it.
//!
//! Not here: time limits and the number of connections (`serve`).

use super::export::ExportInfo;
use super::gather::Gather;
use super::session::NbdSession;
use super::wire::{
    BASE_ALLOCATION, EXPORT_NAME_PADDING, IHAVEOPT, NBDMAGIC, OPTION_REPLY_MAGIC, STRING_BYTES_MAX,
    WireCursor, handshake_flag, info, option, rep,
};

/// The longest option data that is looked at: two strings and some queries.
pub const OPTION_BYTES_MAX: usize = 16 << 10;
/// Number of options from one client before the server ends the handshake.
pub const OPTIONS_MAX: u32 = 64;
/// The id under which `base:allocation` is selected.
pub const ALLOCATION_ID: u32 = 1;

/// Use of TLS by clients: forbidden, allowed or required ("Server-side requirements").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TlsPolicy {
    /// NOTLS: STARTTLS is refused.
    #[default]
    Off,
    /// SELECTIVETLS; no export requires TLS.
    Optional,
    /// FORCEDTLS: nothing but STARTTLS and ABORT before TLS.
    Required,
}

/// The next action after a call of [`ServerHandshake::feed`].
///
/// In every case the bytes in `out` are sent first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerStep {
    /// The input is used up; receive more.
    More,
    /// An option was answered; feed the rest of the input.
    Answered,
    /// Begin TLS with the rest of the input, then feed the decrypted bytes.
    StartTls,
    /// The export at this index in `exports` was chosen; requests follow.
    Transmit(usize, NbdSession),
    /// Close; the text is the reason, for the log.
    Close(&'static str),
}

#[derive(Clone, Debug)]
enum ServerState {
    ClientFlags(Gather<4>),
    OptionHead(Gather<16>),
    OptionData {
        option: u32,
        /// Bytes of data that have not arrived.
        left: u32,
        too_big: bool,
    },
    Ended,
}

/// A handshake in progress.
#[derive(Clone, Debug)]
pub struct ServerHandshake {
    tls: TlsPolicy,
    encrypted: bool,
    state: ServerState,
    /// Data of the option that is arriving.
    data: Vec<u8>,
    options: u32,
    fixed_newstyle: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was selected.
    allocation_of: Option<Box<str>>,
}

/// The answer to an option: replies were written, or this error is.
type Answer = Result<(), (u32, &'static str)>;

impl ServerHandshake {
    /// Begins a handshake; the greeting is appended to `out`.
    pub fn new(tls: TlsPolicy, out: &mut Vec<u8>) -> ServerHandshake {
        out.extend(NBDMAGIC.to_be_bytes());
        out.extend(IHAVEOPT.to_be_bytes());
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        out.extend(flags.to_be_bytes());
        ServerHandshake {
            tls,
            encrypted: false,
            state: ServerState::ClientFlags(Gather::default()),
            data: Vec::new(),
            options: 0,
            fixed_newstyle: false,
            no_zeroes: false,
            structured: false,
            allocation_of: None,
        }
    }

    /// Takes bytes off `input` up to the end of one option and appends its
    /// answer to `out`.
    pub fn feed(
        &mut self,
        input: &mut &[u8],
        exports: &[ExportInfo],
        out: &mut Vec<u8>,
    ) -> ServerStep {
        let step = self.step(input, exports, out);
        if matches!(step, ServerStep::Close(_) | ServerStep::Transmit(..)) {
            self.state = ServerState::Ended;
        }
        step
    }

    fn step(&mut self, input: &mut &[u8], exports: &[ExportInfo], out: &mut Vec<u8>) -> ServerStep {
        loop {
            match &mut self.state {
                ServerState::ClientFlags(gather) => {
                    let Some(flags) = gather.take(input) else {
                        return ServerStep::More;
                    };
                    let flags = u32::from_be_bytes(flags);
                    let fixed = u32::from(handshake_flag::FIXED_NEWSTYLE);
                    let no_zeroes = u32::from(handshake_flag::NO_ZEROES);
                    if flags & !(fixed | no_zeroes) != 0 {
                        return ServerStep::Close("the client set an unknown handshake flag");
                    }
                    self.fixed_newstyle = flags & fixed != 0;
                    self.no_zeroes = flags & no_zeroes != 0;
                    self.state = ServerState::OptionHead(Gather::default());
                }
                ServerState::OptionHead(gather) => {
                    let Some(head) = gather.take(input) else {
                        return ServerStep::More;
                    };
                    if let Some(step) = self.option_head(&head) {
                        return step;
                    }
                }
                ServerState::OptionData {
                    option,
                    left,
                    too_big,
                } => {
                    let n = input.len().min(*left as usize);
                    let (bytes, rest) = input.split_at(n);
                    *input = rest;
                    *left -= n as u32;
                    if !*too_big {
                        self.data.extend(bytes);
                    }
                    if *left > 0 {
                        return ServerStep::More;
                    }
                    let (option, too_big) = (*option, *too_big);
                    self.state = ServerState::OptionHead(Gather::default());
                    let data = std::mem::take(&mut self.data);
                    return self.answer(option, too_big, &data, exports, out);
                }
                ServerState::Ended => return ServerStep::Close("the handshake is over"),
            }
        }
    }

    fn option_head(&mut self, head: &[u8; 16]) -> Option<ServerStep> {
        let mut head = WireCursor(head);
        let magic = head.u64();
        let option = head.u32().expect("16 bytes");
        let len = head.u32().expect("16 bytes");
        if magic != Some(IHAVEOPT) {
            return Some(ServerStep::Close("something that is no NBD option"));
        }
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Some(ServerStep::Close("too many options"));
        }
        if !self.fixed_newstyle && option != option::EXPORT_NAME {
            return Some(ServerStep::Close(
                "an option that needs fixed newstyle negotiation",
            ));
        }
        self.state = ServerState::OptionData {
            option,
            left: len,
            too_big: len as usize > OPTION_BYTES_MAX,
        };
        None
    }

    fn answer(
        &mut self,
        option: u32,
        too_big: bool,
        data: &[u8],
        exports: &[ExportInfo],
        out: &mut Vec<u8>,
    ) -> ServerStep {
        let needs_tls = self.tls == TlsPolicy::Required && !self.encrypted;
        if option == option::EXPORT_NAME {
            return match (needs_tls, too_big) {
                (true, _) => {
                    ServerStep::Close("an export was chosen before TLS, which is required")
                }
                (_, true) => ServerStep::Close("an export name longer than NBD allows"),
                _ => self.export_name(data, exports, out),
            };
        }
        if option == option::ABORT {
            put_reply(out, option, rep::ACK, &[&[]]);
            return ServerStep::Close("the client ended the negotiation");
        }
        let answer = if needs_tls && option != option::STARTTLS {
            Err((rep::ERR_TLS_REQD, "TLS is required: send STARTTLS first"))
        } else if too_big {
            Err((rep::ERR_TOO_BIG, "the option is longer than 16 KiB"))
        } else {
            match option {
                option::STARTTLS => match self.start_tls(data) {
                    Ok(()) => {
                        put_reply(out, option, rep::ACK, &[&[]]);
                        return ServerStep::StartTls;
                    }
                    Err(error) => Err(error),
                },
                option::GO => match self.describe(option, data, exports, out) {
                    Ok(index) => {
                        put_reply(out, option, rep::ACK, &[&[]]);
                        return ServerStep::Transmit(index, self.session(&exports[index]));
                    }
                    Err(error) => Err(error),
                },
                option::INFO => self.describe(option, data, exports, out).map(|_| ()),
                option::LIST => list(data, exports, out),
                option::STRUCTURED_REPLY => no_data(data).map(|()| self.structured = true),
                option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                    self.meta_context(option, data, exports, out)
                }
                _ => Err((rep::ERR_UNSUP, "the option is not supported")),
            }
        };
        match answer {
            Ok(()) => put_reply(out, option, rep::ACK, &[&[]]),
            Err((error, why)) => put_reply(out, option, error, &[why.as_bytes()]),
        }
        ServerStep::Answered
    }

    fn session(&self, export: &ExportInfo) -> NbdSession {
        let selected = self.allocation_of.as_deref() == Some(export.name());
        NbdSession {
            size_bytes: export.size_bytes,
            flags: export.transmission_flags(self.structured),
            structured: self.structured,
            allocation: selected.then_some(ALLOCATION_ID),
            block_bytes_min: export.block.min,
            block_bytes_preferred: export.block.preferred,
            payload_bytes_max: export.block.payload_max,
        }
    }

    fn export_name(&self, name: &[u8], exports: &[ExportInfo], out: &mut Vec<u8>) -> ServerStep {
        let Some(index) = find(name, exports) else {
            return ServerStep::Close("no such export");
        };
        let session = self.session(&exports[index]);
        out.extend(session.size_bytes.to_be_bytes());
        out.extend(session.flags.to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; EXPORT_NAME_PADDING]);
        }
        ServerStep::Transmit(index, session)
    }

    fn start_tls(&mut self, data: &[u8]) -> Answer {
        no_data(data)?;
        if self.encrypted {
            return Err((rep::ERR_INVALID, "TLS is already in use"));
        }
        if self.tls == TlsPolicy::Off {
            return Err((rep::ERR_POLICY, "TLS is not configured"));
        }
        self.encrypted = true;
        self.structured = false;
        self.allocation_of = None;
        Ok(())
    }

    /// INFO and GO: describes the export that is asked for.
    fn describe(
        &self,
        option: u32,
        data: &[u8],
        exports: &[ExportInfo],
        out: &mut Vec<u8>,
    ) -> Result<usize, (u32, &'static str)> {
        let malformed = (rep::ERR_INVALID, "the option's lengths do not add up");
        let mut data = WireCursor(data);
        let name = data.string().ok_or(malformed)?;
        let n = data.u16().ok_or(malformed)?;
        let wanted = data.bytes(usize::from(n) * 2).ok_or(malformed)?;
        if !data.0.is_empty() {
            return Err(malformed);
        }
        let index = find_or_refuse(name, exports)?;
        let export = &exports[index];
        let wants = |kind: u16| wanted.chunks_exact(2).any(|w| w == kind.to_be_bytes());
        let mut put = |kind: u16, parts: &[&[u8]]| {
            let kind = kind.to_be_bytes();
            let mut all: Vec<&[u8]> = vec![&kind];
            all.extend(parts);
            put_reply(out, option, rep::INFO, &all);
        };
        let flags = export.transmission_flags(self.structured);
        let size = export.size_bytes.to_be_bytes();
        put(info::EXPORT, &[&size, &flags.to_be_bytes()]);
        if wants(info::NAME) {
            put(info::NAME, &[name]);
        }
        if wants(info::DESCRIPTION) && !export.description().is_empty() {
            put(info::DESCRIPTION, &[export.description().as_bytes()]);
        }
        if wants(info::BLOCK_SIZE) {
            let block = export.block;
            let sizes = [block.min_offered, block.preferred, block.payload_max];
            put(
                info::BLOCK_SIZE,
                &sizes.map(u32::to_be_bytes).each_ref().map(|b| &b[..]),
            );
        }
        Ok(index)
    }

    /// LIST_META_CONTEXT and SET_META_CONTEXT.
    fn meta_context(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &[ExportInfo],
        out: &mut Vec<u8>,
    ) -> Answer {
        let set = option == option::SET_META_CONTEXT;
        if set {
            self.allocation_of = None;
        }
        if !self.structured {
            return Err((rep::ERR_INVALID, "structured replies must come first"));
        }
        let malformed = (rep::ERR_INVALID, "the option's lengths do not add up");
        let mut data = WireCursor(data);
        let name = data.string().ok_or(malformed)?;
        let n = data.u32().ok_or(malformed)?;
        let mut selected = !set && n == 0;
        for _ in 0..n {
            let query = data.string().ok_or(malformed)?;
            if query.len() > STRING_BYTES_MAX {
                return Err((rep::ERR_TOO_BIG, "a query longer than 4096 bytes"));
            }
            selected |= query == BASE_ALLOCATION.as_bytes() || !set && query == b"base:";
        }
        if !data.0.is_empty() {
            return Err(malformed);
        }
        let index = find_or_refuse(name, exports)?;
        if selected {
            let id = if set { ALLOCATION_ID } else { 0 };
            let parts: [&[u8]; 2] = [&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()];
            put_reply(out, option, rep::META_CONTEXT, &parts);
            if set {
                self.allocation_of = Some(exports[index].name().into());
            }
        }
        Ok(())
    }
}

fn list(data: &[u8], exports: &[ExportInfo], out: &mut Vec<u8>) -> Answer {
    no_data(data)?;
    for export in exports {
        let name = export.name().as_bytes();
        let len = (name.len() as u32).to_be_bytes();
        let parts = [&len, name, export.description().as_bytes()];
        put_reply(out, option::LIST, rep::SERVER, &parts);
    }
    Ok(())
}

fn no_data(data: &[u8]) -> Answer {
    if data.is_empty() {
        Ok(())
    } else {
        Err((rep::ERR_INVALID, "the option takes no data"))
    }
}

fn find(name: &[u8], exports: &[ExportInfo]) -> Option<usize> {
    exports.iter().position(|e| e.name().as_bytes() == name)
}

fn find_or_refuse(name: &[u8], exports: &[ExportInfo]) -> Result<usize, (u32, &'static str)> {
    if name.len() > STRING_BYTES_MAX {
        return Err((rep::ERR_TOO_BIG, "an export name longer than 4096 bytes"));
    }
    find(name, exports).ok_or((rep::ERR_UNKNOWN, "no such export"))
}

fn put_reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((len as u32).to_be_bytes());
    for part in parts {
        out.extend(*part);
    }
}

#[cfg(test)]
mod tests;
