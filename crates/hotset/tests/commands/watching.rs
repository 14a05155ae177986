//! The cost of a thousand volumes of one pool, the cost of watching them, by the page and by a
//! scrape, and the requests that clients lose to a watcher. Measurements, which print their
//! figures: `make page-audit`.

use crate::common::browser::Browser;
use crate::common::site::Site;
use crate::common::{Daemon, Place, fio, run, script};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const VOLUMES: usize = 1000;
/// A device with room for so many volumes in its superblock.
const POOL_MIB: u64 = 1024;
const SCRAPES: u32 = 20;
const PAIRS: usize = 60;
/// Longer than a report is shown again.
const PAUSE: Duration = Duration::from_millis(1100);

fn thousand() -> Place {
    let place = Place::new();
    let mut text =
        "[daemon]\ncontrol = \"$/control\"\nstate = \"$/state\"\nbuffers = \"64MiB\"\n[[listen]]\nunix = \"$/nbd\"\n"
            .to_owned();
    place.file("ssd", POOL_MIB);
    text += "[[device]]\nname = \"ssd\"\npath = \"$/ssd\"\n\
             [[pool]]\nname = \"pool\"\ndevices = [\"ssd\"]\nhit_latency_max = \"10s\"\n";
    for n in 0..VOLUMES {
        place.file(&format!("disk{n}"), 8);
        let _ = write!(
            text,
            "[[device]]\nname = \"disk{n}\"\npath = \"$/disk{n}\"\n\
             [[volume]]\nname = \"volume{n}\"\norigin = \"disk{n}\"\npool = \"pool\"\n"
        );
    }
    place.config(&text);
    place
}

/// Milliseconds of processor time that a process has used.
fn cpu_ms(process: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let ns = threads.map(|thread| {
        let stat = fs::read_to_string(thread.unwrap().path().join("schedstat"));
        // A thread that has ended meanwhile has none.
        let stat = stat.unwrap_or_default();
        let ns = stat.split(' ').next().unwrap_or_default();
        ns.parse().unwrap_or(0.0)
    });
    ns.sum::<f64>() / 1e6
}

fn resident_mib(process: u32) -> f64 {
    of_process(process, "VmRSS:") / 1024.0
}

