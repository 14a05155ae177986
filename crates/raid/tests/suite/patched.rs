//! Members with metadata that no array has written, with right checksums; the fuzzer of `fuzz/raid`
//! does the same.

use crate::common::{Bench, plan, run};
use block::{Device, Fua, Lba};
use raid::{ArrayStart, BLOCK_BYTES, Level, assemble};

const MEMBERS: usize = 3;
/// Superblocks, bitmap and journal; less than the space before the data.
const META_BYTES: usize = 1 << 20;
const MAP_AT: usize = 2 * BLOCK_BYTES;
const JOURNAL_AT: usize = 4 * BLOCK_BYTES;
/// Bytes of a record of the journal, with chunks of 64 sectors.
const RECORD_BYTES: usize = BLOCK_BYTES + MEMBERS * 64 * 512;

/// A number that overwrites another.
#[derive(Clone, Copy, Debug)]
pub struct Patch {
    /// The patched member; all of them, if there are not so many.
    pub member: u8,
    /// The patched block: both superblocks, a sector of the bitmap, or the header of a record.
    pub block: u8,
    /// Offset in that.
    pub at: u16,
    /// Number of bytes, from 1 to 8.
    pub bytes: u8,
    pub value: u64,
}

impl Patch {
    fn apply(&self, meta: &mut [u8]) {
        let (bytes, at) = (usize::from(self.bytes), usize::from(self.at));
        let mut put = |from: usize, len: usize, sum_at: usize| {
            let block = &mut meta[from..from + len];
            let at = at % (len - bytes);
            block[at..at + bytes].copy_from_slice(&self.value.to_le_bytes()[..bytes]);
            block[sum_at..sum_at + 4].fill(0);
            let sum = crc32c::crc32c(block);
            block[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
        };
        match self.block {
            0 => [0, BLOCK_BYTES].map(|from| put(from, BLOCK_BYTES, 12)),
            1 => [MAP_AT + at / 512 % 8 * 512; 2].map(|from| put(from, 512, 4)),
            record => {
                let from = JOURNAL_AT + usize::from(record - 2) % 9 * RECORD_BYTES;
                [from; 2].map(|from| put(from, BLOCK_BYTES, 8))
            }
        };
    }
}

async fn meta(bench: &Bench, disk: usize) -> Vec<u8> {
    let buf = bench.env.pool.get(META_BYTES).await;
    let (buf, result) = bench.candidate(disk).device.read(Lba::ZERO, buf).await;
    result.unwrap();
    buf.to_vec()
}

async fn set_meta(bench: &Bench, disk: usize, bytes: &[u8]) {
    let mut buf = bench.env.pool.get(META_BYTES).await;
    buf.copy_from_slice(bytes);
    let device = bench.candidate(disk).device;
    let written = device.write(Lba::ZERO, buf.share(), Fua::Yes).await;
    written.unwrap();
}

/// Assembles an array of patched members and uses it: the use ends, and nothing panics. Returns
/// true if there was an array.
async fn use_patched(bench: &Bench, degraded: bool) -> bool {
    let candidates = bench.candidates(&[0, 1, 2]);
    let start = ArrayStart::by_hand(degraded);
    let options = crate::common::options();
    let Ok(array) = assemble(&bench.env, None, bench.uuid(), candidates, start, options).await
    else {
        return false;
    };
    let sectors = array.geometry().sectors.0;
    for at in [0, sectors / 3 / 64 * 64, sectors - 64.min(sectors)] {
        let len = 64.min(sectors - at);
        let _ = bench.read(&array, at, len).await;
        let _ = bench.write(&array, at, 8, 1).await;
        let _ = bench.write(&array, at / 128 * 128, 128, 2).await;
    }
    let _ = array.flush().await;
    let fresh = bench.uuid();
    let _ = array.add(bench.candidate(3), fresh, true).await;
    bench.sleep(1000).await;
    let _ = array.report();
    let _ = array.close().await;
    true
}

/// Counts those of `cases`, the patches of one array each, that still make an array.
pub fn survivors(level: Level, cases: Vec<(Vec<Patch>, bool)>) -> usize {
    let made = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = made.clone();
    run(1, 1, &[4; MEMBERS + 1], async move |bench| {
        let plan = raid::ArrayPlan {
            zeroed: true,
            ..plan(level)
        };
        let array = bench.make(&plan, &[0, 1, 2], &[]).await.unwrap();
        for at in (0..1024).step_by(64) {
            bench.write(&array, at, 8, 1).await.unwrap();
        }
        drop(array);
        bench.sleep(1000).await;
        let mut whole = Vec::new();
        for disk in 0..=MEMBERS {
            whole.push(meta(&bench, disk).await);
        }
        for (patches, degraded) in &cases {
            for (disk, meta) in whole.iter().enumerate() {
                let mut meta = meta.clone();
                let here = |patch: &&Patch| {
                    usize::from(patch.member) == disk || usize::from(patch.member) >= MEMBERS
                };
                let is_member = disk < MEMBERS;
                let patches = patches.iter().filter(|patch| is_member && here(patch));
                patches.for_each(|patch| patch.apply(&mut meta));
                set_meta(&bench, disk, &meta).await;
            }
            let array = use_patched(&bench, *degraded).await;
            made.set(made.get() + usize::from(array));
            bench.sleep(1000).await;
        }
    });
    counted.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Offsets of numbers in a superblock and in a record's header.
    const FIELDS: [u16; 24] = [
        32, 40, 48, 56, 57, 60, 64, 72, 76, 80, 82, 83, 84, 85, 128, 132, 136, 144, 152, 160, 168,
        640, 2176, 2184,
    ];

    fn patch() -> impl Strategy<Value = Patch> {
        let at = prop_oneof![3 => prop::sample::select(&FIELDS[..]), 1 => any::<u16>()];
        let value = prop_oneof![
            (0..70_u32).prop_map(|bit| 1_u64.checked_shl(bit).unwrap_or(u64::MAX)),
            0..300_u64,
            any::<u64>(),
        ];
        let place = (0..4_u8, prop_oneof![Just(0_u8), 0..12_u8]);
        let bytes = prop::sample::select(&[1_u8, 2, 4, 8][..]);
        (place, at, bytes, value).prop_map(|((member, block), at, bytes, value)| Patch {
            member,
            block,
            at,
            bytes,
            value,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn metadata_that_no_array_has_written_does_no_harm(
            level in prop::sample::select(&Level::ALL[..]),
            cases in prop::collection::vec(
                (prop::collection::vec(patch(), 1..4), any::<bool>()),
                40..80
            )
        ) {
            survivors(level, cases);
        }
    }

    /// A canary: without a patch there is an array, and with one that takes the magic of the
    /// superblocks away there is none.
    #[test]
    fn patches_meet_what_they_are_aimed_at() {
        let magic = Patch {
            member: 9,
            block: 0,
            at: 0,
            bytes: 8,
            value: 0,
        };
        for level in Level::ALL {
            let cases = vec![(vec![], false), (vec![magic], true), (vec![], true)];
            assert_eq!(survivors(level, cases), 2, "{level:?}");
        }
    }
}
