//! `hotset support`: the archive as `tar` reads it, with each promise of its page.

use crate::common::{Place, all, copy_in, hotset, refused, run, tool, until};
use crate::manual::CONFIG;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The devices of the configuration.
const DEVICES: [&str; 7] = ["disk", "ssd", "left", "right", "records", "log0", "log1"];
/// A line of the data of clients.
const DATA: &str = "a line of a client's file\n";

fn place() -> Place {
    let place = Place::new();
    for name in DEVICES {
        place.file(name, if name.starts_with("log") { 32 } else { 64 });
    }
    let config = place.config(CONFIG);
    let create = ["array", "create", "mirror", "--config"];
    run(hotset().args(create).arg(config));
    place
}

/// The command on the configuration of a place, with programs of the machine as in `bin`.
fn support(place: &Place, words: &str) -> Command {
    let mut command = place.command(&format!("support {words}"));
    let bin = place.path("bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    command.env("PATH", path);
    command.env("HOTSET_CONFIG", place.path("hotset.toml"));
    command.current_dir(place.path(""));
    command
}

/// Puts a program into the place that prints `text`.
fn program(place: &Place, name: &str, text: &str) {
    let bin = place.path("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(
        bin.join(name),
        format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\n"),
    )
    .unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
}

/// The parts of an archive, as `tar` takes it apart.
fn parts(archive: &Path) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    run(tool("tar", "tar")
        .arg("xzf")
        .arg(archive)
        .arg("-C")
        .arg(folder.path()));
    let name = archive.file_name().unwrap().to_str().unwrap();
    let top = folder.path().join(name.strip_suffix(".tar.gz").unwrap());
    let all = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(all, 1, "all parts are in one folder");
    let mut found = BTreeMap::new();
    walk(&top, &mut |path| {
        let name = path.strip_prefix(&top).unwrap().display().to_string();
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600, "{name}");
        found.insert(name, fs::read_to_string(path).unwrap());
    });
    found
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => walk(&path, visit),
            false => visit(&path),
        }
    }
}

/// The list that the command printed: the size of each part, and its source.
fn listed(printed: &str) -> BTreeMap<String, (String, String)> {
    let rows = printed
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with('/'));
    let row = |line: &str| {
        let (name, rest) = line.split_once("  ").unwrap();
        let (size, from) = rest.trim().split_once("  ").unwrap();
        (name.to_owned(), (size.to_owned(), from.trim().to_owned()))
    };
    rows.map(row).collect()
}

fn json(parts: &BTreeMap<String, String>, name: &str) -> Value {
    let text = parts
        .get(name)
        .unwrap_or_else(|| panic!("{name} in {:?}", parts.keys()));
    serde_json::from_str(text).unwrap()
}

/// Bytes and times of the devices.
fn devices(place: &Place) -> Vec<(Vec<u8>, i64)> {
    let one = |name: &&str| {
        let path = place.path(name);
        (
            fs::read(&path).unwrap(),
            fs::metadata(&path).unwrap().mtime_nsec(),
        )
    };
    DEVICES.iter().map(one).collect()
}

