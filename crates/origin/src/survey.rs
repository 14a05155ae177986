//! Reads the places of an origin that make or check a record.
//!
//! A few hundred KiB and some tens of single reads, whatever the origin's size.

use crate::formats::{
    CircularLog, HEAD_BYTES, PARTITION_BYTES, Recognised, What, recognise, recognise_at,
};
use crate::record::{Allowed, OriginRecord, WatchedPlace, hash, is_plain};
use block::{
    Buf, Device, Extent, IoError, IoErrorKind, IoResult, Lba, Pool, SECTOR_BYTES, Sectors,
};
use futures_util::future::join_all;
use layout::DeviceIdentity;

/// Number of sampled parts.
pub const SAMPLES: u64 = 32;
/// Most draws of a block in each part, for a device that samples alone can identify.
const ATTEMPTS: u64 = 8;
/// Most further samples in the head of such a device.
const IN_HEAD: usize = 8;
/// Most watched sentinels; partitions may have many.
const SENTINELS_MAX: usize = 32;
/// Unit of all reads, a multiple of every logical block, in sectors.
const BLOCK: u64 = 8;
/// Length of one read of the head, in sectors.
const CHUNK: u64 = 128;

/// The present state of an origin.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Identity of the origin.
    pub identity: DeviceIdentity,
    /// Size of the origin.
    pub sectors: Sectors,
    /// Logical block of the origin.
    pub block: Sectors,
    /// Hash of each requested place; `None` if the place cannot be read.
    pub hashes: Vec<(Extent, Option<u64>)>,
}

/// Reads the places that `record` watches.
pub async fn again<D: Device>(
    origin: &D,
    pool: &Pool,
    identity: DeviceIdentity,
    record: &OriginRecord,
) -> Survey {
    let geometry = origin.geometry();
    let places = record.watched.iter().map(|w| async {
        let inside = w.extent.end().0 <= geometry.sectors.0;
        let bytes = match inside {
            true => read(origin, pool, w.extent).await.ok(),
            false => None,
        };
        (w.extent, bytes.map(|b| hash(&b)))
    });
    Survey {
        identity,
        sectors: geometry.sectors,
        block: geometry.block,
        hashes: join_all(places).await,
    }
}

/// Makes the record of an origin in its present state, with samples drawn by `seed`. Unreadable
/// sectors are not watched. Fails if all watched places are unreadable, or the device is lost.
pub async fn take<D: Device>(
    origin: &D,
    pool: &Pool,
    identity: DeviceIdentity,
    seed: u64,
) -> IoResult<OriginRecord> {
    take_with(origin, pool, identity, seed, &[]).await
}

/// As [`take`], with the places `also` watched too.
pub async fn take_with<D: Device>(
    origin: &D,
    pool: &Pool,
    identity: DeviceIdentity,
    seed: u64,
    also: &[Extent],
) -> IoResult<OriginRecord> {
    let geometry = origin.geometry().clone();
    let end = geometry.sectors.0 / BLOCK * BLOCK;
    let mut unreadable = None;
    let (found, head) = sentinels(origin, pool, end, &mut unreadable).await?;
    let mut places = found.sentinels;
    for log in found.logs {
        match head_of(origin, pool, log).await {
            Ok(at) => places.push((What::XfsLog, Extent::new(at, Sectors(1)))),
            Err(error) if error.kind() == IoErrorKind::Media => unreadable = Some(error),
            Err(error) => return Err(error),
        }
    }
    places.truncate(SENTINELS_MAX);
    let samples = match identity.proves() {
        true => samples(end / BLOCK, seed, 0).collect(),
        false => distinctive(origin, pool, &head, end / BLOCK, seed).await,
    };
    places.extend(samples.into_iter().map(|block| {
        let extent = Extent::new(Lba(block * BLOCK), Sectors(BLOCK));
        (What::Sample, extent)
    }));
    let also = also.iter().filter(|place| place.end().0 <= end);
    places.extend(also.map(|place| (What::Sample, *place)));
    places.sort_by_key(|(_, extent)| extent.start);
    let watched = places.into_iter().map(|(what, extent)| async move {
        let bytes = read(origin, pool, extent).await.ok()?;
        Some(WatchedPlace {
            what,
            extent,
            allowed: Allowed::These(vec![hash(&bytes)]),
        })
    });
    let watched: Vec<_> = join_all(watched).await.into_iter().flatten().collect();
    match unreadable {
        Some(error) if watched.is_empty() => Err(error),
        _ => Ok(OriginRecord {
            identity,
            sectors: geometry.sectors,
            block: geometry.block,
            watched,
        }),
    }
}

/// The formats of the device, which ends at `end`, and of its partitions; and the device's head.
async fn sentinels<D: Device>(
    origin: &D,
    pool: &Pool,
    end: u64,
    unreadable: &mut Option<IoError>,
) -> IoResult<(Recognised, Vec<u8>)> {
    let head = run(origin, pool, Lba::ZERO, HEAD_BYTES, end, unreadable).await?;
    let mut found = recognise(&head, Sectors(end));
    for start in std::mem::take(&mut found.partitions) {
        let first = run(origin, pool, start, PARTITION_BYTES, end, unreadable).await?;
        let within = recognise_at(start, &first, Sectors(end));
        found.sentinels.extend(within.sentinels);
        found.logs.extend(within.logs);
    }
    Ok((found, head))
}

