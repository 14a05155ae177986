//! Arrays behind the real daemon: members are files and NBD servers that are
//! killed and started again under load.

use crate::common::{
    Daemon, Place, Process, attaches, copy_in, copy_out, faultless, fio, hotset, noise, refused,
    run, tool, until,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testbed::attached::AttachedDevice;

const MIB: u64 = 36;
/// The size of the volume, which every test array has room for.
const VOLUME_BYTES: usize = 32 << 20;

/// The kind of a member's device.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    File,
    Nbdkit,
    Qemu,
    /// A loop device, by a link that exists as long as the device.
    Loop,
}
use Kind::*;

/// The server of a member's device, and the device, as long as both run.
struct Served {
    attached: Option<(AttachedDevice, PathBuf)>,
    _server: Process,
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some((_, link)) = &self.attached {
            fs::remove_file(link).unwrap();
        }
    }
}

/// Serves the member `name`.
fn serve(place: &Place, name: &str, kind: Kind) -> Served {
    let socket = place.path(&format!("{name}.sock"));
    let _ = fs::remove_file(&socket);
    let mut server = match kind {
        Qemu => {
            // Without the wrapper, which would be killed in its place.
            let mut server = Command::new("qemu-nbd");
            server.args(["--persistent", "--format=raw", "--shared=4", "--socket"]);
            server.arg(&socket).arg(place.path(name));
            server
        }
        _ => {
            let mut server = tool("nbdkit", "nbdkit");
            server.args(["--foreground", "--exit-with-parent", "--unix"]);
            server.arg(&socket).arg("file").arg(place.path(name));
            server
        }
    };
    let server = Process(server.spawn().unwrap());
    until("the server of a member", || socket.exists());
    let attached = (kind == Loop).then(|| {
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let fuse = place.path(&format!("{name}.fuse"));
        // After the device is pulled nothing may be answered from the page cache.
        let attached = AttachedDevice::new(&uri, &fuse, &["--direct-io=on"]).unwrap();
        let link = place.path(&format!("{name}.device"));
        symlink(attached.device(), &link).unwrap();
        (attached, link)
    });
    Served {
        attached,
        _server: server,
    }
}

/// Serves those of `members` that are no files.
fn serve_those(
    place: &Place,
    members: &[(&str, &str, Kind)],
    those: impl Fn(&str) -> bool,
) -> Vec<(String, Served)> {
    let served = members.iter().filter(|m| m.2 != File && those(m.0));
    let serve = |m: &(&str, &str, Kind)| (m.0.to_owned(), serve(place, m.0, m.2));
    served.map(serve).collect()
}

/// A configuration with the volume `vol` on the array `disk`, of `level` and `members`, and the
/// lines `more` in the array's section.
fn configured(level: &str, members: &[(&str, &str, Kind)], more: &str) -> Place {
    let place = Place::new();
    let mut text = String::from(
        "[daemon]\ncontrol = \"$/control\"\nstate = \"$/state\"\nbuffers = \"64MiB\"\n[[listen]]\nunix = \"$/nbd\"\n",
    );
    for (name, controller, kind) in members {
        place.file(name, MIB);
        let at = match kind {
            File => format!("path = \"$/{name}\""),
            Loop => format!("path = \"$/{name}.device\""),
            _ => format!("nbd = \"nbd+unix:///?socket=$/{name}.sock\""),
        };
        text += &format!("[[device]]\nname = \"{name}\"\n{at}\ncontroller = \"{controller}\"\n");
    }
    let spare = |name: &&str| name.starts_with("spare");
    let names = members.iter().map(|(name, ..)| *name);
    let (spares, names): (Vec<_>, Vec<_>) = names.partition(spare);
    text += &format!(
        "[[array]]\nname = \"disk\"\nlevel = \"{level}\"\nmembers = {names:?}\nspares = {spares:?}\n\
         detection = \"2s\"\nrebuild_rate = \"64MiB\"\n{more}\n\
         [[pool]]\nname = \"fast\"\ndevices = []\n\
         [[volume]]\nname = \"vol\"\norigin = \"disk\"\npool = \"fast\"\n"
    );
    place.config(&text);
    place
}

