//! Devices that die under load: a pool device, which costs hits, and an origin
//! that comes back.

mod common;

use common::{Place, Process, USUAL, faultless, fio, run, tool, until};

#[test]
fn a_pool_device_killed_under_load_costs_no_error() {
    let place = Place::usual();
    let mut server = tool("nbdkit", "nbdkit");
    server
        .args(["--foreground", "--unix"])
        .arg(place.path("ram"));
    server.args(["memory", "64M"]);
    // Without the wrapper that would outlive a kill of nbdkit alone.
    server.arg("--exit-with-parent");
    let server = Process(server.spawn().unwrap());
    until("nbdkit", || place.path("ram").exists());
    let nbd = "nbd = \"nbd+unix:///?socket=$/ram\"";
    let text = USUAL.replace("path = \"$/pool\"", nbd);
    place.config(&text.replace("\"10s\"", "\"500ms\""));
    let daemon = place.serve();
    let options = [
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--iodepth=8",
        "--numjobs=4",
        "--size=8m",
        "--offset_increment=32m",
        "--verify=crc32c",
        "--verify_state_save=0",
        "--verify_fatal=1",
        "--time_based",
        "--runtime=12",
    ];
    let stall_s = std::thread::scope(|scope| {
        let uri = daemon.uri("vol");
        let (place, options) = (&place, &options);
        let load = scope.spawn(move || faultless(&fio(place, "load", &uri, options)));
        until("hits", || daemon.count("blocks_hit") > 1000);
        server.kill();
        until("the ejection", || {
            let status = daemon.status();
            let state = status["pools"][0]["devices"][0]["state"].as_str().unwrap();
            state.starts_with("ejected")
        });
        // The log is written once a second.
        std::thread::sleep(std::time::Duration::from_secs(2));
        // Another takes its place while the load goes on.
        run(&mut place.command("pool remove-device fast pool"));
        let add = format!("pool add-device fast {} --name spare", place.text("pool"));
        run(&mut place.command(&add));
        let before = daemon.count("blocks_hit");
        until("hits on the spare", || {
            daemon.count("blocks_hit") > before + 100
        });
        load.join().unwrap()
    });
    let status = daemon.status();
    assert_eq!(status["nbd"]["errors"], 0, "{}", status["nbd"]);
    assert_eq!(status["pools"][0]["counters"]["devices_ejected"], 1);
    println!("the longest request took {stall_s:.3} s");
    let log = daemon.stop();
    assert!(log.contains("was ejected from pool fast"), "{log}");
}

/// Reads that an NBD origin owes while it is down are answered when it is back.
#[test]
fn an_nbd_origin_that_restarts_costs_no_read() {
    let place = Place::usual();
    let start = || {
        let mut server = tool("nbdkit", "nbdkit");
        server
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(place.path("san"));
        server.arg("file").arg(place.path("origin"));
        let server = Process(server.spawn().unwrap());
        until("nbdkit", || place.path("san").exists());
        server
    };
    let server = start();
    place.config(&USUAL.replace("path = \"$/origin\"", "nbd = \"nbd+unix:///?socket=$/san\""));
    let daemon = place.serve();
    run(&mut place.command("volume set-mode vol pass-through"));
    let options = [
        "--rw=randread",
        "--bs=4k",
        "--iodepth=8",
        "--size=64m",
        "--time_based",
        "--runtime=6",
    ];
    let reads = || daemon.status()["nbd"]["requests"].as_u64().unwrap();
    let again = std::thread::scope(|scope| {
        let (place, uri, options) = (&place, daemon.uri("vol"), &options);
        let load = scope.spawn(move || faultless(&fio(place, "load", &uri, options)));
        until("reads", || reads() > 1000);
        server.kill();
        std::fs::remove_file(place.path("san")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(500));
        let again = start();
        let before = reads();
        until("reads after the restart", || reads() > before + 1000);
        load.join().unwrap();
        again
    });
    assert_eq!(daemon.status()["nbd"]["errors"], 0);
    daemon.stop();
    drop(again);
}

#[test]
fn an_origin_that_does_not_answer_is_left_when_the_daemon_ends() {
    let place = Place::usual();
    let mut server = tool("nbdkit", "nbdkit");
    server
        .args(["--foreground", "--unix"])
        .arg(place.path("slow"));
    server.args(["memory", "64M", "--filter=delay", "wdelay=1000"]);
    server.arg("--exit-with-parent");
    let server = Process(server.spawn().unwrap());
    until("nbdkit", || place.path("slow").exists());
    let text = USUAL.replace(
        "path = \"$/origin\"",
        "nbd = \"nbd+unix:///?socket=$/slow\"",
    );
    let limits = "state = \"$/state\"\ngrace = \"100ms\"\nstop = \"2s\"";
    place.config(&text.replace("state = \"$/state\"", limits));
    let mut daemon = place.serve();
    std::fs::write(place.path("source"), [1; 4096]).unwrap();
    let mut writer = tool("nbdcopy", "libnbd-bin");
    writer.arg(place.path("source")).arg(daemon.uri("vol"));
    let writer = Process(writer.spawn().unwrap());
    until("the write", || daemon.count("writes") > 0);
    daemon.process.signal(libc::SIGTERM);
    let status = daemon.process.0.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    let mut log = String::new();
    let mut error = daemon.process.0.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut error, &mut log).unwrap();
    assert!(
        log.contains("volume vol may have lost writes: its origin origin has not answered for 2s"),
        "{log}"
    );
    drop((writer, server));
}