#[test]
fn each_part_is_listed_first_and_is_in_the_archive() {
    let place = place();
    let daemon = place.serve();
    fs::write(place.path("client"), DATA.repeat(40_000)).unwrap();
    for volume in ["data", "files", "db"] {
        copy_in(&place.path("client"), &place.uri(volume));
    }
    program(&place, "journalctl", "a line of the journal");
    program(&place, "systemctl", "ActiveState=active");
    let printed = run(&mut support(&place, "--out report.tar.gz"));
    let archive = place.path("report.tar.gz");
    assert_eq!(fs::metadata(&archive).unwrap().mode() & 0o777, 0o600);
    let (listed, found) = (listed(&printed), parts(&archive));
    let there = listed.iter().filter(|(_, (size, _))| size != "-");
    assert!(there.map(|(name, _)| name).eq(found.keys()), "{printed}");
    assert_eq!(
        printed
            .lines()
            .next()
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>(),
        ["PART", "SIZE", "FROM"]
    );
    assert!(
        printed.trim_end().ends_with("readable by its owner alone"),
        "{printed}"
    );
    // The list without the archive.
    let list = run(&mut support(&place, "--list"));
    assert!(self::listed(&list).keys().eq(listed.keys()), "{list}");

    let text = |name: &str| found[name].as_str();
    let version = run(hotset().arg("--version"));
    assert!(text("version.txt").starts_with(&version), "{version}");
    assert!(text("machine/kernel.txt").contains("Linux version"));
    assert!(text("machine/memory.txt").contains("MemTotal:"));
    assert!(text("machine/processors.txt").contains("for this process"));
    assert!(text("machine/os-release.txt").contains("NAME="));
    let disk = place.text("disk");
    assert!(text("machine/mounts.txt").contains(&format!("{disk}: ")));
    let config = fs::read_to_string(place.path("hotset.toml")).unwrap();
    assert_eq!(text("configuration/hotset.toml"), config);
    assert!(text("check.txt").contains("no problem found"));
    assert!(text("daemon/differences.txt").contains("the daemon runs this"));
    let status = json(&found, "daemon/status.json");
    assert_eq!(status["volumes"].as_array().unwrap().len(), 3);
    assert!(status["pools"][0]["counters"].as_object().unwrap().len() > 10);
    for list in ["troubles", "jobs"] {
        assert_eq!(json(&found, &format!("daemon/{list}.json")), status[list]);
    }
    assert!(text("daemon/status.txt").contains("\nVOLUME "));
    assert_eq!(json(&found, "daemon/volumes/data.json")["volume"], "data");
    assert!(text("journal/hotset.txt").contains("a line of the journal"));
    assert!(text("journal/units.txt").contains("ActiveState=active"));
    assert!(text("state/files.txt").contains("fast.pool: "));
    assert_eq!(json(&found, "state/fast.pool.json")["pool"]["pool"], "fast");
    assert_eq!(json(&found, "state/db.log.json")["volume"], "db");
    superblocks(&found);
    daemon.stop();
}

/// Superblocks of a pool device, of a log and of members; nothing of the data beside them.
fn superblocks(found: &BTreeMap<String, String>) {
    let device = |name: &str| json(found, &format!("devices/{name}.json"));
    let pool = &device("ssd")["pool"];
    assert_eq!(pool["pool"], "fast");
    assert!(pool["device"].as_str().unwrap().starts_with("ssd ("));
    assert_eq!(device("log1")["log"]["volume"], "db");
    assert_eq!(device("log1")["log"]["copy"], 1);
    for (copy, name) in ["left", "right"].iter().enumerate() {
        let array = &device(name)["array"];
        assert_eq!(
            (&array[0]["name"], &array[1]["role"]),
            (&"mirror".into(), &copy.into())
        );
    }
    assert!(device("disk")["pool"].is_null() && device("disk")["array"].is_null());
    let line = DATA.trim_end();
    assert!(found.values().all(|text| !text.contains(line)));
    assert!(found.values().all(|text| !text.contains(&line[4..12])));
}

#[test]
fn without_a_daemon_the_rest_is_there_and_nothing_is_changed() {
    let place = place();
    place.serve().stop();
    let before = devices(&place);
    let printed = run(&mut support(&place, "--out report.tar.gz"));
    assert!(devices(&place) == before, "a device was written");
    let found = parts(&place.path("report.tar.gz"));
    superblocks(&found);
    assert!(found["check.txt"].contains("no problem found"));
    let no_daemon = |line: &str| {
        line.starts_with("daemon/status.json") && line.contains("no daemon answers on")
    };
    assert!(printed.lines().any(no_daemon), "{printed}");
    assert!(
        found["missing.txt"].lines().any(no_daemon),
        "{}",
        found["missing.txt"]
    );
    assert!(!found.contains_key("daemon/status.json"));
}

#[test]
fn a_daemon_that_does_not_answer_is_not_waited_for() {
    let place = place();
    let daemon = place.serve();
    daemon.process.signal(libc::SIGSTOP);
    let begin = Instant::now();
    let printed = run(&mut support(&place, "--out report.tar.gz"));
    let span = begin.elapsed();
    daemon.process.signal(libc::SIGCONT);
    assert!(span < Duration::from_secs(60), "{span:?}");
    let found = parts(&place.path("report.tar.gz"));
    let missing = &found["missing.txt"];
    assert!(
        missing.contains("daemon/status.json: the daemon on"),
        "{missing}"
    );
    superblocks(&found);
    assert!(printed.contains("does not answer"), "{printed}");
    daemon.stop();
}

