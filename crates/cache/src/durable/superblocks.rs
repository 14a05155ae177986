//! Writing the superblocks: the members of the pool, and the volumes that it may hold.
//!
//! Order: both copies on every member, one after the other, then those of the witness. A copy is a
//! superblock and its table area. The table area is durable before the superblock is written, and
//! is not written again while it has the present rows. Later steps wait until all superblocks are
//! durable. A device that becomes a member is claimed before anything else is written to the
//! device.
//!
//! The content of each superblock is decided and encoded before the first wait.
//!
//! Of two copies the valid one is written last: after any number of power cuts, one of them is
//! whole.
//!
//! Before devices get superblocks with a sequence number, the witness has durably given that
//! number: no other opening gives it again. Otherwise a device that goes back to its state in an
//! opening that was cut short would pass for a complete one.

use super::io::{Do, TABLE_CHUNK_BYTES, perform, readable, table_area};
use super::store::SuperblockCopies;
use super::{PoolMetadata, PoolState};
use crate::core::CacheCore;
use crate::counters::Counter;
use crate::devices::PoolMember;
use block::{BoxDevice, Device, Fua, Lba, Nanos, SECTOR_BYTES, Sectors, SharedBuf, StateImage};
use futures_util::future::join_all;
use layout::{
    BLOCK_BYTES, PoolRole, PoolSuperblock, SUPERBLOCK_BLOCKS, SuperblockError, VOLUMES_MAX,
    VolumeTable, WITNESS_BLOCKS, WITNESS_TABLES, volumes_fitting,
};
use std::rc::Rc;

const SUPERBLOCK_BYTES: usize = SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES;
/// Sectors that a witness needs: two superblocks.
pub(super) const WITNESS_SECTORS: u64 = 2 * SUPERBLOCK_BLOCKS * layout::BLOCK_SECTORS;
/// Sequence numbers that the witness gives at a time.
const GIVEN_AT_A_TIME: u64 = 16;
/// The pause before a witness that failed is tried again.
const RETRY: Nanos = Nanos::from_millis(100);

/// An encoded superblock.
struct Encoded {
    superblock: SharedBuf,
    volumes: VolumeTable,
}

impl<P: Device> CacheCore<P> {
    /// Volumes that all superblocks have room for.
    pub(crate) fn volumes_max(&self, durable: &PoolMetadata) -> usize {
        let members = self.state.borrow().devices.kept();
        let stores = members.iter().filter_map(|member| member.store.as_ref());
        let least = stores.map(|store| store.plan.volumes()).min();
        let witness = durable.witness.as_ref().map(|witness| {
            let is_whole = witness.geometry().sectors.0 >= WITNESS_BLOCKS * layout::BLOCK_SECTORS;
            volumes_fitting(if is_whole {
                WITNESS_TABLES[0].blocks
            } else {
                0
            })
        });
        least
            .into_iter()
            .chain(witness)
            .min()
            .unwrap_or(VOLUMES_MAX)
    }
}

/// Writes the superblocks of all members and of the witness; with a greater epoch if a member was
/// lost. The caller holds the lock.
///
/// While the witness cannot be written, all work that needs the superblocks waits. Otherwise a lost
/// device could come back alone and be trusted.
pub(super) async fn write_superblocks<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &Rc<PoolMetadata>,
) {
    loop {
        if durable.departed.take() {
            durable.superblock.change(|pool| pool.epoch += 1);
        }
        core.counters.count(Counter::SuperblockWrites);
        let members = core.state.borrow().devices.kept();
        let image = durable.superblock.begin();
        let shared = superblock_of_pool(durable, &image, image.number(), &members);
        let superblocks: Vec<_> = members
            .iter()
            .map(|member| (member, encode(core, &superblock_of_member(&shared, member))))
            .collect();
        let record = PoolSuperblock {
            device: durable.witness_uuid.get(),
            name: "witness".to_owned(),
            ..shared
        };
        if !give(core, durable, image.number()).await {
            return;
        }
        let writes = superblocks
            .into_iter()
            .map(|(member, data)| write_superblock(core, member, data));
        join_all(writes).await;
        if durable.departed.get() {
            continue;
        }
        if !write_record(core, durable, record).await {
            return;
        }
        if !durable.departed.get() {
            return known_to_all(durable, image);
        }
    }
}

