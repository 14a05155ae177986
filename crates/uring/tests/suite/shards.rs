//! Hosts, wake-ups, and drivers that end with work in flight.

use crate::common::{buf_of, directory, file, filled, host, perform, wait};
use block::{
    Address, Driver, DriverOp, Extent, Fua, Host, Lba, Nanos, Pool, Sectors, ShardId, ShardTurn,
    TargetId, Token, TurnProgress,
};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;
use uring::{DiskOptions, Options, Uring, UringDriver};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

#[test]
fn an_unpark_ends_a_park_that_has_begun() {
    let mut driver = host().driver().unwrap();
    let unparker = driver.unparker();
    let waker = thread::spawn(move || {
        thread::sleep(std::time::Duration::from_millis(30));
        unparker.unpark();
    });
    let mut done = Vec::new();
    driver.park(Nanos::MAX, &mut done);
    assert!(done.is_empty());
    waker.join().unwrap();
    // The unpark was taken: the next park sleeps until its deadline.
    let deadline = driver.now() + Nanos::from_millis(5);
    driver.park(deadline, &mut done);
    assert!(driver.now() >= deadline);
}

#[test]
fn no_unpark_is_lost_whenever_it_comes() {
    const ROUNDS: u64 = 20_000;
    let mut driver = host().driver().unwrap();
    let unparker = driver.unparker();
    let (asked, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let other = (asked.clone(), seen.clone());
    let sender = thread::spawn(move || {
        let (asked, seen) = other;
        for round in 1..=ROUNDS {
            asked.store(round, SeqCst);
            unparker.unpark();
            while seen.load(SeqCst) < round {
                thread::yield_now();
            }
        }
    });
    let mut done = Vec::new();
    loop {
        let round = asked.load(SeqCst);
        seen.store(round, SeqCst);
        if round == ROUNDS {
            break;
        }
        // An unpark that is lost never returns.
        driver.park(Nanos::MAX, &mut done);
    }
    sender.join().unwrap();
}

#[test]
fn a_driver_dropped_with_work_in_flight_gives_every_buffer_back() {
    let dir = directory();
    let path = file(&dir, 64 * MIB);
    let host = host();
    let (disk, _) = host.open_disk(&path, &DiskOptions::default()).unwrap();
    let address = Address::Unix(dir.path().join("socket").to_str().unwrap().into());
    let (listener, _) = host.listen(&address).unwrap();
    for parks in 0..3 {
        let mut driver = host.driver().unwrap();
        let pool: Pool = driver.pool().clone();
        let connect = DriverOp::Connect(address.clone());
        let (result, _) = perform(&mut driver, TargetId::NONE, connect);
        let stream = TargetId(result.unwrap() as u32);
        perform(&mut driver, listener, DriverOp::Accept).0.unwrap();

        // Waits for ever, waits for a peer that does not read, and disks.
        driver.submit(Token(1), listener, DriverOp::Accept);
        driver.submit(Token(2), stream, DriverOp::Recv(filled(&driver, BLOCK, 0)));
        let data = filled(&driver, 4 << 20, 1).share();
        driver.submit(Token(3), stream, DriverOp::Send(vec![data; 4]));
        let lookup = DriverOp::Connect(Address::Tcp("localhost:1".into()));
        driver.submit(Token(4), TargetId::NONE, lookup);
        for at in 0..256 {
            let buf = filled(&driver, BLOCK, 0);
            driver.submit(Token(10), disk, DriverOp::Read(Lba(at * 8), buf));
            let data = filled(&driver, BLOCK, 2).share();
            driver.submit(
                Token(11),
                disk,
                DriverOp::Write(Lba(at * 8), data, Fua::Yes),
            );
        }
        let extent = Extent::new(Lba(8192), Sectors(8192));
        driver.submit(Token(12), disk, DriverOp::Zero(extent));
        driver.submit(Token(13), disk, DriverOp::Flush);
        let mut done = Vec::new();
        for _ in 0..parks {
            driver.park(driver.now() + Nanos::from_micros(50), &mut done);
        }
        drop(done);
        drop(driver);
        assert_eq!(pool.free_bytes(), pool.total_bytes());
    }
    // Submitted writes were carried out.
    let mut driver = host.driver().unwrap();
    let buf = filled(&driver, BLOCK, 0);
    let (result, payload) = perform(&mut driver, disk, DriverOp::Read(Lba(255 * 8), buf));
    result.unwrap();
    assert!(buf_of(payload).iter().all(|&byte| byte == 2));
}

#[test]
fn a_stream_accepted_while_its_driver_ends_is_closed() {
    let dir = directory();
    let path = dir.path().join("socket");
    let host = host();
    let address = Address::Unix(path.to_str().unwrap().into());
    let (listener, _) = host.listen(&address).unwrap();
    let mut peer = UnixStream::connect(&path).unwrap();
    let mut driver = host.driver().unwrap();
    driver.submit(Token(1), listener, DriverOp::Accept);
    drop(driver);
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn more_disks_than_are_registered() {
    let dir = directory();
    let host = host();
    let mut driver = host.driver().unwrap();
    for i in 0..300 {
        let path = dir.path().join(format!("disk{i}"));
        std::fs::write(&path, [i as u8; BLOCK]).unwrap();
        let (disk, _) = host.open_disk(path, &DiskOptions::default()).unwrap();
        let buf = filled(&driver, BLOCK, 0);
        let (result, payload) = perform(&mut driver, disk, DriverOp::Read(Lba::ZERO, buf));
        result.unwrap();
        assert_eq!(buf_of(payload)[BLOCK - 1], i as u8);
    }
}

#[test]
fn a_disk_under_an_old_number_is_the_new_disk() {
    let dir = directory();
    let host = host();
    let mut driver = host.driver().unwrap();
    let paths = [1u8, 2].map(|value| {
        let path = dir.path().join(format!("disk{value}"));
        std::fs::write(&path, [value; BLOCK]).unwrap();
        path
    });
    let open = |i: usize| {
        host.open_disk(&paths[i], &DiskOptions::default())
            .unwrap()
            .0
    };
    let mut first_byte = |disk| {
        let buf = filled(&driver, BLOCK, 0);
        let (result, payload) = perform(&mut driver, disk, DriverOp::Read(Lba::ZERO, buf));
        result.unwrap();
        buf_of(payload)[0]
    };
    let old = open(0);
    assert_eq!(first_byte(old), 1);
    host.close(old);
    let reused = (0..10_000).any(|_| {
        let disk = open(1);
        let is_old = disk == old;
        if !is_old {
            host.close(disk);
        }
        is_old
    });
    assert!(reused, "a number comes back some day");
    assert_eq!(first_byte(old), 2);
}

#[test]
fn more_operations_than_the_ring_has_entries() {
    let dir = directory();
    let path = file(&dir, 16 * MIB);
    let small = uring::Options {
        entries: 8,
        pool_bytes: 16 << 20,
        ..uring::Options::default()
    };
    let host = uring::Uring::new(small).unwrap();
    let (disk, _) = host.open_disk(&path, &DiskOptions::default()).unwrap();
    let mut driver = host.driver().unwrap();
    for token in 0..2000 {
        let data = filled(&driver, BLOCK, token as u8).share();
        driver.submit(
            Token(token),
            disk,
            DriverOp::Write(Lba(token * 8), data, Fua::No),
        );
    }
    let mut tokens: Vec<_> = wait(&mut driver, 2000)
        .into_iter()
        .map(|completion| completion.result.map(|_| completion.token.0).unwrap())
        .collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..2000));
    for at in [0, 999, 1999] {
        let buf = filled(&driver, BLOCK, 0);
        let (result, payload) = perform(&mut driver, disk, DriverOp::Read(Lba(at * 8), buf));
        result.unwrap();
        assert_eq!(buf_of(payload)[BLOCK - 1], at as u8);
    }
}

