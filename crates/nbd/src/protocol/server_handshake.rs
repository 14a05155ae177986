//! The server's side of the handshake, fixed newstyle.
//!
//! Invariants:
//!   - every option but EXPORT_NAME and those that end the session gets
//!     exactly one final reply ("Fixed newstyle negotiation");
//!   - at most [`OPTION_BYTES_MAX`] bytes are held; a longer option is skipped
//!     as it arrives and refused;
//!   - what was agreed before STARTTLS counts for nothing after it, so that
//!     nobody between the two can have agreed it.
//!
//! Not here: time limits and the number of connections (`serve`).

use super::export::ExportInfo;
use super::gather::Gather;
use super::session::Session;
use super::wire::{
    BASE_ALLOCATION, Cursor, EXPORT_NAME_PADDING, IHAVEOPT, NBDMAGIC, OPTION_REPLY_MAGIC,
    STRING_BYTES_MAX, handshake_flag, info, option, rep,
};

/// The longest option data that is looked at: two strings and some queries.
pub const OPTION_BYTES_MAX: usize = 16 << 10;
/// Options a client may send before it is taken for a nuisance.
pub const OPTIONS_MAX: u32 = 64;
/// The id under which `base:allocation` is selected.
pub const ALLOCATION_ID: u32 = 1;

/// Whether a client may or must use TLS ("Server-side requirements").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TlsPolicy {
    /// NOTLS: STARTTLS is refused.
    #[default]
    Off,
    /// SELECTIVETLS with no export that needs it.
    Optional,
    /// FORCEDTLS: nothing but STARTTLS and ABORT before it.
    Required,
}

/// What to do after a call of [`ServerHandshake::feed`].
///
/// In every case the bytes in `out` are sent first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// The input is used up; receive more.
    More,
    /// An option was answered; feed the rest of the input.
    Answered,
    /// Begin TLS with the rest of the input, then feed what it decrypts.
    StartTls,
    /// The export at this index in `exports` was chosen; requests follow.
    Transmit(usize, Session),
    /// Close; the text says why, for the log.
    Close(&'static str),
}

#[derive(Clone, Debug)]
enum State {
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
    state: State,
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
            state: State::ClientFlags(Gather::default()),
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
    pub fn feed(&mut self, input: &mut &[u8], exports: &[ExportInfo], out: &mut Vec<u8>) -> Step {
        let step = self.step(input, exports, out);
        if matches!(step, Step::Close(_) | Step::Transmit(..)) {
            self.state = State::Ended;
        }
        step
    }

