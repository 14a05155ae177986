//! `hotset-lab live`: real servers on directories, and on a volume that is mounted.

use crate::common::{Daemon, Place, Process, attaches, lab, noise, refused, run, tool, until};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testbed::attached::AttachedDevice;
use testbed::mounted::MountedFileSystem;

/// A line of the combined form.
fn line(address: &str, status: u16, bytes: u64) -> String {
    format!(
        "10.0.0.1 - - [27/Aug/2009:10:00:00 +0200] \"GET {address} HTTP/1.1\" {status} {bytes} \
         \"-\" \"agent\"\n"
    )
}

/// Writes a log of `requests` for forty files of some kilobytes.
fn access_log(path: &Path, requests: u64) {
    let lines = (0..requests).map(|n| n * 7 % 40);
    let lines = lines.map(|file| line(&format!("/file/{file}?a=b"), 200, 3000 + 400 * file));
    fs::write(path, lines.collect::<String>()).unwrap();
}

/// `live log` of a log on a directory.
fn live_log(place: &Place, path: &Path, options: &[&str]) -> Command {
    let mut command = lab();
    command.args(["live", "log", "--json", "--path"]).arg(path);
    command.arg("--log").arg(place.path("access.log"));
    command.args(options);
    command.env("HOTSET_CONTROL", place.path("control"));
    command
}

fn report(command: &mut Command) -> Value {
    let text = run(command);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn figure<'a>(report: &'a Value, name: &str) -> &'a Value {
    let figures = report["figures"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure["figure"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn mean(report: &Value, name: &str, phase: &str) -> f64 {
    let phases = figure(report, name)["phases"].as_array().unwrap();
    let found = phases.iter().find(|found| found["phase"] == phase);
    found.unwrap()["mean"].as_f64().unwrap()
}

/// A place with a directory to measure.
fn measured() -> (Place, PathBuf) {
    let place = Place::new();
    let path = place.path("storage");
    fs::create_dir(&path).unwrap();
    access_log(&place.path("access.log"), 200);
    (place, path)
}

/// The usual volume, mounted; the parts in the order of the take-down.
struct MountedVolume<'a> {
    mounted: MountedFileSystem,
    _attached: AttachedDevice,
    daemon: Daemon<'a>,
}

impl MountedVolume<'_> {
    fn new(place: &Place) -> MountedVolume<'_> {
        let daemon = place.serve();
        let fuse = place.path("fuse");
        let attached = AttachedDevice::new(&place.uri("vol"), &fuse, &["--direct-io=on"]).unwrap();
        // A file system that is initialised later is read meanwhile.
        run(tool("mkfs.ext4", "e2fsprogs")
            .args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(attached.device()));
        let mounted = MountedFileSystem::new(attached.device(), &place.path("mount")).unwrap();
        MountedVolume {
            mounted,
            _attached: attached,
            daemon,
        }
    }
}

#[test]
fn an_access_log_is_replayed_on_a_path() {
    let (place, path) = measured();
    let log = place.path("access.log");
    let old = place.path("access.log.1");
    fs::write(&old, line("/old", 200, 100_000) + &line("/gone", 404, 9)).unwrap();
    run(tool("gzip", "gzip").arg(&old));
    let old = place.text("access.log.1.gz");
    let mut command = lab();
    command.args(["live", "log", "--json", "--rounds", "2", "--threads", "3"]);
    command
        .arg("--path")
        .arg(&path)
        .arg("--log")
        .arg(&old)
        .arg(&log);
    let report = report(&mut command);
    assert_eq!(report["rounds"].as_array().unwrap().len(), 2);
    assert_eq!(report["asked"]["requests"], "201");
    assert_eq!(report["asked"]["files"], "41");
    let notes = report["notes"].to_string();
    assert!(notes.contains("1 lines are other requests"), "{notes}");
    let of = |name: &str| mean(&report, name, "runs");
    assert!(of("mttfb") > 0.0 && of("mttfb") <= of("mtt"), "{report}");
    // Three threads have three requests in flight at most.
    let bound = |name: &str, which: &str| {
        let phase = &figure(&report, name)["phases"][0];
        phase[which].as_f64().unwrap()
    };
    let most = 3.0 * 1e3 / bound("mtt", "min");
    assert!(bound("tps", "max") <= most * 1.01, "{report}");
    let bytes: f64 = (0..40)
        .map(|file| 5.0 * (3000.0 + 400.0 * f64::from(file)))
        .sum();
    let mean_bytes = of("rbps") / of("tps");
    assert!(
        (mean_bytes / ((bytes + 100_000.0) / 201.0) - 1.0).abs() < 1e-3,
        "{report}"
    );
    let published = &figure(&report, "tps")["published"];
    assert_eq!(
        published[0],
        serde_json::json!({ "of": "hdd", "value": 179.51 })
    );
    assert_eq!(published.as_array().unwrap().len(), 3);
    assert_eq!(
        fs::read_dir(&path).unwrap().count(),
        0,
        "all files are removed"
    );
}