fn create(place: &Place) -> String {
    let mut create = hotset();
    create.args(["array", "create", "disk", "--config"]);
    run(create.arg(place.path("hotset.toml")))
}

fn array(daemon: &Daemon<'_>) -> serde_json::Value {
    daemon.status()["arrays"][0].clone()
}

fn is(daemon: &Daemon<'_>, state: &str) -> bool {
    array(daemon)["state"] == state
}

/// Loses `lost` under a load that verifies its own writes, and gets them back.
fn survives(level: &str, members: &[(&str, &str, Kind)], lost: &[&str]) {
    let place = configured(level, members, "");
    let mut servers = serve_those(&place, members, |_| true);
    assert!(create(&place).contains("HEALTHY"));
    let daemon = place.serve();
    let bytes = noise(1, VOLUME_BYTES);
    fs::write(place.path("in"), &bytes).unwrap();
    copy_in(&place.path("in"), &daemon.uri("vol"));
    // The last quarter is fio's.
    let options = [
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--iodepth=8",
        "--offset=24m",
        "--size=8m",
        "--verify=crc32c",
        "--verify_state_save=0",
        "--verify_fatal=1",
        "--time_based",
        "--runtime=12",
    ];
    std::thread::scope(|scope| {
        let uri = daemon.uri("vol");
        let (place, options) = (&place, &options);
        let load = scope.spawn(move || faultless(&fio(place, "load", &uri, options)));
        std::thread::sleep(Duration::from_secs(2));
        servers.retain(|(name, _)| !lost.contains(&name.as_str()));
        until("the loss", || !is(&daemon, "healthy"));
        let text = run(&mut place.command("array status disk"));
        assert!(text.contains("lost"), "{text}");
        std::thread::sleep(Duration::from_secs(1));
        servers.extend(serve_those(place, members, |name| lost.contains(&name)));
        until("the rebuild", || is(&daemon, "healthy"));
        let stall_s = load.join().unwrap();
        println!("{level}: the longest request took {stall_s:.3} s");
        assert!(stall_s < 4.0, "{stall_s}");
    });
    let out = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(out[..24 << 20] == bytes[..24 << 20], "content differs");
    let output = run(&mut place.command("array scrub disk"));
    assert!(output.contains(": 0 places differed"), "{output}");
    let status = daemon.status();
    assert_eq!(status["nbd"]["errors"], 0, "{}", status["nbd"]);
    drop(daemon.stop());
}

/// Reads all of the volume into `out`. True for success.
fn can_be_read(daemon: &Daemon<'_>, out: &Path) -> bool {
    let mut copy = tool("nbdcopy", "libnbd-bin");
    let copied = copy.arg(daemon.uri("vol")).arg(out).output();
    copied.unwrap().status.success()
}

/// Loses more members than the array can do without, with errors as the only reports, and gets them
/// back: the volume goes on without a restart.
fn comes_back(level: &str, members: &[(&str, &str, Kind)], lost: &[&str]) {
    let place = configured(level, members, "");
    let mut servers = serve_those(&place, members, |_| true);
    create(&place);
    let daemon = place.serve();
    let (bytes, out) = (noise(3, VOLUME_BYTES), place.path("out"));
    fs::write(place.path("in"), &bytes).unwrap();
    copy_in(&place.path("in"), &daemon.uri("vol"));
    for round in 0..2 {
        servers.retain(|(name, _)| !lost.contains(&name.as_str()));
        assert!(!can_be_read(&daemon, &out), "round {round}");
        servers.extend(serve_those(&place, members, |name| lost.contains(&name)));
        until("the return", || {
            can_be_read(&daemon, &out) && is(&daemon, "healthy")
        });
        assert!(
            fs::read(&out).unwrap()[..VOLUME_BYTES] == bytes[..],
            "round {round}"
        );
    }
    let bytes = noise(4, VOLUME_BYTES);
    fs::write(place.path("in"), &bytes).unwrap();
    copy_in(&place.path("in"), &daemon.uri("vol"));
    assert!(copy_out(&daemon.uri("vol"), &out)[..VOLUME_BYTES] == bytes[..]);
    let output = daemon.stop();
    assert!(output.contains("array disk is reassembled"), "{output}");
}