    fn step(&mut self, input: &mut &[u8], exports: &[ExportInfo], out: &mut Vec<u8>) -> Step {
        loop {
            match &mut self.state {
                State::ClientFlags(gather) => {
                    let Some(flags) = gather.take(input) else {
                        return Step::More;
                    };
                    let flags = u32::from_be_bytes(flags);
                    let fixed = u32::from(handshake_flag::FIXED_NEWSTYLE);
                    let no_zeroes = u32::from(handshake_flag::NO_ZEROES);
                    if flags & !(fixed | no_zeroes) != 0 {
                        return Step::Close("the client set an unknown handshake flag");
                    }
                    self.fixed_newstyle = flags & fixed != 0;
                    self.no_zeroes = flags & no_zeroes != 0;
                    self.state = State::OptionHead(Gather::default());
                }
                State::OptionHead(gather) => {
                    let Some(head) = gather.take(input) else {
                        return Step::More;
                    };
                    if let Some(step) = self.option_head(&head) {
                        return step;
                    }
                }
                State::OptionData {
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
                        return Step::More;
                    }
                    let (option, too_big) = (*option, *too_big);
                    self.state = State::OptionHead(Gather::default());
                    let data = std::mem::take(&mut self.data);
                    return self.answer(option, too_big, &data, exports, out);
                }
                State::Ended => return Step::Close("the handshake is over"),
            }
        }
    }

    fn option_head(&mut self, head: &[u8; 16]) -> Option<Step> {
        let mut head = Cursor(head);
        let magic = head.u64();
        let option = head.u32().expect("16 bytes");
        let len = head.u32().expect("16 bytes");
        if magic != Some(IHAVEOPT) {
            return Some(Step::Close("something that is no NBD option"));
        }
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Some(Step::Close("too many options"));
        }
        if !self.fixed_newstyle && option != option::EXPORT_NAME {
            return Some(Step::Close(
                "an option that needs fixed newstyle negotiation",
            ));
        }
        self.state = State::OptionData {
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
    ) -> Step {
        let needs_tls = self.tls == TlsPolicy::Required && !self.encrypted;
        if option == option::EXPORT_NAME {
            return match (needs_tls, too_big) {
                (true, _) => Step::Close("an export was chosen before TLS, which is required"),
                (_, true) => Step::Close("an export name longer than NBD allows"),
                _ => self.export_name(data, exports, out),
            };
        }
        if option == option::ABORT {
            put_reply(out, option, rep::ACK, &[&[]]);
            return Step::Close("the client ended the negotiation");
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
                        return Step::StartTls;
                    }
                    Err(error) => Err(error),
                },
                option::GO => match self.describe(option, data, exports, out) {
                    Ok(index) => {
                        put_reply(out, option, rep::ACK, &[&[]]);
                        return Step::Transmit(index, self.session(&exports[index]));
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
        Step::Answered
    }

    fn session(&self, export: &ExportInfo) -> Session {
        let selected = self.allocation_of.as_deref() == Some(export.name());
        Session {
            size_bytes: export.size_bytes,
            flags: export.transmission_flags(self.structured),
            structured: self.structured,
            allocation: selected.then_some(ALLOCATION_ID),
            block_bytes_min: export.block.min,
            block_bytes_preferred: export.block.preferred,
            payload_bytes_max: export.block.payload_max,
        }
    }

    fn export_name(&self, name: &[u8], exports: &[ExportInfo], out: &mut Vec<u8>) -> Step {
        let Some(index) = find(name, exports) else {
            return Step::Close("no such export");
        };
        let session = self.session(&exports[index]);
        out.extend(session.size_bytes.to_be_bytes());
        out.extend(session.flags.to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; EXPORT_NAME_PADDING]);
        }
        Step::Transmit(index, session)
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
        let mut data = Cursor(data);
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
            let sizes = [block.min, block.preferred, block.payload_max];
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
        let mut data = Cursor(data);
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
mod tests {
    use super::*;
    use crate::protocol::export::tests::info;
    use crate::protocol::wire::flag;

    /// A server after greeting and client flags (fixed newstyle, no zeroes).
    fn server(tls: TlsPolicy) -> ServerHandshake {
        let mut s = ServerHandshake::new(tls, &mut Vec::new());
        let flags = 3u32.to_be_bytes();
        assert_eq!(s.feed(&mut &flags[..], &[], &mut Vec::new()), Step::More);
        s
    }

    fn option(option: u32, data: &[u8]) -> Vec<u8> {
        let mut wire = b"IHAVEOPT".to_vec();
        wire.extend(option.to_be_bytes());
        wire.extend((data.len() as u32).to_be_bytes());
        wire.extend(data);
        wire
    }

    fn exports() -> Vec<ExportInfo> {
        vec![info("", 1 << 20), info("vol", 1 << 30)]
    }

