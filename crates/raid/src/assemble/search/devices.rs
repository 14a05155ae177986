//! The devices of a search: they answer at once, and note the superblocks that were in flight
//! together.

use super::{Bits, Copies, MEMBERS_MAX};
use crate::superblock::ArraySuperblock;
use block::{
    Buf, Content, Device, Executor, Extent, Fua, Geometry, IoErrorKind, IoResult, Lba, Nanos,
    SharedBuf, TimerKey,
};
use layout::Uuid;
use layout::array::{BITMAP, SUPERBLOCKS, bitmap};
use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Identity of the array.
pub const ARRAY: Uuid = Uuid::from_bytes([99; 16]);

/// A write of a superblock that one poll of the array has asked for.
pub struct Wrote {
    pub round: usize,
    pub role: usize,
    pub copy: usize,
    pub superblock: Rc<ArraySuperblock>,
}

/// The devices, and the writes to them since the last event began.
#[derive(Default)]
pub struct SearchWorld {
    pub copies: [Copies; MEMBERS_MAX],
    pub gone: Bits,
    /// These take one more superblock before they are gone.
    pub going: Bits,
    pub round: usize,
    pub wrote: Vec<Wrote>,
    /// Number of writes of the maps that are read.
    pub map_writes: u32,
}

pub struct SearchDisk {
    pub geometry: Geometry,
    pub role: usize,
    pub world: Rc<RefCell<SearchWorld>>,
}

impl SearchDisk {
    /// Answers at the next poll, so that requests of one poll are in flight together.
    async fn answer(&self) -> IoResult {
        let mut polled = false;
        std::future::poll_fn(|_| match std::mem::replace(&mut polled, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        match self.world.borrow().gone >> self.role & 1 {
            0 => Ok(()),
            _ => Err(self.geometry.error(IoErrorKind::Gone, "it was lost")),
        }
    }
}

impl Device for SearchDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    async fn read(&self, at: Lba, mut buf: Buf) -> (Buf, IoResult) {
        buf.fill(0);
        let copy = SUPERBLOCKS.iter().position(|copy| copy.0 == at.0);
        let world = self.world.borrow();
        let superblock = copy.and_then(|copy| world.copies[self.role][copy].as_ref());
        superblock.inspect(|superblock| superblock.encode(&mut buf));
        if at.0 == BITMAP.0 {
            bitmap::encode(&mut buf, ARRAY, 0, world.map_writes, &[]);
        }
        (buf, Ok(()))
    }
    async fn write(&self, at: Lba, data: SharedBuf, _: Fua) -> IoResult {
        let round = self.world.borrow().round;
        self.answer().await?;
        let copy = SUPERBLOCKS.iter().position(|copy| copy.0 == at.0);
        if let Some(copy) = copy {
            let (role, mut world) = (self.role, self.world.borrow_mut());
            world.gone |= world.going & 1 << role;
            let superblock = Rc::new(ArraySuperblock::decode(&data).expect("a superblock"));
            world.copies[role][copy] = Some(superblock.clone());
            world.wrote.push(Wrote {
                round,
                role,
                copy,
                superblock,
            });
        }
        Ok(())
    }
    async fn zero(&self, _: Extent) -> IoResult {
        self.answer().await
    }
    async fn flush(&self) -> IoResult {
        self.answer().await
    }
    async fn discard(&self, _: Extent) -> IoResult {
        self.answer().await
    }
    async fn extents(&self, _: Extent, _: &mut Vec<(Extent, Content)>) -> IoResult {
        Ok(())
    }
}

/// Runs one future alone, with a stopped clock: nothing is supervised.
pub struct LoneDriver;

impl Executor for LoneDriver {
    fn spawn(&self, _: Pin<Box<dyn Future<Output = ()>>>) {}
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
    fn set_timer(&self, _: Nanos, _: Waker) -> TimerKey {
        TimerKey(0)
    }
    fn cancel_timer(&self, _: TimerKey) {}
}

pub fn run<T>(world: &RefCell<SearchWorld>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return done;
        }
        world.borrow_mut().round += 1;
    }
}
