//! `pool recover` on a write-back volume of a simulated machine without a daemon: inspected,
//! written back, discarded, and written to another place.

mod doubts;
mod rig;

use super::logged::LOG_MIB;
use block::{Boundary, Fua, Nanos};
use node::{Platform, RecoverAction};
use rig::{ALL, BYTES, DIRTY, RecoverRig, SIZE, configured, noise, recovered, text_of};
use simnode::{Direct, RunningNode, SimPlatform};
use writelog::Cleaning;

const ORDERS: [Cleaning; 3] = [Cleaning::Ordered, Cleaning::Coalesced, Cleaning::Journaled];

#[test]
fn dirty_data_is_written_back_without_a_daemon() {
    for order in ORDERS {
        let mut rig = RecoverRig::new(order);
        rig.looks(&[
            "log0: a copy that counts",
            "volume db: 256 KiB of dirty data for archive",
            "`hotset serve` writes it back, and so does `--write-back`; `--discard` discards it",
        ]);
        let said = rig.recover(RecoverAction::WriteBack, None).unwrap();
        assert!(
            said.contains("256 KiB of dirty data written back to archive"),
            "{said}"
        );
        rig.looks(&["volume db: no dirty data for archive"]);
        rig.has_it_all(2);
    }
}

#[test]
fn of_a_lone_copy_that_nothing_says_is_current_the_operator_decides() {
    for order in ORDERS {
        let mut rig = RecoverRig::new(order);
        rig.lose_witness();
        rig.machine.pull("/log1");
        let why = rig.serve().unwrap_err();
        let named = [
            "log1 may have what its origin does not have",
            "`--write-back`",
            "`--discard`",
        ];
        assert!(named.iter().all(|text| why.contains(text)), "{why}");
        rig.looks(&[
            "log1: cannot be used",
            "log1 may have what its origin does not have",
            "volume db: not served, 256 KiB of dirty data for archive. `--write-back`",
        ]);
        rig.recover(RecoverAction::WriteBack, None).unwrap();
        rig.has_it_all(1);
        // The device that was away is not trusted any more.
        rig.machine.give_back("/log1");
        rig.has_it_all(2);
    }
}

#[test]
fn an_origin_that_was_changed_elsewhere_is_overwritten_if_that_is_asked_for() {
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    let changed = noise(9, SIZE);
    rig.overwrite("/archive", changed.clone());
    // A refused start leaves nothing that would hide the change from the next start.
    rig.serve().unwrap_err();
    let why = rig.serve().unwrap_err();
    let named = [
        "/archive was changed elsewhere",
        "256 KiB of dirty data would overwrite it",
        "`--write-back`",
    ];
    assert!(named.iter().all(|text| why.contains(text)), "{why}");
    rig.looks(&[
        "archive was changed elsewhere",
        "256 KiB of dirty data would overwrite it",
        "`--write-back`",
    ]);
    rig.recover(RecoverAction::WriteBack, None).unwrap();
    let dirty = rig.holds[DIRTY].to_vec();
    rig.holds = changed;
    rig.holds[DIRTY].copy_from_slice(&dirty);
    rig.has_it_all(2);
}

#[test]
fn another_origin_gets_dirty_data_if_that_is_asked_for() {
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    let text = text_of(Cleaning::Ordered);
    rig.config = configured(&text.replace("path = \"/archive\"", "path = \"/other\""));
    let other = noise(9, SIZE);
    rig.overwrite("/other", other.clone());
    let why = rig.serve().unwrap_err();
    let named = ["this is another device", "`--write-back`", "`--discard`"];
    assert!(named.iter().all(|text| why.contains(text)), "{why}");
    let first = rig.bytes("/archive");
    rig.looks(&[
        "this is another device",
        "256 KiB of dirty data for archive",
    ]);
    rig.recover(RecoverAction::WriteBack, None).unwrap();
    assert!(
        rig.bytes("/archive") == first,
        "its former origin was written"
    );
    let mut expected = other;
    expected[DIRTY].copy_from_slice(&rig.holds[DIRTY]);
    assert!(rig.medium("/other", true) == expected);
    let (held, _) = rig.serve().expect("it is served");
    assert!(held == expected[..BYTES]);
}

/// Discarded dirty data of another origin leaves the present origin unchanged.
#[test]
fn another_origin_is_gone_on_from_if_that_is_asked_for() {
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    let text = text_of(Cleaning::Ordered);
    rig.config = configured(&text.replace("path = \"/archive\"", "path = \"/other\""));
    let other = noise(9, SIZE);
    rig.overwrite("/other", other.clone());
    let said = rig.recover(RecoverAction::Discard, None).unwrap();
    assert!(
        said.contains("256 KiB of dirty data for archive discarded"),
        "{said}"
    );
    rig.lose_witness();
    let (held, copies) = rig.serve().expect("it is served");
    assert!(held == other[..BYTES] && copies == 2);
}

