//! Admission in virtual time: strangers, crowds, clients that are gone while their requests are
//! held up, and listeners with failing accepts.

use block::{
    Address, Connector, Device, Env, Extent, Fua, Gate, Geometry, IoError, IoErrorKind, IoResult,
    Layer, Lba, Listener, Nanos, Sectors, SharedBuf, Stream,
};
use nbd::client::{Client, Options};
use nbd::serve::{ExportOptions, NbdServer, NbdStats, ServerLimits};
use shard::{Local, ShardDisk};
use sim::{DiskSpec, LinkSpec, RunOutcome, SimDriver, SimHost, SimWorld};
use simnode::run_alone;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const MIB: u64 = 16;
const READ: u16 = 0;
const WRITE: u16 = 1;

fn address(n: usize) -> Address {
    Address::Unix(format!("/run/nbd-{n}").into())
}

/// A disk that can hold writes, and notes announcements.
struct Held {
    disk: ShardDisk<SimDriver>,
    env: Env,
    hold: Rc<Cell<bool>>,
    announced: Rc<RefCell<Vec<Extent>>>,
}

impl Layer for Held {
    type Below = ShardDisk<SimDriver>;

    fn below(&self) -> &ShardDisk<SimDriver> {
        &self.disk
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        while self.hold.get() {
            self.env.timer.sleep(Nanos::from_millis(10)).await;
        }
        self.disk.write(at, data, fua).await
    }

    fn announce(&self, extent: Extent) {
        self.announced.borrow_mut().push(extent);
    }
}

/// A listener that fails its first accepts.
struct Failing<L> {
    listener: L,
    left: Cell<u32>,
}

impl<L: Listener> Listener for Failing<L> {
    type Stream = L::Stream;

    async fn accept(&self) -> IoResult<L::Stream> {
        if self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            return Err(IoError::new(IoErrorKind::Other, "no descriptor is left"));
        }
        self.listener.accept().await
    }

    fn close(&self) {
        self.listener.close();
    }
}

type HeldServer = Rc<NbdServer<Gate<Held>>>;

/// The world of a test, on the clients' shard and thread.
struct Rig {
    local: Local<SimDriver>,
    env: Env,
    server: Rc<RefCell<Option<HeldServer>>>,
    hold: Rc<Cell<bool>>,
    announced: Rc<RefCell<Vec<Extent>>>,
    log: Rc<RefCell<Vec<String>>>,
}

/// Runs `test` against a server with two listeners; the first `failures` accepts of each fail.
fn run<F>(limits: ServerLimits, failures: u32, test: impl FnOnce(Rig) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let mut world = SimWorld::new(1);
    let geometry = Geometry::new("disk", Sectors::from_mib(MIB), Sectors(1));
    let disk = world.add_disk(DiskSpec::new(geometry)).unwrap();
    let listeners = [0, 1].map(|n| world.listen(address(n), LinkSpec::local()).unwrap());
    let mut sim = SimHost::new(world);
    let (outcome, _) = run_alone(&mut sim, move |local| async move {
        let (env, hold) = (local.env(), Rc::new(Cell::new(false)));
        let announced: Rc<RefCell<Vec<Extent>>> = Rc::default();
        let log: Rc<RefCell<Vec<String>>> = Rc::default();
        let said = log.clone();
        let say = Rc::new(move |line: &str| said.borrow_mut().push(line.to_owned()));
        let server = NbdServer::new(local.env(), limits, None, say).unwrap();
        let device = Held {
            disk: local.disk(disk).unwrap(),
            env: env.clone(),
            hold: hold.clone(),
            announced: announced.clone(),
        };
        let gate = Gate::new(device, env.clone());
        server.add("", gate, &ExportOptions::default()).unwrap();
        for listener in listeners {
            let listener = Failing {
                listener: local.listener(listener),
                left: Cell::new(failures),
            };
            let server = server.clone();
            let serving = async move { server.serve(listener).await };
            env.spawn.spawn(serving);
        }
        let rig = Rig {
            local,
            env,
            server: Rc::new(RefCell::new(Some(server.clone()))),
            hold,
            announced,
            log,
        };
        test(rig).await;
        server.shut_down(Nanos::from_secs(1)).await;
    });
    assert_eq!(outcome, RunOutcome::Done);
}

type Raw = shard::StreamConnector<SimDriver>;

impl Rig {
    fn stats(&self) -> NbdStats {
        self.server.borrow().as_ref().unwrap().stats()
    }

    async fn sleep(&self, ms: u64) {
        self.env.timer.sleep(Nanos::from_millis(ms)).await;
    }

    /// A connection that sends nothing.
    async fn dial(&self, listener: usize) -> <Raw as Connector>::Stream {
        let connector = self.local.connector();
        connector.connect(address(listener)).await.unwrap()
    }

