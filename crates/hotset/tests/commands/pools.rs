//! Pools that come and go while a daemon serves clients.

use crate::common::{
    Place, USUAL, copy_in, copy_out, faultless, fio, hotset, noise, refused, run, tool, until,
};
use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// A daemon that has nothing yet.
const NOTHING: &str = r#"
[daemon]
control = "$/control"
state = "$/state"
buffers = "64MiB"
[[listen]]
unix = "$/nbd"
"#;

fn nothing() -> Place {
    let place = Place::new();
    place.config(NOTHING);
    for (name, mib) in [("origin", 64), ("ssd0", 64), ("ssd1", 64)] {
        place.file(name, mib);
    }
    place
}

fn written(place: &Place) -> String {
    fs::read_to_string(place.path("hotset.toml")).unwrap()
}

#[test]
fn a_pool_is_made_is_kept_over_a_restart_and_goes_without_one() {
    let place = nothing();
    let daemon = place.serve();
    let (ssd0, ssd1) = (place.text("ssd0"), place.text("ssd1"));
    let add = format!("pool add cache {ssd0} {ssd1} --line-size 32KiB --policy lru");
    run(&mut place.command(&add));
    let status = daemon.status();
    assert_eq!(status["pools"][0]["name"], "cache");
    assert_eq!(status["pools"][0]["line_bytes"], 32 << 10);
    assert_eq!(status["pools"][0]["policy"], "lru");
    assert_eq!(status["pools"][0]["devices"].as_array().unwrap().len(), 2);
    refused(
        &mut place.command(&add),
        1,
        &["a second pool is named cache", "each its own name"],
    );

    let origin = place.text("origin");
    run(&mut place.command(&format!("volume add vol --origin {origin} --pool cache")));
    let image = place.path("image");
    fs::write(&image, noise(1, 8 << 20)).unwrap();
    copy_in(&image, &place.uri("vol"));
    let read = || copy_out(&place.uri("vol"), &place.path("copy"));
    assert_eq!(read()[..8 << 20], noise(1, 8 << 20));
    daemon.stop();

    let daemon = place.serve();
    assert_eq!(read()[..8 << 20], noise(1, 8 << 20));
    let before = daemon.count("blocks_hit");
    read();
    assert!(daemon.count("blocks_hit") > before);
    refused(
        &mut place.command("pool remove cache"),
        1,
        &["volume vol is cached in pool cache", "remove that first"],
    );
    run(&mut place.command("volume remove vol"));
    run(&mut place.command("pool remove cache"));
    assert_eq!(daemon.status()["pools"].as_array().unwrap().len(), 0);
    assert!(!written(&place).contains("[[pool]]"));
    // The writes of others meanwhile are never hidden by old lines of the pool.
    fs::write(place.path("origin"), noise(2, 64 << 20)).unwrap();
    run(&mut place.command("pool add cache ssd0 ssd1"));
    run(&mut place.command("volume add vol --origin origin --pool cache"));
    assert_eq!(read(), noise(2, 64 << 20));
    assert_eq!(daemon.status()["nbd"]["errors"], 0);
    daemon.stop();
}

#[test]
fn a_device_with_hardly_any_room_is_reported_and_one_with_none_refused() {
    let place = nothing();
    place.file("tiny", 1);
    fs::write(place.path("none"), [0; 128 << 10]).unwrap();
    let daemon = place.serve();
    let before = written(&place);
    let [tiny, none, ssd] = ["tiny", "none", "ssd0"].map(|name| place.text(name));
    let none = format!("pool add cache {none}");
    refused(
        &mut place.command(&none),
        1,
        &["too small for a line", "give it more room"],
    );
    assert_eq!(written(&place), before);
    let said = run(&mut place.command(&format!("pool add cache {tiny}")));
    assert!(
        said.contains("lines of 64 KiB alone, which keep hardly anything"),
        "{said}"
    );
    let check = run(hotset()
        .arg("check")
        .arg("--alone")
        .arg(place.path("hotset.toml")));
    assert!(check.contains("no problem found"), "{check}");
    let said = run(&mut place.command(&format!("pool add-device cache {ssd}")));
    assert!(!said.contains("hardly anything"), "{said}");
    place.file("small", 1);
    let small = place.text("small");
    let said = run(&mut place.command(&format!("pool add-device cache {small}")));
    assert!(said.contains("; device small has room for"), "{said}");
    daemon.stop();
    let said = run(hotset().arg("check").arg(place.path("hotset.toml")));
    assert!(said.contains("tiny of pool cache has room for"), "{said}");
}

#[test]
fn a_pool_that_cannot_have_all_its_devices_is_not_made() {
    let place = nothing();
    place.file("ext4", 64);
    run(tool("mkfs.ext4", "e2fsprogs")
        .arg("-q")
        .arg(place.path("ext4")));
    let daemon = place.serve();
    let before = written(&place);
    let (ssd, ext4, none) = (place.text("ssd0"), place.text("ext4"), place.text("none"));
    for (devices, why) in [
        (format!("{ssd} {ext4}"), "ext"),
        (format!("{ssd} {none}"), "does not exist"),
        (
            format!("{ssd} {ssd}"),
            "pool cache names device ssd0 twice; leave it out once",
        ),
        (format!("{ssd} unheard-of"), "unheard-of"),
        (format!("{ssd} --line-size 5KiB"), "line"),
        (format!("{ssd} --policy best"), "policy"),
    ] {
        refused(
            &mut place.command(&format!("pool add cache {devices}")),
            1,
            &[why],
        );
        assert_eq!(written(&place), before, "{devices}");
        assert_eq!(daemon.status()["pools"].as_array().unwrap().len(), 0);
        let untouched = fs::read(place.path("ssd0")).unwrap();
        assert!(untouched.iter().all(|byte| *byte == 0), "{devices}");
    }
    run(&mut place.command(&format!("pool add cache {ssd}")));
    refused(
        &mut place.command(&format!("pool add other {ssd}")),
        1,
        &["pool other uses device ssd0, which pool cache uses"],
    );
    daemon.stop();
}

