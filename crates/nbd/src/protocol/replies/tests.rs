use super::*;
use crate::protocol::errno::Errno;
use crate::protocol::reply;

const READ: u64 = 1;
const STATUS: u64 = 2;
const WRITE: u64 = 3;

fn pending(cookie: u64) -> Option<PendingCookie> {
    let wants = match cookie {
        READ => Wants::Data,
        STATUS => Wants::Extents,
        WRITE => Wants::Nothing,
        _ => return None,
    };
    Some(PendingCookie {
        wants,
        offset: 4096,
        len: 1024,
    })
}

fn run(structured: bool, wire: &[u8]) -> Result<Vec<ReplyEvent<'_>>, Violation> {
    let mut replies = ReplyParser::new(structured);
    let mut input = wire;
    let mut events = Vec::new();
    while let Some(event) = replies.next(&mut input, pending)? {
        events.push(event);
    }
    assert!(input.is_empty());
    Ok(events)
}

/// A chunk with any payload.
fn chunk(flags: u16, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let head = reply::chunk(flags, kind, cookie, payload.len() as u32);
    [&head[..], payload].concat()
}

fn data(flags: u16, offset: u64, bytes: &[u8]) -> Vec<u8> {
    let payload = [&offset.to_be_bytes()[..], bytes].concat();
    chunk(flags, chunk::OFFSET_DATA, READ, &payload)
}

#[test]
fn a_simple_read_carries_its_data() {
    let wire = [&reply::simple(0, READ)[..], &[7; 1024]].concat();
    let bytes = &[7; 1024][..];
    let (cookie, at) = (READ, 0);
    assert_eq!(
        run(false, &wire).unwrap(),
        [
            ReplyEvent::Data { cookie, at, bytes },
            ReplyEvent::End { cookie }
        ]
    );
    assert_eq!(
        run(true, &wire),
        Err("a simple reply where a structured one was agreed")
    );
}

#[test]
fn errors_come_simple_or_with_a_message() {
    let cookie = WRITE;
    let error = |message: &str| {
        let (code, message) = (28, message.to_owned());
        [
            ReplyEvent::Error {
                cookie,
                code,
                message,
            },
            ReplyEvent::End { cookie },
        ]
    };
    assert_eq!(run(false, &reply::simple(28, WRITE)).unwrap(), error(""));
    let mut wire = Vec::new();
    reply::put_error(&mut wire, WRITE, Errno::NoSpc, "full");
    assert_eq!(run(true, &wire).unwrap(), error("full"));
    // ERROR_OFFSET: the same and an offset, which is skipped.
    let payload = b"\0\0\0\x1c\0\x04full\0\0\0\0\0\0\x10\0";
    let wire = chunk(chunk::DONE, chunk::ERROR_OFFSET, WRITE, payload);
    assert_eq!(run(true, &wire).unwrap(), error("full"));
}

#[test]
fn a_structured_read_comes_in_pieces() {
    let mut hole = 4608u64.to_be_bytes().to_vec();
    hole.extend(512u32.to_be_bytes());
    let wire = [
        chunk(0, chunk::OFFSET_HOLE, READ, &hole),
        data(0, 4096, &[1; 512]),
        chunk(chunk::DONE, chunk::NONE, READ, b""),
    ]
    .concat();
    let cookie = READ;
    let want = [
        ReplyEvent::Hole {
            cookie,
            at: 512,
            len: 512,
        },
        ReplyEvent::Data {
            cookie,
            at: 0,
            bytes: &[1; 512],
        },
        ReplyEvent::End { cookie },
    ];
    assert_eq!(run(true, &wire).unwrap(), want);
}

#[test]
fn extents_end_where_the_request_does() {
    let mut wire = Vec::new();
    reply::put_block_status(&mut wire, STATUS, 5, &[(512, 0), (1 << 30, 3), (9, 0)]);
    let (cookie, context) = (STATUS, 5);
    let extent = |len, flags| ReplyEvent::Extent {
        cookie,
        context,
        len,
        flags,
    };
    let want = [extent(512, 0), extent(512, 3), ReplyEvent::End { cookie }];
    assert_eq!(run(true, &wire).unwrap(), want);
}

#[test]
fn a_lying_server_is_found_out() {
    let fails = |wire: Vec<u8>| run(true, &wire).unwrap_err();
    let none = |cookie, flags, payload: &[u8]| chunk(flags, chunk::NONE, cookie, payload);
    assert!(fails(none(99, 1, b"")).contains("not made"));
    assert!(fails(none(READ, 0, b"")).contains("empty chunk"));
    assert!(fails(none(READ, 1, b"x")).contains("empty chunk"));
    assert!(fails(data(1, 4096, b"")).contains("length"));
    for (offset, len) in [
        (4095, 10),
        (4096, 1025),
        (5120, 1),
        (u64::MAX, 2),
        (0, 1 << 13),
    ] {
        assert!(fails(data(1, offset, &vec![0; len])).contains("outside"));
    }
    assert!(fails(chunk(1, 77, READ, b"12345678")).contains("unknown type"));
    assert!(fails(chunk(1, chunk::OFFSET_DATA, WRITE, &[0; 9])).contains("not answer"));
    assert!(fails(chunk(1, chunk::BLOCK_STATUS, READ, &[0; 12])).contains("not answer"));
    assert!(fails(chunk(1, chunk::BLOCK_STATUS, STATUS, &[0; 13])).contains("length"));
    assert!(fails(chunk(1, chunk::BLOCK_STATUS, STATUS, &[0; 12])).contains("empty extent"));
    assert!(fails(chunk(1, chunk::ERROR, READ, &[0; 6])).contains("without an error"));
    let long = b"\0\0\0\x05\xff\xffxx";
    assert!(fails(chunk(1, chunk::ERROR, READ, long)).contains("longer than"));
    let unasked = run(false, &none(READ, 1, b"")).unwrap_err();
    assert!(unasked.contains("not agreed"));
}