/// A number of a process that the kernel reports.
fn of_process(process: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

/// Prints the cost of `work`: seconds, and milliseconds of processor time of the daemon.
fn timed<T>(what: &str, daemon: Option<u32>, work: impl FnOnce() -> T) -> T {
    let (began, before) = (Instant::now(), daemon.map_or(0.0, cpu_ms));
    let done = work();
    let used = daemon.map_or(0.0, cpu_ms) - before;
    let took = began.elapsed().as_secs_f64();
    println!("{what}: {took:.2} s, {used:.0} ms of CPU in the daemon");
    done
}

#[test]
#[ignore = "a measurement"]
fn a_thousand_volumes_are_served_by_one_pool() {
    let place = thousand();
    timed("check", None, || {
        run(&mut place.command(&format!("check {}", place.text("hotset.toml"))))
    });
    let daemon = timed("the first start", None, || place.serve());
    let process = daemon.process.0.id();
    println!("it took {:.0} ms of CPU", cpu_ms(process));
    for words in [
        "status",
        "status --json",
        "volume list",
        "volume set-mode volume7 write-around",
        "reload",
    ] {
        timed(words, Some(process), || run(&mut place.command(words)));
    }
    let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
    let end = text.rfind("[[volume]]").unwrap();
    for (what, text) in [("without one", &text[..end]), ("with it again", &text[..])] {
        fs::write(place.path("hotset.toml"), text).unwrap();
        timed(&format!("reload {what}"), Some(process), || {
            run(&mut place.command("reload"))
        });
    }
    let (resident, threads) = (resident_mib(process), of_process(process, "Threads:"));
    timed("stop", None, || daemon.stop());
    let daemon = timed("the second start", None, || place.serve());
    assert_eq!(
        daemon.status()["volumes"].as_array().unwrap().len(),
        VOLUMES
    );
    daemon.stop();
    let alone = Place::usual();
    let one = alone.serve();
    let process = one.process.0.id();
    println!(
        "resident: {resident:.0} MiB, with one volume {:.0}; threads: {threads:.0}, with one volume {:.0}",
        resident_mib(process),
        of_process(process, "Threads:")
    );
    one.stop();
}

/// Figures of the browser's main thread: seconds of work, and MiB of its scripts.
fn worked(browser: &Browser) -> (f64, f64) {
    let metrics = browser.devtools("Performance.getMetrics", &json!({}));
    let of = |name: &str| {
        let all = metrics["metrics"].as_array().unwrap();
        all.iter().find(|m| m["name"] == name).unwrap()["value"]
            .as_f64()
            .unwrap()
    };
    (
        of("TaskDuration"),
        of("JSHeapUsedSize") / f64::from(1 << 20),
    )
}

#[test]
#[ignore = "a measurement"]
fn a_thousand_volumes_are_watched() {
    let place = thousand();
    let daemon = place.serve();
    let site = Site::start(&place);
    let pids = [daemon.process.0.id(), site.process.0.id()];
    assert_eq!(
        daemon.status()["volumes"].as_array().unwrap().len(),
        VOLUMES
    );

    // The work of an idle daemon with so many volumes is no part of a scrape.
    let before = pids.map(cpu_ms);
    sleep(PAUSE * SCRAPES);
    let after = pids.map(cpu_ms);
    let unasked = [0, 1].map(|i| (after[i] - before[i]) / f64::from(SCRAPES));
    let before = pids.map(cpu_ms);
    let mut bytes = 0;
    for _ in 0..SCRAPES {
        let scrape = site.with(&site.reader, "GET", "/metrics", "");
        assert!(scrape.body.contains("hotset_up 1"));
        bytes = scrape.body.len();
        sleep(PAUSE);
    }
    let used = [0, 1].map(|i| (cpu_ms(pids[i]) - before[i]) / f64::from(SCRAPES));
    println!(
        "a scrape of {VOLUMES} volumes, {bytes} bytes: {:.1} ms of CPU in the web server, {:.1} in the daemon; \
         one every {:.1} s, in which they use {:.1} and {:.1} ms without",
        used[1] - unasked[1],
        used[0] - unasked[0],
        PAUSE.as_secs_f64(),
        unasked[1],
        unasked[0]
    );

    let mut browser = Browser::start();
    browser.sign_in(&site);
    browser.shows("p", "50 of 1000 volumes are shown");
    browser.devtools("Performance.enable", &json!({}));
    sleep(Duration::from_secs(5));
    let before = (worked(&browser), pids.map(cpu_ms));
    let watched = 20;
    sleep(Duration::from_secs(watched));
    let after = (worked(&browser), pids.map(cpu_ms));
    let update = (after.0.0 - before.0.0) * 1000.0 / watched as f64;
    let cpu = [0, 1].map(|i| (after.1[i] - before.1[i]) / watched as f64);
    println!(
        "the overview of {VOLUMES} volumes: {update:.0} ms of the browser's main thread an update, {:.0} MiB held by \
         its scripts; {:.0} ms of CPU a second in the web server, {:.0} in the daemon",
        after.0.1, cpu[1], cpu[0]
    );
    println!(
        "resident: {:.0} MiB in the web server, {:.0} in the daemon",
        resident_mib(pids[1]),
        resident_mib(pids[0])
    );
    drop(browser);
    daemon.stop();
}

/// Hits of fio at depth 32: the rate a second, and the daemon's processor time for each in
/// microseconds.
fn hits(place: &Place, daemon: &Daemon) -> [f64; 2] {
    let options = [
        "--rw=randread",
        "--bs=4k",
        "--iodepth=32",
        "--size=16m",
        "--time_based",
        "--runtime=2",
    ];
    let before = cpu_ms(daemon.process.0.id());
    let report = fio(place, "iops", &daemon.uri("vol"), &options);
    let used = cpu_ms(daemon.process.0.id()) - before;
    let read = &report["jobs"][0]["read"];
    let requests = read["total_ios"].as_f64().unwrap();
    [read["iops"].as_f64().unwrap(), used * 1000.0 / requests]
}

/// The median of `values`, and the bounds of the true median with 95 % confidence.
fn median(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    // The ranks between which half of so many coins fall with that probability.
    let n = values.len() as f64;
    let low = ((n - 1.96 * n.sqrt()) / 2.0).floor() as usize;
    let (middle, high) = (values.len() / 2, values.len() - 1 - low);
    let [middle, low, high] = [middle, low, high].map(|at| values[at]);
    format!("{middle:.3} ({low:.3} to {high:.3})")
}

#[test]
#[ignore = "a measurement"]
fn clients_are_served_as_quickly_while_somebody_watches() {
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    // All lines are in the pool before the first run that counts.
    hits(&place, &daemon);
    hits(&place, &daemon);
    let mut browser = Browser::start();
    browser.sign_in(&site);
    let ratios = |n: usize| {
        let watched = || {
            browser.open(&site.origin);
            browser.shows("h2", "Volumes");
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(site.metric("hotset_up"), Some(1.0));
                        sleep(Duration::from_secs(1));
                    }
                });
                let hits = hits(&place, &daemon);
                done.store(true, Ordering::Relaxed);
                hits
            })
        };
        let alone = || {
            browser.open("about:blank");
            hits(&place, &daemon)
        };
        // In turn first and second.
        let (watched, alone) = if n.is_multiple_of(2) {
            let alone = alone();
            (watched(), alone)
        } else {
            (watched(), alone())
        };
        [watched[0] / alone[0], watched[1] / alone[1]]
    };
    let pairs: Vec<[f64; 2]> = (0..PAIRS).map(ratios).collect();
    for (at, what) in ["IOPS", "the daemon's processor time a request"]
        .iter()
        .enumerate()
    {
        println!(
            "{what} at depth 32 with the page open and a scrape a second, of that without: median and 95 % interval \
             {}, {PAIRS} pairs of 2 s",
            median(pairs.iter().map(|pair| pair[at]).collect())
        );
    }
    drop(browser);
    daemon.stop();
}

#[test]
#[ignore = "a measurement"]
fn lighthouse_finds_the_page_quick_and_accessible() {
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    let mut audit = script("page-audit", "audit.mjs");
    print!("{}", run(audit.args([&site.origin, &site.operator])));
    daemon.stop();
}