    async fn send(&self, stream: &impl Stream, bytes: &[u8]) {
        for piece in bytes.chunks(1 << 20) {
            let mut buf = self.env.pool.get(piece.len()).await;
            buf.copy_from_slice(piece);
            stream.send(vec![buf.share()]).await.1.unwrap();
        }
    }

    /// True if `len` bytes arrive before the end of the stream.
    async fn receives(&self, stream: &impl Stream, len: usize) -> bool {
        let mut left = len;
        while left > 0 {
            let (_, received) = stream.recv(self.env.pool.get(left).await).await;
            match received {
                Ok(n @ 1..) => left -= n,
                _ => return false,
            }
        }
        true
    }

    /// A connection past its handshake; `None` if refused.
    async fn enter(&self, listener: usize) -> Option<<Raw as Connector>::Stream> {
        let stream = self.dial(listener).await;
        assert!(self.receives(&stream, 18).await);
        let export_name = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0";
        self.send(&stream, export_name).await;
        self.receives(&stream, 10).await.then_some(stream)
    }

    /// True if a well-behaved client is served without delay.
    async fn serves(&self, listener: usize) -> bool {
        let options = Options::new(address(listener), "");
        let begun = self.env.timer.now();
        let client = Client::connect(self.env.clone(), self.local.connector(), options).await;
        let Ok(client) = client else { return false };
        let (_, read) = client.read(Lba(0), self.env.pool.get(4096).await).await;
        assert!(self.env.timer.now().since(begun) < Nanos::from_millis(500));
        drop(client);
        self.sleep(100).await;
        read.is_ok()
    }
}

fn head(command: u16, cookie: u64, offset: u64, len: usize) -> Vec<u8> {
    let mut wire = 0x2560_9513_u32.to_be_bytes().to_vec();
    wire.extend([0, 0]);
    wire.extend(command.to_be_bytes());
    wire.extend(cookie.to_be_bytes());
    wire.extend(offset.to_be_bytes());
    wire.extend((len as u32).to_be_bytes());
    wire
}

fn write(cookie: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
    [&head(WRITE, cookie, offset, bytes.len()), bytes].concat()
}

fn few() -> ServerLimits {
    ServerLimits {
        connections_max: 8,
        handshakes_max: 8,
        memory_bytes_max: 8 << 20,
        ..ServerLimits::default()
    }
}

#[test]
fn strangers_keep_nobody_out() {
    run(few(), 0, |rig| async move {
        let mut strangers = Vec::new();
        for _ in 0..100 {
            strangers.push(rig.dial(0).await);
            rig.sleep(1).await;
        }
        // Not even at the listener with the strangers.
        assert!(rig.serves(0).await && rig.serves(1).await);
        let stats = rig.stats();
        assert_eq!((stats.connections, stats.refused), (0, 0), "{stats:?}");
        assert!(stats.handshakes <= 8, "{stats:?}");
        // A handshake sent word by word has the same time limit as a whole.
        let slow = rig.dial(1).await;
        assert!(rig.receives(&slow, 18).await);
        let hello = b"\0\0\0\x03IHAVEOPT";
        for byte in hello {
            rig.send(&slow, &[*byte]).await;
            rig.sleep(900).await;
        }
        assert_eq!(rig.stats().handshakes, 0, "after eleven seconds");
        assert!(!rig.receives(&slow, 1).await);
    });
}

#[test]
fn a_crowd_at_one_listener_leaves_places_at_the_other() {
    run(few(), 0, |rig| async move {
        let mut crowd = Vec::new();
        for _ in 0..12 {
            crowd.extend(rig.enter(0).await);
        }
        assert_eq!(crowd.len(), 6, "half of eight, and its part of the rest");
        assert_eq!(rig.stats().refused, 6);
        assert!(!rig.serves(0).await);
        assert!(rig.serves(1).await);
        crowd.pop();
        rig.sleep(100).await;
        assert!(rig.serves(0).await);
    });
}

