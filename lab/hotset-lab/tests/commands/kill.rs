//! A few rounds of the laboratory that kills real daemons.

use crate::common::{Place, lab, run};

#[test]
fn killed_daemons_lose_nothing() {
    let place = Place::new();
    let mut command = lab();
    command.args(["kill", "--rounds", "6", "--seed", "1", "--directory"]);
    let report = run(command.arg(place.path("kill")));
    println!("{report}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["rounds"], 6);
    assert!(report["requests"].as_u64().unwrap() > 1000, "{report}");
    assert!(report["fio_verified"].as_u64().unwrap() > 0, "{report}");
}
