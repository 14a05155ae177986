//! Damaged, missing or changed devices beside a log: refused and named, or without any effect.

use super::rig::{DIRTY, RecoverRig, noise};
use super::{ORDERS, pending};
use block::{Boundary, Device, Nanos};
use node::{Platform, RecoverAction};
use simnode::{Direct, RunningNode};
use writelog::Cleaning;

impl RecoverRig {
    /// Changes a disk's bytes.
    fn spoil(&mut self, path: &'static str, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.bytes(path);
        change(&mut bytes);
        self.overwrite(path, bytes);
    }

    /// Spoils a block of a log that the origin lacks.
    fn spoil_record(&mut self, path: &'static str) {
        let block = self.holds[DIRTY][128 << 10..][..4096].to_vec();
        self.spoil(path, |bytes| {
            let mut blocks = bytes.chunks_exact_mut(4096);
            let found = blocks.find(|found| **found == block);
            found.expect("the log has it")[100..600].fill(0xff);
        });
    }

    /// The pool is blank, and so is its witness.
    fn lose_pool(&mut self) {
        self.spoil("/ssd", |bytes| bytes.fill(0));
        let work = async |platform: simnode::SimPlatform| {
            let pool = control::config::Name::new("fast").unwrap();
            let (witness, _hold) = platform.witness(&pool).await.unwrap();
            witness.zero(witness.geometry().extent()).await.unwrap();
            witness.flush().await.unwrap();
        };
        self.run(work).expect("nothing cuts its power");
    }
}

#[test]
fn a_damaged_record_of_the_only_device_is_refused_and_the_other_is_not_forgotten() {
    for order in ORDERS {
        let mut rig = RecoverRig::new(order);
        rig.machine.pull("/log1");
        rig.spoil_record("/log0");
        let before = rig.bytes("/log0");
        for _ in 0..3 {
            let why = rig.serve().unwrap_err();
            let named = [
                "db is not served",
                "log0 is damaged",
                "attach log1",
                "`--write-back`",
            ];
            assert!(named.iter().all(|text| why.contains(text)), "{why}");
        }
        assert!(rig.bytes("/log0") == before, "a refused start wrote to it");
        rig.looks(&[
            "no device that is here has record",
            "of dirty data for archive. `--write-back`",
        ]);
        rig.machine.give_back("/log1");
        let (held, copies) = rig.serve().expect("it is served");
        assert!(held == rig.holds[..held.len()] && copies == 2);
        rig.has_it_all(2);
    }
}

#[test]
fn whoever_asks_gets_what_is_not_damaged_and_the_rest_is_named() {
    for order in ORDERS {
        let mut rig = RecoverRig::new(order);
        rig.machine.pull("/log1");
        rig.spoil_record("/log0");
        let said = rig
            .recover(RecoverAction::WriteBack, Some("/spare"))
            .unwrap();
        assert!(said.contains("but not record"), "{said}");
        let image = rig.medium("/spare", true)[DIRTY].to_vec();
        let said = rig.recover(RecoverAction::WriteBack, None).unwrap();
        assert!(said.contains("but not record"), "{said}");
        let origin = rig.medium("/archive", true)[DIRTY].to_vec();
        assert!(image == origin, "the image and the origin differ");
        let blocks = origin
            .chunks_exact(64 << 10)
            .zip(rig.holds[DIRTY].chunks_exact(64 << 10));
        assert_eq!(blocks.filter(|(has, held)| has == held).count(), 3);
        // The volume begins with another log.
        rig.machine.give_back("/log1");
        let (_, copies) = rig.serve().expect("it is served");
        assert_eq!(copies, 2);
        assert!(rig.medium("/archive", true)[DIRTY] == origin);
    }
}

