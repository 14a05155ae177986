//! Origins without reservations, and without another host. Those with both are in a guest:
//! `vm/soak/hotset-reservations`.

use crate::common::{Place, USUAL, all, refused, run, until};
use std::fs;

/// The usual place, with a volume that reserves its origin, a file.
fn reserving() -> Place {
    let place = Place::usual();
    place.config(&USUAL.replace("pool = \"fast\"\n", "pool = \"fast\"\nreserve = true\n"));
    place
}

#[test]
fn an_origin_without_reservations_is_said_and_not_served() {
    let place = reserving();
    let file = place.text("hotset.toml");
    let checked = place.command(&format!("check {file}")).output().unwrap();
    let said = all(&checked);
    assert!(checked.status.success(), "{said}");
    let expected = format!(
        "{file}:21: volume vol: {} has no reservations; leave out `reserve`",
        place.text("origin")
    );
    assert!(said.contains(&expected), "{said}");

    let daemon = place.serve();
    let troubles = || daemon.status()["troubles"].clone();
    until("the trouble", || troubles()[0].is_object());
    let trouble = troubles()[0].clone();
    assert_eq!(trouble["kind"], "volume-not-served", "{trouble}");
    let what = trouble["what"].as_str().unwrap();
    assert!(what.contains("has no persistent reservations"), "{what}");
    assert!(what.contains("leave out `reserve`"), "{what}");
    let takeover = &mut place.command("volume takeover vol --yes");
    refused(takeover, 1, &["no persistent reservations"]);

    // Without the setting, the same origin is served.
    run(&mut place.command("volume remove vol"));
    place.config(USUAL);
    run(&mut place.command("reload"));
    until("service", || daemon.status()["volumes"][0].is_object());
    refused(takeover, 1, &["volume vol is served"]);
    let log = daemon.stop();
    let lines = log.matches("has no persistent reservations").count();
    assert_eq!(lines, 1, "{log}");
}

#[test]
fn a_takeover_needs_to_be_confirmed_and_a_volume_that_reserves() {
    let place = Place::usual();
    place.file("second", 16);
    let daemon = place.serve();
    refused(
        &mut place.command("volume takeover vol"),
        2,
        &["give --yes"],
    );
    let unknown = &mut place.command("volume takeover nothing --yes");
    refused(unknown, 1, &["no volume is named nothing"]);
    let before = fs::read_to_string(place.path("hotset.toml")).unwrap();
    let add = format!(
        "volume add more --origin {} --pool fast --reserve",
        place.text("second")
    );
    refused(
        &mut place.command(&add),
        1,
        &["no persistent reservations; leave out"],
    );
    let after = fs::read_to_string(place.path("hotset.toml")).unwrap();
    assert_eq!(after, before);
    assert!(daemon.status()["volumes"][1].is_null());
    daemon.stop();
}