#[test]
fn a_mirror_that_lost_all_its_members_comes_back() {
    let members = [("a", "x", Nbdkit), ("b", "y", Qemu)];
    comes_back("raid1", &members, &["a", "b"]);
}

#[test]
fn parity_that_lost_two_members_comes_back() {
    let members = [("a", "x", Nbdkit), ("b", "y", Qemu), ("c", "z", File)];
    comes_back("raid5", &members, &["a", "b"]);
}

#[test]
fn an_array_comes_back_without_a_member_that_it_had_lost_before() {
    let members = [("a", "x", Nbdkit), ("b", "y", Qemu)];
    let place = configured("raid1", &members, "");
    let [a, b] = members.map(|(name, _, kind)| serve(&place, name, kind));
    create(&place);
    let daemon = place.serve();
    drop(a);
    let (bytes, out) = (noise(5, VOLUME_BYTES), place.path("out"));
    fs::write(place.path("in"), &bytes).unwrap();
    copy_in(&place.path("in"), &daemon.uri("vol"));
    assert!(is(&daemon, "degraded"));
    drop(b);
    assert!(!can_be_read(&daemon, &out));
    assert!(is(&daemon, "failed"));
    let _b = serve(&place, "b", Qemu);
    until("the return", || is(&daemon, "degraded"));
    assert!(can_be_read(&daemon, &out));
    assert!(fs::read(&out).unwrap()[..VOLUME_BYTES] == bytes[..]);
    let output = daemon.stop();
    assert!(output.contains("array disk starts without a"), "{output}");
}

#[test]
fn loop_devices_below_arrays_without_a_spare_copy_come_back_as_others() {
    if !attaches() {
        return;
    }
    let members = [("a", "x", Loop), ("b", "y", Loop)];
    comes_back("raid0", &members, &["b"]);
    comes_back("raid1", &members, &["a", "b"]);
}

#[test]
fn a_mirror_outlives_a_server_that_is_killed_and_comes_back() {
    survives("raid1", &[("a", "x", Nbdkit), ("b", "y", File)], &["a"]);
}

#[test]
fn mirrored_stripes_outlive_a_whole_controller() {
    let members = [
        ("a", "x", Nbdkit),
        ("b", "x", Qemu),
        ("c", "y", Nbdkit),
        ("d", "y", File),
    ];
    survives("raid10", &members, &["a", "b"]);
}

#[test]
fn parity_outlives_a_server_that_is_killed_and_comes_back() {
    let members = [("a", "x", File), ("b", "y", Qemu), ("c", "z", File)];
    survives("raid5", &members, &["b"]);
}

/// Copies are made by hand: a spare steps in, a member is taken out, another takes its place; after
/// a restart everything is the same.
#[test]
fn members_are_taken_out_replaced_and_kept_over_a_restart() {
    let members = [("a", "x", File), ("b", "y", File), ("spare", "z", File)];
    let place = configured("raid1", &members, "");
    create(&place);
    let daemon = place.serve();
    let bytes = noise(2, VOLUME_BYTES);
    fs::write(place.path("in"), &bytes).unwrap();
    copy_in(&place.path("in"), &daemon.uri("vol"));
    run(&mut place.command("array fail disk a"));
    until("the spare", || {
        is(&daemon, "healthy") && array(&daemon)["spares"] == serde_json::json!([])
    });
    assert_eq!(array(&daemon)["members"][0]["device"], "spare");
    place.file("new", MIB);
    let new = place.text("new");
    let temporary = format!("array replace --temporary disk b {new}");
    let message = "the next start would lack the new one";
    refused(&mut place.command(&temporary), 1, &[message]);
    run(&mut place.command(&format!("array replace disk b {new}")));
    until("the new member", || is(&daemon, "healthy"));
    assert_eq!(array(&daemon)["members"][1]["device"], "new");
    until("its place in the file", || {
        lists(&place) == ["a new", "spare"]
    });
    // A device that holds data is refused until confirmed, and then waits as a spare.
    let add = format!("array add disk {}", place.text("in"));
    refused(&mut place.command(&add), 1, &["holds data; give --yes"]);
    place.file("small", 8);
    let small = format!("array add disk {}", place.text("small"));
    refused(
        &mut place.command(&small),
        1,
        &["8 MiB, a member needs", "give a larger device"],
    );
    run(&mut place.command("array add disk a --yes"));
    assert_eq!(array(&daemon)["spares"], serde_json::json!(["a"]));
    refused(
        &mut place.command("array add disk a"),
        1,
        &["is in this array already"],
    );
    refused(
        &mut place.command("array fail disk 7"),
        1,
        &["has no member 7"],
    );
    refused(
        &mut place.command("array scrub tape"),
        1,
        &["no array tape runs"],
    );
    drop(daemon.stop());
    let daemon = place.serve();
    assert!(is(&daemon, "healthy"), "{}", array(&daemon));
    let out = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(out[..VOLUME_BYTES] == bytes[..]);
}