#[test]
fn bytes_anywhere_in_memory_reach_the_disk() {
    let dir = directory();
    let path = file(&dir, MIB);
    let host = host();
    let (disk, _) = host.open_disk(&path, &DiskOptions::default()).unwrap();
    let mut driver = host.driver().unwrap();
    let foreign = {
        let other = host.driver().unwrap();
        filled(&other, BLOCK, 5).share()
    };
    let op = DriverOp::Write(Lba::ZERO, foreign, Fua::No);
    perform(&mut driver, disk, op).0.unwrap();
    // After a header of 28 bytes, where direct I/O cannot begin.
    let mut buf = filled(&driver, 28 + BLOCK, 6);
    buf[28 + BLOCK - 1] = 7;
    let odd = buf.share().slice(28..28 + BLOCK);
    perform(&mut driver, disk, DriverOp::Write(Lba(8), odd, Fua::No))
        .0
        .unwrap();
    let (_, odd) = filled(&driver, 28 + 2 * BLOCK, 0).split_at(28);
    let (result, payload) = perform(&mut driver, disk, DriverOp::Read(Lba::ZERO, odd));
    result.unwrap();
    let buf = buf_of(payload);
    assert!(buf[..BLOCK].iter().all(|&byte| byte == 5));
    assert!(buf[BLOCK..2 * BLOCK - 1].iter().all(|&byte| byte == 6));
    assert_eq!(buf[2 * BLOCK - 1], 7);
}

/// Idles until its flag is set, or panics.
struct Idler {
    driver: UringDriver,
    panics: bool,
    ended: Arc<AtomicBool>,
}

impl ShardTurn for Idler {
    fn run_once(&mut self) -> TurnProgress {
        assert!(!self.panics, "as the test wants");
        TurnProgress::Idle(Nanos::MAX)
    }
    fn park(&mut self, deadline: Nanos) {
        self.driver.park(deadline, &mut Vec::new());
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
    }
}

#[test]
fn no_shard_boots_unless_every_shard_has_a_driver() {
    let options = Options {
        further_pool_bytes: Some(1 << 60),
        ..Options::default()
    };
    let mut host = Uring::new(options).unwrap();
    let boot = |id: ShardId, _| -> Box<dyn ShardTurn> { panic!("{id:?} boots") };
    let error = host.run(2, boot).unwrap_err().to_string();
    assert!(error.starts_with("shard 1: "), "{error}");
}

#[test]
fn a_shard_that_panics_ends_the_others_and_the_run() {
    let ended = Arc::new(AtomicBool::new(false));
    let sleeper = ended.clone();
    let run = AssertUnwindSafe(move || {
        host().run(2, move |id, driver| {
            Box::new(Idler {
                driver,
                panics: id.0 == 1,
                ended: sleeper.clone(),
            })
        })
    });
    let panic = catch_unwind(run).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"as the test wants"));
    assert!(ended.load(SeqCst));
}
