//! `hotset advise` and `hotset explain`, on traces and through a real daemon.

use crate::common::{Place, USUAL, faultless, fio, hotset, refused, run};
use serde_json::Value;
use std::fmt::Write;
use std::fs;

/// Pages of one file name nothing outside of them.
fn assert_self_contained(page: &str) {
    advise::page::assert_self_contained(page);
    assert!(page.contains("<svg") && page.trim_end().ends_with("</html>"));
}

/// A trace of `requests` over a loop of 512 lines of 64 KiB, so far apart that 3000 take an hour.
fn trace(place: &Place, requests: u64) -> String {
    let mut text = String::from("ts_us,op,offset_bytes,len_bytes,volume\n");
    for i in 0..requests {
        let op = if i % 5 == 0 { "W" } else { "R" };
        let at = i * 7919 % 512 * 65536;
        writeln!(text, "{},{op},{at},65536,0", i * 1_300_000).unwrap();
    }
    fs::write(place.path("loop.csv"), text).unwrap();
    place.text("loop.csv")
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&run(hotset().args(words))).unwrap()
}

fn size<'a>(advice: &'a Value, label: &str) -> &'a Value {
    let sizes = advice["sizes"].as_array().unwrap();
    let found = sizes.iter().find(|size| size["label"] == label);
    found.unwrap_or_else(|| panic!("no size {label} in {advice}"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_trace_gives_the_size_it_needs() {
    let place = Place::new();
    let trace = trace(&place, 6000);
    let page = place.text("advice.html");
    let words = [
        "advise", &trace, "--pool", "16MiB", "--policy", "lru", "--json", "--html", &page,
    ];
    let advice = json(&words);
    assert_eq!(size(&advice, "recommended")["pool_bytes"], 32 << 20);
    for (label, bytes) in [("without", 0), ("half", 8), ("now", 16), ("double", 32)] {
        assert_eq!(size(&advice, label)["pool_bytes"], bytes << 20);
    }
    let (now, double) = (
        &size(&advice, "now")["estimate"],
        &size(&advice, "double")["estimate"],
    );
    assert_eq!(number(&now["hit_ratio"]), 0.0);
    assert!(number(&double["hit_ratio"]) > 0.9, "{double}");
    for what in [
        "latency_us_mean",
        "latency_us_p99",
        "origin_bytes_per_second",
        "origin_busy",
    ] {
        assert!(
            number(&now[what]) > number(&double[what]),
            "{what}: {now} {double}"
        );
    }
    let years = |label| number(&size(&advice, label)["cost"]["endurance_years"]);
    assert!(years("double") > 2.0 * years("now"));
    assert_eq!(advice["prices"]["dated"], "2026-11-01");
    assert!(advice["profile"]["working_set"].as_array().unwrap().len() >= 16);
    assert_eq!(
        advice["warnings"].as_array().unwrap().len(),
        0,
        "{}",
        advice["warnings"]
    );
    assert_self_contained(&fs::read_to_string(&page).unwrap());

    let table = run(hotset().args(["advise", &trace]));
    for expected in [
        "HIT %",
        "P99 ms",
        "ENDURES years",
        "USD",
        "recommended: a pool of 32.0 MiB",
        "WRITTEN",
    ] {
        assert!(table.contains(expected), "no {expected:?} in\n{table}");
    }
}

#[test]
fn a_price_book_of_ones_own_is_used() {
    let place = Place::new();
    let trace = trace(&place, 3000);
    let example = run(hotset().args(["advise", "--example-prices"]));
    let book = place.text("prices.toml");
    fs::write(&book, example.replace("USD", "EUR").replace("0.12", "0.24")).unwrap();
    let (own, usual) = (
        json(&["advise", &trace, "--prices", &book, "--json"]),
        json(&["advise", &trace, "--json"]),
    );
    let hardware = |advice: &Value| number(&size(advice, "recommended")["cost"]["hardware"]);
    assert!((hardware(&own) / hardware(&usual) - 2.0).abs() < 1e-9);
    assert_eq!(own["prices"]["currency"], "EUR");
    for (from, to, expected) in [
        ("years = 5", "years = 500", "choose from 1 to 50"),
        ("currency = \"USD\"", "", "missing field `currency`"),
        ("[ssd]", "[hdd]", "unknown field `hdd`"),
        ("dated", "=", "line"),
    ] {
        fs::write(&book, example.replacen(from, to, 1)).unwrap();
        refused(
            hotset().args(["advise", &trace, "--prices", &book]),
            2,
            &["prices.toml: ", expected],
        );
    }
    refused(
        hotset().args(["advise", &trace, "--prices", "/no"]),
        2,
        &["/no", "--example-prices"],
    );
}

#[test]
fn what_cannot_be_advised_on_is_one_error() {
    let place = Place::new();
    let good = trace(&place, 100);
    let empty = place.text("empty.csv");
    fs::write(&empty, "ts_us,op,offset_bytes,len_bytes,volume\n").unwrap();
    let broken = place.text("broken.csv");
    fs::write(
        &broken,
        "ts_us,op,offset_bytes,len_bytes,volume\n1,R,0,4096,0\n2,X,0,4096,0\n",
    )
    .unwrap();
    let no_socket = place.text("no-control");
    for (words, status, expected) in [
        (vec!["advise"], 2, "required"),
        (vec!["advise", "/no/trace"], 1, "/no/trace"),
        (vec!["advise", &empty], 1, "empty.csv: no requests"),
        (vec!["advise", &broken], 1, "broken.csv:3: "),
        (
            vec!["advise", &good, "--volume", "v"],
            2,
            "cannot be used with",
        ),
        (
            vec!["advise", &good, "--policy", "magic"],
            2,
            "choose from auto",
        ),
        (vec!["advise", &good, "--origin", "magic"], 2, "ST3500320AS"),
        (vec!["advise", &good, "--origin-drives", "0"], 2, "1..=64"),
        (vec!["advise", &good, "--line", "5000B"], 2, "power of two"),
        (
            vec!["advise", &good, "--pool", "4KiB"],
            2,
            "smaller than a line",
        ),
        (
            vec!["advise", &good, "--format", "magic"],
            2,
            "choose from csv",
        ),
        (
            vec!["advise", &good, "--html", "/no/page"],
            1,
            "/no/page cannot be written",
        ),
        (
            vec!["advise", "--volume", "v", "--control", &no_socket],
            1,
            "start `hotset serve`",
        ),
    ] {
        refused(hotset().args(&words), status, &[expected]);
    }
    let lenient = json(&["advise", &broken, "--lenient", "--json"]);
    let warnings = lenient["warnings"].to_string();
    assert!(
        warnings.contains("1 malformed") && warnings.contains("too short"),
        "{warnings}"
    );
}

#[test]
fn a_running_volume_is_advised_on() {
    let place = Place::usual();
    let daemon = place.serve();
    refused(
        &mut place.command("advise --volume no"),
        1,
        &["no volume is named no"],
    );
    refused(
        &mut place.command("advise --volume vol"),
        1,
        &["not asked for anything yet"],
    );
    let load = [
        "--rw=randrw",
        "--rwmixread=80",
        "--bs=64k",
        "--iodepth=4",
        "--size=32m",
        "--loops=6",
    ];
    faultless(&fio(&place, "load", &daemon.uri("vol"), &load));
    let page = place.text("advice.html");
    let words = format!("advise --volume vol --json --html {page}");
    let advice: Value = serde_json::from_str(&run(&mut place.command(&words))).unwrap();
    assert_eq!(advice["source"], "volume vol");
    assert_eq!(advice["policy"], "auto");
    let profile = &advice["profile"];
    let accesses = number(&profile["reads"]) + number(&profile["writes"]);
    // Each request is one line; in an area this small a third in random order looks like a stream.
    // A request that is carried out in two pieces, while memory is short, counts twice.
    let all = 6.0 * 512.0;
    assert!((0.5 * all..=1.1 * all).contains(&accesses), "{accesses}");
    // A sample estimates how many lines there are, to some percent.
    let unique = number(&profile["unique_lines"]);
    assert!((350.0..700.0).contains(&unique), "{unique}");
    let now = size(&advice, "now");
    // The rest of the device of 64 MiB holds the pool's metadata.
    let pool_bytes = number(&now["pool_bytes"]);
    assert!(
        (60.0..64.0).contains(&(pool_bytes / f64::from(1 << 20))),
        "{pool_bytes}"
    );
    assert!(number(&now["estimate"]["hit_ratio"]) > 0.3, "{now}");
    assert!(number(&now["estimate"]["latency_us_mean"]) > 0.0);
    assert!(now["cost"].is_null(), "{now}");
    let warnings = advice["warnings"].to_string();
    assert!(
        warnings.contains("says nothing of wear and cost"),
        "{warnings}"
    );
    let without = &size(&advice, "without")["estimate"];
    assert!(
        number(&without["origin_bytes_per_second"])
            > number(&now["estimate"]["origin_bytes_per_second"])
    );
    assert_self_contained(&fs::read_to_string(&page).unwrap());
    assert!(
        run(&mut place.command("advise --volume vol")).contains("Estimates scale what the volume")
    );
    daemon.stop();
}

fn explained(place: &Place, words: &str) -> Value {
    serde_json::from_str(&run(&mut place.command(&format!("explain --json {words}")))).unwrap()
}

fn why(place: &Place, at: &str) -> String {
    let explained = explained(place, &format!("vol {at}"));
    explained["range"]["lines"][0]["why"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn the_first_mib_is_in_the_pool(report: &Value) {
    let lines = report["range"]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 16);
    for line in lines {
        assert_eq!(
            (&line["device"], &line["decision"]),
            (&"pool".into(), &"admitted".into())
        );
        assert_eq!(line["valid"], serde_json::json!([[0, 16]]));
        assert!(
            number(&line["admitted_s"]) < 120.0 && number(&line["region_heat"]) >= 1.0,
            "{line}"
        );
    }
    let regions = report["regions"].as_array().unwrap();
    assert_eq!(
        (regions.len(), &report["region_bytes"]),
        (1024, &(128 << 10).into())
    );
    assert_eq!(number(&regions[0]["resident"]), 1.0);
    assert_eq!(number(&regions[100]["resident"]), 0.0);
}

#[test]
fn a_volume_says_why_it_is_cached_or_not() {
    let place = Place::usual();
    let pool = "policy = \"auto\"\nsequential = \"1MiB\"\nhit_latency_max";
    place.config(&USUAL.replace("hit_latency_max", pool));
    let daemon = place.serve();
    assert!(why(&place, "0").contains("nothing around it was asked for"));
    let read = ["--rw=randread", "--bs=64k", "--size=1m"];
    faultless(&fio(&place, "read", &daemon.uri("vol"), &read));
    crate::common::until("promotions", || daemon.count("blocks_promoted") == 256);
    assert_eq!(why(&place, "0"), "in the pool, whole");
    the_first_mib_is_in_the_pool(&explained(&place, "vol 0-1MiB"));

    // Reads on and on: lines past the cutoff stay out.
    let scan = ["--rw=read", "--bs=64k", "--offset=32m", "--size=8m"];
    faultless(&fio(&place, "scan", &daemon.uri("vol"), &scan));
    assert!(
        why(&place, "39MiB").contains("part of a sequential stream"),
        "{}",
        why(&place, "39MiB")
    );
    let report = explained(&place, "vol");
    let reasons = report["reasons"].as_array().unwrap();
    let sequential = reasons
        .iter()
        .find(|r| r["name"] == "rejected_sequential")
        .unwrap();
    assert!(number(&sequential["count"]) >= 96.0, "{sequential}");

    // A write that goes around the pool leaves the other lines.
    run(&mut place.command("volume set-mode vol write-around"));
    let write = ["--rw=write", "--bs=4k", "--offset=64k", "--size=4k"];
    faultless(&fio(&place, "write", &daemon.uri("vol"), &write));
    let line = &explained(&place, "vol 64KiB")["range"]["lines"][0];
    assert_eq!(
        (&line["decision"], &line["valid"]),
        (&"overwritten".into(), &serde_json::json!([[1, 16]]))
    );
    run(&mut place.command("volume set-mode vol pass-through"));
    assert!(why(&place, "0").contains("pass-through"));

    run(&mut place.command("pool remove-device fast pool"));
    assert!(why(&place, "0").contains("until its device was removed or ejected"));

    // The policy explains its work, here and in the status.
    let rule = &report["policy"];
    assert_eq!(
        (
            &rule["name"],
            rule["would_miss"].as_array().unwrap().len() > 1
        ),
        (&"auto".into(), true)
    );
    assert!(rule["active"].is_string() && number(&rule["active_for_s"]) >= 0.0);
    assert_eq!(daemon.status()["pools"][0]["rule"]["name"], "auto");
    daemon.stop();
}

#[test]
fn explanations_are_readable_and_bad_ranges_are_one_error() {
    let place = Place::usual();
    let daemon = place.serve();
    let read = [
        "--rw=randread",
        "--bs=4k",
        "--size=16m",
        "--io_size=1m",
        "--norandommap=1",
    ];
    faultless(&fio(&place, "read", &daemon.uri("vol"), &read));
    let page = place.text("why.html");
    let text = run(&mut place.command(&format!("explain vol --html {page}")));
    for expected in [
        "write-through",
        "one cell is 128 KiB",
        "none ` `, least `.`, most `@`",
        "lines used",
        "policy auto",
        "@",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    assert_self_contained(&fs::read_to_string(&page).unwrap());
    let text = run(&mut place.command("explain vol 0-16MiB"));
    for expected in [
        "LINE AT",
        "DECISION",
        "admitted",
        "of 16 blocks",
        "and 192 more",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    for (words, status, expected) in [
        ("explain no", 1, "no volume is named no"),
        ("explain b/c", 1, "is no name"),
        (
            "explain vol 128MiB",
            1,
            "ends beyond volume vol of 134217728 bytes",
        ),
        ("explain vol 0-1TiB", 1, "choose a smaller one"),
        ("explain vol 2MiB-1MiB", 2, "the range is empty"),
        ("explain vol 1furlong", 2, "1furlong"),
        (
            "explain vol --html /no/page",
            1,
            "/no/page cannot be written",
        ),
    ] {
        refused(&mut place.command(words), status, &[expected]);
    }
    refused(
        hotset().args(["explain", "vol", "--control", &place.text("no")]),
        1,
        &["start `hotset serve`"],
    );
    daemon.stop();
}
