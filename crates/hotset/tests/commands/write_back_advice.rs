//! The advice of `hotset advise` on write-back, from traces made here and by a daemon.

use crate::common::{Place, Process, USUAL, faultless, fio, hotset, refused, run};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

const HEADER: &str = "ts_us,op,offset_bytes,len_bytes,volume\n";
/// 100 blocks a second.
const RATE: &str = "400KiB";

fn file(place: &Place, name: &str, lines: &str) -> String {
    fs::write(place.path(name), format!("{HEADER}{lines}")).unwrap();
    place.text(name)
}

fn json(words: &[&str]) -> Value {
    let text = run(hotset().args(["advise", "--json"]).args(words));
    let advice: Value = serde_json::from_str(&text).unwrap();
    advice["write_back"].clone()
}

/// Ten times within 5 s of 10 s: the same block, another one, and a flush.
fn database(place: &Place) -> String {
    let mut lines = String::new();
    for i in 0..10 {
        let (us, other) = (500_000 * i, 4096 * (100 + 2 * i));
        writeln!(
            lines,
            "{us},W,28672,4096,0\n{us},W,{other},4096,0\n{us},F,0,0,0"
        )
        .unwrap();
    }
    file(place, "database.csv", &(lines + "10000000,R,0,4096,0\n"))
}

