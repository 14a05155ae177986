//! Long work: its progress, and the state after it was cancelled.

use crate::common::browser::Browser;
use crate::common::site::Site;
use crate::common::{Daemon, Place, all, copy_out, fio, hotset, refused, run, until};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};

const MIB: u64 = 32;
const MIRROR: &str = r#"
[daemon]
control = "$/control"
state = "$/state"
buffers = "64MiB"
[[listen]]
unix = "$/nbd"
[[device]]
name = "a"
path = "$/a"
[[device]]
name = "b"
path = "$/b"
[[array]]
name = "disk"
level = "raid1"
members = ["a", "b"]
rebuild_rate = "1MiB"
[[pool]]
name = "fast"
devices = []
[[volume]]
name = "vol"
origin = "disk"
pool = "fast"
"#;

const WRITE_BACK: &str = r#"
[daemon]
control = "$/control"
state = "$/state"
buffers = "64MiB"
[[listen]]
unix = "$/nbd"
[[device]]
name = "origin"
path = "$/origin"
model = "ST3500320AS"
[[device]]
name = "l0"
path = "$/l0"
controller = "x"
[[device]]
name = "l1"
path = "$/l1"
controller = "y"
[[pool]]
name = "fast"
devices = []
[[volume]]
name = "vol"
origin = "origin"
pool = "fast"
mode = "write-back"
log = ["l0", "l1"]
"#;

fn job(daemon: &Daemon<'_>, name: &str) -> Option<Value> {
    let jobs = daemon.status()["jobs"].as_array().unwrap().clone();
    jobs.into_iter().find(|job| job["name"] == name)
}

/// Waits until a job is at work, with some progress.
fn under_way(daemon: &Daemon<'_>, name: &str) -> Value {
    let is_at_work = |job: &Value| {
        job["state"] == "running" && job["percent"].as_f64().is_some_and(|done| done > 0.0)
    };
    until(name, || {
        job(daemon, name).is_some_and(|job| is_at_work(&job))
    });
    job(daemon, name).unwrap()
}

fn ended(daemon: &Daemon<'_>, name: &str, state: &str) {
    until(name, || {
        job(daemon, name).is_some_and(|job| job["state"] != "running")
    });
    let job = job(daemon, name).unwrap();
    assert_eq!(job["state"], state, "{job}");
}