    /// Feeds one option; gives the step and the types of the replies.
    fn ask(s: &mut ServerHandshake, wire: &[u8]) -> (Step, Vec<u32>, Vec<u8>) {
        let mut out = Vec::new();
        let mut input = wire;
        let step = s.feed(&mut input, &exports(), &mut out);
        assert!(input.is_empty());
        let mut types = Vec::new();
        let mut cursor = Cursor(&out);
        if !matches!(out.first_chunk::<8>(), Some(m) if *m == OPTION_REPLY_MAGIC.to_be_bytes()) {
            return (step, types, out);
        }
        while let Some(magic) = cursor.u64() {
            assert_eq!(magic, OPTION_REPLY_MAGIC);
            assert_eq!(cursor.u32().unwrap().to_be_bytes(), wire[8..12]);
            types.push(cursor.u32().unwrap());
            cursor.string().unwrap();
        }
        (step, types, out)
    }

    fn go_data(name: &str, infos: &[u16]) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend((infos.len() as u16).to_be_bytes());
        infos.iter().for_each(|i| data.extend(i.to_be_bytes()));
        data
    }

    fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend((queries.len() as u32).to_be_bytes());
        for query in queries {
            data.extend((query.len() as u32).to_be_bytes());
            data.extend(query.as_bytes());
        }
        data
    }

    /// "Newstyle negotiation": two magics and the handshake flags.
    #[test]
    fn greets_as_specified() {
        let mut out = Vec::new();
        ServerHandshake::new(TlsPolicy::Off, &mut out);
        assert_eq!(out, b"NBDMAGICIHAVEOPT\x00\x03");
    }

    /// "Newstyle negotiation": size, flags and 124 zeroes.
    #[test]
    fn export_name_is_answered_as_specified() {
        for (client_flags, padding) in [(1u32, 124), (3, 0), (0, 124)] {
            let mut s = ServerHandshake::new(TlsPolicy::Off, &mut Vec::new());
            let mut wire = client_flags.to_be_bytes().to_vec();
            wire.extend(option(option::EXPORT_NAME, b"vol"));
            let mut out = Vec::new();
            let step = s.feed(&mut &wire[..], &exports(), &mut out);
            assert!(matches!(step, Step::Transmit(1, _)));
            assert_eq!(out[..8], [0, 0, 0, 0, 0x40, 0, 0, 0]);
            assert_eq!(out.len(), 10 + padding);
        }
        let (step, _, out) = ask(
            &mut server(TlsPolicy::Off),
            &option(option::EXPORT_NAME, b"x"),
        );
        assert_eq!(step, Step::Close("no such export"));
        assert!(out.is_empty());
    }

    /// `NBD_OPT_LIST` and `NBD_REP_SERVER`.
    #[test]
    fn list_names_every_export() {
        let (step, types, out) = ask(&mut server(TlsPolicy::Off), &option(option::LIST, b""));
        assert_eq!(step, Step::Answered);
        assert_eq!(types, [rep::SERVER, rep::SERVER, rep::ACK]);
        let want = [
            0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9, // magic
            0, 0, 0, 3, // the option: LIST
            0, 0, 0, 2, // SERVER
            0, 0, 0, 7, // length
            0, 0, 0, 3, b'v', b'o', b'l', // the name
        ];
        assert_eq!(out[24..][..27], want);
        let (_, types, _) = ask(&mut server(TlsPolicy::Off), &option(option::LIST, b"x"));
        assert_eq!(types, [rep::ERR_INVALID]);
    }

    #[test]
    fn info_describes_and_go_begins() {
        let mut s = server(TlsPolicy::Off);
        let data = go_data("vol", &[info::BLOCK_SIZE, info::NAME]);
        let (step, types, out) = ask(&mut s, &option(option::INFO, &data));
        assert_eq!(step, Step::Answered);
        assert_eq!(types, [rep::INFO, rep::INFO, rep::INFO, rep::ACK]);
        // NBD_INFO_EXPORT: 16 bits type, 64 bits size, 16 bits flags.
        assert_eq!(out[20..30], [0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0]);
        // NBD_INFO_BLOCK_SIZE: 16 bits type, 32 bits minimum, preferred, maximum.
        let sizes = [0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0];
        assert!(out.windows(14).any(|w| w == sizes));

        let (step, types, _) = ask(&mut s, &option(option::GO, &data));
        let Step::Transmit(1, session) = step else {
            panic!("{step:?}");
        };
        assert_eq!(types, [rep::INFO, rep::INFO, rep::INFO, rep::ACK]);
        assert_eq!(session.size_bytes, 1 << 30);
        assert!(!session.structured && session.flags & flag::SEND_DF == 0);
    }

    #[test]
    fn every_mistake_gets_its_error() {
        let mut s = server(TlsPolicy::Off);
        let mut error = |wire: Vec<u8>| {
            let (step, types, _) = ask(&mut s, &wire);
            assert_eq!((step, types.len()), (Step::Answered, 1));
            types[0]
        };
        assert_eq!(error(option(99, b"what")), rep::ERR_UNSUP);
        // EXTENDED_HEADERS.
        assert_eq!(error(option(11, b"")), rep::ERR_UNSUP);
        assert_eq!(error(option(option::STARTTLS, b"")), rep::ERR_POLICY);
        assert_eq!(
            error(option(option::GO, &go_data("nope", &[]))),
            rep::ERR_UNKNOWN
        );
        assert_eq!(error(option(option::GO, b"")), rep::ERR_INVALID);
        assert_eq!(
            error(option(option::GO, &[0xff; 6])),
            rep::ERR_INVALID,
            "a name longer than its option"
        );
        let mut extra = go_data("vol", &[]);
        extra.push(0);
        assert_eq!(error(option(option::GO, &extra)), rep::ERR_INVALID);
        let long = "x".repeat(4097);
        assert_eq!(
            error(option(option::GO, &go_data(&long, &[]))),
            rep::ERR_TOO_BIG
        );
        assert_eq!(
            error(option(option::LIST, &vec![0; OPTION_BYTES_MAX + 1])),
            rep::ERR_TOO_BIG
        );
        assert_eq!(
            error(option(
                option::SET_META_CONTEXT,
                &meta_data("vol", &[BASE_ALLOCATION])
            )),
            rep::ERR_INVALID,
            "structured replies must come first"
        );
        assert_eq!(error(option(option::STRUCTURED_REPLY, b"")), rep::ACK);
        for set in [option::LIST_META_CONTEXT, option::SET_META_CONTEXT] {
            assert_eq!(
                error(option(set, &meta_data("nope", &[]))),
                rep::ERR_UNKNOWN
            );
            assert_eq!(
                error(option(set, &meta_data("vol", &[&long]))),
                rep::ERR_TOO_BIG
            );
            // A peer that claims four billion queries and sends none.
            let mut lie = meta_data("vol", &[]);
            lie[7..].fill(0xff);
            assert_eq!(error(option(set, &lie)), rep::ERR_INVALID);
        }
    }

    #[test]
    fn contexts_are_listed_and_selected_for_one_export() {
        let mut s = server(TlsPolicy::Off);
        ask(&mut s, &option(option::STRUCTURED_REPLY, b""));
        let list = |s: &mut ServerHandshake, queries: &[&str]| {
            let data = meta_data("vol", queries);
            ask(s, &option(option::LIST_META_CONTEXT, &data)).1
        };
        let found = [rep::META_CONTEXT, rep::ACK];
        assert_eq!(list(&mut s, &[]), found);
        assert_eq!(list(&mut s, &["base:"]), found);
        assert_eq!(list(&mut s, &["x-other:y", "base:allocation"]), found);
        assert_eq!(list(&mut s, &["x-other:y"]), [rep::ACK]);

        let set = |s: &mut ServerHandshake, queries: &[&str]| {
            let data = meta_data("vol", queries);
            ask(s, &option(option::SET_META_CONTEXT, &data)).1
        };
        let go = |s: &ServerHandshake, name: &str| {
            let wire = option(option::GO, &go_data(name, &[]));
            match ask(&mut s.clone(), &wire).0 {
                Step::Transmit(_, session) => session.allocation,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(set(&mut s, &[BASE_ALLOCATION]), found);
        assert_eq!(go(&s, "vol"), Some(ALLOCATION_ID));
        assert_eq!(go(&s, ""), None, "selected for another export");
        assert_eq!(set(&mut s, &["base:"]), [rep::ACK]);
        assert_eq!(go(&s, "vol"), None, "a new selection replaces the old");
    }

    #[test]
    fn abort_is_acknowledged() {
        let (step, types, _) = ask(&mut server(TlsPolicy::Off), &option(option::ABORT, b""));
        assert_eq!(types, [rep::ACK]);
        assert!(matches!(step, Step::Close(_)));
    }

    /// "FORCEDTLS mode".
    #[test]
    fn required_tls_comes_before_everything() {
        let mut s = server(TlsPolicy::Required);
        for o in [option::LIST, option::GO, option::STRUCTURED_REPLY, 99] {
            let (step, types, _) = ask(&mut s, &option(o, b""));
            assert_eq!(
                (step, &types[..]),
                (Step::Answered, &[rep::ERR_TLS_REQD][..])
            );
        }
        let (step, _, out) = ask(&mut s.clone(), &option(option::EXPORT_NAME, b"vol"));
        assert!(matches!(step, Step::Close(_)) && out.is_empty());
        let (step, types, _) = ask(&mut s, &option(option::STARTTLS, b""));
        assert_eq!((step, &types[..]), (Step::StartTls, &[rep::ACK][..]));
        let (_, types, _) = ask(&mut s, &option(option::STARTTLS, b""));
        assert_eq!(types, [rep::ERR_INVALID]);
        let (step, _, _) = ask(&mut s, &option(option::GO, &go_data("vol", &[])));
        assert!(matches!(step, Step::Transmit(1, _)));
    }

    #[test]
    fn starttls_forgets_what_was_agreed_in_the_clear() {
        let mut s = server(TlsPolicy::Optional);
        ask(&mut s, &option(option::STRUCTURED_REPLY, b""));
        let data = meta_data("vol", &[BASE_ALLOCATION]);
        ask(&mut s, &option(option::SET_META_CONTEXT, &data));
        ask(&mut s, &option(option::STARTTLS, b""));
        let (step, _, _) = ask(&mut s, &option(option::GO, &go_data("vol", &[])));
        let Step::Transmit(_, session) = step else {
            panic!("{step:?}");
        };
        assert!(!session.structured && session.allocation.is_none());
    }

    #[test]
    fn nonsense_closes() {
        let closes = |bytes: &[u8]| {
            let mut s = ServerHandshake::new(TlsPolicy::Off, &mut Vec::new());
            matches!(
                s.feed(&mut &bytes[..], &exports(), &mut Vec::new()),
                Step::Close(_)
            )
        };
        assert!(closes(&[0, 0, 0, 4]), "an unknown client flag");
        assert!(closes(b"\0\0\0\x03GET / HTTP/1.1\r\n\r\n"));
        let mut plain = vec![0; 4];
        plain.extend(option(option::LIST, b""));
        assert!(closes(&plain), "LIST without fixed newstyle");
        let mut s = server(TlsPolicy::Off);
        let list = option(option::STRUCTURED_REPLY, b"");
        let n = (0..1000).find(|_| matches!(ask(&mut s, &list).0, Step::Close(_)));
        assert_eq!(n, Some(OPTIONS_MAX as usize));
    }

    #[test]
    fn a_claimed_length_takes_no_memory() {
        let mut s = server(TlsPolicy::Off);
        let mut head = b"IHAVEOPT".to_vec();
        head.extend(option::LIST.to_be_bytes());
        head.extend(u32::MAX.to_be_bytes());
        ask(&mut s, &head);
        for _ in 0..100 {
            ask(&mut s, &[0; 4096]);
        }
        assert_eq!(s.data.capacity(), 0);
    }
}
