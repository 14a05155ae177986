//! Operations of RAID 5 for a stripe, and operations that it can do without.

use crate::common::{Bench, drive, plan, run, slow, strike};
use block::{Extent, IoErrorKind, Lba, Nanos, Sectors};
use futures_util::future::join;
use raid::{Array, ArrayPlan, Level};
use sim::{FaultEffect, FaultRule, OpFilter, When};

/// A stripe's data on three members with chunks of 64 sectors.
const STRIPE: u64 = 128;
/// Beginning of the records on a member, and the sectors of each.
const JOURNAL: u64 = 32;
const RECORD: u64 = 8 + 3 * 64;

/// Runs `test` on an array of three members while their first refuses `ops` within `within`.
fn refusing(
    (ops, when): (OpFilter, When),
    within: &[Option<Extent>],
    test: impl AsyncFn(Bench, Array) + Clone + 'static,
) {
    let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        array.close().await.unwrap();
    });
    let rule = |within: &Option<Extent>| FaultRule {
        disk: disks[0],
        ops,
        within: *within,
        when,
        effect: FaultEffect::Fail(IoErrorKind::Other),
    };
    strike(&mut sim, within.iter().map(rule).collect());
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble(&[0, 1, 2]).await.unwrap();
        test(bench, array).await;
    });
}

/// Returns the stripe of which the first member has the parity.
fn stripe_of_the_first(array: &Array) -> u64 {
    let stripe = (0..3).find(|number| array.shape().stripe(*number).parity == 0);
    stripe.expect("parity takes turns") * STRIPE
}

#[test]
fn only_a_part_of_a_stripe_is_journaled() {
    let bytes = |record| Extent::new(Lba(JOURNAL + record * RECORD + 16), Sectors(RECORD - 16));
    let bytes: Vec<_> = (0..16).map(|record| Some(bytes(record))).collect();
    let writes = (OpFilter::Writes, When::Always);
    refusing(writes, &bytes, async |bench, array| {
        let at = stripe_of_the_first(&array);
        for byte in 1..4 {
            bench.write(&array, at, STRIPE, byte).await.unwrap();
        }
        assert!(array.is_settled(), "what is written whole needs no bytes");
        bench.write(&array, at, STRIPE - 1, 9).await.unwrap();
        assert!(!array.is_settled(), "what is written in part does");
        assert!(bench.holds(&array, at, STRIPE - 1, 9).await);
    });
}

/// The sums of a whole stripe would not fit its data after a write of a part.
#[test]
fn a_part_of_a_stripe_waits_until_no_record_of_the_whole_counts() {
    // A start flushes twice.
    let flush = (OpFilter::Flushes, When::Nth(3));
    refusing(flush, &[None], async |bench, array| {
        let at = stripe_of_the_first(&array);
        bench.write(&array, at + 3 * STRIPE, 8, 1).await.unwrap();
        bench.write(&array, at + 3 * STRIPE, 8, 2).await.unwrap();
        bench.write(&array, at, STRIPE, 3).await.unwrap();
        bench.write(&array, at, STRIPE, 4).await.unwrap();
        bench.write(&array, at + 3 * STRIPE, 8, 5).await.unwrap();
        assert!(array.is_settled(), "nothing asked for a flush");
        bench.write(&array, at, 8, 6).await.unwrap();
        assert!(!array.is_settled(), "the records were not flushed");
    });
}

#[test]
fn chunks_longer_than_what_is_computed_at_once_are_computed_whole() {
    run(2, 1, &[72; 3], async |bench| {
        let long = ArrayPlan {
            chunk: Sectors(2400),
            ..plan(Level::Raid5)
        };
        let array = bench.make(&long, &[0, 1, 2], &[]).await.unwrap();
        // Each member has the parity of some.
        let chunks = 9;
        for chunk in 0..chunks {
            let at = chunk * 2400;
            for part in 0..3 {
                let byte = (chunk * 3 + part) as u8 + 1;
                bench
                    .write(&array, at + part * 800, 800, byte)
                    .await
                    .unwrap();
            }
        }
        array.fail(1).await.unwrap();
        for chunk in 0..chunks {
            let read = bench.read(&array, chunk * 2400, 2400).await.unwrap();
            for (part, bytes) in read.chunks(800 * 512).enumerate() {
                let byte = chunk as u8 * 3 + part as u8 + 1;
                assert!(
                    bytes.iter().all(|b| *b == byte),
                    "chunk {chunk}, part {part}"
                );
            }
        }
    });
}

/// Its record has the bytes of the stripe then, and needs more memory than was granted.
#[test]
fn a_whole_stripe_is_written_though_a_member_is_lost_while_it_waits() {
    let (mut sim, disks) = run(14, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        array.close().await.unwrap();
    });
    let delay = Nanos::from_millis(10);
    slow(&mut sim, &disks, OpFilter::Writes, None, delay);
    drive(&mut sim, &disks, async |bench| {
        let array = bench.assemble(&[0, 1, 2]).await.unwrap();
        bench.write(&array, 0, STRIPE, 1).await.unwrap();
        let write = |byte| bench.write(&array, 0, STRIPE, byte);
        let lose = async {
            bench.sleep(5).await;
            array.fail(1).await.unwrap();
        };
        let ((first, second), ()) = join(join(write(2), write(3)), lose).await;
        first.unwrap();
        second.unwrap();
        assert!(bench.holds(&array, 0, STRIPE, 3).await);
    });
}
