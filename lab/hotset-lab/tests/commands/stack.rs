//! A few cuts, and a few kills, below a database on a file system on a volume.

use crate::common::{Place, lab, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A directory that the database's user may come to; `None` where there is none.
fn place() -> Option<Place> {
    if let Some(why) = proof::stack::obstacle() {
        println!("skipped: {why}");
        return None;
    }
    let place = Place::new();
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    Some(place)
}

#[test]
fn a_database_recovers_from_cuts_below_the_daemon() {
    let Some(place) = place() else { return };
    let mut command = lab();
    command.args(["stack", "--transactions", "30", "--between", "20"]);
    command.args(["--cuts", "5", "--directory"]);
    let report = run(command.arg(place.path("stack")));
    println!("{report}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["cuts"], 5);
    assert_eq!(report["commits"], 90);
    assert!(report["flushes"].as_u64().unwrap() > 20, "{report}");
}

#[test]
fn a_database_recovers_from_kills_of_the_daemon() {
    let Some(place) = place() else { return };
    let mut command = lab();
    command.args(["stack", "--kills", "2", "--directory"]);
    let report = run(command.arg(place.path("stack")));
    println!("{report}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["rounds"], 2);
    assert_eq!(report["kills_under_load"], 2);
    assert!(report["commits"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn pgbench_runs_on_a_modelled_disk_in_each_mode() {
    let Some(place) = place() else { return };
    let mut command = lab();
    command.args(["stack", "--pgbench", "1", "--seconds", "5", "--directory"]);
    let report = run(command.arg(place.path("stack")));
    println!("{report}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let modes: Vec<_> = report["volumes"].as_array().unwrap().iter().collect();
    let names: Vec<_> = modes.iter().map(|v| v["mode"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["write-through", "ordered", "journaled", "coalesced"]
    );
    for volume in modes {
        assert!(
            volume["transactions_per_s"][0].as_f64().unwrap() > 0.0,
            "{volume}"
        );
    }
}

/// The promises of a write-back volume hold with the log, and without the log on the origin alone.
#[test]
fn a_database_on_a_write_back_volume_recovers_from_kills_and_from_the_loss_of_all_but_the_origin() {
    for (mode, destroys) in [("coalesced", false), ("ordered", true), ("journaled", true)] {
        let Some(place) = place() else { return };
        let mut command = lab();
        command.args(["stack", "--kills", "2", "--mode", mode]);
        command
            .args(destroys.then_some("--destroy"))
            .arg("--directory");
        let report = run(command.arg(place.path("stack")));
        println!("{report}");
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(
            (&report["rounds"], &report["kills_under_load"]),
            (&2.into(), &2.into())
        );
        assert!(report["commits"].as_u64().unwrap() > 0, "{report}");
        assert!(destroys || report["commits_lost"] == 0, "{report}");
    }
}