/// All superblocks have the content of `image`.
fn known_to_all(durable: &PoolMetadata, image: StateImage<PoolState>) {
    let _proof = image.written();
    durable.marked.notify();
}

fn encode<P: Device>(core: &CacheCore<P>, superblock: &PoolSuperblock) -> Encoded {
    let mut buf = core.env.pool.take(SUPERBLOCK_BYTES);
    let bytes = superblock.encode(&mut buf);
    Encoded {
        superblock: buf.share().slice(0..bytes),
        volumes: superblock.volumes.clone(),
    }
}

/// Reserves the sequence number, and some more, on the witness. A witness without a superblock yet
/// trusts nothing on any device. False: the pool is closed.
async fn give<P: Device>(core: &Rc<CacheCore<P>>, durable: &PoolMetadata, number: u64) -> bool {
    let record = durable.record.borrow().clone();
    let Some(record) = record.filter(|record| record.given < number) else {
        return true;
    };
    let given = number + GIVEN_AT_A_TIME;
    write_record(core, durable, PoolSuperblock { given, ..record }).await
}

/// Writes the superblock of the witness, with as many attempts as that takes. False: the pool is
/// closed.
async fn write_record<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &PoolMetadata,
    record: PoolSuperblock,
) -> bool {
    let Some(witness) = &durable.witness else {
        return true;
    };
    let data = encode(core, &record);
    while !write_witness(core, durable, witness, &data).await {
        core.counters.count(Counter::WitnessErrors);
        // After the pool is closed, no write needs the witness.
        if durable.closed.get() {
            return false;
        }
        core.env.timer.sleep(RETRY).await;
    }
    durable.record.replace(Some(record));
    true
}

async fn write_witness<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &PoolMetadata,
    witness: &BoxDevice,
    data: &Encoded,
) -> bool {
    let copies = [0, 1].map(|copy| Lba(copy * SUPERBLOCK_BLOCKS * layout::BLOCK_SECTORS));
    let tables = WITNESS_TABLES.map(|area| area.extent(Lba(0)).start);
    let known = &durable.witness_copies;
    let order = in_turn(core, witness, Lba(0), copies, known).await;
    let perform = async |what| match what {
        Do::Write(at, data, fua) => witness.write(at, data, fua).await.is_ok(),
        Do::Flush => witness.flush().await.is_ok(),
    };
    let written = write_copies(
        core,
        data,
        order.map(|copy| (copy, copies[copy], tables[copy])),
        known,
        perform,
    )
    .await;
    if !written {
        known.forget();
    }
    written
}

/// Writes copies one after the other: which, where its superblock and its table area are.
async fn write_copies<P: Device>(
    core: &CacheCore<P>,
    data: &Encoded,
    copies: [(usize, Lba, Lba); 2],
    known: &SuperblockCopies,
    perform: impl AsyncFn(Do) -> bool,
) -> bool {
    for (copy, superblock, table) in copies {
        let (_, tail) = data.volumes.parts();
        let has = |table: &VolumeTable| table.is(&data.volumes);
        let is_there = tail.is_empty() || known.tables.borrow()[copy].as_ref().is_some_and(has);
        if !is_there {
            known.tables.borrow_mut()[copy] = None;
            let chunks = tail.chunks(TABLE_CHUNK_BYTES).enumerate();
            for (n, chunk) in chunks {
                let mut buf = core
                    .env
                    .pool
                    .take(chunk.len().next_multiple_of(BLOCK_BYTES));
                buf[..chunk.len()].copy_from_slice(chunk);
                buf[chunk.len()..].fill(0);
                let at = table + Sectors((n * TABLE_CHUNK_BYTES) as u64 / SECTOR_BYTES);
                if !perform(Do::Write(at, buf.share(), Fua::No)).await {
                    return false;
                }
            }
            if !perform(Do::Flush).await {
                return false;
            }
            known.tables.borrow_mut()[copy] = Some(data.volumes.clone());
        }
        let write = Do::Write(superblock, data.superblock.clone(), Fua::Yes);
        if !perform(write).await {
            return false;
        }
    }
    true
}

