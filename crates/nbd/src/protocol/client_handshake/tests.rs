use super::*;

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut wire = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    wire.extend(option.to_be_bytes());
    wire.extend(kind.to_be_bytes());
    wire.extend((data.len() as u32).to_be_bytes());
    wire.extend(data);
    wire
}

fn feed(c: &mut ClientHandshake, wire: &[u8]) -> (IoResult<ClientStep>, Vec<u8>) {
    let mut out = Vec::new();
    let step = c.feed(&mut &wire[..], &mut out);
    (step, out)
}

/// Feeds a reply that does not end the handshake; returns the next bytes to send.
fn go_on(c: &mut ClientHandshake, wire: &[u8]) -> Vec<u8> {
    let (step, out) = feed(c, wire);
    assert_eq!(step.unwrap(), ClientStep::More);
    out
}

/// A client that was greeted by a modern server.
fn greeted(tls: bool) -> (ClientHandshake, Vec<u8>) {
    let mut c = ClientHandshake::new("vol", tls).unwrap();
    let out = go_on(&mut c, b"NBDMAGICIHAVEOPT\x00\x03");
    (c, out)
}

const EXPORT: [u8; 12] = [0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 1];

/// "Newstyle negotiation": client flags, then options.
#[test]
fn asks_as_specified() {
    let (mut c, out) = greeted(false);
    assert_eq!(out, b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0");
    let out = go_on(&mut c, &reply(option::STRUCTURED_REPLY, rep::ACK, b""));
    assert_eq!(
        out,
        b"IHAVEOPT\0\0\0\x0a\0\0\0\x1e\0\0\0\x03vol\0\0\0\x01\0\0\0\x0fbase:allocation"
    );
    let mut context = vec![0, 0, 0, 9];
    context.extend(b"base:allocation");
    go_on(
        &mut c,
        &reply(option::SET_META_CONTEXT, rep::META_CONTEXT, &context),
    );
    let out = go_on(&mut c, &reply(option::SET_META_CONTEXT, rep::ACK, b""));
    assert_eq!(
        out,
        b"IHAVEOPT\0\0\0\x07\0\0\0\x0b\0\0\0\x03vol\0\x01\0\x03"
    );
    go_on(&mut c, &reply(option::GO, rep::INFO, &EXPORT));
    let sizes = [0, 3, 0, 0, 2, 0, 0, 0, 0x10, 0, 0xff, 0xff, 0xff, 0xff];
    go_on(&mut c, &reply(option::GO, rep::INFO, &sizes));
    let (step, _) = feed(&mut c, &reply(option::GO, rep::ACK, b""));
    let ClientStep::Ready(session) = step.unwrap() else {
        panic!("not ready");
    };
    assert_eq!(session.size_bytes, 1 << 30);
    assert_eq!(session.allocation, Some(9));
    assert_eq!(session.block_bytes_min, 512);
    assert_eq!(session.payload_bytes_max, PAYLOAD_BYTES_MAX);
}

#[test]
fn falls_back_to_export_name() {
    let (mut c, _) = greeted(false);
    let out = go_on(
        &mut c,
        &reply(option::STRUCTURED_REPLY, rep::ERR_UNSUP, b""),
    );
    assert_eq!(out[11], option::GO as u8);
    let out = go_on(&mut c, &reply(option::GO, rep::ERR_UNSUP, b""));
    assert_eq!(out, b"IHAVEOPT\0\0\0\x01\0\0\0\x03vol");
    let (step, _) = feed(&mut c, &EXPORT[2..]);
    assert!(matches!(step, Ok(ClientStep::Ready(s)) if !s.structured && s.size_bytes == 1 << 30));
}

#[test]
fn a_server_without_fixed_newstyle_pads() {
    let mut c = ClientHandshake::new("vol", false).unwrap();
    let out = go_on(&mut c, b"NBDMAGICIHAVEOPT\0\0");
    assert_eq!(out, b"\0\0\0\0IHAVEOPT\0\0\0\x01\0\0\0\x03vol");
    assert_eq!(feed(&mut c, &EXPORT[2..]).0.unwrap(), ClientStep::More);
    assert!(matches!(
        feed(&mut c, &[0; 124]).0,
        Ok(ClientStep::Ready(_))
    ));
}

#[test]
fn tls_is_never_given_up() {
    let (c, out) = greeted(true);
    assert_eq!(out[15], option::STARTTLS as u8);
    assert!(!out.windows(3).any(|w| w == b"vol"));
    for refusal in [rep::ERR_UNSUP, rep::ERR_POLICY, rep::INFO] {
        let (step, out) = feed(
            &mut c.clone(),
            &reply(option::STARTTLS, refusal, b"not today"),
        );
        assert_eq!(step.unwrap_err().kind(), IoErrorKind::Denied);
        assert!(out.is_empty());
    }
    let mut c = c;
    let ack = reply(option::STARTTLS, rep::ACK, b"");
    assert_eq!(feed(&mut c, &ack).0.unwrap(), ClientStep::StartTls);
    assert!(feed(&mut c.clone(), &ack).0.is_err(), "plain text");
    let mut out = Vec::new();
    c.encrypted(&mut out);
    assert_eq!(out[11], option::STRUCTURED_REPLY as u8);
}

#[test]
fn refusals_say_why() {
    let (mut c, _) = greeted(false);
    go_on(
        &mut c,
        &reply(option::STRUCTURED_REPLY, rep::ERR_UNSUP, b""),
    );
    let (step, _) = feed(&mut c, &reply(option::GO, rep::ERR_UNKNOWN, b"try another"));
    let error = step.unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Invalid);
    assert_eq!(
        error.to_string(),
        "the NBD server refuses export \"vol\": no such export (try another)"
    );
}

#[test]
fn a_lying_server_is_given_up() {
    let fails = |wire: &[u8]| {
        let mut c = ClientHandshake::new("vol", false).unwrap();
        feed(&mut c, wire).0.map_err(|e| e.to_string()).unwrap_err()
    };
    assert!(fails(b"SSH-2.0-OpenSSH_9.2").contains("something else"));
    assert!(fails(b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0").contains("oldstyle"));
    let greeting = b"NBDMAGICIHAVEOPT\x00\x03".to_vec();
    let after = |tail: Vec<u8>| fails(&[greeting.clone(), tail].concat());
    let mut long = reply(option::STRUCTURED_REPLY, rep::ACK, b"");
    long[16..20].fill(0xff);
    assert!(after(long).contains("too long"));
    assert!(after(reply(option::GO, rep::ACK, b"")).contains("another option"));
    let ack = reply(option::STRUCTURED_REPLY, rep::ACK, b"");
    let context = reply(option::SET_META_CONTEXT, rep::META_CONTEXT, &[0; 8]);
    assert!(after([ack.clone(), context.repeat(300)].concat()).contains("more replies"));
    let go = [
        ack,
        reply(option::SET_META_CONTEXT, rep::ACK, b""),
        reply(option::GO, rep::ACK, b""),
    ];
    assert!(after(go.concat()).contains("no description"));
}
