//! Marking regions before they are written, for many writes at once.
//!
//! Order: superblocks first if a member was lost or an id was given, then the bitmap of every
//! member with a flush, then the writes that wait. A member that does not take its bitmap is lost,
//! and will be reinitialised.

use super::io::{Do, perform};
use super::superblocks::write_superblocks;
use super::{Bits, PoolMetadata, PoolState};
use crate::core::CacheCore;
use crate::counters::Counter;
use crate::devices::PoolMember;
use block::{Device, Fua, Proof, Regions};
use futures_util::future::join_all;
use layout::{BLOCK_BYTES, Bitmap};
use std::cell::Cell;
use std::ops::Range;
use std::rc::{Rc, Weak};

/// A write of a client to the origin, known to the table until dropped.
pub(crate) struct Marking {
    durable: Rc<PoolMetadata>,
    volume: u32,
    blocks: Range<u64>,
    bits: Bits,
    stays: Cell<bool>,
}

impl Marking {
    /// Begins a marking: from here on the regions of `blocks` are suspect.
    pub(crate) fn begin(durable: &Rc<PoolMetadata>, volume: u32, blocks: &Range<u64>) -> Marking {
        Marking {
            stays: Cell::new(false),
            bits: durable.table.begin(volume, blocks),
            durable: durable.clone(),
            volume,
            blocks: blocks.clone(),
        }
    }

    /// The write may land yet, over whatever follows: its regions stay suspect until
    /// the pool is reopened, also under another id of the volume.
    pub(crate) fn stay(&self) {
        self.stays.set(true);
        let mut loose = self.durable.loose.borrow_mut();
        loose.push((self.volume, self.blocks.clone()));
    }

    /// Waits until every member has the marks and the volume's id.
    pub(crate) async fn known(&self) -> Proof {
        let durable = &self.durable;
        let given = |pool: &PoolState| self.volume < pool.next_volume;
        let known = || {
            let _given = durable.superblock.proof(given)?;
            durable.table.proof(self.bits)
        };
        if let Some(known) = known() {
            return known;
        }
        durable.signal.notify();
        durable.marked.until(|| known().is_some()).await;
        known().expect("nothing came between")
    }
}

impl Drop for Marking {
    fn drop(&mut self) {
        if self.stays.get() {
            return;
        }
        self.durable.table.end(self.bits);
        self.durable.activity.notify();
    }
}

/// Writes bitmaps and losses of members whenever they are due, until the cache is gone.
pub(super) async fn keep_marked<P: Device>(core: Weak<CacheCore<P>>, durable: Rc<PoolMetadata>) {
    loop {
        let due = || {
            durable.departed.get()
                || durable.image_due.get()
                || durable.ids_are_due() && !durable.closed.get()
                || core.strong_count() == 0
                || durable.table.intent.is_due()
        };
        durable.signal.until(due).await;
        let Some(core) = core.upgrade() else { return };
        write_bitmap(&core, &durable).await;
    }
}

/// Writes the bitmap that is wanted now, to every member.
pub(super) async fn write_bitmap<P: Device>(core: &Rc<CacheCore<P>>, durable: &Rc<PoolMetadata>) {
    let _held = durable.lock.lock().await;
    if durable.departed.get() || durable.ids_are_due() {
        write_superblocks(core, durable).await;
    }
    let members = core.state.borrow().devices.kept();
    durable.image_due.set(false);
    let image = durable.table.image();
    if members.is_empty() {
        drop(image);
        durable.table.intent.no_holders();
        durable.marked.notify();
        return;
    }
    core.counters.count(Counter::BitmapCommits);
    let writes = members
        .iter()
        .map(|member| write_image(core, durable, member, &image));
    let written = join_all(writes).await;
    // A member that failed is out of the pool now; the others do not know yet.
    if written.iter().all(|done| *done) && !durable.departed.get() {
        let _proof = image.written();
    } else {
        durable.image_due.set(true);
    }
    durable.marked.notify();
}

/// Writes `image` as the next version of the bitmap of `member`, durably.
pub(super) async fn write_image<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &PoolMetadata,
    member: &Rc<PoolMember<P>>,
    image: &Regions,
) -> bool {
    let store = member.store.as_ref().expect("a member that is kept");
    let bitmap = Bitmap {
        version: store.bitmap_version.get() + 1,
        epoch: durable.superblock.now().epoch,
        log_end: store.log_next.get(),
        regions: image.clone(),
    };
    let mut pair = match store.bitmap_buffer.take() {
        Some(pair) => pair,
        None => core.env.pool.take(2 * BLOCK_BYTES),
    };
    let (first, second) = pair.split_at_mut(BLOCK_BYTES);
    bitmap.encode(store.device, first);
    second.copy_from_slice(first);
    let at = store.at(store.plan.bitmap, Bitmap::place(bitmap.version));
    let pair = pair.share();
    let written = perform(core, member, Do::Write(at, pair.clone(), Fua::Yes)).await;
    *store.bitmap_buffer.borrow_mut() = pair.unshare().ok();
    if written {
        store.bitmap_version.set(bitmap.version);
    }
    written
}
