//! Operations one by one, on a driver without a host.

use crate::{DiskSpec, SimDriver, SimHost, SimWorld};
use block::{
    Buf, Completion, Driver, DriverOp, Fua, Geometry, IoResult, Lba, Nanos, Payload, Sectors,
    SharedBuf, TargetId, Token,
};

/// A disk of 1 MiB with sectors of 512 bytes.
pub fn small_disk(name: &str) -> DiskSpec {
    DiskSpec::new(Geometry::new(name, Sectors::from_mib(1), Sectors(1)))
}

/// A world with one small disk.
pub fn one_disk(seed: u64) -> (SimWorld, TargetId) {
    let mut world = SimWorld::new(seed);
    let disk = world.add_disk(small_disk("disk")).unwrap();
    (world, disk)
}

pub struct Hand {
    pub driver: SimDriver,
    next: u64,
    done: Vec<Completion>,
}

impl Hand {
    pub fn new(sim: &mut SimHost) -> Hand {
        Hand {
            driver: sim.driver(),
            next: 0,
            done: Vec::new(),
        }
    }

    pub fn buf(&self, bytes: usize) -> Buf {
        self.driver.pool().try_get(bytes).expect("room in the pool")
    }

    pub fn filled(&self, bytes: usize, value: u8) -> SharedBuf {
        let mut buf = self.buf(bytes);
        buf.fill(value);
        buf.share()
    }

    pub fn start(&mut self, target: TargetId, op: DriverOp) -> Token {
        self.next += 1;
        self.driver.submit(Token(self.next), target, op);
        Token(self.next)
    }

    /// The operations that complete by `deadline`, at least one if there is any.
    pub fn park(&mut self, deadline: Nanos) -> Vec<Completion> {
        let mut done = std::mem::take(&mut self.done);
        if done.is_empty() {
            self.driver.park(deadline, &mut done);
        }
        done
    }

    pub fn wait(&mut self, token: Token) -> (IoResult<u64>, Payload) {
        loop {
            if let Some(i) = self.done.iter().position(|c| c.token == token) {
                let completion = self.done.remove(i);
                return (completion.result, completion.payload);
            }
            self.driver.park(Nanos::MAX, &mut self.done);
        }
    }

    pub fn sleep(&mut self, span: Nanos) {
        let deadline = self.driver.now() + span;
        while self.driver.now() < deadline {
            self.driver.park(deadline, &mut self.done);
        }
    }

    pub fn run(&mut self, target: TargetId, op: DriverOp) -> (IoResult<u64>, Payload) {
        let token = self.start(target, op);
        self.wait(token)
    }

    pub fn write(&mut self, disk: TargetId, at: u64, sectors: usize, value: u8) -> IoResult {
        let data = self.filled(sectors * 512, value);
        let (result, _) = self.run(disk, DriverOp::Write(Lba(at), data, Fua::No));
        result.map(|_| ())
    }

    pub fn flush(&mut self, disk: TargetId) -> IoResult {
        self.run(disk, DriverOp::Flush).0.map(|_| ())
    }

    /// The first byte of each sector.
    pub fn read(&mut self, disk: TargetId, at: u64, sectors: usize) -> IoResult<Vec<u8>> {
        let buf = self.buf(sectors * 512);
        let (result, payload) = self.run(disk, DriverOp::Read(Lba(at), buf));
        result?;
        let Payload::Buf(buf) = payload else {
            panic!("a read gives its buffer back")
        };
        Ok(buf.iter().step_by(512).copied().collect())
    }

    pub fn send(&mut self, end: TargetId, data: &[u8]) -> IoResult<u64> {
        let mut buf = self.buf(data.len());
        buf.copy_from_slice(data);
        self.run(end, DriverOp::Send(vec![buf.share()])).0
    }

    pub fn recv(&mut self, end: TargetId, most: usize) -> IoResult<Vec<u8>> {
        let buf = self.buf(most);
        let (result, payload) = self.run(end, DriverOp::Recv(buf));
        let Payload::Buf(buf) = payload else {
            panic!("a receive gives its buffer back")
        };
        result.map(|len| buf[..len as usize].to_vec())
    }
}
