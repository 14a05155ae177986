//! The gate suite over the real gate, and over defective gates.

use super::caught;
use super::clock::block_on;
use super::memory::{Flaw, Memory};
use crate::conformance::BeginningGate;
use crate::conformance::gate::{boundary, gate};
use crate::conformance::join::join;
use crate::{
    AskedRead, Boundary, Buf, Content, Device, Env, Extent, FlushErrors, Fua, Gate, Geometry,
    IoErrorKind, IoResult, Layer, Lba, ReadTaker, SECTOR_BYTES, Sectors, SharedBuf,
};

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const POOL: usize = 16 << 20;

#[test]
fn the_gate_passes_on_both_block_sizes() {
    for seed in 0..4 {
        for block in [1, 8] {
            block_on(POOL, async |env| {
                gate(Memory::new(&env, 4, block, Flaw::None), &env, seed).await;
            });
        }
    }
}

#[test]
fn flaws_beneath_the_gate_are_caught() {
    for flaw in [
        Flaw::LosesAWrite,
        Flaw::MisplacesByOneSector,
        Flaw::ZeroesTooLittle,
    ] {
        caught("must be", || {
            block_on(POOL, async |env| {
                gate(Memory::new(&env, 4, 8, flaw), &env, 1).await;
            })
        });
    }
}

/// A memory with a block of one sector, and of eight from some moment on.
#[derive(Clone)]
struct Coarsened {
    memory: Memory,
    coarse: Geometry,
    is_coarse: Rc<Cell<bool>>,
}

impl Device for Coarsened {
    fn geometry(&self) -> &Geometry {
        match self.is_coarse.get() {
            true => &self.coarse,
            false => self.memory.geometry(),
        }
    }
    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        match self.geometry().transfer(at, buf.len()) {
            Ok(_) => self.memory.read(at, buf).await,
            Err(error) => (buf, Err(error)),
        }
    }
    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.geometry().transfer(at, data.len())?;
        self.memory.write(at, data, fua).await
    }
    async fn zero(&self, extent: Extent) -> IoResult {
        self.geometry().check(extent)?;
        self.memory.zero(extent).await
    }
    async fn flush(&self) -> IoResult {
        self.memory.flush().await
    }
    async fn discard(&self, extent: Extent) -> IoResult {
        self.geometry().check(extent)?;
        self.memory.discard(extent).await
    }
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.memory.extents(extent, out).await
    }
}