#[test]
fn zeroes_and_discards_are_dirty_as_data_is() {
    for discards in [false, true] {
        let mut rig = RecoverRig::new(Cleaning::Ordered);
        rig.holds[DIRTY].fill(0);
        let config = rig.config.clone();
        let lived = rig.run(async move |platform| {
            let frontend = Direct::new(platform.local());
            let node = RunningNode::start(&config, platform, frontend.clone());
            let node = node.await.expect("it starts");
            let client = frontend.client("db").expect("it is served");
            let (at, bytes) = (DIRTY.start as u64, DIRTY.len() as u64);
            let cleared = match discards {
                true => client.gate().discard(at, bytes).await,
                false => client.gate().zero(at, bytes).await,
            };
            cleared.expect("it is cleared");
            client.gate().flush().await.expect("a flush");
            let status = node.status().await.expect("a status");
            let log = status.volumes[0].write_back.as_ref().expect("its log");
            assert_eq!(log.dirty_bytes, bytes);
        });
        lived.expect("nothing cuts its power");
        rig.looks(&[
            "volume db: 256 KiB of dirty data for archive, the oldest",
            "`--discard` discards it",
        ]);
        let mut given_up = RecoverRig::new(Cleaning::Ordered);
        std::mem::swap(&mut given_up, &mut rig);
        let said = given_up.recover(RecoverAction::Discard, None).unwrap();
        assert!(
            said.contains("256 KiB of dirty data for archive discarded"),
            "{said}"
        );
    }
}

#[test]
fn a_log_is_not_given_up_while_its_journal_is_away() {
    let mut rig = pending();
    rig.machine.pull("/journal");
    let why = [
        "is not discarded: journal is away",
        "`--write-back`",
        "without `journal`",
    ];
    rig.refused(RecoverAction::Discard, None, &why);
    rig.machine.give_back("/journal");
    rig.recover(RecoverAction::Discard, None).unwrap();
    rig.lose_witness();
    rig.has_it_all(2);
}

#[test]
fn a_changed_origin_is_known_though_the_pool_and_its_file_are_lost() {
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    let changed = noise(9, rig.holds.len());
    rig.overwrite("/archive", changed.clone());
    rig.lose_pool();
    for _ in 0..2 {
        let why = rig.serve().unwrap_err();
        assert!(why.contains("/archive was changed elsewhere"), "{why}");
    }
    rig.looks(&[
        "archive was changed elsewhere",
        "256 KiB of dirty data would overwrite it",
    ]);
    assert!(
        rig.medium("/archive", true) == changed,
        "it was overwritten"
    );
    // Also with the unchanged pool alone.
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    rig.lose_pool();
    let (held, _) = rig.serve().expect("it is served");
    assert!(held == rig.holds[..held.len()]);
    rig.has_it_all(2);
}

#[test]
fn noise_in_a_first_superblock_has_no_effect() {
    let whole = |bytes: &mut [u8]| bytes[..512].copy_from_slice(&noise(5, 512));
    let bit = |bytes: &mut [u8]| bytes[3] ^= 0x10;
    for path in ["/log0", "/log1", "/journal"] {
        for change in [&whole as &dyn Fn(&mut [u8]), &bit] {
            let mut rig = RecoverRig::new(Cleaning::Journaled);
            rig.spoil(path, change);
            let (held, copies) = rig.serve().expect("it is served");
            assert!(held == rig.holds[..held.len()] && copies == 2, "{path}");
            rig.has_it_all(2);
        }
    }
    // Nor if no other place records that.
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    rig.spoil("/log0", whole);
    rig.machine.pull("/log1");
    rig.recover(RecoverAction::WriteBack, None).unwrap();
    rig.has_it_all(1);
}

/// The origin is another for a day, and each attempt to serve the volume is refused.
#[test]
fn thousands_of_refused_openings_leave_a_log_as_it_was() {
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    let own = rig.bytes("/archive");
    rig.overwrite("/archive", noise(9, rig.holds.len()));
    let before = rig.everything();
    let config = rig.config.clone();
    let openings = rig.machine.openings("/log0");
    for _ in 0..140 {
        let config = config.clone();
        let lived = rig.run(async move |platform| {
            let env = platform.local().env();
            let frontend = Direct::new(platform.local());
            let node = RunningNode::start(&config, platform, frontend.clone());
            let _node = node.await.expect("it starts");
            env.timer.sleep(Nanos::from_secs(590)).await;
            assert!(frontend.client("db").is_none(), "it is served");
        });
        lived.expect("nothing cuts its power");
    }
    let openings = rig.machine.openings("/log0") - openings;
    assert!(openings > 5000, "{openings}");
    let logs = |all: &[Vec<u8>]| all[2..4].to_vec();
    assert!(
        logs(&rig.everything()) == logs(&before),
        "a log was written"
    );
    rig.overwrite("/archive", own);
    let (held, _) = rig.serve().expect("it is served");
    assert!(held == rig.holds[..held.len()]);
    rig.has_it_all(2);
}
