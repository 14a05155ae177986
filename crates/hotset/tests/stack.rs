//! A few cuts of a database on a file system on a volume.

mod common;

use common::{Place, hotset, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_database_recovers_from_cuts_below_the_daemon() {
    if let Some(why) = lab::stack::obstacle() {
        println!("skipped: {why}");
        return;
    }
    let place = Place::new();
    // The database's user comes here too.
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = hotset();
    command.args(["lab", "stack", "--transactions", "30", "--between", "20"]);
    command.args(["--cuts", "5", "--directory"]);
    let report = run(command.arg(place.path("stack")));
    println!("{report}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["cuts"], 5);
    assert_eq!(report["commits"], 90);
    assert!(report["flushes"].as_u64().unwrap() > 20, "{report}");
}