/// A command that goes on meanwhile.
fn started(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Has a volume give up its log meanwhile.
fn detached(place: &Place, daemon: &Daemon<'_>) -> Child {
    let mode = started(&mut place.command("volume set-mode vol write-through"));
    until("the job", || {
        job(daemon, "detach:vol").is_some_and(|job| job["state"] == "running")
    });
    mode
}

/// Waits for the end of a command, which is an error with the text `what`. Returns its output.
fn fails(command: Child, what: &str) -> String {
    let output = command.wait_with_output().unwrap();
    let said = all(&output);
    assert!(
        output.status.code() == Some(1) && said.contains(what),
        "{said}"
    );
    said
}

fn array(daemon: &Daemon<'_>) -> Value {
    daemon.status()["arrays"][0].clone()
}

#[test]
fn work_on_an_array_is_listed_and_cancelled() {
    let place = Place::new();
    for name in ["a", "b", "new"] {
        place.file(name, MIB);
    }
    place.config(MIRROR);
    let mut create = hotset();
    create.args(["array", "create", "disk", "--config"]);
    run(create.arg(place.path("hotset.toml")));
    let daemon = place.serve();
    assert!(run(&mut place.command("job list")).contains("nothing goes on"));
    let reads = daemon.slow_reads();

    let scrub = started(&mut place.command("array scrub disk"));
    let listed = under_way(&daemon, "scrub:disk");
    assert!(listed["left_s"].as_f64().unwrap() > 0.0, "{listed}");
    assert_eq!(listed["can_cancel"], true);
    assert!(run(&mut place.command("status")).contains("scrub:disk"));
    run(&mut place.command("job cancel scrub:disk"));
    fails(scrub, "was cancelled");
    ended(&daemon, "scrub:disk", "cancelled");
    assert_eq!(array(&daemon)["state"], "healthy");
    assert_eq!(array(&daemon)["scrubbed_s"], Value::Null);
    let again = "job cancel scrub:disk";
    refused(&mut place.command(again), 1, &["no job scrub:disk goes on"]);
    refused(&mut place.command("job cancel all"), 1, &["names no job"]);

    // Of an exchange the old member stays, in the file too, and the new device is free.
    let site = Site::start(&place);
    // Once the superblock of the new device was written, `--yes` is required.
    for new in [place.text("new").as_str(), "--yes new"] {
        run(&mut place.command(&format!("array replace disk b {new}")));
        under_way(&daemon, "replace:disk");
        site.operate("DELETE", "/api/v1/jobs/replace:disk", "");
        ended(&daemon, "replace:disk", "cancelled");
        let array = array(&daemon);
        assert_eq!(array["state"], "healthy", "{array}");
        assert_eq!(array["members"][1]["device"], "b", "{array}");
        let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
        assert!(text.contains("members = [\"a\", \"b\"]"), "{text}");
    }
    // A report is shown again for a while.
    until("both jobs in the API", || {
        let listed = site.with(&site.operator, "GET", "/api/v1/jobs", "").json();
        let jobs = listed.as_array().unwrap().iter();
        jobs.map(|job| &job["name"])
            .eq(["scrub:disk", "replace:disk"])
    });
    let mut check = place.command("check --against-running");
    run(check.arg(place.path("hotset.toml")));

    run(&mut place.command("array fail disk b"));
    run(&mut place.command("array replace --yes disk 1 new"));
    assert_eq!(under_way(&daemon, "rebuild:disk")["can_cancel"], false);
    let cancel = "job cancel rebuild:disk";
    refused(
        &mut place.command(cancel),
        1,
        &["not cancelled", "hotset array fail"],
    );
    drop(reads);
    until("the rebuild", || array(&daemon)["state"] == "healthy");
    ended(&daemon, "rebuild:disk", "done");
    run(&mut place.command("array scrub disk"));
    ended(&daemon, "scrub:disk", "done");
    let log = daemon.stop();
    assert!(log.contains("job replace:disk was cancelled"), "{log}");
}

/// Has the job pause and go on by the API and by the page, which only an operator may.
fn paused_by_the_api(place: &Place, daemon: &Daemon<'_>) {
    const PATH: &str = "/api/v1/jobs/detach:vol/paused";
    let site = Site::start(place);
    for (token, path, body, status, what) in [
        (&site.reader, PATH, r#"{"paused": true}"#, 403, "look"),
        (
            &site.operator,
            PATH,
            r#"{"paused": 1}"#,
            422,
            "openapi.json",
        ),
        (&site.operator, PATH, "{}", 422, "paused"),
        (
            &site.operator,
            "/api/v1/jobs/scrub:vol/paused",
            r#"{"paused": true}"#,
            409,
            "no job scrub:vol goes on",
        ),
    ] {
        let answer = site.with(token, "PUT", path, body);
        assert!(
            answer.status == status && answer.body.contains(what),
            "{answer:?}"
        );
    }
    let state = |wanted: &str| {
        until(wanted, || {
            job(daemon, "detach:vol").is_some_and(|job| job["state"] == wanted)
        });
    };
    state("running");
    site.operate("PUT", PATH, r#"{"paused": true}"#);
    state("paused");
    {
        let mut browser = Browser::start();
        browser.sign_in(&site);
        browser.click("//nav//a[text()='Pools']");
        let button = |name: &str| format!("//section[@aria-label='Jobs']//button[text()='{name}']");
        browser.shows("section[aria-label='Jobs'] .state", "paused");
        browser.click(&button("Resume"));
        state("running");
        browser.click(&button("Pause"));
        browser.shows("section[aria-label='Jobs'] .state", "paused");
    }
    state("paused");
    site.operate("PUT", PATH, r#"{"paused": false}"#);
    state("running");
}

/// Makes data dirty by writes of which many need a seek each.
fn write(place: &Place, writes: u32) {
    let number = format!("--number_ios={writes}");
    let options = [
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=16",
        "--verify=crc32c",
        "--do_verify=0",
        "--verify_state_save=0",
        &number,
    ];
    fio(place, "write", &place.uri("vol"), &options);
}

fn dirty(daemon: &Daemon<'_>) -> u64 {
    let status = daemon.status();
    let log = &status["volumes"][0]["write_back"];
    log["dirty_bytes"].as_u64().unwrap()
}

#[test]
fn a_volume_that_is_to_give_up_its_log_keeps_it_when_that_is_cancelled() {
    let place = Place::new();
    place.file("origin", 128);
    place.file("l0", 64);
    place.file("l1", 64);
    place.config(WRITE_BACK);
    let daemon = place.serve();
    write(&place, 6000);
    let mode = detached(&place, &daemon);
    run(&mut place.command("job pause detach:vol"));
    until("the job to be paused", || {
        job(&daemon, "detach:vol").is_some_and(|job| job["state"] == "paused")
    });
    assert!(dirty(&daemon) > 0, "{}", daemon.status());
    run(&mut place.command("job resume detach:vol"));
    let before = dirty(&daemon);
    until("the job to go on", || dirty(&daemon) < before);
    paused_by_the_api(&place, &daemon);
    let cancelled = "job pause scrub:vol";
    refused(
        &mut place.command(cancelled),
        1,
        &["no job scrub:vol goes on"],
    );
    run(&mut place.command("job cancel detach:vol"));
    let what =
        "of dirty data of vol is written back first; `hotset job list` shows how far that is";
    let said = fails(mode, "that was cancelled");
    assert!(said.contains(what), "{said}");
    ended(&daemon, "detach:vol", "cancelled");
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-back");
    // The cancellation loses nothing, and the detachment can be started again.
    let held = copy_out(&place.uri("vol"), &place.path("before"));
    // An end of the daemon does not wait for a paused detachment either.
    let mode = detached(&place, &daemon);
    run(&mut place.command("job pause detach:vol"));
    daemon.stop();
    fails(mode, "that was cancelled");
    let daemon = place.serve();
    assert!(
        copy_out(&place.uri("vol"), &place.path("after")) == held,
        "content differs"
    );
    // The stop of the daemon wrote the rest back: without more dirty data this would take no time.
    write(&place, 1500);
    let held = copy_out(&place.uri("vol"), &place.path("more"));
    run(&mut place.command("volume set-mode vol write-through"));
    ended(&daemon, "detach:vol", "done");
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-through");
    daemon.stop();
    assert!(
        fs::read(place.path("origin")).unwrap() == held,
        "content differs"
    );
}
