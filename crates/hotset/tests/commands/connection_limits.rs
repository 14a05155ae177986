//! Clients that keep others out of the real daemon, or try to: strangers, and those that are gone
//! while their writes are held up.

use crate::common::{Daemon, Place, USUAL, all, copy_out, hotset, refused, run, tool, until};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Connects and passes the handshake, as the kernel's client.
fn enter(place: &Place) -> UnixStream {
    let mut stream = UnixStream::connect(place.path("nbd")).unwrap();
    let limit = Some(Duration::from_secs(20));
    stream.set_read_timeout(limit).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    let export_name = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x03vol";
    stream.write_all(export_name).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

fn write(offset: u64, bytes: &[u8]) -> Vec<u8> {
    let mut wire = b"\x25\x60\x95\x13\0\0\0\x01cookie42".to_vec();
    wire.extend(offset.to_be_bytes());
    wire.extend((bytes.len() as u32).to_be_bytes());
    wire.extend(bytes);
    wire
}

fn is_well(daemon: &Daemon<'_>) {
    // Without a look at the content, part of which may be held.
    run(tool("nbdinfo", "libnbd-bin").args(["--size", &daemon.uri("vol")]));
}

#[test]
fn clients_that_are_gone_keep_no_places_while_their_writes_are_held() {
    let place = Place::usual();
    let daemon = place.serve();
    run(&mut place.command("volume quiesce vol"));
    // More connections than there are places.
    for n in 0..120_u8 {
        let mut stream = enter(&place);
        stream
            .write_all(&write(u64::from(n) << 12, &[n + 1; 4096]))
            .unwrap();
    }
    is_well(&daemon);
    let begun = &fs::read(place.path("origin")).unwrap()[..120 << 12];
    assert!(begun.iter().all(|byte| *byte == 0), "they are held");
    run(&mut place.command("volume resume vol"));
    until("the writes", || {
        let bytes = copy_out(&daemon.uri("vol"), &place.path("out"));
        let mut blocks = bytes[..120 << 12].chunks(4096).zip(1..);
        blocks.all(|(block, n)| block.iter().all(|byte| *byte == n))
    });
    assert_eq!(daemon.status()["nbd"]["connections_refused"], 0);
    daemon.stop();
}

/// Nanoseconds that each further shard has run.
fn times_run(daemon: &Daemon<'_>) -> Vec<u64> {
    let tasks = format!("/proc/{}/task", daemon.process.0.id());
    let tasks = fs::read_dir(tasks)
        .unwrap()
        .map(|task| task.unwrap().path());
    let names = tasks.map(|task| (fs::read_to_string(task.join("comm")).unwrap(), task));
    let mut shards: Vec<_> = names
        .filter(|(name, _)| name.starts_with("shard-"))
        .collect();
    shards.sort();
    let run = |task: &std::path::PathBuf| {
        let text = fs::read_to_string(task.join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    shards[1..].iter().map(|(_, task)| run(task)).collect()
}

#[test]
fn connections_are_dealt_to_all_shards() {
    let place = Place::usual();
    place.config(&USUAL.replace("shards = 2", "shards = 3"));
    let daemon = place.serve();
    let mut streams: Vec<_> = (0..6).map(|_| enter(&place)).collect();
    let before = times_run(&daemon);
    for (n, stream) in (0..6_u8).zip(&mut streams) {
        stream
            .write_all(&write(u64::from(n) << 12, &[n + 1; 4096]))
            .unwrap();
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..8], *b"\x67\x44\x66\x98\0\0\0\0", "write {n}");
    }
    let after = times_run(&daemon);
    assert_eq!(before.len(), 2);
    assert!(
        before
            .iter()
            .zip(&after)
            .all(|(before, after)| before < after),
        "{before:?} {after:?}"
    );
    assert_eq!(daemon.status()["nbd"]["connections"], 6);
    let bytes = copy_out(&daemon.uri("vol"), &place.path("out"));
    let mut blocks = bytes[..6 << 12].chunks(4096).zip(1..);
    assert!(blocks.all(|(block, n)| block.iter().all(|byte| *byte == n)));
    drop(streams);
    until("their end", || daemon.status()["nbd"]["connections"] == 0);
    daemon.stop();
}

#[test]
fn strangers_at_one_listener_keep_nobody_from_another() {
    let place = Place::new();
    place.file("origin", 8);
    place.file("pool", 64);
    place.config(&(USUAL.to_owned() + "[[listen]]\ntcp = \"127.0.0.1:0\"\n"));
    let daemon = place.serve();
    let status = daemon.status();
    let uri = status["nbd"]["listeners"][1].as_str().unwrap();
    let address = uri.strip_prefix("nbd://").unwrap().trim_end_matches('/');
    let dial = |_| TcpStream::connect(address).unwrap();
    let strangers: Vec<TcpStream> = (0..300).map(dial).collect();
    for _ in 0..5 {
        is_well(&daemon);
    }
    let nbd = daemon.status()["nbd"].clone();
    assert_eq!(nbd["connections_refused"], 0);
    assert!(nbd["handshakes"].as_u64().unwrap() <= 100, "{nbd}");
    // Each has its time, and no more.
    until("the strangers' end", || {
        daemon.status()["nbd"]["handshakes"] == 0
    });
    drop(strangers);
    let log = daemon.stop();
    assert!(log.lines().count() < 40, "{log}");
    assert!(log.contains("more NBD connections were closed"), "{log}");
}

#[test]
fn a_shard_stays_on_its_processor_or_says_that_it_does_not() {
    let allowed = |status: &std::path::Path| {
        let status = fs::read_to_string(status).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    };
    let free = allowed("/proc/self/status".as_ref());
    let first = free.split(['-', ',']).next().unwrap();
    let place = Place::usual();
    let config = USUAL.replace("shards = 2", &format!("shards = [{first}, 65535]"));
    let file = place.config(&config);
    let checked = all(&hotset().arg("check").arg(&file).output().unwrap());
    let warning = "processor 65535 is offline, not there";
    assert!(checked.contains(warning), "{checked}");
    let daemon = place.serve();
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.process.0.id())).unwrap();
    let shards = tasks.filter_map(|task| {
        let task = task.unwrap().path();
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let shard = name.trim().strip_prefix("shard-")?.to_owned();
        Some((shard, allowed(&task.join("status"))))
    });
    let shards: std::collections::BTreeMap<_, _> = shards.collect();
    assert_eq!((shards["0"].as_str(), &shards["1"]), (first, &free));
    let log = daemon.stop();
    let said = "shard 1 runs on any processor: processor 65535 is offline, not there";
    assert!(log.contains(said), "{log}");
}

