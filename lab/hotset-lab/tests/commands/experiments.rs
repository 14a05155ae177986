//! `hotset-lab run`, in its quick forms.

use crate::common::{Place, all, hotset, lab, run, tool};
use experiment::finished::Finished;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::Output;

fn points(output: &std::process::Output) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", all(output)));
    let points = report["points"].as_array().unwrap().clone();
    for point in &points {
        let figure = |key: &str| point[key].as_f64().unwrap();
        assert!(figure("iops") > 0.0 && figure("mb_s") > 0.0, "{point}");
        assert!(figure("latency_ms_p99") > 0.0, "{point}");
    }
    points
}

#[test]
fn the_simulation_writes_its_report() {
    let place = Place::new();
    let out = place.path("out");
    let output = keep(&["run", "perc", "--quick", "--seeds", "1", "--out"], &out);
    let text = all(&output);
    for word in [
        "random read",
        "fitted: media rate",
        "shape",
        "too few requests",
    ] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
    let written = std::fs::read_to_string(out.join("perc.json")).unwrap();
    let written = Finished::parse(&written).unwrap();
    assert_eq!((&written.experiment[..], written.rows.len()), ("perc", 17));
    assert_eq!(written.tables[0].lines.len(), 4 * 2 * 5);
    let chart = std::fs::read_to_string(out.join("perc-mean-latency.svg")).unwrap();
    assert!(chart.contains("xmlns"));
}

#[test]
fn a_device_is_read_and_not_written() {
    let place = Place::new();
    let path = place.path("device");
    File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let mut command = lab();
    command.args(["run", "perc", "--quick", "--json", "--device"]);
    let output = command.arg(&path).output().unwrap();
    let points = points(&output);
    assert_eq!(points.len(), 2 * 5, "reads alone");
    let host = points[0]["cpu_host_percent"].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&host), "{host}");
    assert_eq!(points[0]["cpu_daemon_percent"], Value::Null);
}

#[test]
fn files_are_swept_through_a_daemon() {
    let place = Place::new();
    let mut command = lab();
    command.args(["run", "perc", "--quick", "--json", "--real"]);
    let output = command.arg(place.path("files")).output().unwrap();
    let points = points(&output);
    assert_eq!(points.len(), 4 * 2 * 5);
    // The kernel counts in ticks, of which a busy machine may give one point none.
    let cpu = |point: &Value| point["cpu_daemon_percent"].as_f64().unwrap();
    assert!(points.iter().any(|point| cpu(point) > 0.0), "{points:?}");
}