#[test]
fn requests_that_wait_while_the_block_becomes_larger_get_whole_blocks() {
    block_on(POOL, async |env| {
        let memory = Memory::new(&env, 4, 1, Flaw::None);
        let mut coarse = memory.geometry().clone();
        coarse.block = Sectors(8);
        let device = Coarsened {
            memory,
            coarse,
            is_coarse: Rc::default(),
        };
        let gate = Gate::new(device.clone(), env.clone());
        let filled = async |byte: u8, len: usize| {
            let mut buf = env.pool.get(len).await;
            buf.fill(byte);
            buf.share()
        };
        gate.write(0, filled(1, 8192).await, Fua::No).await.unwrap();
        let held = gate.hold().await;
        // Reads go on.
        assert_eq!(gate.read(512, 512).await.unwrap()[0], 1);
        let changes = async {
            let write = gate.write(512, filled(2, 512).await, Fua::No);
            let zero = gate.zero(4096 + 512, 1024);
            let read = async { gate.read(512, 512).await.map(drop) };
            let (written, (zeroed, read)) = join(write, join(zero, read)).await;
            written.and(zeroed).and(read).unwrap();
        };
        let coarsens = async {
            device.is_coarse.set(true);
            drop(held);
        };
        join(changes, coarsens).await;
        let found = gate.read(0, 8192).await.unwrap();
        let expected = |at: usize| match at {
            512..1024 => 2,
            4608..5632 => 0,
            _ => 1,
        };
        assert!(
            found
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == expected(at))
        );
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Breach {
    /// A read, a merge and a write, without a lock.
    Unlocked,
    /// A zero is widened to blocks.
    Widens,
    /// A read that it begins gives the bytes of the place before.
    BeginsElsewhere,
}

struct Broken {
    memory: Memory,
    gate: Gate<Memory>,
    env: Env,
    breach: Breach,
}

impl Boundary for Broken {
    fn geometry(&self) -> &Geometry {
        self.gate.geometry()
    }
    fn flush_errors(&self) -> &Arc<FlushErrors> {
        self.gate.flush_errors()
    }
    async fn read(&self, offset: u64, len: usize) -> IoResult<SharedBuf> {
        self.gate.read(offset, len).await
    }
    fn begin_read(&self, read: AskedRead, taker: Rc<dyn ReadTaker>) -> bool {
        if self.breach != Breach::BeginsElsewhere || read.offset == 0 {
            return false;
        }
        let gate = self.gate.clone();
        self.env.spawn.spawn(async move {
            let result = gate.read(read.offset - 1, read.len as usize).await;
            taker.take_read(&read, result);
        });
        true
    }
    async fn write(&self, offset: u64, data: SharedBuf, fua: Fua) -> IoResult {
        let bytes = self.bytes();
        if self.breach != Breach::Unlocked
            || offset
                .checked_add(data.len() as u64)
                .is_none_or(|end| end > bytes)
        {
            return self.gate.write(offset, data, fua).await;
        }
        let block = self.memory.geometry().block.bytes();
        let start = offset / block * block;
        let end = (offset + data.len() as u64).next_multiple_of(block);
        let buf = self.env.pool.get((end - start) as usize).await;
        let at = Lba(start / SECTOR_BYTES);
        let (mut buf, result) = self.memory.read(at, buf).await;
        result?;
        let inside = (offset - start) as usize;
        buf[inside..inside + data.len()].copy_from_slice(&data);
        self.memory.write(at, buf.share(), fua).await
    }
    async fn zero(&self, offset: u64, len: u64) -> IoResult {
        if self.breach != Breach::Widens {
            return self.gate.zero(offset, len).await;
        }
        self.gate.zero(offset, len).await?;
        let block = self.memory.geometry().block.bytes();
        let start = Lba(offset / block * block / SECTOR_BYTES);
        self.memory
            .zero(Extent::new(start, Sectors(block / SECTOR_BYTES)))
            .await
    }
    async fn discard(&self, offset: u64, len: u64) -> IoResult {
        self.gate.discard(offset, len).await
    }
    async fn flush(&self) -> IoResult {
        self.gate.flush().await
    }
    async fn extents(&self, offset: u64, len: u64, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.gate.extents(offset, len, out).await
    }
    async fn announce(&self, offset: u64, len: u64) {
        self.gate.announce(offset, len).await;
    }
}

fn run(breach: Breach) {
    block_on(POOL, async |env| {
        let memory = Memory::new(&env, 4, 8, Flaw::None);
        let gate = Gate::new(memory.clone(), env.clone());
        let broken = Broken {
            memory,
            gate,
            env: env.clone(),
            breach,
        };
        boundary(&broken, 4096, &env, 1).await;
    });
}

#[test]
fn a_gate_without_its_range_lock_is_caught() {
    caught("no order", || run(Breach::Unlocked));
}

#[test]
fn a_gate_that_zeroes_whole_blocks_is_caught() {
    caught("must be", || run(Breach::Widens));
}

#[test]
fn a_gate_that_begins_reads_elsewhere_is_caught() {
    caught("must be", || run(Breach::BeginsElsewhere));
}

#[test]
fn a_gate_that_begins_reads_passes() {
    block_on(POOL, async |env| {
        let gate = Gate::new(Memory::new(&env, 4, 8, Flaw::None), env.clone());
        boundary(&BeginningGate::new(gate, env.clone()), 4096, &env, 2).await;
    });
}

/// A device that cannot read one of its blocks of 4096 bytes.
struct Scarred {
    memory: Memory,
    scar: Extent,
}

impl Layer for Scarred {
    type Below = Memory;

    fn below(&self) -> &Memory {
        &self.memory
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let extent = Extent::new(at, Sectors(buf.len() as u64 / SECTOR_BYTES));
        match extent.overlaps(self.scar) {
            true => (
                buf,
                Err(self
                    .memory
                    .geometry()
                    .error(IoErrorKind::Media, "unreadable")),
            ),
            false => self.memory.read(at, buf).await,
        }
    }
}

/// Only the bytes that a write leaves of the blocks at its ends have to be read.
#[test]
fn a_block_that_is_overwritten_whole_need_not_be_readable() {
    const BLOCK: u64 = 4096;
    block_on(POOL, async |env| {
        let memory = Memory::new(&env, 4, 8, Flaw::None);
        let scar = Extent::new(Lba(8), Sectors(8));
        let device = Scarred {
            memory: memory.clone(),
            scar,
        };
        let gate = Gate::new(device, env.clone());
        let sound = Gate::new(memory, env.clone());
        // From within a block, or its start, to within another, or its end.
        let ends = [(1000, 2 * BLOCK + 10), (0, 3 * BLOCK - 1), (8, 2 * BLOCK)];
        for (byte, (from, to)) in (1..).zip(ends) {
            let before = sound.read(0, 3 * BLOCK as usize).await.unwrap().to_vec();
            let mut data = env.pool.take((to - from) as usize);
            data.fill(byte);
            gate.write(from, data.share(), Fua::No).await.unwrap();
            let after = sound.read(0, 3 * BLOCK as usize).await.unwrap();
            let (from, to) = (from as usize, to as usize);
            assert!(after[from..to].iter().all(|found| *found == byte));
            assert_eq!(after[..from], before[..from]);
            assert_eq!(after[to..], before[to..]);
        }
        // A part of the block has neighbours that are unknown.
        for (from, len) in [(BLOCK + 1, 10), (BLOCK - 1, 2), (BLOCK - 1, BLOCK)] {
            let data = env.pool.take(len as usize).share();
            let error = gate.write(from, data, Fua::No).await.unwrap_err();
            assert_eq!(error.kind(), IoErrorKind::Media, "{from}+{len}");
        }
    });
}