#[test]
fn pools_of_a_changed_file_come_and_go() {
    let place = nothing();
    let daemon = place.serve();
    let pool = |name: &str, ssd: &str, volume: &str| {
        format!(
            "{NOTHING}[[device]]\nname = \"disk\"\npath = \"$/origin\"\n\
             [[device]]\nname = \"{ssd}\"\npath = \"$/{ssd}\"\n\
             [[pool]]\nname = \"{name}\"\ndevices = [\"{ssd}\"]\n{volume}"
        )
    };
    let volume = "[[volume]]\nname = \"vol\"\norigin = \"disk\"\npool = \"first\"\n";
    place.config(&pool("first", "ssd0", volume));
    let said = run(&mut place.command("reload"));
    assert!(
        said.contains("pool first is added\n") && said.contains("4 changes made"),
        "{said}"
    );
    assert_eq!(daemon.status()["volumes"][0]["pool"], "first");
    place.config(&pool("second", "ssd1", ""));
    let said = run(&mut place.command("reload"));
    assert!(
        said.contains("pool first is removed\n") && said.contains("pool second is added\n"),
        "{said}"
    );
    let status = daemon.status();
    assert_eq!(status["pools"].as_array().unwrap().len(), 1);
    assert_eq!(status["pools"][0]["devices"][0]["name"], "ssd1");
    // A volume cannot change its pool without its clients: that is said before anything is done.
    place.config(&pool("first", "ssd0", volume));
    run(&mut place.command("reload"));
    place.config(&pool("second", "ssd1", volume).replace("pool = \"first\"", "pool = \"second\""));
    refused(
        &mut place.command("reload"),
        1,
        &["needs a restart", "nothing was changed"],
    );
    assert_eq!(daemon.status()["pools"][0]["name"], "first");
    daemon.stop();
}

#[test]
fn a_device_that_leaves_its_pool_or_is_formatted_is_trimmed() {
    let place = Place::usual();
    let origin = noise(1, 128 << 20);
    fs::write(place.path("origin"), origin).unwrap();
    let daemon = place.serve();
    let load = ["--rw=randread", "--bs=64k", "--size=48m", "--loops=2"];
    crate::common::faultless(&crate::common::fio(
        &place,
        "load",
        &daemon.uri("vol"),
        &load,
    ));
    let kept = || fs::metadata(place.path("pool")).unwrap().blocks() * 512;
    until("the pool to be filled", || kept() > 16 << 20);
    run(&mut place.command("pool remove-device fast pool"));
    assert!(kept() < 1 << 20, "{} bytes are left", kept());
    run(&mut place.command("pool add-device fast pool"));
    crate::common::faultless(&crate::common::fio(
        &place,
        "again",
        &daemon.uri("vol"),
        &load,
    ));
    until("the pool to be filled", || kept() > 16 << 20);
    daemon.stop();
    let mut format = hotset();
    run(format
        .args(["pool", "format", "--yes"])
        .arg(place.path("pool")));
    assert_eq!(kept(), 0);
}

/// Nothing is written to a device that has another use in the configuration.
#[test]
fn a_device_that_has_another_role_is_not_formatted() {
    let place = nothing();
    let parts = r#"
[[device]]
name = "slow"
path = "$/origin"
[[device]]
name = "fast"
path = "$/ssd0"
[[pool]]
name = "cache"
devices = ["fast"]
[[volume]]
name = "vol"
origin = "slow"
pool = "cache"
"#;
    let config = place.config(&format!("{NOTHING}{parts}"));
    let format = |file: &str| {
        let (file, config) = (place.text(file), config.display());
        place.command(&format!("pool format {file} --config {config}"))
    };
    let uses = ["it is device slow, which volume vol uses"];
    refused(&mut format("origin"), 1, &uses);
    run(&mut format("ssd0"));
    run(&mut format("ssd1"));
}

/// Lines that a client discards go from the pool's device too, if the pool is to trim.
#[test]
fn discards_of_clients_reach_the_pool_if_it_is_to_trim() {
    for trims in [false, true] {
        let place = Place::usual();
        let name = "name = \"fast\"\n";
        place.config(&USUAL.replace(name, &format!("{name}trim = {trims}\n")));
        let daemon = place.serve();
        let uri = daemon.uri("vol");
        for mode in ["--rw=randread", "--rw=randread", "--rw=trim"] {
            let report = fio(&place, "load", &uri, &[mode, "--bs=64k", "--size=2m"]);
            faultless(&report);
        }
        assert!(daemon.count("discards") > 0 && daemon.count("lines_admitted") > 0);
        match trims {
            true => until("trimmed lines", || daemon.count("lines_trimmed") > 0),
            false => assert_eq!(daemon.count("lines_trimmed"), 0),
        }
        let bytes = copy_out(&uri, &place.path("out"));
        assert!(bytes.iter().all(|byte| *byte == 0));
        daemon.stop();
    }
}