/// A daemon without the first device writes all back, and then the second device fails. Two blank
/// devices then suffice.
#[test]
fn what_has_carried_out_all_by_one_copy_needs_neither() {
    for order in ORDERS {
        let mut rig = RecoverRig::new(order);
        rig.machine.pull("/log0");
        let (config, machine) = (rig.config.clone(), rig.machine.clone());
        let lived = rig.run(async move |platform| {
            let env = platform.local().env();
            let frontend = Direct::new(platform.local());
            let node = RunningNode::start(&config, platform, frontend.clone());
            let _node = node.await.expect("it starts");
            frontend.client("db").expect("by the other copy");
            env.timer.sleep(Nanos::from_secs(5)).await;
            machine.pull("/log1");
        });
        lived.expect("nothing cuts its power");
        let why = rig.serve().unwrap_err();
        assert!(why.contains("needs both devices: "), "{why}");
        for log in ["/log0", "/log1"] {
            rig.machine.give_back(log);
            rig.overwrite(log, vec![0; (LOG_MIB as usize) << 20]);
        }
        rig.has_it_all(2);
    }
}

#[test]
fn what_is_known_to_be_overtaken_is_not_carried_out() {
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    // The first device is lost, and the power is cut before the origin has anything.
    let (config, machine) = (rig.config.clone(), rig.machine.clone());
    let lived = rig.run(async move |platform| {
        let env = platform.local().env();
        let frontend = Direct::new(platform.local());
        let node = RunningNode::start(&config, platform, frontend.clone());
        let _node = node.await.expect("it starts");
        let client = frontend.client("db").expect("it is served");
        machine.pull("/log0");
        let data = env.pool.get(4096).await.share();
        let written = client.gate().write(0, data, Fua::No);
        let soon = env.timer.timeout(Nanos::from_millis(2), written);
        assert!(soon.await.is_none(), "the origin has all");
    });
    lived.expect("nothing cuts its power");
    rig.machine.give_back("/log0");
    rig.machine.pull("/log1");
    // Writes in flight have landed, and the pulled device has lost its unflushed writes.
    let landed = async |platform: SimPlatform| {
        let timer = platform.local().env().timer;
        timer.sleep(Nanos::from_secs(1)).await;
    };
    rig.run(landed).expect("nothing cuts its power");
    rig.refused(
        RecoverAction::WriteBack,
        None,
        &["nothing can be written back", "is on log1"],
    );

    let mut rig = RecoverRig::new(Cleaning::Ordered);
    rig.machine.pull("/log0");
    rig.machine.pull("/log1");
    let nothing = [
        "nothing can be written back",
        "is on log0 and log1",
        "`--discard`",
    ];
    rig.refused(RecoverAction::WriteBack, None, &nothing);
    rig.refused(RecoverAction::WriteBack, Some("/spare"), &nothing);
    rig.looks(&[
        "log0: cannot be used",
        "volume db: its dirty data for archive is lost",
    ]);
}

#[test]
fn what_an_origin_has_no_room_for_is_not_carried_out() {
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    let text = text_of(Cleaning::Ordered);
    let smaller = "name = \"db\"\nsize = \"512KiB\"";
    rig.config = configured(&text.replace("name = \"db\"", smaller));
    let why = ["had 65536 sectors; 1024 are wanted", "`--discard`"];
    rig.refused(RecoverAction::WriteBack, None, &why);
}

#[test]
fn dirty_data_goes_to_another_place_and_nothing_else_is_changed() {
    for order in ORDERS {
        let mut rig = RecoverRig::new(order);
        rig.lose_witness();
        rig.machine.pull("/log0");
        let mut before = rig.everything();
        let said = rig
            .recover(RecoverAction::WriteBack, Some("/spare"))
            .unwrap();
        assert!(
            said.contains("/spare is a copy of archive with the 256 KiB"),
            "{said}"
        );
        assert!(rig.medium("/spare", true)[..SIZE] == rig.holds);
        let spare = ALL.iter().position(|path| *path == "/spare").unwrap();
        before[spare] = rig.bytes("/spare");
        assert!(rig.everything() == before, "something else was changed");
        rig.machine.give_back("/log0");
        rig.recover(RecoverAction::WriteBack, None).unwrap();
        rig.has_it_all(2);
    }
}

