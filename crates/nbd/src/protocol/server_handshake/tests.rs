use super::*;
use crate::protocol::export::tests::info;
use crate::protocol::wire::flag;

/// A server after greeting and client flags (fixed newstyle, no zeroes).
fn server(tls: TlsPolicy) -> ServerHandshake {
    let mut s = ServerHandshake::new(tls, &mut Vec::new());
    let flags = 3u32.to_be_bytes();
    assert_eq!(
        s.feed(&mut &flags[..], &[], &mut Vec::new()),
        ServerStep::More
    );
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
fn ask(s: &mut ServerHandshake, wire: &[u8]) -> (ServerStep, Vec<u32>, Vec<u8>) {
    let mut out = Vec::new();
    let mut input = wire;
    let step = s.feed(&mut input, &exports(), &mut out);
    assert!(input.is_empty());
    let mut types = Vec::new();
    let mut cursor = WireCursor(&out);
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
        assert!(matches!(step, ServerStep::Transmit(1, _)));
        assert_eq!(out[..8], [0, 0, 0, 0, 0x40, 0, 0, 0]);
        assert_eq!(out.len(), 10 + padding);
    }
    let (step, _, out) = ask(
        &mut server(TlsPolicy::Off),
        &option(option::EXPORT_NAME, b"x"),
    );
    assert_eq!(step, ServerStep::Close("no such export"));
    assert!(out.is_empty());
}

/// `NBD_OPT_LIST` and `NBD_REP_SERVER`.
#[test]
fn list_names_every_export() {
    let (step, types, out) = ask(&mut server(TlsPolicy::Off), &option(option::LIST, b""));
    assert_eq!(step, ServerStep::Answered);
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
    assert_eq!(step, ServerStep::Answered);
    assert_eq!(types, [rep::INFO, rep::INFO, rep::INFO, rep::ACK]);
    // NBD_INFO_EXPORT: 16 bits type, 64 bits size, 16 bits flags.
    assert_eq!(out[20..30], [0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0]);
    // NBD_INFO_BLOCK_SIZE: 16 bits type, 32 bits minimum, preferred, maximum.
    let sizes = [0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0];
    assert!(out.windows(14).any(|w| w == sizes));

    let (step, types, _) = ask(&mut s, &option(option::GO, &data));
    let ServerStep::Transmit(1, session) = step else {
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
        assert_eq!((step, types.len()), (ServerStep::Answered, 1));
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
            ServerStep::Transmit(_, session) => session.allocation,
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
    assert!(matches!(step, ServerStep::Close(_)));
}

/// "FORCEDTLS mode".
#[test]
fn required_tls_comes_before_everything() {
    let mut s = server(TlsPolicy::Required);
    for o in [option::LIST, option::GO, option::STRUCTURED_REPLY, 99] {
        let (step, types, _) = ask(&mut s, &option(o, b""));
        assert_eq!(
            (step, &types[..]),
            (ServerStep::Answered, &[rep::ERR_TLS_REQD][..])
        );
    }
    let (step, _, out) = ask(&mut s.clone(), &option(option::EXPORT_NAME, b"vol"));
    assert!(matches!(step, ServerStep::Close(_)) && out.is_empty());
    let (step, types, _) = ask(&mut s, &option(option::STARTTLS, b""));
    assert_eq!((step, &types[..]), (ServerStep::StartTls, &[rep::ACK][..]));
    let (_, types, _) = ask(&mut s, &option(option::STARTTLS, b""));
    assert_eq!(types, [rep::ERR_INVALID]);
    let (step, _, _) = ask(&mut s, &option(option::GO, &go_data("vol", &[])));
    assert!(matches!(step, ServerStep::Transmit(1, _)));
}

#[test]
fn starttls_forgets_what_was_agreed_in_the_clear() {
    let mut s = server(TlsPolicy::Optional);
    ask(&mut s, &option(option::STRUCTURED_REPLY, b""));
    let data = meta_data("vol", &[BASE_ALLOCATION]);
    ask(&mut s, &option(option::SET_META_CONTEXT, &data));
    ask(&mut s, &option(option::STARTTLS, b""));
    let (step, _, _) = ask(&mut s, &option(option::GO, &go_data("vol", &[])));
    let ServerStep::Transmit(_, session) = step else {
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
            ServerStep::Close(_)
        )
    };
    assert!(closes(&[0, 0, 0, 4]), "an unknown client flag");
    assert!(closes(b"\0\0\0\x03GET / HTTP/1.1\r\n\r\n"));
    let mut plain = vec![0; 4];
    plain.extend(option(option::LIST, b""));
    assert!(closes(&plain), "LIST without fixed newstyle");
    let mut s = server(TlsPolicy::Off);
    let list = option(option::STRUCTURED_REPLY, b"");
    let n = (0..1000).find(|_| matches!(ask(&mut s, &list).0, ServerStep::Close(_)));
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