/// The members and the spares that the configuration's file gives the array.
fn lists(place: &Place) -> [String; 2] {
    let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
    let config = control::config::parse(&text, &mut Vec::new());
    let array = &config.arrays[0];
    [&array.members.value, &array.spares.value].map(|names| {
        let names = names.iter().map(ToString::to_string);
        names.collect::<Vec<_>>().join(" ")
    })
}

/// An exchange of a sound member that is cut short, in whatever way, leaves the old member; a
/// complete exchange is in the file. The new member is found again like any other.
#[test]
fn an_exchange_is_in_the_file_once_it_has_ended() {
    for level in ["raid1", "raid5"] {
        let members = [("a", "x", File), ("b", "y", File), ("c", "z", File)];
        let members = &members[..if level == "raid1" { 2 } else { 3 }];
        let names: Vec<_> = members.iter().map(|m| m.0).collect();
        let place = configured(level, members, "");
        let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
        let slowly = text.replace("rebuild_rate = \"64MiB\"", "rebuild_rate = \"4MiB\"");
        fs::write(place.path("hotset.toml"), &slowly).unwrap();
        place.file("e", MIB);
        let e = serve(&place, "e", Nbdkit);
        let uri = format!("nbd+unix:///?socket={}", place.text("e.sock"));
        create(&place);
        let mut daemon = place.serve();
        let bytes = noise(4, VOLUME_BYTES);
        fs::write(place.path("in"), &bytes).unwrap();
        copy_in(&place.path("in"), &daemon.uri("vol"));
        let sound = |daemon: &Daemon<'_>| {
            let out = copy_out(&daemon.uri("vol"), &place.path("out"));
            assert!(out[..VOLUME_BYTES] == bytes[..], "{level}");
        };
        for kill in [true, false] {
            let reads = daemon.slow_reads();
            run(&mut place.command(&format!("array replace --yes disk a {uri}")));
            until("the copying", || {
                let jobs = daemon.status()["jobs"].clone();
                let mut jobs = jobs.as_array().unwrap().iter();
                jobs.any(|job| job["name"] == "replace:disk" && job["state"] == "running")
            });
            match kill {
                true => daemon.process.signal(libc::SIGKILL),
                false => daemon.process.signal(libc::SIGTERM),
            }
            daemon.process.0.wait().unwrap();
            drop(reads);
            assert_eq!(lists(&place)[0], names.join(" "));
            daemon = place.serve();
            // A kill leaves regions that are compared again.
            until("the old members in sync", || is(&daemon, "healthy"));
            sound(&daemon);
        }
        run(&mut place.command(&format!("array replace --yes disk a {uri}")));
        // Named after its export, which has no name.
        let after = ["nbd"]
            .iter()
            .chain(&names[1..])
            .copied()
            .collect::<Vec<_>>();
        until("the end of the exchange", || {
            lists(&place)[0] == after.join(" ")
        });
        assert_eq!(lists(&place)[1], "");
        // Its server is away for longer than `detection`.
        drop(e);
        std::thread::sleep(Duration::from_secs(1));
        copy_in(&place.path("in"), &daemon.uri("vol"));
        until("the loss", || is(&daemon, "degraded"));
        let e = serve(&place, "e", Nbdkit);
        until("the member that is back", || is(&daemon, "healthy"));
        drop(daemon.stop());
        daemon = place.serve();
        assert!(is(&daemon, "healthy"), "{}", array(&daemon));
        sound(&daemon);
        daemon.stop();
        drop(e);
    }
}