/// Sends a message of vhost-user, and receives the reply if there is one.
fn vhost(monitor: &mut UnixStream, request: u32, payload: &[u8], replies: bool) -> Vec<u8> {
    let header = [request, 1, payload.len() as u32].map(u32::to_le_bytes);
    monitor.write_all(&header.concat()).unwrap();
    monitor.write_all(payload).unwrap();
    let mut reply = [0; 12];
    if !replies {
        return Vec::new();
    }
    monitor.read_exact(&mut reply).unwrap();
    let bytes = u32::from_le_bytes(reply[8..].try_into().unwrap());
    let mut payload = vec![0; bytes as usize];
    monitor.read_exact(&mut payload).unwrap();
    payload
}

/// The size of a disk, as passed to a monitor that connects.
fn disk_bytes(place: &Place) -> u64 {
    let mut monitor = UnixStream::connect(place.path("vol.sock")).unwrap();
    let features = vhost(&mut monitor, 1, &[], true);
    vhost(&mut monitor, 2, &features, false);
    vhost(&mut monitor, 15, &[], true);
    // Of the protocol's features the configuration space alone.
    vhost(&mut monitor, 16, &(1u64 << 9).to_le_bytes(), false);
    let mut config = [0u32, 8, 0].map(u32::to_le_bytes).concat();
    config.extend([0; 8]);
    let config = vhost(&mut monitor, 24, &config, true);
    // Another test's child may hold a copy of the descriptor, and the connection with it.
    monitor.shutdown(Shutdown::Both).unwrap();
    512 * u64::from_le_bytes(config[12..20].try_into().unwrap())
}

#[test]
fn a_disk_has_grown_for_a_monitor_that_connects_again() {
    let place = Place::usual();
    place.config(&(USUAL.to_owned() + "[[listen]]\nvhost_user = \"$/vol.sock\"\n"));
    let daemon = place.serve();
    let before = disk_bytes(&place);
    let mut stays = UnixStream::connect(place.path("vol.sock")).unwrap();
    vhost(&mut stays, 1, &[], true);
    let origin = fs::File::options().write(true).open(place.path("origin"));
    origin.unwrap().set_len(before + (1 << 20)).unwrap();
    run(&mut place.command("volume grow vol"));
    assert_eq!(stays.read(&mut [0; 12]).unwrap(), 0, "it is disconnected");
    assert_eq!(disk_bytes(&place), before + (1 << 20));
    daemon.stop();
}

#[test]
fn a_volume_becomes_a_virtual_machines_disk_and_an_export_again() {
    let place = Place::usual();
    let daemon = place.serve();
    let is_export = || {
        let mut info = tool("nbdinfo", "libnbd-bin");
        let asked = info.args(["--size", &daemon.uri("vol")]).output();
        asked.unwrap().status.success()
    };
    let is_disk = || place.path("vol.sock").exists();
    assert!(is_export() && !is_disk());
    let socket = place.path("vol.sock");
    let opened = run(place.command("attach vol --guest").arg(&socket));
    assert!(opened.contains("kept by"), "{opened}");
    assert!(is_disk() && !is_export());
    let again = ["volume vol has a frontend already"];
    refused(place.command("attach vol --guest").arg(&socket), 1, &again);
    run(place.command("detach --guest").arg(&socket));
    assert!(is_export() && !is_disk());
    let kept = fs::read_to_string(place.path("hotset.toml")).unwrap();
    assert!(!kept.contains("vol.sock"), "{kept}");
    let none = ["no [[listen]] has"];
    refused(place.command("detach --guest").arg(&socket), 1, &none);
    let guest = USUAL.to_owned() + "[[listen]]\nvhost_user = \"$/vol.sock\"\n";
    place.config(&guest);
    run(&mut place.command("reload"));
    assert!(is_disk() && !is_export());
    place.config(USUAL);
    run(&mut place.command("reload"));
    assert!(is_export() && !is_disk());
    // The volume goes with its frontend, from the file too.
    place.config(&guest);
    run(&mut place.command("reload"));
    run(&mut place.command("volume remove vol"));
    assert!(!is_disk() && !is_export());
    let kept = fs::read_to_string(place.path("hotset.toml")).unwrap();
    assert!(
        !kept.contains("vol.sock") && kept.contains("/nbd\""),
        "{kept}"
    );
    daemon.stop();
    run(hotset().arg("check").arg(place.path("hotset.toml")));
}