#[test]
fn a_database_that_flushes_is_answered_by_the_log() {
    let place = Place::new();
    let (trace, page) = (database(&place), place.text("advice.html"));
    let found = json(&[&trace, "--origin-rate", RATE, "--html", &page]);
    assert_eq!(
        (&found["writes"], &found["flushes"]),
        (&20.into(), &10.into())
    );
    assert_eq!(found["intervals"]["blocks_median"], 2);
    assert_eq!(found["overwritten_share"], 0.45);
    let figures = |mode: &Value| {
        let name = mode["mode"].as_str().unwrap().to_owned();
        let number = |what: &str| mode[what].as_f64().unwrap();
        (
            name,
            number("origin_writes_per_second"),
            number("origin_flushes_per_second"),
        )
    };
    let modes: Vec<_> = found["modes"]
        .as_array()
        .unwrap()
        .iter()
        .map(figures)
        .collect();
    let expected = [
        ("write-through", 2.0, 1.0),
        ("ordered", 2.0, 1.0),
        ("journaled", 1.2, 0.2),
        ("coalesced", 1.2, 0.2),
    ];
    let expected = expected.map(|(name, writes, flushes)| (name.to_owned(), writes, flushes));
    assert_eq!(modes, expected);
    let ordered = &found["modes"][1]["log"];
    assert_eq!(
        (&ordered["device_bytes"], &ordered["unpaced_share"]),
        (&(9 << 20).into(), &1.0.into())
    );
    let page = fs::read_to_string(&page).unwrap();
    advise::page::assert_self_contained(&page);

    let text = run(hotset().args(["advise", &trace, "--origin-rate", RATE]));
    let verdict = "`ordered` would answer 100% of writes in the log's time; log of 9 MiB on each \
                   device; `journaled` or `coalesced` would spare the origin 40% of the blocks";
    for expected in [
        verdict,
        "LOG'S TIME %",
        "flushes and forced writes: 1.00 and 0.00 a second, 2 blocks",
        "overwritten within 30 s: 45.0%",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    assert!(page.contains(verdict) && page.contains("log GB/day"));
    // The same through another form, which keeps the flushes.
    let binary = place.text("database.hottrace");
    run(hotset().args(["trace", "convert", &trace, &binary]));
    assert_eq!(json(&[&binary, "--origin-rate", RATE]), found);
}

#[test]
fn what_an_origin_does_not_take_is_no_gain_and_reads_have_none() {
    let place = Place::new();
    let mut lines = String::new();
    for i in 0..20_000 {
        let at = i * 7919 % 100_003 * 4096_u64;
        writeln!(lines, "{},W,{at},4096,0", i * 2000).unwrap();
    }
    let fast = file(&place, "fast.csv", &lines);
    let verdict = |words: &[&str]| json(words)["verdict"].as_str().unwrap().to_owned();
    let slow = verdict(&[&fast, "--origin-rate", RATE]);
    assert!(slow.starts_with("no gain: writes come faster"), "{slow}");
    let enough = verdict(&[&fast, "--origin-rate", "4MiB"]);
    assert!(
        enough.starts_with("`ordered` would answer 100%"),
        "{enough}"
    );
    // A disk by its model takes less than 500 writes to random places a second.
    let modelled = json(&[&fast]);
    let takes = &modelled["modes"][1]["log"]["origin_bytes_per_second_max"];
    assert!(
        (100_000.0..2_000_000.0).contains(&takes.as_f64().unwrap()),
        "{takes}"
    );
    let note = &modelled["notes"];
    assert!(
        note.to_string().contains("no flush or forced write"),
        "{note}"
    );

    let reads = file(&place, "reads.csv", "0,R,0,4096,0\n1000000,R,0,4096,0\n");
    assert_eq!(verdict(&[&reads]), "nothing to gain: nothing is written");
    let untimed = file(&place, "untimed.csv", "0,W,0,4096,0\n0,R,0,4096,0\n");
    assert!(verdict(&[&untimed]).contains("the trace has no times"));
    for (rate, what) in [("1KiB", "4KiB or more"), ("many", "many")] {
        refused(
            hotset().args(["advise", &fast, "--origin-rate", rate]),
            2,
            &[what],
        );
    }
}

/// Records 100 writes, with a flush after each fifth. Returns the trace.
fn recorded(place: &Place) -> String {
    let trace = place.text("vol.hottrace");
    let mut record = place.command(&format!("trace record vol {trace}"));
    let mut recorder = Process(record.stderr(Stdio::piped()).spawn().unwrap());
    let mut begun = String::new();
    let stderr = recorder.0.stderr.take().unwrap();
    BufReader::new(stderr).read_line(&mut begun).unwrap();
    assert!(begun.contains("recording vol"), "{begun}");
    let words = ["--rw=randwrite", "--bs=4k", "--size=400k", "--fsync=5"];
    faultless(&fio(place, "writes", &place.uri("vol"), &words));
    recorder.signal(libc::SIGINT);
    assert!(recorder.0.wait().unwrap().success());
    trace
}

#[test]
fn a_recording_of_a_volume_has_its_flushes() {
    let place = Place::usual();
    let daemon = place.serve();
    let trace = recorded(&place);
    // The daemon counts by the second.
    std::thread::sleep(Duration::from_millis(2100));
    let text = run(&mut place.command("advise --volume vol"));
    let volume = run(&mut place.command("advise --volume vol --json"));
    let volume: Value = serde_json::from_str(&volume).unwrap();
    daemon.stop();
    let info = run(hotset().args(["trace", "info", "--json", &trace]));
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(
        (&info[0]["requests"], &info[0]["writes"]),
        (&100.into(), &100.into())
    );
    let flushes = info[0]["flushes"].as_u64().unwrap();
    assert!((19..=22).contains(&flushes), "{info}");
    let found = json(&[&trace]);
    assert_eq!(
        (&found["writes"], &found["flushes"]),
        (&100.into(), &flushes.into())
    );
    assert_eq!(found["intervals"]["blocks_median"], 5);
    assert_eq!(found["modes"].as_array().unwrap().len(), 4);

    // The daemon's own counts are the same, without the recording.
    let ours = &volume["write_back"];
    for what in ["writes", "flushes", "forced_writes", "intervals"] {
        assert_eq!(ours[what], found[what], "{what}: {ours}");
    }
    assert_eq!(ours["overwritten_share"], Value::Null);
    let bytes = |of: &Value| of["mean"]["bytes_per_second"].as_f64().unwrap();
    let written = bytes(ours) * ours["seconds"].as_f64().unwrap();
    assert!((written - 409_600.0).abs() < 1.0, "{ours}");
    let busiest = ours["busiest_second"]["writes_per_second"].as_f64();
    assert!((20.0..=100.0).contains(&busiest.unwrap()), "{ours}");
    let names = ours["modes"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|mode| mode["mode"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["write-through", "ordered", "journaled", "coalesced"]
    );
    let ordered = &ours["modes"][1]["log"];
    assert!(
        ordered["device_bytes"].as_u64().unwrap() >= 9 << 20,
        "{ours}"
    );
    assert!(
        ordered["origin_bytes_per_second_max"].as_f64().unwrap() > 0.0,
        "{ours}"
    );
    let verdict = ours["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("`ordered` would answer 100% of writes"),
        "{verdict}"
    );
    for expected in [
        verdict,
        "LOG'S TIME %",
        "5 blocks of 4 KiB between two (median",
        "note: the origin answered writes in",
        "note: clients wait for the origin in write-through",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

#[test]
fn a_volume_on_a_disk_takes_what_the_disk_has_shown() {
    let place = Place::usual();
    let disk = "path = \"$/origin\"\nmodel = \"ST3500320AS\"";
    place.config(&USUAL.replacen("path = \"$/origin\"", disk, 1));
    let daemon = place.serve();
    let words = ["--rw=randwrite", "--bs=4k", "--size=64m", "--fsync=4"];
    let words = [&words[..], &["--time_based", "--runtime=4"]].concat();
    faultless(&fio(&place, "writes", &daemon.uri("vol"), &words));
    let advice = run(&mut place.command("advise --volume vol --json"));
    let found: Value = serde_json::from_str(&advice).unwrap();
    daemon.stop();
    let found = &found["write_back"];
    assert_eq!(found["intervals"]["blocks_median"], 4);
    let takes = |mode: usize| {
        let log = &found["modes"][mode]["log"];
        log["origin_bytes_per_second_max"].as_f64().unwrap()
    };
    // Some hundred blocks a second at the most, and more with fewer flushes.
    assert!((40_000.0..4_000_000.0).contains(&takes(1)), "{found}");
    assert!(takes(3) > takes(1), "{found}");
    let busy = found["modes"][1]["log"]["origin_busy"].as_f64().unwrap();
    assert!((0.1..=1.0).contains(&busy), "{found}");
    let notes = found["notes"].to_string();
    assert!(notes.contains("and flushes in"), "{notes}");
}