#[test]
fn every_printed_figure_of_the_log_replay_has_its_row() {
    let output = lab()
        .args(["run", "redskin", "--quick", "--json", "--seeds", "2"])
        .output()
        .unwrap();
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", all(&output)));
    assert_eq!(rows.len(), 82);
    for row in &rows {
        let of = |key: &str| row[key].as_f64().unwrap();
        assert!(
            of("ours_min") <= of("ours") && of("ours") <= of("ours_max"),
            "{row}"
        );
        assert_eq!(
            (of("seeds"), row["experiment"].as_str()),
            (2.0, Some("redskin"))
        );
    }
    let output = lab()
        .args(["run", "redskin", "--quick", "--seeds", "1"])
        .output()
        .unwrap();
    let text = all(&output);
    for word in [
        "claim.gap.hour",
        "not identifiable",
        "fitted: files of the site",
        "too few",
        "done: redskin: seed 1: short list on hdd",
        " simulated seconds in ",
    ] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

/// Runs a command on `directory`.
fn keep(arguments: &[&str], directory: &Path) -> Output {
    lab().args(arguments).arg(directory).output().unwrap()
}

/// A row without the fields that differ from run to run.
fn without_time(row: &Value) -> Value {
    let mut row = row.clone();
    row.as_object_mut().unwrap().remove("wall_seconds").unwrap();
    row
}

#[test]
fn all_are_listed_run_kept_and_reported() {
    let place = Place::new();
    let out = place.path("out");
    let listed = all(&lab().args(["list"]).output().unwrap());
    for name in [
        "cachecade",
        "maxiq",
        "nytro",
        "redskin",
        "perc",
        "perc-mail",
        "perc-oltp",
    ] {
        assert!(listed.contains(name), "{listed}");
    }
    let run = ["run", "all", "--quick", "--seeds", "1", "--json", "--out"];
    let first = keep(&run, &out);
    let rows: Vec<Value> = serde_json::from_slice(&first.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", all(&first)));
    // The rows of one seed, and their CRC32C without the time of the run: the same on any machine.
    // A change of an engine's default or of a model shows here the rows that it moves. After such a
    // change, run these experiments again at length before writing the new number down.
    let expected = [
        ("cachecade", 18, 0x25907700),
        ("maxiq", 35, 0x13bd9c4c),
        ("nytro", 13, 0xc090f45b),
        ("redskin", 82, 0x95d18681),
        ("perc", 17, 0xbfe93e8e),
        ("perc-mail", 21, 0x395b16b1),
        ("perc-oltp", 4, 0xf2f92922),
    ];
    let found = expected.map(|(name, ..)| {
        let of = rows.iter().filter(|row| row["experiment"] == name);
        let rows: Vec<String> = of.map(|row| without_time(row).to_string()).collect();
        (name, rows.len(), crc32c::crc32c(rows.concat().as_bytes()))
    });
    assert_eq!(found, expected, "{found:x?}");
    for row in &rows {
        assert!(row["virtual_seconds"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["wall_seconds"].as_f64().unwrap() > 0.0, "{row}");
    }
    // Ended experiments are not run again: the same rows, with the times of the first run.
    std::fs::remove_file(out.join("redskin.json")).unwrap();
    let again = keep(&run, &out);
    let output = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(output.contains("maxiq: done before") && !output.contains("redskin: done before"));
    let rows_again: Vec<Value> = serde_json::from_slice(&again.stdout).unwrap();
    let kept = |rows: &[Value]| -> Vec<Value> {
        let kept = rows.iter().filter(|row| row["experiment"] != "redskin");
        kept.cloned().collect()
    };
    assert_eq!(kept(&rows), kept(&rows_again));
    tried_and_left_out(&out);
    let report = keep(&["report"], &out);
    assert!(report.status.success(), "{}", all(&report));
    priced(&place, &out);
    for what in [
        "What the parts of the model move",
        "Choices of today</h3>",
        "Choices of today, on 50 % of its flash</h3>",
    ] {
        let page = std::fs::read_to_string(out.join("report.html")).unwrap();
        assert!(page.contains(what), "{what}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    advise::page::assert_self_contained(&page);
    assert!(page.contains("quick form") && page.contains("mbps.on"));
    // Of maxiq there are prices of the whole form alone.
    assert_eq!(page.matches("Cost of ownership").count(), 5);
}

/// Reports by prices of one's own: they are taken, or refused with their place.
fn priced(place: &Place, out: &Path) {
    let prices = place.path("prices.toml");
    let shipped = include_str!("../../../../contrib/ownership.toml");
    std::fs::write(&prices, shipped.replace("USD", "EUR")).unwrap();
    let own = ["report", "--prices", prices.to_str().unwrap()];
    assert!(keep(&own, out).status.success());
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("EUR over 5 years") && page.contains("Servers for "));
    std::fs::write(&prices, "years = 5").unwrap();
    let refused = all(&keep(&own, out));
    assert!(refused.contains("prices.toml: not prices"), "{refused}");
    // The page by the shipped prices.
    assert!(keep(&["report"], out).status.success());
}

/// Adds to the kept results: each choice of today, and the effect of the parts of the model.
fn tried_and_left_out(out: &Path) {
    let quick = ["--quick", "--seeds", "1", "--json", "--out"];
    let with = |command: &[&str]| -> Value {
        let arguments: Vec<&str> = command.iter().copied().chain(quick).collect();
        let output = keep(&arguments, out);
        let text = all(&output);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let choices = with(&["choices", "redskin"]);
    let rows = choices[0]["rows"].as_array().unwrap();
    let hits = |name: &str| {
        let row = rows.iter().find(|row| row["choice"] == name);
        row.unwrap()["hit_percent"].as_f64().unwrap()
    };
    assert_eq!(rows.len(), experiment::choices::ALL.len());
    assert!(hits("restarted cold") + 3.0 < hits("restarted warm"));
    // Half of the cached data is gone with one of two drives, and is promoted again where there is
    // room.
    assert!(hits("all flash drives lost") < 1.0 && hits("auto") > 20.0);
    let half = hits("one of two flash drives lost");
    assert!(half > 5.0 && half < hits("two flash drives"), "{half}");
    // The default on half of the flash equals the choice of half the flash.
    let on_half = with(&["choices", "redskin", "--flash", "50"])[0]["rows"][0].clone();
    assert_eq!(on_half["choice"], "auto");
    assert_eq!(on_half["hit_percent"], hits("half the flash"));
    assert!(out.join("choices-redskin-flash-50.json").exists());
    let ablate = || with(&["ablate", "nytro"])[0].clone();
    let ablated = ablate();
    let figures = ablated["figures"].as_array().unwrap();
    let place = figures.iter().position(|f| f == "time").unwrap();
    let times = |row: usize| ablated["rows"][row]["moved"][place]["ours"].as_f64();
    assert_eq!(ablated["rows"][1]["without"], "the look-ups of indexes");
    assert!(times(1) < times(0), "{ablated}");
    // Kept results are read back.
    assert_eq!(ablate(), ablated);
}

#[test]
fn what_cannot_be_run_kept_or_reported_is_reported_once_and_leaves_nothing() {
    let place = Place::new();
    let out = place.path("out");
    let refused = |arguments: &[&str], directory: &Path, says: &str| {
        let output = keep(arguments, directory);
        let text = all(&output);
        assert!(!output.status.success() && text.contains(says), "{text}");
        assert_eq!(text.trim().lines().count(), 1, "{text}");
    };
    refused(&["run", "maxiq", "tetris", "--out"], &out, "\"tetris\"");
    assert!(!out.exists());
    let unknown = ["run", "nytro", "--quick", "--set", "look=1", "--out"];
    refused(&unknown, &out, "choose of lookups, processor_us");
    let beyond = ["run", "perc-oltp", "--quick", "--set", "users=0", "--out"];
    refused(&beyond, &out, "users = 0; choose from 1 to 10000");
    assert!(!out.exists());
    refused(&["choices", "perc", "--out"], &out, "\"perc\"");
    refused(&["choices", "tetris", "--out"], &out, "\"tetris\"");
    refused(&["ablate", "perc", "--out"], &out, "\"perc\"");
    let figure = ["ablate", "nytro", "--figure", "colour", "--out"];
    refused(&figure, &out, "\"colour\"");
    refused(&["report"], &out, "is no directory");
    std::fs::create_dir(&out).unwrap();
    refused(&["report"], &out, "no experiment has ended");
    std::fs::write(out.join("maxiq.json"), "{\"format\": 1, \"exper").unwrap();
    let quick = ["run", "maxiq", "--quick", "--seeds", "1", "--json", "--out"];
    refused(&quick, &out, "not what an experiment came to");
    refused(&["report"], &out, "not what an experiment came to");
    std::fs::remove_file(out.join("maxiq.json")).unwrap();
    assert!(keep(&quick, &out).status.success());
    let other = ["run", "maxiq", "--quick", "--seeds", "2", "--out"];
    refused(&other, &out, "of other seeds or another form");
    refused(&quick, Path::new("/proc/none"), "can be written");
}

/// The partial results of a killed run are not reported as if complete.
#[test]
fn a_half_finished_run_is_not_reported_and_goes_on() {
    let place = Place::new();
    let out = place.path("out");
    std::fs::create_dir(&out).unwrap();
    let quick = ["run", "nytro", "--quick", "--seeds", "1", "--json", "--out"];
    assert!(keep(&quick, &out).status.success());
    // So many whole seeds that the run has not ended whenever the kill comes.
    let long = ["run", "maxiq", "--seeds", "100", "--json", "--out"];
    let mut running = lab().args(long).arg(&out).spawn().unwrap();
    while !out.join("begun").exists() {
        assert!(running.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::yield_now();
    }
    running.kill().unwrap();
    running.wait().unwrap();
    let output = keep(&["report"], &out);
    let text = all(&output);
    assert!(
        !output.status.success() && text.contains("a run of maxiq has not ended"),
        "{text}"
    );
    assert!(!out.join("report.html").exists());
    let both = [
        "run", "nytro", "maxiq", "--quick", "--seeds", "1", "--json", "--out",
    ];
    let again = keep(&both, &out);
    assert!(
        all(&again).contains("nytro: done before"),
        "{}",
        all(&again)
    );
    assert!(keep(&["report"], &out).status.success());
}

#[test]
fn a_workload_is_a_trace_that_advice_is_given_by() {
    let place = Place::new();
    let file = place.text("nytro.hottrace");
    let write = ["trace", "workload", "nytro", &file, "--quick"];
    let output = run(lab().args(write));
    assert!(output.contains(" requests in "), "{output}");
    let advice = run(hotset().args(["advise", &file, "--json"]));
    let advice: Value = serde_json::from_str(&advice).unwrap();
    assert!(!advice["sizes"].as_array().unwrap().is_empty(), "{advice}");
    let refused = |arguments: &[&str], says: &str| {
        let output = lab().args(["trace", "workload"]).args(arguments).output();
        let text = all(&output.unwrap());
        assert!(text.contains(says), "{text}");
        assert_eq!(text.trim().lines().count(), 1, "{text}");
    };
    refused(&["nytro", &file, "--quick"], "exists");
    let other = place.text("other.hottrace");
    refused(&["tetris", &other], "choose of maxiq");
    refused(&["nytro", &place.text("other.txt")], "names no format");
    assert!(!place.path("other.hottrace").exists());
}

/// A full disk fails the last write, and no part of the file is left.
#[test]
fn a_full_disk_leaves_nothing_half_written() {
    testbed::namespace::enter().unwrap();
    let place = Place::new();
    let out = place.path("full");
    std::fs::create_dir(&out).unwrap();
    let mount = run(tool("mount", "mount")
        .args(["-t", "tmpfs", "-o", "size=8k", "none"])
        .arg(&out));
    assert_eq!(mount, "");
    let quick = ["run", "maxiq", "--quick", "--seeds", "1", "--json", "--out"];
    let refused = |arguments: &[&str]| {
        let output = keep(arguments, &out);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{text}");
        assert!(text.contains("make room"), "{text}");
    };
    refused(&quick);
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0);
    // With room for the results, and none for their report.
    let mut remount = tool("mount", "mount");
    run(remount.args(["-o", "remount,size=8m"]).arg(&out));
    assert!(keep(&quick, &out).status.success());
    let rest = std::fs::write(out.join("rest"), vec![1; 16 << 20]);
    assert!(rest.is_err(), "the disk is full");
    refused(&["report"]);
    let mut left: Vec<_> = std::fs::read_dir(&out).unwrap().collect();
    left.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let left = left.into_iter().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["maxiq.json", "rest"]);
    run(tool("umount", "mount").arg(&out));
}
