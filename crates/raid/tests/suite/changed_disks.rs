//! Members that come back as other disks than they were.

use crate::common::{Bench, refused, run_on};
use block::{Device, Fua, Lba};
use raid::{Level, MemberState};

/// Copies all data of disk `from`, as a move to another disk does.
async fn copy(bench: &Bench, from: usize, to: usize) {
    let (from, to) = (bench.candidate(from).device, bench.candidate(to).device);
    let sectors = from.geometry().sectors.min(to.geometry().sectors).0;
    for at in (0..sectors).step_by(1024) {
        let buf = bench.env.pool.get(1024 * 512).await;
        let (buf, result) = from.read(Lba(at), buf).await;
        result.unwrap();
        to.write(Lba(at), buf.share(), Fua::No).await.unwrap();
    }
}

/// Such a member could not take a write of 512 bytes.
#[test]
fn a_member_whose_logical_blocks_grew_counts_as_absent_and_is_named() {
    run_on(1, &[(8, 1), (8, 1), (8, 8)], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.write(&array, 0, 64, 1).await.unwrap();
        array.close().await.unwrap();
        drop(array);
        copy(&bench, 1, 2).await;
        let array = bench.assemble(&[0, 2]).await.unwrap();
        let report = array.report();
        assert!(report.members[1].state.is_failed(), "{report:?}");
        assert_eq!(report.members[1].device, None);
        let (events, _) = array.events();
        let message = |text: &str| events.iter().any(|event| event.what.contains(text));
        assert!(
            message("disk-2 has logical blocks of 4096 bytes"),
            "{events:?}"
        );
        bench.write(&array, 3, 1, 2).await.unwrap();
        assert_eq!(array.report().members[0].state, MemberState::InSync);
        // Nor does the member come back while the array runs.
        let added = array.add(bench.candidate(2), bench.uuid(), false).await;
        let why = refused(added);
        assert!(why.contains("logical blocks of 4096 bytes"), "{why}");
        // The disk as it was takes its place again.
        array
            .add(bench.candidate(1), bench.uuid(), false)
            .await
            .unwrap();
        bench.settled(&array).await;
    });
}

/// A mirror is not started on a leg that it cannot write, although no other leg has all data.
#[test]
fn an_array_that_needs_the_changed_disk_says_which_it_is() {
    run_on(1, &[(8, 1), (8, 1), (8, 8)], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.close().await.unwrap();
        drop(array);
        copy(&bench, 1, 2).await;
        let why = refused(bench.assemble(&[2]).await);
        assert!(
            why.contains("disk-2 has logical blocks of 4096 bytes"),
            "{why}"
        );
    });
}
