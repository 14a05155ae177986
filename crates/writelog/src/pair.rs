//! Reading and writing superblocks that exist twice.

use block::{Buf, Device, Fua, IoErrorKind, IoResult, Lba, Pool};
use layout::{BLOCK_BYTES, BLOCK_SECTORS, BlockPair, Paired};
use std::cell::Cell;

/// The two blocks of a superblock.
#[derive(Debug)]
pub(super) struct PairBlocks {
    blocks: [u64; 2],
    /// Index of the block that is written first.
    worse: Cell<usize>,
}

impl PairBlocks {
    pub(super) fn new(blocks: [u64; 2]) -> PairBlocks {
        PairBlocks {
            blocks,
            worse: Cell::new(1),
        }
    }

    /// Reads both blocks. `Err`: the device is lost.
    pub(super) async fn read<T: Paired>(
        &self,
        device: &impl Device,
        memory: &Pool,
    ) -> IoResult<BlockPair<T>> {
        let mut blocks = [None, None];
        for (read, at) in blocks.iter_mut().zip(self.blocks) {
            *read = block(device, memory, at).await?;
        }
        let pair = BlockPair::of(blocks.each_ref().map(Option::as_deref));
        self.worse.set(usize::from(!pair.first_is_worse));
        Ok(pair)
    }

    /// Writes both blocks, durably, the worse first: a power cut leaves one.
    pub(super) async fn write(
        &self,
        device: &impl Device,
        memory: &Pool,
        superblock: &impl Paired,
    ) -> IoResult {
        let mut buf = memory.take(BLOCK_BYTES);
        superblock.encode(&mut buf);
        let data = buf.share();
        for _ in 0..2 {
            let worse = self.worse.get();
            let at = Lba(self.blocks[worse] * BLOCK_SECTORS);
            device.write(at, data.clone(), Fua::Yes).await?;
            self.worse.set(1 - worse);
        }
        Ok(())
    }
}

/// Reads a block; `None` if its medium is damaged.
pub(super) async fn block(device: &impl Device, memory: &Pool, at: u64) -> IoResult<Option<Buf>> {
    let buf = memory.take(BLOCK_BYTES);
    match device.read(Lba(at * BLOCK_SECTORS), buf).await {
        (buf, Ok(())) => Ok(Some(buf)),
        (_, Err(error)) if error.kind() == IoErrorKind::Media => Ok(None),
        (_, Err(error)) => Err(error),
    }
}