#[test]
fn a_place_that_is_in_use_or_too_small_gets_nothing() {
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    for action in [RecoverAction::WriteBack, RecoverAction::Discard] {
        let to = match action {
            RecoverAction::WriteBack => Some("/archive"),
            _ => Some("/spare"),
        };
        let why = match action {
            RecoverAction::WriteBack => "/archive is archive of the configuration",
            _ => "no journal has anything to replay: copy archive",
        };
        rig.refused(action, to, &[why]);
    }
    for (path, why) in [
        ("/ssd", "/ssd is ssd of the configuration"),
        ("/log1", "/log1 is log1 of the configuration"),
        ("/journal", "/journal is journal of the configuration"),
        ("/small", "/small has 31 MiB, and the origin 32 MiB"),
        ("/none", "is no disk of this machine"),
    ] {
        rig.refused(RecoverAction::WriteBack, Some(path), &[why]);
    }
    rig.overwrite("/spare", noise(3, 4096));
    rig.refused(RecoverAction::WriteBack, Some("/spare"), &["/spare holds"]);
}

/// A group that is committed and not written back, if the daemon is killed in time.
fn pending() -> RecoverRig {
    let mut rig = RecoverRig::new(Cleaning::Journaled);
    for millis in 1..200 {
        let config = rig.config.clone();
        let lived = rig.run(async move |platform| {
            let env = platform.local().env();
            let frontend = Direct::new(platform.local());
            let node = RunningNode::start(&config, platform, frontend.clone());
            let node = node.await.expect("it starts");
            let drained = node.ask(control::protocol::ControlRequest::Quiesce {
                volume: "db".into(),
            });
            let _ = env.timer.timeout(Nanos::from_millis(millis), drained).await;
        });
        lived.expect("nothing cuts its power");
        let said = rig.recover(RecoverAction::Inspect, None).unwrap();
        if said.contains("a group to replay") {
            return rig;
        }
    }
    panic!("no group is ever pending");
}

#[test]
fn a_group_that_is_pending_goes_to_another_place_or_to_the_origin() {
    let mut rig = pending();
    let mut before = rig.everything();
    let said = rig.recover(RecoverAction::Discard, Some("/spare")).unwrap();
    assert!(said.contains("an earlier state"), "{said}");
    assert!(rig.medium("/spare", true)[..SIZE] == rig.holds);
    let spare = ALL.iter().position(|path| *path == "/spare").unwrap();
    before[spare] = rig.bytes("/spare");
    assert!(rig.everything() == before, "something else was changed");
    // The pool has the origin's earlier bytes.
    rig.recover(RecoverAction::Discard, None).unwrap();
    rig.lose_witness();
    rig.has_it_all(2);
}

#[test]
fn an_origin_that_fails_meanwhile_gets_the_rest_later() {
    let mut rig = RecoverRig::new(Cleaning::Ordered);
    let (machine, work) = (
        rig.machine.clone(),
        recovered(rig.config.clone(), RecoverAction::WriteBack, None),
    );
    let said = rig.run(async move |platform: SimPlatform| {
        let env = platform.local().env();
        let timer = env.timer.clone();
        env.spawn.spawn(async move {
            while machine.openings("/ssd") < 2 {
                timer.sleep(Nanos::from_micros(100)).await;
            }
            machine.pull("/archive");
        });
        work(platform).await
    });
    let why = said.expect("nothing cuts its power").unwrap_err();
    assert!(why.contains("/archive") || why.contains("archive"), "{why}");
    rig.machine.give_back("/archive");
    rig.recover(RecoverAction::WriteBack, None).unwrap();
    rig.has_it_all(2);
}

#[test]
fn a_recovery_that_is_cut_short_is_repeated() {
    for order in ORDERS {
        let mut rig = RecoverRig::new(order);
        rig.lose_witness();
        rig.machine.pull("/log1");
        let mut ended = false;
        let mut cuts = 0;
        for millis in 1..400 {
            let (machine, work) = (
                rig.machine.clone(),
                recovered(rig.config.clone(), RecoverAction::WriteBack, None),
            );
            let done = rig.run(async move |platform: SimPlatform| {
                let env = platform.local().env();
                let timer = env.timer.clone();
                env.spawn.spawn(async move {
                    timer.sleep(Nanos::from_millis(millis)).await;
                    machine.cut_power();
                });
                work(platform).await
            });
            match done {
                None => cuts += 1,
                Some(done) => {
                    done.unwrap();
                    ended = true;
                    break;
                }
            }
        }
        assert!(ended && cuts > 5, "{order:?}: {cuts} cuts");
        rig.has_it_all(1);
    }
}