/// Unacknowledged writes of clients that are gone are still carried out, and completely.
#[test]
fn clients_that_are_gone_give_their_places_back_while_their_writes_are_held() {
    let mut limits = few();
    limits.memory_bytes_max = 16 << 20;
    run(limits, 0, |rig| async move {
        rig.hold.set(true);
        for round in 0..24_u8 {
            let stream = rig.enter(0).await.expect("there is a place");
            let offset = u64::from(round) << 16;
            match round % 3 {
                0 => rig.send(&stream, &write(1, offset, &[round; 4096])).await,
                // The server waits for room, and does not see the end.
                1 => {
                    for n in 0..140 {
                        let at = offset + 512 * (n % 128);
                        rig.send(&stream, &write(n, at, &[round; 512])).await;
                    }
                }
                // Part of a payload.
                _ => {
                    rig.send(&stream, &write(1, offset, &[round; 512])).await;
                    let cut = &write(2, offset, &[9; 8192])[..5000];
                    rig.send(&stream, cut).await;
                }
            }
            stream.close();
            rig.sleep(2000).await;
            assert_eq!(rig.stats().connections, 0, "round {round}");
        }
        rig.hold.set(false);
        rig.sleep(1000).await;
        let options = Options::new(address(1), "");
        let client = Client::connect(rig.env.clone(), rig.local.connector(), options);
        let client = client.await.unwrap();
        for round in 0..24_u8 {
            let len = if round % 3 == 0 { 4096 } else { 512 };
            let buf = rig.env.pool.get(len).await;
            let (buf, read) = client.read(Lba(u64::from(round) << 7), buf).await;
            read.unwrap();
            assert!(buf.iter().all(|byte| *byte == round), "round {round}");
        }
    });
}

#[test]
fn requests_that_are_carried_out_in_pieces_are_announced_as_wholes() {
    run(few(), 0, |rig| async move {
        let stream = rig.enter(0).await.expect("there is a place");
        let (long, few) = (2 << 20, vec![1; 512]);
        rig.send(&stream, &write(1, 0, &few)).await;
        rig.send(&stream, &write(2, 1 << 20, &vec![7; long])).await;
        rig.send(&stream, &head(READ, 3, 4096, 4096)).await;
        rig.send(&stream, &head(READ, 4, 8 << 20, long)).await;
        let answers = 4 * 16 + 4096 + long;
        assert!(rig.receives(&stream, answers).await);
        let from = |mib: u64| Extent::new(Lba(mib << 11), Sectors::from_mib(2));
        assert_eq!(*rig.announced.borrow(), [from(1), from(8)]);
    });
}

#[test]
fn accepts_that_fail_end_no_listener_and_fill_no_log() {
    run(few(), 100, |rig| async move {
        rig.sleep(250_000).await;
        assert!(rig.serves(0).await && rig.serves(1).await);
        let log = rig.log.borrow();
        let lines = log.iter().filter(|l| l.contains("not accepted")).count();
        assert!((10..=6 * 26).contains(&lines), "{lines}");
        let expected = log
            .iter()
            .any(|l| l.contains("more NBD connections were not accepted"));
        assert!(expected, "{log:#?}");
    });
}

#[test]
fn refusals_fill_no_log_and_are_all_counted() {
    run(few(), 0, |rig| async move {
        let mut crowd = Vec::new();
        for _ in 0..3000 {
            crowd.extend(rig.enter(0).await);
        }
        rig.sleep(15_000).await;
        assert_eq!(rig.stats().refused, 2994);
        let log = rig.log.borrow();
        assert!(log.len() < 30, "{} lines", log.len());
        let mut counted = 0;
        for line in log.iter() {
            counted += match line.split_once(" more NBD connections were refused") {
                Some((more, _)) => more.parse().unwrap(),
                None => 1,
            };
        }
        assert_eq!(counted, 2994);
    });
}

/// Requests are longer than each may have at once, and some peers do not take their replies.
#[test]
fn many_connections_share_little_memory() {
    let mut limits = few();
    (limits.connections_max, limits.handshakes_max) = (48, 48);
    limits.memory_bytes_max = limits.reserved_bytes() + (1 << 20);
    run(limits, 0, |rig| async move {
        let mut stalled = Vec::new();
        for _ in 0..6 {
            let stream = rig.enter(0).await.unwrap();
            for cookie in 0..40 {
                let mut read = write(cookie, 0, &[]);
                (read[7], read[25]) = (0, 8);
                rig.send(&stream, &read).await;
            }
            stalled.push(stream);
        }
        rig.sleep(1000).await;
        let done = Rc::new(Cell::new(0));
        for n in 0..20_u64 {
            let options = Options::new(address(1), "");
            let (env, done) = (rig.env.clone(), done.clone());
            let connector = rig.local.connector();
            rig.env.spawn.spawn(async move {
                let client = Client::connect(env.clone(), connector, options);
                let client = client.await.unwrap();
                // Off the blocks of 4 KiB.
                let at = Lba(n * 1600 + 3);
                for round in 0..3 {
                    let byte = (n * 3 + round) as u8;
                    let mut data = env.pool.get(600 << 10).await;
                    data.fill(byte);
                    client.write(at, data.share(), Fua::No).await.unwrap();
                    let buf = env.pool.get(600 << 10).await;
                    let (buf, read) = client.read(at, buf).await;
                    read.unwrap();
                    assert!(buf.iter().all(|b| *b == byte), "client {n}");
                }
                done.set(done.get() + 1);
            });
        }
        for _ in 0..100 {
            rig.sleep(100).await;
        }
        assert_eq!(done.get(), 20);
        drop(stalled);
    });
}
