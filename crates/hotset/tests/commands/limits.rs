//! A pool without room for a request refuses the request, while the daemon serves on. And an idle
//! daemon sleeps.

use crate::common::client::Client;
use crate::common::{Daemon, Place, USUAL, refused, run};
use std::fs;
use std::time::Duration;

/// The most devices of a pool.
const DEVICES_MAX: usize = 16;

#[test]
fn a_pool_device_too_many_is_refused() {
    let place = Place::usual();
    let daemon = place.serve();
    for number in 1..DEVICES_MAX {
        let name = format!("more-{number}");
        place.file(&name, 4);
        run(&mut place.command(&format!("pool add-device fast {}", place.text(&name))));
    }
    place.file("last", 4);
    let last = place.text("last");
    refused(
        &mut place.command(&format!("pool add-device fast {last}")),
        1,
        &[
            "pool fast has 17 devices; give at most 16",
            "Nothing was changed",
        ],
    );
    // The device was released, and can be used once there is room.
    run(&mut place.command("pool remove-device fast more-7"));
    run(&mut place.command(&format!("pool add-device fast {last}")));
    daemon.stop();
}

/// Number of times that the threads of a daemon have waited and were woken.
fn wakes(daemon: &Daemon<'_>) -> u64 {
    let threads = format!("/proc/{}/task", daemon.process.0.id());
    let threads = fs::read_dir(threads).unwrap();
    let of_thread = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.map_or(0, |count| count.trim().parse().unwrap())
    };
    threads.map(|thread| of_thread(thread.unwrap())).sum()
}

#[test]
fn an_idle_daemon_with_a_client_wakes_less_than_once_a_second() {
    const SECONDS: u64 = 20;
    let place = Place::usual();
    place.config(&USUAL.replace("shards = 2\n", ""));
    let daemon = place.serve();
    let mut client = Client::connect(&place.path("nbd"), "vol");
    client.write(0, &[1; 4096], true).unwrap();
    // The pool's metadata follows the write within a few periods, on a busy machine later.
    std::thread::sleep(Duration::from_secs(10));
    let mut woken = Vec::new();
    while woken.last().is_none_or(|&last| last >= SECONDS) {
        assert!(woken.len() < 3, "wakes in {SECONDS} s: {woken:?}");
        let before = wakes(&daemon);
        std::thread::sleep(Duration::from_secs(SECONDS));
        woken.push(wakes(&daemon).saturating_sub(before));
    }
    assert!(client.read(0, 4096).unwrap() == [1; 4096]);
    daemon.stop();
}