/// Stripes on each controller, mirrored across them.
#[test]
fn arrays_nest_and_the_lower_may_be_raw() {
    let names = ["a", "b", "c", "d"];
    let place = Place::new();
    let mut text = String::from(
        "[daemon]\ncontrol = \"$/control\"\nstate = \"$/state\"\nbuffers = \"64MiB\"\n[[listen]]\nunix = \"$/nbd\"\n",
    );
    for (name, controller) in names.into_iter().zip(["x", "x", "y", "y"]) {
        place.file(name, 20);
        text += &format!(
            "[[device]]\nname = \"{name}\"\npath = \"$/{name}\"\ncontroller = \"{controller}\"\n"
        );
    }
    for (name, members) in [("left", ["a", "b"]), ("right", ["c", "d"])] {
        let raw = name == "right";
        text += &format!(
            "[[array]]\nname = \"{name}\"\nlevel = \"raid0\"\nmembers = {members:?}\nraw = {raw}\n"
        );
    }
    text += "[[array]]\nname = \"disk\"\nlevel = \"raid1\"\nmembers = [\"left\", \"right\"]\n\
             [[pool]]\nname = \"fast\"\ndevices = []\n\
             [[volume]]\nname = \"vol\"\norigin = \"disk\"\npool = \"fast\"\n";
    let config = place.config(&text);
    let check = || run(hotset().arg("check").arg(&config));
    let unmade = check();
    assert!(unmade.contains("array left is not made yet"), "{unmade}");
    run(hotset()
        .args(["array", "create", "left", "--config"])
        .arg(&config));
    create(&place);
    let made = check();
    assert!(
        !made.contains("warning") && made.contains("3 arrays"),
        "{made}"
    );
    let daemon = place.serve();
    let bytes = noise(3, VOLUME_BYTES);
    fs::write(place.path("in"), &bytes).unwrap();
    copy_in(&place.path("in"), &daemon.uri("vol"));
    run(&mut place.command("array fail disk left"));
    let out = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(out[..VOLUME_BYTES] == bytes[..]);
    let text = run(&mut place.command("status"));
    assert!(text.contains("disk: DEGRADED, raid1"), "{text}");
    drop(daemon.stop());
    fs::write(
        &config,
        fs::read_to_string(&config)
            .unwrap()
            .replace("\"y\"", "\"x\""),
    )
    .unwrap();
    let check = check();
    assert!(
        check.contains("losing controller x stops array disk"),
        "{check}"
    );
}

