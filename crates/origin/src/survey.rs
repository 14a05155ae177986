//! Reads from an origin what is needed to make or to check a record.
//!
//! A few hundred KiB and some tens of single reads, whatever the origin's size.

use crate::formats::{HEAD_BYTES, Log, What, recognise};
use crate::record::{Allowed, Identity, Record, Watched, hash};
use block::{Buf, Device, Extent, IoError, IoResult, Kind, Lba, Pool, SECTOR_BYTES, Sectors};
use futures_util::future::join_all;

/// Blocks that are sampled.
pub const SAMPLES: u64 = 32;
/// The unit in which everything is read, which lies on every logical block.
const BLOCK: u64 = 8;
/// One read of the head.
const CHUNK: u64 = 128;

/// What an origin is now.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Who it is.
    pub identity: Identity,
    /// How large it is.
    pub sectors: Sectors,
    /// Its logical block.
    pub block: Sectors,
    /// The hash of each place asked for; `None` where it cannot be read.
    pub hashes: Vec<(Extent, Option<u64>)>,
}

/// Reads the places that `record` watches.
pub async fn again<D: Device>(
    origin: &D,
    pool: &Pool,
    identity: Identity,
    record: &Record,
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

/// Makes the record of an origin as it is now, with samples drawn by `seed`.
/// Sectors that cannot be read are not watched; fails if none can, or the device is lost.
pub async fn take<D: Device>(
    origin: &D,
    pool: &Pool,
    identity: Identity,
    seed: u64,
) -> IoResult<Record> {
    let geometry = origin.geometry().clone();
    let end = geometry.sectors.0 / BLOCK * BLOCK;
    let (mut head, mut unreadable) = (Vec::with_capacity(HEAD_BYTES), None);
    while head.len() < HEAD_BYTES && (head.len() as u64) < end * SECTOR_BYTES {
        let at = head.len() as u64 / SECTOR_BYTES;
        let chunk = Extent::new(Lba(at), Sectors(CHUNK.min(end - at)));
        head.extend(legible(origin, pool, chunk, &mut unreadable).await?);
    }
    let found = recognise(&head, Sectors(end));
    let mut places = found.sentinels;
    if let Some(log) = found.log {
        match head_of(origin, pool, log).await {
            Ok(at) => places.push((What::XfsLog, Extent::new(at, Sectors(1)))),
            Err(error) if error.kind() == Kind::Media => unreadable = Some(error),
            Err(error) => return Err(error),
        }
    }
    places.extend(samples(end / BLOCK, seed).map(|block| {
        let extent = Extent::new(Lba(block * BLOCK), Sectors(BLOCK));
        (What::Sample, extent)
    }));
    places.sort_by_key(|(_, extent)| extent.start);
    let watched = places.into_iter().map(|(what, extent)| async move {
        let bytes = read(origin, pool, extent).await.ok()?;
        Some(Watched {
            what,
            extent,
            allowed: Allowed::These(vec![hash(&bytes)]),
        })
    });
    let watched: Vec<_> = join_all(watched).await.into_iter().flatten().collect();
    match unreadable {
        Some(error) if watched.is_empty() => Err(error),
        _ => Ok(Record {
            identity,
            sectors: geometry.sectors,
            block: geometry.block,
            watched,
        }),
    }
}

/// One block of each of [`SAMPLES`] equal parts of the device, drawn by `seed`.
fn samples(blocks: u64, seed: u64) -> impl Iterator<Item = u64> {
    let parts = SAMPLES.min(blocks);
    (0..parts).map(move |part| {
        let (from, to) = (blocks * part / parts, blocks * (part + 1) / parts);
        from + mixed(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % (to - from)
    })
}

/// The finishing steps of Steele and Vigna's SplitMix64.
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The bytes of `extent`; zeroes, and the error in `unreadable`, for blocks that cannot be read.
async fn legible<D: Device>(
    origin: &D,
    pool: &Pool,
    extent: Extent,
    unreadable: &mut Option<IoError>,
) -> IoResult<Vec<u8>> {
    match read(origin, pool, extent).await {
        Err(error) if error.kind() == Kind::Media => {}
        result => return result,
    }
    let mut bytes = Vec::new();
    for at in (extent.start.0..extent.end().0).step_by(BLOCK as usize) {
        let block = Extent::new(Lba(at), Sectors(BLOCK));
        match read(origin, pool, block).await {
            Ok(read) => bytes.extend(read),
            Err(error) if error.kind() == Kind::Media => {
                bytes.resize(bytes.len() + block.len.bytes() as usize, 0);
                *unreadable = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// The bytes of `extent`, read in whole blocks; the device's last, short block
/// is out of reach.
pub(crate) async fn read<D: Device>(origin: &D, pool: &Pool, extent: Extent) -> IoResult<Vec<u8>> {
    let start = extent.start.0 / BLOCK * BLOCK;
    let end = extent.end().0.next_multiple_of(BLOCK);
    let buf: Buf = pool.take(((end - start) * SECTOR_BYTES) as usize);
    let (buf, result) = origin.read(Lba(start), buf).await;
    result?;
    let from = ((extent.start.0 - start) * SECTOR_BYTES) as usize;
    Ok(buf[from..][..extent.len.bytes() as usize].to_vec())
}

/// Where an XFS log is written next: its first sector that was written the
/// round before. Each sector begins with the number of its round, a record's
/// header with a magic number before it.
async fn head_of<D: Device>(origin: &D, pool: &Pool, log: Log) -> IoResult<Lba> {
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
            let drawn: Vec<_> = samples(blocks, 9).collect();
            assert_eq!(drawn, samples(blocks, 9).collect::<Vec<_>>());
            assert!(drawn.windows(2).all(|w| w[0] < w[1]));
            assert!(*drawn.last().unwrap() < blocks);
            assert_eq!(drawn.len() as u64, blocks.min(SAMPLES));
        }
        assert!(samples(0, 9).next().is_none());
        assert_ne!(
            samples(1 << 30, 1).collect::<Vec<_>>(),
            samples(1 << 30, 2).collect::<Vec<_>>()
        );
    }
}