/// Reads `len` bytes from `start` on, as far as the device goes.
async fn run<D: Device>(
    origin: &D,
    pool: &Pool,
    start: Lba,
    len: usize,
    end: u64,
    unreadable: &mut Option<IoError>,
) -> IoResult<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    let mut at = start.0;
    while bytes.len() < len && at < end {
        // Later reads are aligned, even if the partition is not.
        let next = (at / BLOCK * BLOCK + CHUNK).min(end);
        let chunk = Extent::new(Lba(at), Sectors(next - at));
        bytes.extend(legible(origin, pool, chunk, unreadable).await?);
        at = next;
    }
    Ok(bytes)
}

/// Draws one block from each of [`SAMPLES`] equal parts of the device by `seed`; each `attempt`
/// draws another block.
fn samples(blocks: u64, seed: u64, attempt: u64) -> impl Iterator<Item = u64> {
    let parts = SAMPLES.min(blocks);
    let seed = seed ^ mixed(attempt);
    (0..parts).map(move |part| {
        let (from, to) = (blocks * part / parts, blocks * (part + 1) / parts);
        from + mixed(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % (to - from)
    })
}

/// Samples of a device that samples alone must identify: blocks with distinctive content, as far as
/// found, one in each part and some in the `head`, which is already read.
async fn distinctive<D: Device>(
    origin: &D,
    pool: &Pool,
    head: &[u8],
    blocks: u64,
    seed: u64,
) -> Vec<u64> {
    let mut drawn: Vec<u64> = samples(blocks, seed, 0).collect();
    let mut found = vec![false; drawn.len()];
    for attempt in 0..ATTEMPTS {
        let next: Vec<u64> = samples(blocks, seed, attempt).collect();
        let looks = next.iter().zip(&found).map(|(block, found)| async move {
            let extent = Extent::new(Lba(block * BLOCK), Sectors(BLOCK));
            !found && !is_empty(read(origin, pool, extent).await.ok())
        });
        for (part, differs) in join_all(looks).await.into_iter().enumerate() {
            if differs {
                (drawn[part], found[part]) = (next[part], true);
            }
        }
    }
    let block_bytes = (BLOCK * SECTOR_BYTES) as usize;
    let in_head = head.chunks_exact(block_bytes).enumerate();
    let in_head = in_head.filter(|(_, block)| !is_empty(Some(block.to_vec())));
    drawn.extend(in_head.map(|(block, _)| block as u64).take(IN_HEAD));
    drawn.sort_unstable();
    drawn.dedup();
    drawn
}

/// True if the bytes are missing, all zeroes or all ones.
fn is_empty(bytes: Option<Vec<u8>>) -> bool {
    let plain = |bytes: &Vec<u8>| is_plain(hash(bytes), Sectors(bytes.len() as u64 / SECTOR_BYTES));
    bytes.as_ref().is_none_or(plain)
}

/// The finishing steps of Steele and Vigna's SplitMix64.
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Reads `extent`. An unreadable block is zeroes, with its error in `unreadable`.
async fn legible<D: Device>(
    origin: &D,
    pool: &Pool,
    extent: Extent,
    unreadable: &mut Option<IoError>,
) -> IoResult<Vec<u8>> {
    match read(origin, pool, extent).await {
        Err(error) if error.kind() == IoErrorKind::Media => {}
        result => return result,
    }
    let mut bytes = Vec::new();
    for at in (extent.start.0..extent.end().0).step_by(BLOCK as usize) {
        let block = Extent::new(Lba(at), Sectors(BLOCK));
        match read(origin, pool, block).await {
            Ok(read) => bytes.extend(read),
            Err(error) if error.kind() == IoErrorKind::Media => {
                bytes.resize(bytes.len() + block.len.bytes() as usize, 0);
                *unreadable = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Reads `extent` in whole blocks; the device's last, short block is out of reach.
pub(crate) async fn read<D: Device>(origin: &D, pool: &Pool, extent: Extent) -> IoResult<Vec<u8>> {
    let start = extent.start.0 / BLOCK * BLOCK;
    let end = extent.end().0.next_multiple_of(BLOCK);
    let buf: Buf = pool.take(((end - start) * SECTOR_BYTES) as usize);
    let (buf, result) = origin.read(Lba(start), buf).await;
    result?;
    let from = ((extent.start.0 - start) * SECTOR_BYTES) as usize;
    Ok(buf[from..][..extent.len.bytes() as usize].to_vec())
}

/// The next write position of an XFS log: the first sector of the round before. Each sector begins
/// with its round number; in the header of a record, a magic number comes first.
async fn head_of<D: Device>(origin: &D, pool: &Pool, log: CircularLog) -> IoResult<Lba> {
    let round = |at: Lba| async move {
        let sector = read(origin, pool, Extent::new(at, Sectors(1))).await?;
        let word = |i: usize| u32::from_be_bytes(sector[i..i + 4].try_into().expect("four bytes"));
        IoResult::Ok(if word(0) == 0xfeed_babe {
            word(4)
        } else {
            word(0)
        })
    };
    let start = log.extent.start;
    let first = round(start).await?;
    let (mut low, mut high) = (0, log.extent.len.0);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if round(start + Sectors(middle)).await? == first {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(start + Sectors(high % log.extent.len.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_and_repeat() {
        for blocks in [1, 5, 32, 33, 1000, 1 << 40] {
            let drawn: Vec<_> = samples(blocks, 9, 0).collect();
            assert_eq!(drawn, samples(blocks, 9, 0).collect::<Vec<_>>());
            assert!(drawn.windows(2).all(|w| w[0] < w[1]));
            assert!(*drawn.last().unwrap() < blocks);
            assert_eq!(drawn.len() as u64, blocks.min(SAMPLES));
        }
        assert!(samples(0, 9, 0).next().is_none());
        assert_ne!(
            samples(1 << 30, 1, 0).collect::<Vec<_>>(),
            samples(1 << 30, 2, 0).collect::<Vec<_>>()
        );
    }
}
