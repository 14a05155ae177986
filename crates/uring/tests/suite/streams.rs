//! Streams beyond the suite: long gathers, broken peers, host names, closing.

use crate::common::{buf_of, directory, filled, host, perform, wait};
use block::{Address, Driver, DriverOp, IoErrorKind, Nanos, Payload, SharedBuf, TargetId, Token};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use uring::UringDriver;

/// A TCP stream of the driver and its peer, a plain socket.
fn connected(driver: &mut UringDriver) -> (TargetId, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let target = connect(driver, Address::Tcp(at.into())).unwrap();
    (target, listener.accept().unwrap().0)
}

fn connect(driver: &mut UringDriver, address: Address) -> block::IoResult<TargetId> {
    let (result, _) = perform(driver, TargetId::NONE, DriverOp::Connect(address));
    result.map(|id| TargetId(id as u32))
}

fn parts_of(payload: Payload) -> Vec<SharedBuf> {
    match payload {
        Payload::Parts(parts) => parts,
        other => panic!("the vector of a send, not {other:?}"),
    }
}

#[test]
fn a_send_gathers_more_parts_than_one_call_takes() {
    let mut driver = host().driver().unwrap();
    let (stream, mut peer) = connected(&mut driver);
    let mut buf = filled(&driver, 3000, 0);
    for (at, byte) in buf.iter_mut().enumerate() {
        *byte = at as u8;
    }
    let data = buf.share();
    // Single bytes, with empty parts among them.
    let parts = (0..3000).flat_map(|at| [data.slice(at..at + 1), data.slice(at..at)]);
    let (result, payload) = perform(&mut driver, stream, DriverOp::Send(parts.collect()));
    assert_eq!(result.unwrap(), 0);
    assert!(parts_of(payload).is_empty());
    let mut got = vec![0; 3000];
    peer.read_exact(&mut got).unwrap();
    assert!(got == *data);
}

#[test]
fn a_send_goes_on_while_the_peer_reads_slowly() {
    let mut driver = host().driver().unwrap();
    let (stream, mut peer) = connected(&mut driver);
    let part = filled(&driver, 4 << 20, 3).share();
    let op = DriverOp::Send(vec![part.clone(); 8]);
    driver.submit(Token(0), stream, op);
    // The peer reads nothing yet, and no socket buffers that much.
    let mut done = Vec::new();
    driver.park(driver.now() + Nanos::from_millis(50), &mut done);
    assert!(done.is_empty());
    let read = std::thread::spawn(move || {
        let (mut buf, mut total) = (vec![0; 99_999], 0);
        while total < 32 << 20 {
            let bytes = peer.read(&mut buf).unwrap();
            assert!(buf[..bytes].iter().all(|&byte| byte == 3));
            total += bytes;
        }
        total
    });
    let completion = wait(&mut driver, 1).pop().unwrap();
    assert_eq!(completion.result.unwrap(), 0);
    assert_eq!(read.join().unwrap(), 32 << 20);
}

#[test]
fn a_peer_that_resets_breaks_the_stream_only() {
    let mut driver = host().driver().unwrap();
    let (stream, mut peer) = connected(&mut driver);
    let greeting = filled(&driver, 10, 1).share();
    let (result, _) = perform(&mut driver, stream, DriverOp::Send(vec![greeting]));
    result.unwrap();
    // Bytes left unread turn a close into a reset.
    peer.write_all(b"x").unwrap();
    driver.submit(Token(0), stream, DriverOp::Recv(filled(&driver, 10, 0)));
    let completion = wait(&mut driver, 1).pop().unwrap();
    assert_eq!(
        (completion.result.unwrap(), buf_of(completion.payload)[0]),
        (1, b'x')
    );
    drop(peer);
    let recv = DriverOp::Recv(filled(&driver, 10, 0));
    let (result, _) = perform(&mut driver, stream, recv);
    assert_eq!(result.unwrap_err().kind(), IoErrorKind::Stream);
    let data = filled(&driver, 10, 1).share();
    let (result, payload) = perform(&mut driver, stream, DriverOp::Send(vec![data]));
    assert_eq!(result.unwrap_err().kind(), IoErrorKind::Stream);
    assert!(parts_of(payload).is_empty());
}

#[test]
fn a_host_name_is_looked_up_without_blocking() {
    let mut driver = host().driver().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let at = Address::Tcp(format!("localhost:{port}").into());
    let stream = connect(&mut driver, at).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(b"hello").unwrap();
    let recv = DriverOp::Recv(filled(&driver, 64, 0));
    let (result, payload) = perform(&mut driver, stream, recv);
    let bytes = result.unwrap() as usize;
    assert!(b"hello".starts_with(&buf_of(payload)[..bytes]));
}

#[test]
fn connections_that_fail_say_why() {
    let mut driver = host().driver().unwrap();
    let mut refused = |address, kind, words: &str| {
        let error = connect(&mut driver, address).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    let tcp = |address: &str| Address::Tcp(address.into());
    refused(
        tcp("127.0.0.1:1"),
        IoErrorKind::Stream,
        "tcp:127.0.0.1:1: cannot connect",
    );
    refused(
        tcp("no port"),
        IoErrorKind::Stream,
        "check its name and port",
    );
    let unix = Address::Unix("/nowhere/socket".into());
    refused(
        unix,
        IoErrorKind::Stream,
        "unix:/nowhere/socket: cannot connect",
    );
    let long = Address::Unix("/x".repeat(60).into());
    refused(long, IoErrorKind::Invalid, "1 to 107 bytes");
}

#[test]
fn closing_a_listener_here_or_elsewhere_ends_an_accept() {
    let dir = directory();
    for by_handle in [false, true] {
        let host = host();
        let path = dir.path().join("socket");
        let address = Address::Unix(path.to_str().unwrap().into());
        let (listener, _) = host.listen(&address).unwrap();
        let mut driver = host.driver().unwrap();
        driver.submit(Token(5), listener, DriverOp::Accept);
        let mut done = Vec::new();
        driver.park(driver.now() + Nanos::from_millis(5), &mut done);
        assert!(done.is_empty());
        if by_handle {
            let close = move || host.close(listener);
            std::thread::spawn(close).join().unwrap();
        } else {
            driver.close(listener);
        }
        let completion = wait(&mut driver, 1).pop().unwrap();
        assert_eq!(completion.token, Token(5));
        assert_eq!(completion.result.unwrap_err().kind(), IoErrorKind::Stream);
    }
}

#[test]
fn a_stream_opened_on_one_shard_serves_on_another() {
    let dir = directory();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let host = host();
    let mut here = host.driver().unwrap();
    let address = Address::Unix(path.to_str().unwrap().into());
    let stream = connect(&mut here, address).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let send = move || {
        let mut there = host.driver().unwrap();
        let data = filled(&there, 5, 8).share();
        perform(&mut there, stream, DriverOp::Send(vec![data]))
            .0
            .unwrap();
    };
    std::thread::spawn(send).join().unwrap();
    let mut got = [0; 5];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(got, [8; 5]);
    here.close(stream);
    assert_eq!(peer.read(&mut got).unwrap(), 0);
}
