//! Every array is still a device.

use crate::common::{Bench, options, run};
use block::conformance::{device, gate};
use block::{BoxDevice, Sectors};
use raid::{Array, Level, MemberCandidate, raw};

const SEEDS: [(u64, u64); 2] = [(1, 1), (2, 8)];

fn passes(level: Level, members: usize) {
    for (seed, block) in SEEDS {
        run(seed, block, &vec![8; members], async move |bench| {
            let roles: Vec<_> = (0..members).collect();
            let array = bench.create(level, &roles, &[]).await.unwrap();
            device(&array, &bench.env, seed).await;
        });
    }
}

#[test]
fn linear_passes() {
    passes(Level::Linear, 3);
}

#[test]
fn raid0_passes() {
    passes(Level::Raid0, 3);
}

#[test]
fn raid1_passes() {
    passes(Level::Raid1, 2);
    passes(Level::Raid1, 4);
}

#[test]
fn raid10_passes() {
    passes(Level::Raid10, 4);
    passes(Level::Raid10, 3);
}

#[test]
fn raid5_passes() {
    passes(Level::Raid5, 3);
    passes(Level::Raid5, 5);
}

#[test]
fn raid5_passes_without_a_member() {
    for (seed, block) in SEEDS {
        run(seed, block, &[8; 4], async move |bench| {
            let array = bench
                .create(Level::Raid5, &[0, 1, 2, 3], &[])
                .await
                .unwrap();
            array.fail(2).await.unwrap();
            device(&array, &bench.env, seed).await;
        });
    }
}

#[test]
fn raid5_passes_while_a_member_is_filled() {
    run(3, 1, &[8; 5], async move |bench| {
        let array = bench
            .create(Level::Raid5, &[0, 1, 2, 3], &[4])
            .await
            .unwrap();
        array.fail(2).await.unwrap();
        device(&array, &bench.env, 3).await;
        bench.settled(&array).await;
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
    });
}

async fn nested(bench: &Bench, members: &[usize]) -> MemberCandidate {
    let stripe = raw(
        &bench.env,
        &format!("stripe-{}", members[0]),
        Level::Raid0,
        bench.candidates(members),
        Sectors(64),
        options(),
    )
    .await;
    let domain = format!("controller-{}", members[0]);
    MemberCandidate::new(BoxDevice::new(stripe.unwrap()), domain)
}

async fn mirror_of_stripes(bench: &Bench) -> Array {
    let plan = raid::ArrayPlan {
        name: "mirror".into(),
        level: Level::Raid1,
        chunk: Sectors(64),
        overwrite: false,
        zeroed: false,
    };
    let legs = vec![nested(bench, &[0, 1]).await, nested(bench, &[2, 3]).await];
    let mut fresh = || bench.uuid();
    raid::create(&bench.env, &plan, legs, Vec::new(), &mut fresh, options())
        .await
        .unwrap()
}

#[test]
fn a_mirror_of_stripes_passes() {
    for (seed, block) in SEEDS {
        run(seed, block, &[8; 4], async move |bench| {
            let array = mirror_of_stripes(&bench).await;
            device(&array, &bench.env, seed).await;
        });
    }
}

#[test]
fn the_gate_keeps_the_contract_of_an_array_below() {
    run(5, 8, &[8; 3], async move |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        gate(array, &bench.env, 5).await;
    });
}