#[test]
fn a_device_or_a_configuration_that_is_missing_leaves_the_other_parts() {
    let place = place();
    place.serve().stop();
    fs::remove_file(place.path("ssd")).unwrap();
    let fifo = place.path("disk");
    fs::remove_file(&fifo).unwrap();
    run(Command::new("mkfifo").arg(&fifo));
    run(&mut support(&place, "--out report.tar.gz"));
    let found = parts(&place.path("report.tar.gz"));
    assert_eq!(json(&found, "devices/log0.json")["log"]["volume"], "db");
    let missing = &found["missing.txt"];
    for line in [
        &format!("devices/ssd.json: {}: No such file", place.text("ssd")),
        "devices/disk.json: ",
        "is neither a file nor a block device",
    ] {
        assert!(missing.contains(line), "{line} in {missing}");
    }
    run(&mut support(
        &place,
        "--out other.tar.gz --config none.toml",
    ));
    let found = parts(&place.path("other.tar.gz"));
    assert!(found["missing.txt"].contains("configuration: none.toml cannot be read"));
    assert!(found.contains_key("machine/memory.txt"));
}

#[test]
fn a_file_is_replaced_only_when_asked_and_whole_or_not_at_all() {
    let place = place();
    let archive = place.path("report.tar.gz");
    fs::write(&archive, "of another").unwrap();
    refused(
        &mut support(&place, "--out report.tar.gz"),
        1,
        &["report.tar.gz: the file exists", "--yes to replace it"],
    );
    // A full disk, by a limit on the size of files.
    let mut full = Command::new("sh");
    full.args([
        "-c",
        "trap '' XFSZ; ulimit -f 1; exec \"$0\" support --yes --out report.tar.gz",
    ]);
    full.arg(hotset().get_program()).current_dir(place.path(""));
    refused(
        &mut full,
        1,
        &["report.tar.gz: cannot be written", "with --out"],
    );
    assert_eq!(fs::read_to_string(&archive).unwrap(), "of another");
    let beside = || {
        let names = fs::read_dir(place.path("")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name.contains("report"))
            .collect::<Vec<_>>()
    };
    assert_eq!(beside(), ["report.tar.gz"]);
    let said = run(&mut support(&place, "--out report.tar.gz --yes"));
    assert!(said.contains("the former file is gone"), "{said}");
    assert!(parts(&archive).contains_key("version.txt"));
    assert_eq!(beside(), ["report.tar.gz"]);
    refused(
        &mut support(&place, "--out none/report.tar.gz"),
        1,
        &["none/report.tar.gz: cannot be written"],
    );
    fs::create_dir(place.path("bin")).unwrap();
    refused(
        &mut support(&place, "--out bin --yes"),
        1,
        &["bin: cannot be written", "directory"],
    );
    refused(
        &mut support(&place, "--list --out x.tar.gz"),
        2,
        &["--list", "--out"],
    );
    // The name without --out.
    run(&mut support(&place, "--web-state none"));
    let named = fs::read_dir(place.path("")).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
        name.starts_with("hotset-support-") && name.ends_with(".tar.gz")
    });
    assert_eq!(named.count(), 1);
}

/// A token of `hotset web`.
const TOKEN: &str = "5ec4e70123456789abcdef0123456789abcdef0123456789abcdef0123456789";

/// Has no part, name or printed line hold a secret: each begins with `S3CRET`, but for the token.
fn kept_secret(place: &Place, archive: PathBuf, printed: &str) {
    let found = parts(&archive);
    for (name, text) in &found {
        for secret in ["S3CRET", "s3cret", &TOKEN[..16]] {
            assert!(!text.contains(secret), "{name}: {text}");
        }
    }
    assert!(
        !printed.contains("S3CRET") && !printed.contains(TOKEN),
        "{printed}"
    );
    // The parts that had them are there.
    assert!(
        found.keys().any(|name| name.starts_with("configuration/")),
        "{found:?}"
    );
    assert!(found["journal/hotset-web.txt"].contains("(removed)"));
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = id.trim();
    if !id.is_empty() {
        assert!(found.values().all(|text| !text.contains(id)));
        assert!(found["devices/ssd.json"].contains("(this machine)"));
    }
    assert!(place.path("hotset.toml").exists());
}