/// Returns the order in which the two copies of a superblock are to be written: the one that holds
/// `last`. The order stays from the first time on. On a device without a valid copy, the first copy
/// is that one.
async fn in_turn<P: Device, D: Device>(
    core: &CacheCore<P>,
    device: &D,
    base: Lba,
    copies: [Lba; 2],
    known: &SuperblockCopies,
) -> [usize; 2] {
    let (env, limit) = (&core.env, core.metadata_timeout());
    if known.last.get().is_none() {
        let mut found = Vec::new();
        for (copy, at) in copies.into_iter().enumerate() {
            let bytes = readable(device, at, SUPERBLOCK_BYTES, env, limit).await;
            let bytes = bytes.ok().flatten();
            let tail = table_area(device, base, (bytes.as_deref(), copy), env, limit).await;
            let tail = tail.unwrap_or_default();
            let unread = Err(SuperblockError::Damaged("it cannot be read"));
            found.push(bytes.map_or(unread, |bytes| PoolSuperblock::decode(&bytes, &tail)));
        }
        known.last.set(Some(match &found[..] {
            [Ok(first), Ok(second)] if second.sequence > first.sequence => 1,
            [Err(SuperblockError::Damaged(_)), _] => 1,
            _ => 0,
        }));
    }
    match known.last.get() {
        Some(1) => [0, 1],
        _ => [1, 0],
    }
}

/// The content of all superblocks of the pool's image `sequence`.
fn superblock_of_pool<P: Device>(
    durable: &PoolMetadata,
    pool: &PoolState,
    sequence: u64,
    members: &[Rc<PoolMember<P>>],
) -> PoolSuperblock {
    let member = |member: &Rc<PoolMember<P>>| {
        let store = member.store.as_ref().expect("a member that is kept");
        layout::MemberRecord {
            device: store.device,
            slots: store.plan.slots,
            name: store.name.clone(),
            domain: member.controller.to_string(),
        }
    };
    PoolSuperblock {
        role: PoolRole::Witness,
        clean: pool.clean,
        pool: durable.pool,
        device: durable.pool,
        sequence,
        epoch: pool.epoch,
        blocks: 0,
        slots: 0,
        line_blocks: 1,
        region_blocks: super::REGION_BLOCKS,
        map: None,
        generation: 0,
        log_start: 0,
        log_end: 0,
        next_volume: pool.next_volume,
        given: durable.given(),
        hints: None,
        label: durable.label.clone(),
        name: String::new(),
        host: durable.host.clone(),
        members: members.iter().map(member).collect(),
        volumes: durable.table_of(pool),
    }
}

/// Writes the superblock of a member that is reinitialised, with the pool and an earlier epoch.
/// That superblock is never trusted, for no witness knows the device by its new name. The epoch is
/// kept, so that an old witness finds a device that knows better.
///
/// Both copies are written, since the bitmap that follows does not fit an old superblock.
pub(super) async fn claim<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &PoolMetadata,
    member: &Rc<PoolMember<P>>,
    epoch: u64,
) -> bool {
    let shared = PoolSuperblock {
        clean: false,
        epoch,
        ..superblock_of_pool::<P>(durable, &durable.superblock.now(), 0, &[])
    };
    let data = encode(core, &superblock_of_member(&shared, member));
    write_superblock(core, member, data).await
}

/// Builds the superblock of a member: the shared content, and the present place of its map.
fn superblock_of_member<P: Device>(
    shared: &PoolSuperblock,
    member: &PoolMember<P>,
) -> PoolSuperblock {
    let store = member.store.as_ref().expect("a member that is kept");
    let clean = shared.clean && store.warm.get();
    PoolSuperblock {
        role: PoolRole::Member,
        clean,
        device: store.device,
        blocks: store.plan.blocks,
        slots: store.plan.slots,
        line_blocks: store.plan.line_blocks,
        map: store.map.get(),
        generation: store.generation.get(),
        log_start: store.log_start.get(),
        log_end: if clean { store.log_next.get() } else { 0 },
        given: 0,
        hints: store.hints.get(),
        name: store.name.clone(),
        ..shared.clone()
    }
}

async fn write_superblock<P: Device>(
    core: &Rc<CacheCore<P>>,
    member: &Rc<PoolMember<P>>,
    data: Encoded,
) -> bool {
    let store = member.store.as_ref().expect("a member that is kept");
    let copies = store.plan.superblocks.map(|area| store.at(area, 0));
    let tables = store.plan.tables.map(|area| area.extent(store.base).start);
    let order = in_turn(core, &member.device, store.base, copies, &store.copies).await;
    let order = order.map(|copy| (copy, copies[copy], tables[copy]));
    let perform = async |what| perform(core, member, what).await;
    write_copies(core, &data, order, &store.copies, perform).await
}