/// The server is back before the member counts as unresponsive: nothing is read from another disk,
/// or written to it.
#[test]
fn a_server_that_is_back_with_another_disk_is_left_alone() {
    let members = [("a", "x", Nbdkit), ("b", "y", Nbdkit)];
    let place = configured("raid1", &members, "");
    let mut servers = serve_those(&place, &members, |_| true);
    assert!(create(&place).contains("HEALTHY"));
    let daemon = place.serve();
    let bytes = noise(3, VOLUME_BYTES);
    fs::write(place.path("in"), &bytes).unwrap();
    copy_in(&place.path("in"), &daemon.uri("vol"));
    let exchange = |servers: &mut Vec<(String, Served)>, from: &str, to: &str| {
        servers.retain(|(name, _)| name != "b");
        fs::rename(place.path("b"), place.path(to)).unwrap();
        fs::rename(place.path(from), place.path("b")).unwrap();
        servers.extend(serve_those(&place, &members, |name| name == "b"));
    };
    place.file("blank", MIB);
    exchange(&mut servers, "blank", "own");
    until("the loss", || !is(&daemon, "healthy"));
    let out = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(out[..VOLUME_BYTES] == bytes[..], "content differs");
    exchange(&mut servers, "own", "blank");
    assert!(
        fs::read(place.path("blank"))
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    until("the return", || is(&daemon, "healthy"));
    let output = run(&mut place.command("array scrub disk"));
    assert!(output.contains(": 0 places differed"), "{output}");
    assert_eq!(daemon.status()["nbd"]["errors"], 0);
    let log = daemon.stop();
    assert!(log.contains("another export answers in its place"), "{log}");
}

/// The member was cut short before the start; its server restarts after that.
#[test]
fn a_member_whose_export_has_its_size_again_returns_by_itself() {
    let members = [("a", "c1", File), ("b", "c2", Nbdkit)];
    let place = configured("raid1", &members, "");
    let mut servers = serve_those(&place, &members, |_| true);
    assert!(create(&place).contains("HEALTHY"));
    servers.clear();
    let resize = |bytes| {
        let file = fs::File::options().write(true).open(place.path("b"));
        file.unwrap().set_len(bytes).unwrap();
    };
    resize(1 << 20);
    servers.extend(serve_those(&place, &members, |_| true));
    let daemon = place.serve();
    assert!(is(&daemon, "degraded"));
    refused(
        &mut place.command("array add disk b"),
        1,
        &["is smaller than it was", "restore its size"],
    );
    servers.clear();
    resize(MIB << 20);
    servers.extend(serve_those(&place, &members, |_| true));
    until("the return", || is(&daemon, "healthy"));
    daemon.stop();
}

/// A refused command that was to give a lost member back closes the device.
#[test]
fn a_lost_member_keeps_its_name_while_its_server_is_away() {
    let members = [("a", "c1", File), ("b", "c2", Nbdkit)];
    let place = configured("raid1", &members, "");
    let servers = serve_those(&place, &members, |_| true);
    assert!(create(&place).contains("HEALTHY"));
    let daemon = place.serve();
    drop(servers);
    fs::remove_file(place.path("b.sock")).unwrap();
    fs::write(place.path("in"), noise(3, VOLUME_BYTES)).unwrap();
    copy_in(&place.path("in"), &daemon.uri("vol"));
    until("the loss", || is(&daemon, "degraded"));
    let lost = || array(&daemon)["members"][1]["device"].clone();
    assert_eq!(lost(), "b");
    refused(
        &mut place.command("array add disk b"),
        1,
        &["cannot connect"],
    );
    assert_eq!(lost(), "b");
    place.file("c", MIB);
    let path = place.path("c").display().to_string();
    run(&mut place.command(&format!("array replace --yes disk b {path}")));
    until("another member", || is(&daemon, "healthy"));
    daemon.stop();
}

/// A server restarts, and its disk is larger: the former part is served on, and no client gets an
/// error.
#[test]
fn an_export_that_has_grown_is_served_as_it_was() {
    let place = Place::new();
    place.file("hdd", 16);
    place.config(
        "[daemon]\ncontrol = \"$/control\"\nstate = \"$/state\"\nbuffers = \"64MiB\"\n\
         [[listen]]\nunix = \"$/nbd\"\n[[pool]]\nname = \"fast\"\ndevices = []\n\
         [[device]]\nname = \"hdd\"\nnbd = \"nbd+unix:///?socket=$/hdd.sock\"\n\
         [[volume]]\nname = \"vol\"\norigin = \"hdd\"\npool = \"fast\"\n",
    );
    let server = serve(&place, "hdd", Nbdkit);
    let daemon = place.serve();
    let bytes = noise(4, 16 << 20);
    fs::write(place.path("in"), &bytes).unwrap();
    copy_in(&place.path("in"), &daemon.uri("vol"));
    drop(server);
    let file = fs::File::options().write(true).open(place.path("hdd"));
    file.unwrap().set_len(24 << 20).unwrap();
    let _server = serve(&place, "hdd", Nbdkit);
    let out = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(out == bytes, "content differs");
    assert_eq!(daemon.status()["nbd"]["errors"], 0);
    until("the trouble", || {
        let said = run(&mut place.command("status"));
        said.contains("has grown to 24 MiB") && said.contains("`hotset volume grow vol`")
    });
    run(&mut place.command("volume grow vol"));
    let status = daemon.status();
    assert_eq!(status["volumes"][0]["size_bytes"], 24 << 20);
    let troubles = status["troubles"].to_string();
    assert!(!troubles.contains("origin-grown"), "{troubles}");
    let out = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(
        out.len() == 24 << 20 && out[..16 << 20] == bytes,
        "content differs"
    );
    daemon.stop();
}