/// Files of keys and tokens, programs that print secrets, and the environment of a webhook.
fn with_secrets(place: &Place, words: &str) -> Command {
    fs::create_dir_all(place.path("web")).unwrap();
    fs::write(place.path("web/tokens"), "operator S3CRET\n").unwrap();
    let event = "{\"at\":1,\"severity\":\"bad\",\"subject\":\"origin\",\"text\":\"nbd://me:S3CRETevent@h/x\"}\n";
    fs::write(place.path("web/events"), event).unwrap();
    let journal = format!(
        "operator: {TOKEN}\nhttps://hooks.example/S3CREThook answers 500\n\
         device far: me:S3CRETpassword@127.0.0.1:9 cannot be reached"
    );
    program(place, "journalctl", &journal);
    program(place, "systemctl", "Environment=nothing");
    let mut command = support(place, &format!("{words} --web-state web"));
    command.env("HOTSET_WEBHOOK", "https://hooks.example/S3CRETenv");
    command
}

#[test]
fn no_secret_of_a_served_configuration_is_in_the_archive() {
    let place = place();
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = format!("S3CRETkey\n{}", certified.signing_key.serialize_pem());
    fs::write(place.path("key.pem"), key).unwrap();
    fs::write(place.path("certificate.pem"), certified.cert.pem()).unwrap();
    place.config(&format!(
        "# S3CRETcomment\n{CONFIG}tls_certificate = \"$/certificate.pem\"\ntls_key = \"$/key.pem\" # S3CRETend\n"
    ));
    fs::create_dir(place.path("conf.d")).unwrap();
    let far = "# S3CRETbeside\n[[device]]\nname = \"far\"\nnbd = \"nbd://me:S3CRETpassword@127.0.0.1:9/x\"\n\
               [[device]]\nname = \"farther\"\nnbd = \"nbd:\\u002f/me:S3CRET/slash@127.0.0.1:9/x\"\n\
               [[volume]]\nname = \"remote\"\norigin = \"far\"\npool = \"fast\"\n\
               [[volume]]\nname = \"remoter\"\norigin = \"farther\"\npool = \"fast\"\n";
    fs::write(place.path("conf.d/50-far.toml"), far).unwrap();
    let daemon = place.serve();
    until("the far volume's failure", || {
        daemon.status()["waiting"].as_array().unwrap().len() == 2
    });
    let printed = run(&mut with_secrets(&place, "--out report.tar.gz"));
    kept_secret(&place, place.path("report.tar.gz"), &printed);
    let found = parts(&place.path("report.tar.gz"));
    let shown = &found["configuration/conf.d/50-far.toml"];
    assert!(
        shown.contains("nbd = \"nbd://(removed)@127.0.0.1:9/x\""),
        "{shown}"
    );
    let main = &found["configuration/hotset.toml"];
    assert!(
        main.contains(&format!(
            "tls_key = \"{}\"  # (removed)\n",
            place.text("key.pem")
        )),
        "{main}"
    );
    assert!(found["page/events.jsonl"].contains("nbd://(removed)@h/x"));
    assert!(found["daemon/status.json"].contains("remote"));
    daemon.stop();
}

#[test]
fn no_secret_of_a_wrong_configuration_is_in_the_archive() {
    let place = place();
    place.serve().stop();
    let key = "-----BEGIN PRIVATE KEY-----\nS3CRETS3CRET\n-----END PRIVATE KEY-----\n";
    place.config(&format!(
        "{CONFIG}tls_key = '''{key}'''\npassword = \"S3CRETunknown\"\n[odd]\nb = \"S3CRETsection\"\n[webhook]\n\
         url = \"https://x/S3CRETurl\"\n[[device]]\nname = \"odd\"\nnbd = \"nbd+unix:///x?socket=/s&psk=S3CRETpsk\"\n"
    ));
    fs::create_dir(place.path("conf.d")).unwrap();
    fs::write(
        place.path("conf.d/broken.toml"),
        "name = S3CRETbroken # S3CRET\n",
    )
    .unwrap();
    let output = with_secrets(&place, "--out report.tar.gz")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let printed = all(&output);
    let found = parts(&place.path("report.tar.gz"));
    assert!(
        found["check.txt"].contains("broken.toml:1: "),
        "{}",
        found["check.txt"]
    );
    assert!(found["missing.txt"].contains("conf.d/broken.toml: it is no TOML"));
    kept_secret(&place, place.path("report.tar.gz"), &printed);
    fs::remove_file(place.path("conf.d/broken.toml")).unwrap();
    let printed = run(&mut with_secrets(&place, "--out other.tar.gz"));
    let check = parts(&place.path("other.tar.gz"))["check.txt"].clone();
    assert!(check.contains("has no parameter `password`"), "{check}");
    kept_secret(&place, place.path("other.tar.gz"), &printed);
}
