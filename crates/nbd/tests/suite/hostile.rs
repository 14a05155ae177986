//! Peers that lie, stall, vanish or are too many, against the running server.

use crate::real::{BYTES, Served, Setup, run, tool};
use block::Nanos;
use nbd::serve::{NbdServer, ServerLimits};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;

/// A client that writes any bytes, valid or not.
struct Raw(UnixStream);

impl Raw {
    /// Past the greeting.
    fn greet(served: &Served) -> Raw {
        let stream = UnixStream::connect(served.socket()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut raw = Raw(stream);
        assert_eq!(raw.take(18), b"NBDMAGICIHAVEOPT\0\x03");
        raw.put(&[0, 0, 0, 3]);
        raw
    }

    /// Past the handshake, without structured replies, as the kernel's client.
    fn open(served: &Served, export: &str) -> Raw {
        let mut raw = Raw::greet(served);
        raw.option(1, export.as_bytes());
        let size = raw.take(10);
        assert_eq!(size[..8], BYTES.to_be_bytes());
        raw
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        self.put(b"IHAVEOPT");
        self.put(&option.to_be_bytes());
        self.put(&(data.len() as u32).to_be_bytes());
        self.put(data);
    }

    fn head(cmd: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
        let mut wire = 0x2560_9513_u32.to_be_bytes().to_vec();
        wire.extend([0, 0]);
        wire.extend(cmd.to_be_bytes());
        wire.extend(cookie.to_be_bytes());
        wire.extend(offset.to_be_bytes());
        wire.extend(len.to_be_bytes());
        wire
    }

    fn ask(&mut self, cmd: u16, cookie: u64, offset: u64, len: u32) {
        self.put(&Raw::head(cmd, cookie, offset, len));
    }

    /// The error and cookie of the next simple reply.
    fn reply(&mut self) -> (u32, u64) {
        let wire = self.take(16);
        assert_eq!(wire[..4], 0x6744_6698_u32.to_be_bytes());
        (
            u32::from_be_bytes(*wire[4..].first_chunk().unwrap()),
            u64::from_be_bytes(*wire[8..].first_chunk().unwrap()),
        )
    }

    /// True if the server sends nothing for a moment.
    fn is_silent(&mut self) -> bool {
        let before = self.0.read_timeout().unwrap();
        let moment = Some(Duration::from_millis(200));
        self.0.set_read_timeout(moment).unwrap();
        let read = self.0.read(&mut [0; 1]);
        self.0.set_read_timeout(before).unwrap();
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// True if the server closes without another byte.
    fn sees_the_end(mut self) -> bool {
        loop {
            match self.0.read(&mut [0; 1]) {
                Ok(n) => return n == 0,
                // A wait ends like this when the process is stopped and continued.
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == ErrorKind::ConnectionReset,
            }
        }
    }
}

/// The server still serves others.
fn is_well(served: &Served) {
    let mut raw = Raw::open(served, "vol");
    raw.ask(FLUSH, 7, 0, 0);
    assert_eq!(raw.reply(), (0, 7));
}

fn quick() -> Setup {
    let mut setup = Setup::default();
    setup.limits.stall_timeout = Nanos::from_millis(300);
    setup.limits.handshake_timeout = Nanos::from_millis(500);
    setup
}

/// Waits until the server has reached a state; fails after 20 s.
fn until(served: &Served, what: &str, reached: impl Fn(&nbd::serve::NbdStats) -> bool) {
    let begun = Instant::now();
    while !reached(&served.stats()) {
        assert!(
            begun.elapsed().as_secs() < 20,
            "{what}: {:?}",
            served.stats()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nonsense_closes_that_connection_alone() {
    let served = Served::start(Setup::default());
    let mut other = Raw::open(&served, "vol");
    let mut garbage = Raw::greet(&served);
    garbage.put(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n");
    assert!(garbage.sees_the_end());
    let mut unknown = Raw::greet(&served);
    unknown.option(1, b"no such export");
    assert!(unknown.sees_the_end());
    let mut late = Raw::open(&served, "vol");
    late.put(&[0x55; 28]);
    assert!(late.sees_the_end());
    other.ask(READ, 1, 0, 512);
    assert_eq!(other.reply(), (0, 1));
    other.take(512);
    until(&served, "three have failed", |s| s.failed == 3);
    let log: Vec<String> = served.log.try_iter().collect();
    assert_eq!(
        log,
        [
            "an NBD connection was closed: something that is no NBD option",
            "an NBD connection was closed: no such export",
            "an NBD connection was closed: something that is no NBD request"
        ]
    );
}

/// Bad requests get one error each; the bytes that follow them stay framed.
#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let served = Served::start(Setup::default());
    let mut raw = Raw::open(&served, "vol");
    raw.ask(READ, 1, BYTES - 512, 1024);
    assert_eq!(raw.reply(), (22, 1));
    raw.ask(WRITE, 2, BYTES - 512, 1024);
    raw.put(&[0xff; 1024]);
    assert_eq!(raw.reply(), (28, 2));
    raw.ask(77, 3, 0, 512);
    assert_eq!(raw.reply(), (22, 3));
    raw.ask(READ, 4, 0, u32::MAX);
    assert_eq!(raw.reply(), (22, 4));
    // Longer than the limit: refused, and skipped to the last byte.
    let long = (32 << 20) + 512;
    raw.ask(WRITE, 5, 0, long);
    let zeroes = vec![0xff; 1 << 20];
    let mut left = long as usize;
    while left > 0 {
        let n = left.min(zeroes.len());
        raw.put(&zeroes[..n]);
        left -= n;
    }
    assert_eq!(raw.reply(), (22, 5));
    raw.ask(READ, 6, BYTES - 512, 512);
    assert_eq!(raw.reply(), (0, 6));
    assert_eq!(raw.take(512), [0; 512]);
    let mut raw = Raw::open(&served, "ro");
    raw.ask(WRITE, 8, 0, 512);
    raw.put(&[0xff; 512]);
    assert_eq!(raw.reply(), (1, 8));
    let stats = served.stats();
    assert_eq!((stats.errors, stats.writes, stats.failed), (6, 0, 0));
    assert!(
        std::fs::read(served.disk())
            .unwrap()
            .iter()
            .all(|b| *b == 0)
    );
}

/// Pieces of one long simple reply must not mix with other replies.
#[test]
fn long_simple_reads_are_whole() {
    let served = Served::start(Setup::default());
    let bytes: Vec<u8> = (0..BYTES / 8).flat_map(|i| i.to_be_bytes()).collect();
    let disk = std::fs::File::options()
        .write(true)
        .open(served.disk())
        .unwrap();
    disk.write_all_at(&bytes, 0).unwrap();
    disk.sync_all().unwrap();
    let mut raw = Raw::open(&served, "vol");
    let mut asked = Vec::new();
    for cookie in 0..24 {
        let (offset, len) = match cookie % 3 {
            0 => (cookie * 4096, 4096),
            1 => (cookie * 512 + 100, 3_000_000),
            _ => (cookie << 20, 5 << 20),
        };
        raw.ask(READ, cookie, offset, len);
        asked.push((offset, len));
    }
    for _ in 0..24 {
        let (error, cookie) = raw.reply();
        let (offset, len) = asked[cookie as usize];
        assert_eq!(error, 0);
        let got = raw.take(len as usize);
        let want = &bytes[offset as usize..][..len as usize];
        assert!(got == want, "read {cookie} of {offset}+{len} differs");
    }
}

/// `NBD_CMD_FLAG_DF`: one content chunk, or EOVERFLOW; never for 64 KiB or less.
#[test]
fn reads_not_to_be_fragmented_are_not() {
    let served = Served::start(Setup::default());
    let mut raw = Raw::greet(&served);
    raw.option(8, b"");
    assert_eq!(raw.take(20)[8..16], [0, 0, 0, 8, 0, 0, 0, 1]);
    raw.option(1, b"vol");
    raw.take(10);
    for (len, answered) in [(64 << 10, true), (32 << 20, false)] {
        let mut ask = Raw::head(READ, 1, 0, len);
        ask[5] = 1 << 2;
        raw.put(&ask);
        let head = raw.take(20);
        assert_eq!(head[4..6], [0, 1], "one chunk");
        let payload = u32::from_be_bytes(*head[16..].first_chunk().unwrap());
        let payload = raw.take(payload as usize);
        if answered {
            assert_eq!((head[6..8].to_vec(), payload.len()), (vec![0, 1], 65544));
        } else {
            assert_eq!((head[6..8].to_vec(), payload[3]), (vec![0x80, 1], 75));
        }
    }
}

/// A client gives up a connection on which an answer comes before the end of its request.
#[test]
fn a_refused_write_is_answered_once_its_payload_has_come() {
    const LEN: usize = (32 << 20) + 4096;
    let served = Served::start(Setup::default());
    let mut raw = Raw::open(&served, "vol");
    raw.ask(WRITE, 1, 0, LEN as u32);
    raw.put(&vec![1; LEN - 1]);
    assert!(raw.is_silent(), "an answer before the payload");
    raw.put(&[1]);
    assert_eq!(raw.reply(), (22, 1));
    raw.ask(FLUSH, 2, 0, 0);
    assert_eq!(raw.reply(), (0, 2));
}

#[test]
fn a_peer_that_stalls_is_closed_and_one_that_rests_is_not() {
    let served = Served::start(quick());
    let mut resting = Raw::open(&served, "vol");
    let silent = Raw::greet(&served);
    assert!(silent.sees_the_end(), "no handshake in time");

    let mut halfway = Raw::open(&served, "vol");
    halfway.ask(WRITE, 1, 0, 1 << 20);
    halfway.put(&[1; 1000]);
    assert!(halfway.sees_the_end(), "a payload that never ends");

    let mut header = Raw::open(&served, "vol");
    header.put(&Raw::head(READ, 1, 0, 512)[..10]);
    assert!(header.sees_the_end(), "a header that never ends");

    // Reads and reads and takes nothing.
    let mut greedy = Raw::open(&served, "vol");
    for cookie in 0..8 {
        greedy.ask(READ, cookie, 0, 4 << 20);
    }
    until(&served, "four have failed", |s| s.failed == 4);
    resting.ask(FLUSH, 9, 0, 0);
    assert_eq!(resting.reply(), (0, 9));
    drop(greedy);
}

/// Memory of the pool that stalled peers hold is their own share.
#[test]
fn stalled_peers_take_nothing_from_others() {
    let mut setup = Setup::default();
    setup.limits.connections_max = 8;
    setup.limits.memory_bytes_max = 8 << 20;
    let served = Served::start(setup);
    let stalled: Vec<Raw> = (0..7)
        .map(|_| {
            let mut raw = Raw::open(&served, "vol");
            for cookie in 0..64 {
                raw.ask(READ, cookie, 0, 4 << 20);
            }
            raw
        })
        .collect();
    until(&served, "seven stall", |s| s.connections == 7);
    let mut fio = tool("fio", "fio");
    fio.current_dir(served.dir.path()).args([
        "--name=well",
        "--ioengine=nbd",
        "--rw=randrw",
        "--bs=128k",
        "--iodepth=16",
        "--size=8m",
        "--verify=crc32c",
        "--verify_state_save=0",
        "--verify_fatal=1",
        "--randrepeat=0",
    ]);
    run(fio.arg(format!("--uri={}", served.uri("vol"))));
    drop(stalled);
}

#[test]
fn peers_that_vanish_leave_nothing_behind() {
    let served = Served::start(Setup::default());
    let free = |served: &Served| served.with(|local, _| local.env().pool.free_bytes());
    is_well(&served);
    until(&served, "it is gone", |s| s.connections == 0);
    let before = free(&served);
    for round in 0..200 {
        let mut raw = if round % 5 == 0 {
            Raw::greet(&served)
        } else {
            Raw::open(&served, "vol")
        };
        match round % 5 {
            1 => raw.put(&Raw::head(WRITE, 1, 0, 1 << 20)),
            2 => (0..50).for_each(|c| raw.ask(READ, c, 0, 1 << 20)),
            3 => {
                raw.ask(WRITE, 1, 0, 5 << 20);
                raw.put(&[0; 3 << 20]);
            }
            _ => {}
        }
    }
    until(&served, "all are gone", |s| s.connections == 0);
    let begun = Instant::now();
    while free(&served) != before {
        assert!(
            begun.elapsed().as_secs() < 20,
            "{} bytes of {before} came back",
            free(&served)
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    is_well(&served);
}

#[test]
fn one_connection_too_many_is_closed_after_its_handshake() {
    let mut setup = Setup::default();
    setup.limits.connections_max = 3;
    let served = Served::start(setup);
    let mut held: Vec<Raw> = (0..3).map(|_| Raw::open(&served, "vol")).collect();
    let mut refused = Raw::greet(&served);
    refused.option(1, b"vol");
    assert!(refused.sees_the_end());
    held.pop();
    until(&served, "one has gone", |s| s.connections == 2);
    is_well(&served);
    assert_eq!(served.stats().refused, 1);
}

/// Requests received before the server was stopped are answered.
#[test]
fn shutting_down_finishes_what_is_in_flight() {
    let mut served = Served::start(Setup::default());
    let mut raw = Raw::open(&served, "vol");
    let idle = Raw::open(&served, "vol");
    let handshaking = Raw::greet(&served);
    for cookie in 0..32 {
        raw.ask(WRITE, cookie, cookie << 20, 1 << 20);
        raw.put(&vec![cookie as u8 + 1; 1 << 20]);
    }
    until(&served, "all are received", |s| s.writes == 32);
    raw.ask(READ, 99, 0, 4096);
    until(&served, "it is read", |s| s.reads == 1);
    served.stop();
    let mut cookies: Vec<u64> = (0..32).map(|_| raw.reply().1).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..32).collect::<Vec<u64>>());
    assert_eq!(raw.reply(), (0, 99));
    raw.take(4096);
    assert!(raw.sees_the_end() && idle.sees_the_end() && handshaking.sees_the_end());
}

#[test]
fn withdrawing_an_export_closes_its_connections_alone() {
    let served = Served::start(Setup::default());
    let vol = Raw::open(&served, "vol");
    let mut ro = Raw::open(&served, "ro");
    served.with(|local, server| {
        let server = server.clone();
        local.env().spawn.spawn(async move {
            server.remove("vol", Nanos::from_secs(5)).await.unwrap();
        });
    });
    assert!(vol.sees_the_end());
    ro.ask(READ, 1, 0, 512);
    assert_eq!(ro.reply(), (0, 1));
    let mut again = Raw::greet(&served);
    again.option(1, b"vol");
    assert!(again.sees_the_end());
}

#[test]
fn limits_that_do_not_fit_are_refused() {
    let served = Served::start(Setup::default());
    let refused = |limits: ServerLimits| {
        served.with(move |local, _| {
            let server = NbdServer::<block::Gate<crate::real::Real>>::new(
                local.env(),
                limits,
                None,
                Rc::new(|_| ()),
            );
            server.err().unwrap().to_string()
        })
    };
    let over = refused(ServerLimits {
        memory_bytes_max: 48 << 20,
        ..ServerLimits::default()
    });
    assert!(over.contains("over half of the buffer memory"), "{over}");
    let thin = refused(ServerLimits {
        memory_bytes_max: 8 << 20,
        connections_max: 32,
        ..ServerLimits::default()
    });
    assert!(thin.contains("256 KiB each"), "{thin}");
}