#[test]
fn a_volume_is_measured_off_cold_and_warm() {
    if !attaches() {
        return;
    }
    let place = Place::usual();
    access_log(&place.path("access.log"), 200);
    let volume = MountedVolume::new(&place);
    let path = volume.mounted.at();
    let out = place.text("out");
    let volume_and_out = ["--volume", "vol", "--out", &out];
    let first = report(live_log(&place, path, &volume_and_out).args(["--rounds", "2"]));
    assert_eq!(first["rounds"].as_array().unwrap().len(), 2);
    let hits = |phase: &str| mean(&first, "hits", phase);
    assert!(hits("warm") > hits("cold"), "{first}");
    let phases = figure(&first, "hits")["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 2, "a volume that is off asks no cache");
    let ratios = figure(&first, "mtt")["ratios"].as_array().unwrap();
    let of: Vec<_> = ratios.iter().map(|ratio| &ratio["phase"]).collect();
    assert_eq!(of, ["cold", "warm"]);
    for ratio in ratios {
        assert_eq!((&ratio["to"], &ratio["rounds"]), (&"off".into(), &2.into()));
        let open = ratio["verdict"] == "inconclusive";
        assert!(open || ratio["rounds_needed"].is_null(), "{ratio}");
    }
    assert!(place.path("out/live-log.html").exists());
    assert!(volume.daemon.status()["volumes"][0]["off"].is_null());
    // Finished rounds are not run again.
    let more = report(live_log(&place, path, &volume_and_out).args(["--rounds", "3"]));
    let rounds = more["rounds"].as_array().unwrap();
    assert_eq!(
        (rounds.len(), &rounds[..2]),
        (3, &first["rounds"].as_array().unwrap()[..])
    );
    let other = ["--threads", "2"];
    let mut other = live_log(&place, path, &[&volume_and_out[..], &other].concat());
    refused(
        &mut other,
        2,
        &[
            "live-log.json",
            "is of other seeds or another form or place",
        ],
    );
    // A volume that was off is off again.
    run(&mut place.command("volume off vol --temporary"));
    run(live_log(&place, path, &volume_and_out).args(["--rounds", "4"]));
    assert_eq!(volume.daemon.status()["volumes"][0]["off"], "write-through");
    assert!(!path.join("hotset-live").exists());
}

#[test]
fn a_volume_that_is_in_use_or_elsewhere_is_refused() {
    let (place, path) = measured();
    refused(
        &mut live_log(&place, &path, &["--volume", "vol"]),
        1,
        &["no daemon answers on", "control"],
    );
    let served = Place::usual();
    access_log(&served.path("access.log"), 200);
    let daemon = served.serve();
    let on = |name: &str| live_log(&served, &path, &["--volume", name]);
    refused(
        &mut on("other"),
        2,
        &["volume other: not served by the daemon (volumes: vol)"],
    );
    refused(
        &mut on("vol"),
        2,
        &["not on volume vol", "Mount the volume there"],
    );
    let clients = daemon.slow_reads();
    refused(
        &mut on("vol"),
        1,
        &["volume vol: in use (", "Stop its clients first."],
    );
    drop(clients);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    assert!(daemon.status()["volumes"][0]["off"].is_null());
}

#[test]
fn bad_logs_paths_and_servers_are_named() {
    let (place, path) = measured();
    let log = place.path("access.log");
    let live = || live_log(&place, &path, &["--rounds", "1"]);
    let mut elsewhere = live_log(&place, &place.path("none"), &[]);
    refused(
        &mut elsewhere,
        2,
        &["none: cannot be used (No such file or directory)."],
    );
    fs::write(&log, "garbage\nmore\n").unwrap();
    refused(
        &mut live(),
        2,
        &[
            "access.log:1: no request (2 of 2 lines",
            "Give an access log",
        ],
    );
    fs::write(&log, line("/large", 200, 1 << 50)).unwrap();
    refused(
        &mut live(),
        1,
        &["storage: too little room (1.0 PiB are needed", "Make room"],
    );
    access_log(&log, 10);
    fs::create_dir(path.join("hotset-live")).unwrap();
    refused(
        &mut live(),
        1,
        &["hotset-live: exists (a run uses it, or one was killed)."],
    );
    fs::remove_dir(path.join("hotset-live")).unwrap();
    let server = place.path("nginx");
    fs::write(&server, "#!/bin/sh\necho no such module >&2\nexit 1\n").unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let found = format!("{}:{}", place.text(""), std::env::var("PATH").unwrap());
    refused(
        live().env("PATH", found),
        1,
        &["nginx did not start: no such module"],
    );
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn an_interrupted_run_keeps_its_rounds_and_clears_the_path() {
    let (place, path) = measured();
    let (out, rounds) = (place.text("out"), ["--rounds", "10000"]);
    let mut command = live_log(&place, &path, &["--out", &out]);
    command
        .args(rounds)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let kept = place.path("out/live-log.json");
    until("a round", || kept.exists());
    process.signal(libc::SIGINT);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut process.0.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(process.0.wait().unwrap().code(), Some(1), "{said}");
    assert!(
        said.contains("storage/hotset-live: interrupted ("),
        "{said}"
    );
    assert!(said.contains("of 10000 rounds are kept in"), "{said}");
    let kept: Value = serde_json::from_str(&fs::read_to_string(kept).unwrap()).unwrap();
    assert!(!kept["rounds"].as_array().unwrap().is_empty());
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn users_visit_a_site_in_a_sweep() {
    let (_place, path) = measured();
    let mut command = lab();
    command.args(["live", "web", "--json", "--rounds", "1", "--pages", "10"]);
    command.args([
        "--users",
        "1,500",
        "--think",
        "50",
        "--ramp",
        "1",
        "--seconds",
        "2",
    ]);
    let report = report(command.arg("--path").arg(&path));
    let of = |name: &str| mean(&report, name, "runs");
    // A user who thinks for 50 ms on average loads twenty pages a second at most, but for chance.
    assert!((1.0..40.0).contains(&of("1.pages")), "{report}");
    assert!(of("500.pages") > of("1.pages"), "{report}");
    for users in ["1", "500"] {
        let of = |figure: &str| of(&format!("{users}.{figure}"));
        assert!(of("page.min") <= of("page.mean") && of("page.mean") <= of("page.max"));
        assert!(of("ttfb") > 0.0 && of("ttfb") < of("page.mean"), "{report}");
        // Twelve to thirteen files of 2 to 40 KB.
        let page_bits = of("mbps") * 1e6 / of("pages");
        assert!((8.0 * 24e3..8.0 * 520e3).contains(&page_bits), "{report}");
    }
    let curves = report["rounds"][0]["curves"].as_array().unwrap();
    assert_eq!((curves.len(), &curves[0][0]), (2, &"1 users, runs".into()));
    let points = curves[1][1]["points"].as_array().unwrap();
    let pages: u64 = points
        .iter()
        .map(|point| point["pages"].as_u64().unwrap())
        .sum();
    assert_eq!(points.len(), 60);
    // The rate is over the time that the load took.
    assert!(
        (pages as f64 - of("500.pages") * 2.0).abs() < 1.0,
        "{report}"
    );
    let printed = &figure(&report, "500.ttfb")["published"];
    assert_eq!(
        printed[0],
        serde_json::json!({ "of": "RAID 5", "value": 0.3 })
    );
    assert_eq!(
        figure(&report, "1.ttfb")["published"],
        serde_json::json!([])
    );
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn a_file_is_swept_and_written_only_if_asked() {
    let (_place, path) = measured();
    let live = |options: &[&str]| {
        let mut command = lab();
        command.args(["live", "stress", "--json", "--rounds", "1", "--size", "16"]);
        command.args(["--threads", "1,4", "--seconds", "1", "--path"]);
        command.arg(&path).args(options);
        command
    };
    let verbs = |report: &Value| -> Vec<String> {
        let figures = report["figures"].as_array().unwrap();
        let names = figures
            .iter()
            .map(|figure| figure["figure"].as_str().unwrap());
        let mut verbs: Vec<String> = names
            .map(|name| name.split('.').next().unwrap().into())
            .collect();
        verbs.dedup();
        verbs
    };
    let reads = report(&mut live(&[]));
    assert_eq!(verbs(&reads), ["randread", "read"]);
    let of = |name: &str| mean(&reads, name, "runs");
    let mb_s = of("randread.4.iops") * 4096.0 / 1e6;
    assert!((of("randread.4.mb_s") / mb_s - 1.0).abs() < 1e-6, "{reads}");
    assert!(of("read.1.latency") > 0.0 && of("read.1.p99") > 0.0);
    let both = report(&mut live(&["--yes"]));
    assert_eq!(verbs(&both), ["randread", "randwrite", "read", "write"]);
    assert!(mean(&both, "randwrite.1.iops", "runs") > 0.0, "{both}");
    fs::write(path.join("letter"), "dear").unwrap();
    refused(
        &mut live(&["--yes"]),
        2,
        &["storage: not empty (letter). Give --yes with"],
    );
    let mut unread = live(&[]);
    refused(
        unread.env("PATH", "/none"),
        1,
        &["fio: missing (no such program here)"],
    );
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
}

#[test]
fn two_devices_take_turns_and_are_only_read() {
    let place = Place::new();
    let paths = ["a", "b"].map(|name| place.path(name));
    paths
        .iter()
        .for_each(|path| fs::write(path, noise(1, 4 << 20)).unwrap());
    let live = |devices: &[&PathBuf]| {
        let mut command = lab();
        command.args([
            "live",
            "stress",
            "--json",
            "--rounds",
            "2",
            "--threads",
            "2",
        ]);
        command.args(["--seconds", "1"]);
        for device in devices {
            command.arg("--device").arg(device);
        }
        command
    };
    let report = report(&mut live(&[&paths[0], &paths[1]]));
    assert_eq!(report["figures"].as_array().unwrap().len(), 2 * 4);
    let ratio = &figure(&report, "randread.2.iops")["ratios"][0];
    assert_eq!((&ratio["phase"], &ratio["to"]), (&"b".into(), &"a".into()));
    assert!(
        paths
            .iter()
            .all(|path| fs::read(path).unwrap() == noise(1, 4 << 20))
    );
    refused(
        &mut live(&[&paths[0]]),
        2,
        &["--device: one device or more than two."],
    );
    let none = place.path("none");
    refused(
        &mut live(&[&paths[0], &none]),
        2,
        &["none: cannot be read", "Name two devices"],
    );
    refused(&mut live(&[]), 2, &["--path"]);
}

#[test]
fn pgbench_runs_on_a_path_in_both_mixes() {
    if let Some(why) = proof::stack::database_obstacle() {
        println!("skipped: {why}");
        return;
    }
    let (place, path) = measured();
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for mix in ["pgbench", "brokerage"] {
        let mut command = lab();
        command.args([
            "live", "oltp", "--json", "--rounds", "1", "--scale", "1", "--mix", mix,
        ]);
        command.args(["--clients", "4", "--seconds", "1", "--path"]);
        let report = report(command.arg(&path));
        let of = |name: &str| mean(&report, name, "runs");
        // Four clients have four transactions in flight.
        assert!(
            (of("tps") * of("latency") / 4e3 - 1.0).abs() < 0.3,
            "{report}"
        );
        assert_eq!(figure(&report, "tps")["published"][0]["value"], 274.0);
        let scripts = report["asked"]["scripts"].as_str().unwrap();
        assert_eq!(
            scripts.contains("(\"select-only\", 769)"),
            mix == "brokerage"
        );
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = lab();
    command.args(["live", "oltp", "--scale", "1", "--path"]);
    refused(
        command.arg(&path),
        1,
        &["hotset-live: no database can be made", "user postgres"],
    );
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn every_query_is_asked_on_a_path() {
    if let Some(why) = proof::stack::database_obstacle() {
        println!("skipped: {why}");
        return;
    }
    let (place, path) = measured();
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let live = |options: &[&str]| {
        let mut command = lab();
        command.args(["live", "dss", "--json", "--rounds", "2"]);
        command.args(options).arg("--path").arg(&path);
        command
    };
    let report = report(&mut live(&["--scale", "0.01"]));
    let of = |name: &str| mean(&report, name, "runs");
    let queries: Vec<f64> = (1..=22).map(|number| of(&format!("q{number}"))).collect();
    assert!(queries.iter().all(|query| *query > 0.0), "{report}");
    assert!(all_are(&queries, of("all")), "{report}");
    // A query that is left out is seen.
    for left_out in 0..22 {
        let mut fewer = queries.clone();
        fewer.remove(left_out);
        assert!(!all_are(&fewer, of("all")), "{left_out}: {report}");
    }
    assert!(report["source"].as_str().unwrap().contains("Nytro"));
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    refused(
        &mut live(&["--scale", "0"]),
        2,
        &["'--scale <FACTOR>'", "no number from 0.001"],
    );
    refused(
        &mut live(&["--scale", "1000"]),
        1,
        &["storage: too little room (", "measure less"],
    );
    let mut without_tools = live(&[]);
    refused(
        without_tools.env("PATH", "/none"),
        1,
        &["PostgreSQL: cannot be run (", "with the package postgresql"],
    );
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

/// True if these queries take the time of all.
fn all_are(queries: &[f64], all: f64) -> bool {
    (queries.iter().sum::<f64>() - all).abs() < 1e-6
}

/// `live mail` of so many threads on a directory.
fn live_mail(path: &Path, options: &[&str]) -> Command {
    let mut command = lab();
    command.args(["live", "mail", "--json", "--rounds", "1"]);
    command.args(["--pause", "50", "--seconds", "3"]);
    command.args(options).arg("--path").arg(path);
    command
}

/// True if so many threads of each of five databases could have read so many pages: each is in its
/// pause, reads, or waits for its commit.
fn cycles(report: &Value, threads: f64) -> bool {
    let of = |name: &str| mean(report, name, "runs");
    let reads: f64 = (1..=5).map(|number| of(&format!("db{number}.reads"))).sum();
    let cycle_s = (50.0 + of("read") + 0.65 * 0.3 * of("log")) / 1e3;
    (reads * cycle_s / (5.0 * threads) - 1.0).abs() < 0.4
}

#[test]
fn a_mail_store_is_read_and_changed_on_a_path() {
    let (_place, path) = measured();
    let seven = report(&mut live_mail(&path, &["--size", "8"]));
    let of = |name: &str| mean(&seven, name, "runs");
    assert!(cycles(&seven, 7.0), "{seven}");
    let half = report(&mut live_mail(&path, &["--size", "8", "--threads", "3"]));
    assert!(cycles(&half, 3.0) && !cycles(&half, 7.0), "{half}");
    for database in 1..=5 {
        let read = figure(&seven, &format!("db{database}.read"));
        assert_eq!(read["limit"], 20.0);
        let phase = &read["phases"][0];
        let passed = phase["max"].as_f64().unwrap() <= 20.0;
        assert_eq!(phase["passed"], passed, "{read}");
    }
    assert_eq!(figure(&seven, "log")["limit"], 10.0);
    assert!(figure(&seven, "write")["phases"][0]["passed"].is_null());
    // Of the pages that are read 65 of 100 are changed, and 30 of 100 of these are in the log.
    let reads = (1..=5).map(|number| of(&format!("db{number}.reads")));
    let changed = of("iops") / reads.sum::<f64>() - 1.0;
    assert!((0.4..0.9).contains(&changed), "{seven}");
    assert!(of("logs") < of("iops") && of("scan.mb_s") > 0.0, "{seven}");
    assert_eq!(figure(&seven, "iops")["published"][0]["value"], 1312.61);
    assert_eq!(figure(&seven, "log")["published"][0]["value"], 0.34);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    refused(
        &mut live_mail(&path, &["--size", "1000000000"]),
        1,
        &["storage: too little room (", "measure less"],
    );
    refused(
        &mut live_mail(&path.join("none"), &[]),
        2,
        &["none: cannot be used"],
    );
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn a_run_without_a_cache_stands_beside_a_later_one() {
    let (place, path) = measured();
    let out = place.text("out");
    let live = |options: &[&str]| live_log(&place, &path, &[&["--out", &out], options].concat());
    let control = report(&mut live(&["--without"]));
    assert_eq!(control["rounds"].as_array().unwrap().len(), 1);
    assert!(mean(&control, "mtt", "without") > 0.0);
    assert!(place.path("out/live-log-without.html").exists());
    let later = report(&mut live(&["--rounds", "2"]));
    let of = |report: &Value| mean(report, "mtt", "without");
    assert_eq!(of(&later), of(&control));
    assert_eq!(figure(&later, "mtt")["ratios"], serde_json::json!([]));
    let page = fs::read_to_string(place.path("out/live-log.html")).unwrap();
    assert!(
        page.contains("<th>without</th>") || page.contains(">without<"),
        "{page}"
    );
    fs::remove_file(place.path("out/live-log.json")).unwrap();
    refused(
        &mut live(&["--threads", "2"]),
        2,
        &["live-log-without.json", "another form or place"],
    );
    refused(
        &mut live(&["--without", "--volume", "vol"]),
        2,
        &["--without", "--volume"],
    );
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn apache_serves_a_log_and_a_site() {
    if testbed::tools::missing(&["apache2"]).is_some() {
        println!("skipped: there is no apache2 here (the Debian package apache2-bin)");
        return;
    }
    let (place, path) = measured();
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let apache = ["--server", "apache", "--rounds", "1"];
    let replayed = report(&mut live_log(&place, &path, &apache));
    assert_eq!(replayed["asked"]["server"], "apache2");
    // Each answer has the size of its file.
    let bytes: f64 = (0..40)
        .map(|file| 3000.0 + 400.0 * f64::from(file))
        .sum::<f64>()
        / 40.0;
    let of = |name: &str| mean(&replayed, name, "runs");
    assert!(
        (of("rbps") / of("tps") / bytes - 1.0).abs() < 1e-3,
        "{replayed}"
    );
    let mut web = lab();
    web.args(["live", "web", "--json", "--pages", "10", "--users", "20"]);
    web.args(["--think", "50", "--ramp", "1", "--seconds", "2", "--path"]);
    let visited = report(web.arg(&path).args(apache));
    assert!(mean(&visited, "20.pages", "runs") > 0.0, "{visited}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    if testbed::tools::is_root() {
        let live = live_log(&place, &path, &apache);
        let refusal = ["Apache's user cannot read here", "www-data"];
        refused(&mut live_log(&place, &path, &apache), 1, &refusal);
        let hide = r#"mount --bind /dev/null /usr/sbin/apache2 && exec "$0" "$@""#;
        let mut hidden = tool("unshare", "util-linux");
        hidden.args(["--mount", "sh", "-c", hide]);
        hidden.arg(live.get_program()).args(live.get_args());
        let missing =
            "apache2: missing (no such program here). Install the Debian package apache2-bin.";
        refused(&mut hidden, 1, &[missing]);
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}
