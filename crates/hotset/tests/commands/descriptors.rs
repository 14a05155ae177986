//! A daemon that may not open one descriptor more refuses or waits, reports why, and goes on when
//! there are descriptors again.

use crate::common::{Daemon, Place, Process, USUAL, all, hotset, run, tool, until};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: &str = "raise the limit of open files (ulimit -n)";
const PLENTY: u64 = 512;

/// The numbers of the daemon's descriptors.
fn open(daemon: &Daemon<'_>) -> BTreeSet<u64> {
    let pid = daemon.process.0.id();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let number = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.unwrap().file_name();
        name.to_str().unwrap().parse().unwrap()
    };
    open.map(number).collect()
}

/// The descriptors of a daemon without clients.
fn at_rest(daemon: &Daemon<'_>) -> BTreeSet<u64> {
    run(&mut daemon.place.command("status"));
    let (mut fewest, mut looks) = (open(daemon), 0);
    while looks < 20 {
        std::thread::sleep(Duration::from_millis(50));
        let now = open(daemon);
        looks = if now.len() < fewest.len() {
            0
        } else {
            looks + 1
        };
        if looks == 0 {
            fewest = now;
        }
    }
    fewest
}

/// Leaves the daemon `spare` descriptors more than `usual`.
fn leave(daemon: &Daemon<'_>, usual: &BTreeSet<u64>, spare: usize) {
    let mut free = (0..).filter(|number| !usual.contains(number));
    allow(daemon, free.nth(spare).unwrap());
}

/// Lets the daemon have descriptors of numbers below `most`.
fn allow(daemon: &Daemon<'_>, most: u64) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: PLENTY,
    };
    // SAFETY: `limit` is readable, and no old one is asked for.
    let set = unsafe {
        libc::prlimit(
            daemon.process.0.id() as i32,
            libc::RLIMIT_NOFILE,
            &raw const limit,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(set, 0);
}

fn info(daemon: &Daemon<'_>, name: &str) -> Command {
    let mut info = tool("nbdinfo", "libnbd-bin");
    info.args(["--size", &daemon.uri(name)]);
    info
}

/// Everything works as before, and nothing was left open.
fn is_well(daemon: &Daemon<'_>, usual: usize) {
    allow(daemon, PLENTY);
    run(&mut daemon.place.command("status"));
    run(&mut info(daemon, "vol"));
    until("descriptors that are closed", || {
        open(daemon).len() == usual
    });
}

#[test]
fn a_change_without_descriptors_is_refused_whole_with_the_remedy() {
    let place = Place::usual();
    for name in ["origin2", "origin3", "pool2"] {
        place.file(name, 64);
    }
    let server = Place::new();
    server.file("origin", 8);
    server.file("pool", 64);
    server.config(USUAL);
    let export = server.serve();
    let daemon = place.serve();
    let usual = at_rest(&daemon);
    let add = |name: &str, origin: &str| format!("volume add {name} --origin {origin} --pool fast");
    let changes = [
        (add("file", &place.text("origin2")), "volume remove file"),
        (add("nbd", &export.uri("vol")), "volume remove nbd"),
        (
            format!("pool add-device fast {} --name second", place.text("pool2")),
            "pool remove-device fast second",
        ),
    ];
    let mut refused = 0;
    for (change, undo) in &changes {
        // One for the control connection, and then one more each time.
        for spare in 1..5 {
            leave(&daemon, &usual, spare);
            let output = place.command(change).output().unwrap();
            if output.status.success() {
                allow(&daemon, PLENTY);
                run(&mut place.command(undo));
            } else {
                refused += 1;
                let output = all(&output);
                assert!(output.contains(LIMIT), "{change}, {spare}: {output}");
            }
            is_well(&daemon, usual.len());
        }
    }
    assert!(refused >= changes.len(), "{refused}");
    for (change, undo) in &changes {
        run(&mut place.command(change));
        run(&mut place.command(undo));
        is_well(&daemon, usual.len());
    }
    let log = daemon.stop();
    assert!(!log.contains("panicked"), "{log}");
    export.stop();
}

#[test]
fn control_and_clients_wait_for_descriptors_and_are_served_then() {
    let place = Place::usual();
    let daemon = place.serve();
    let usual = at_rest(&daemon);
    leave(&daemon, &usual, 0);
    let piped = |mut command: Command| {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let waiting = [
        piped(place.command("status")),
        piped(place.command("volume set-mode vol pass-through")),
        piped(info(&daemon, "vol")),
    ];
    // Many accepts fail meanwhile.
    std::thread::sleep(Duration::from_secs(3));
    allow(&daemon, PLENTY);
    for client in waiting {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", all(&output));
    }
    is_well(&daemon, usual.len());
    let log = daemon.stop();
    let output: Vec<_> = log.lines().filter(|line| line.contains(LIMIT)).collect();
    assert!((2..8).contains(&output.len()), "{log}");
    assert!(log.contains("control connections wait"), "{log}");
}

#[test]
fn a_start_without_descriptors_says_so_and_the_next_one_works() {
    let place = Place::usual();
    // True if the daemon served; and its output until then, or until the limit was named.
    let started = |limit: u64| {
        let serve = format!("ulimit -n {limit}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &serve, "sh"]);
        command.arg(hotset().get_program());
        command
            .args(["serve", "--config"])
            .arg(place.path("hotset.toml"));
        let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut said = String::new();
        for line in BufReader::new(process.0.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            said = said + &line + "\n";
            if line.contains(LIMIT) {
                return (false, said);
            }
            if line.contains("serving 1 volume") {
                return (true, said);
            }
        }
        panic!("with {limit}: {said}");
    };
    let mut refused = 0;
    for limit in 5.. {
        let (served, said) = started(limit);
        assert!(!said.contains("panicked"), "with {limit}: {said}");
        if served {
            break;
        }
        refused += 1;
    }
    assert!((5..30).contains(&refused), "{refused}");
    place.serve().stop();
}

#[test]
fn a_listener_outlives_a_time_without_descriptors() {
    let place = Place::usual();
    let daemon = place.serve();
    leave(&daemon, &at_rest(&daemon), 4);
    let dial = |_| UnixStream::connect(place.path("nbd")).unwrap();
    let held: Vec<UnixStream> = (0..40).map(dial).collect();
    // Fifty failures in a row, a tenth of a second apart, once ended the daemon.
    std::thread::sleep(Duration::from_secs(7));
    drop(held);
    until("a client", || {
        let mut info = tool("nbdinfo", "libnbd-bin");
        info.arg(daemon.uri("vol"))
            .output()
            .unwrap()
            .status
            .success()
    });
    let log = daemon.stop();
    assert!(
        log.contains("no descriptor is left for a connection"),
        "{log}"
    );
    assert!(log.lines().count() < 40, "{log}");
}
