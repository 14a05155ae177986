//! A back-end snapshot taken and restored under a volume that is served, by
//! `hotset volume snapshot`.

use crate::common::{Daemon, Place, copy_in, copy_out, noise, refused, run, tool};
use std::fs;
use std::path::Path;
use std::process::Command;

fn take(place: &Place) -> Command {
    place.command("volume snapshot vol --")
}

fn restore(place: &Place) -> Command {
    place.command("volume snapshot --restore vol --")
}

fn is_quiesced(daemon: &Daemon) -> bool {
    daemon.status()["volumes"][0]["quiesced"] == true
}

/// Copies the origin as a back end would, without hotset's knowledge.
fn back_end(from: &Path, to: &Path) -> [std::ffi::OsString; 5] {
    ["cp", "--sparse=always", "--no-target-directory"]
        .map(Into::into)
        .into_iter()
        .chain([from.into(), to.into()])
        .collect::<Vec<_>>()
        .try_into()
        .expect("five words")
}

fn read(daemon: &Daemon) -> Vec<u8> {
    copy_out(&daemon.uri("vol"), &daemon.place.path("read"))
}

#[test]
fn a_snapshot_is_taken_and_restored_in_seven_steps() {
    let place = Place::usual();
    let (origin, snapshot) = (place.path("origin"), place.path("snapshot"));
    let bytes = 128 << 20;
    let (old, new) = (noise(1, bytes), noise(2, bytes));
    let source = place.path("source");
    let daemon = place.serve();
    let write = |bytes: &[u8]| {
        fs::write(&source, bytes).unwrap();
        copy_in(&source, &daemon.uri("vol"));
    };
    // 1 to 4: writes before the snapshot are in it.
    write(&old);
    run(take(&place).args(back_end(&origin, &snapshot)));
    assert_eq!(daemon.status()["volumes"][0]["quiesced"], false);
    assert!(
        fs::read(&snapshot).unwrap() == old,
        "the snapshot is not what was written"
    );
    // Writes go on, and are cached.
    write(&new);
    assert!(read(&daemon) == new);
    assert!(read(&daemon) == new);
    assert!(daemon.count("blocks_hit") > 0, "the cache took no part");
    // 5 to 7: reads after the restore return the snapshot alone.
    run(restore(&place).args(back_end(&snapshot, &origin)));
    for _ in 0..2 {
        assert!(
            read(&daemon) == old,
            "bytes from before the restore are read"
        );
    }
    assert_eq!(daemon.count("invalidations"), 1);
    daemon.stop();
}

#[test]
fn writes_wait_while_a_snapshot_is_taken() {
    let place = Place::usual();
    let daemon = place.serve();
    run(&mut place.command("volume quiesce vol"));
    assert_eq!(daemon.status()["volumes"][0]["quiesced"], true);
    refused(
        &mut place.command("volume quiesce vol"),
        1,
        &["quiesced already", "resume it first"],
    );
    fs::write(place.path("source"), noise(3, 1 << 20)).unwrap();
    let mut writer = tool("nbdcopy", "libnbd-bin");
    writer
        .arg("--flush")
        .arg(place.path("source"))
        .arg(daemon.uri("vol"));
    let mut writer = writer.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(
        writer.try_wait().unwrap().is_none(),
        "the write did not wait"
    );
    assert!(
        fs::read(place.path("origin"))
            .unwrap()
            .iter()
            .all(|b| *b == 0)
    );
    run(&mut place.command("volume resume vol"));
    assert!(writer.wait().unwrap().success());
    assert!(read(&daemon)[..1 << 20] == noise(3, 1 << 20));
    refused(
        &mut place.command("volume resume vol"),
        1,
        &["not quiesced"],
    );
    for command in ["quiesce", "resume", "invalidate"] {
        let words = format!("volume {command} none");
        refused(
            &mut place.command(&words),
            1,
            &["no volume is named none", "volume list"],
        );
    }
    // A volume that is quiesced ends in order all the same.
    run(&mut place.command("volume quiesce vol"));
    daemon.stop();
}

#[test]
fn a_failed_command_leaves_the_volume_resumed() {
    let place = Place::usual();
    let daemon = place.serve();
    let failed = take(&place).arg("false").status().unwrap();
    assert_eq!(failed.code(), Some(1));
    refused(take(&place).arg("/no/such"), 1, &["cannot be run"]);
    assert!(!is_quiesced(&daemon));
    let failed = restore(&place)
        .args(["sh", "-c", "exit 7"])
        .status()
        .unwrap();
    assert_eq!(failed.code(), Some(7));
    assert_eq!(daemon.status()["volumes"][0]["quiesced"], false);
    assert_eq!(daemon.count("invalidations"), 1);
    daemon.stop();
}

#[test]
fn a_volume_is_held_until_the_last_of_a_snapshot_has_ended_whatever_dies_first() {
    let place = Place::usual();
    let daemon = place.serve();
    // The command is killed, and its child goes on.
    let held = place.path("held");
    let wait = format!("touch {}; sleep 2", held.display());
    let mut killed = restore(&place).args(["sh", "-c", &wait]).spawn().unwrap();
    crate::common::until("the command runs", || held.exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(is_quiesced(&daemon));
    crate::common::until("the volume goes on", || !is_quiesced(&daemon));
    assert_eq!(daemon.count("invalidations"), 1);
    // Both are killed.
    let wait = "echo $$ > $0; exec sleep 60";
    let mut killed = take(&place)
        .args(["sh", "-c", wait, &held.display().to_string()])
        .spawn()
        .unwrap();
    let pid = || fs::read_to_string(&held).ok()?.trim().parse::<i32>().ok();
    crate::common::until("the command runs", || pid().is_some());
    killed.kill().unwrap();
    killed.wait().unwrap();
    run(Command::new("kill").arg(pid().unwrap().to_string()));
    crate::common::until("the volume goes on", || !is_quiesced(&daemon));
    daemon.stop();
}

#[test]
fn a_volume_that_was_quiesced_when_the_daemon_ended_has_no_lines() {
    for killed in [false, true] {
        let place = Place::usual();
        let bytes = 128 << 20;
        let (old, new) = (noise(1, bytes), noise(2, bytes));
        fs::write(place.path("origin"), &old).unwrap();
        let daemon = place.serve();
        assert!(read(&daemon) == old && read(&daemon) == old);
        crate::common::until("a map", || daemon.count("map_commits") > 0);
        run(&mut place.command("volume quiesce vol"));
        // The back end restores the whole volume, sentinels and samples too.
        fs::write(place.path("origin"), &new).unwrap();
        match killed {
            true => daemon.process.kill(),
            false => drop(daemon.stop()),
        }
        let daemon = place.serve();
        assert!(
            read(&daemon) == new,
            "bytes from before the restore are read"
        );
        assert_eq!(daemon.count("lines_restored"), 0);
        let log = daemon.stop();
        assert!(
            log.contains("volume vol was quiesced when hotset ended"),
            "{log}"
        );
    }
}
