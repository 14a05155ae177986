//! `hotset-lab sim`: from traces to a table, JSON, CSV and a chart.

use crate::common::{Place, all, lab, refused, run};
use serde_json::Value;
use std::fmt::Write;
use std::fs;

/// A loop over 100 blocks of 4 KiB, a request for each, ten times over; every
/// tenth a write.
fn looped(place: &Place, name: &str) -> String {
    let mut text = "ts_us,op,offset_bytes,len_bytes,volume\n".to_owned();
    for i in 0..1000u64 {
        let op = if i % 10 == 0 { 'W' } else { 'R' };
        writeln!(text, "{},{op},{},4096,0", i * 1000, i % 100 * 4096).unwrap();
    }
    fs::write(place.path(name), text).unwrap();
    place.text(name)
}

fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_loop_misses_what_each_policy_must() {
    let place = Place::new();
    let trace = looped(&place, "loop.csv");
    let command = "sim TRACE --policy lru,belady --size 0.5,400KiB --line 4096 --json";
    let command = command.replace("TRACE", &trace);
    let text = run(lab().args(command.split(' ')));
    let rows = rows(&text);
    let cell = |row: &Value| {
        let number = |name: &str| row[name].as_u64().unwrap();
        let policy = row["policy"].as_str().unwrap().to_owned();
        (
            policy,
            number("cache_blocks"),
            number("accesses"),
            number("misses"),
        )
    };
    let cells: Vec<_> = rows.iter().map(cell).collect();
    let cell = |policy: &str, blocks, misses| (policy.to_owned(), blocks, 1000, misses);
    // LRU misses all of a loop longer than the pool. The optimum keeps 49 or 50
    // of the hundred from one pass to the next.
    assert_eq!(cells[0], cell("lru", 50, 1000));
    assert!((500..=560).contains(&cells[1].3), "{:?}", cells[1]);
    assert_eq!(
        cells[2..],
        [cell("lru", 100, 100), cell("belady", 100, 100)]
    );
    assert_eq!(rows[0]["trace"], "loop");
    assert_eq!(rows[2]["size_fraction"], 1.0);
    assert_eq!(rows[2]["miss_ratio"], 0.1);
    assert_eq!(rows[2]["admitted_bytes"], 100 * 4096);
    assert_eq!(rows[2]["byte_hit_ratio"], 0.9);
    assert!(rows[2]["seconds"].is_f64());
}

#[test]
fn the_result_depends_on_the_trace_alone() {
    let place = Place::new();
    let (one, two) = (looped(&place, "one.csv"), looped(&place, "two.csv"));
    let simulate = |threads: &str| {
        let mut command = lab();
        command.args(["sim", &one, &two, "--policy", "all", "--json"]);
        command.args(["--size", "0.1,0.4", "--line", "4096,16KiB"]);
        let mut rows = rows(&run(command.args(["--threads", threads])));
        for row in &mut rows {
            row.as_object_mut().unwrap().remove("seconds").unwrap();
        }
        rows
    };
    let (alone, together) = (simulate("1"), simulate("4"));
    assert_eq!(alone, together);
    assert_eq!(alone.len(), 2 * 2 * 2 * baselines::registry::POLICIES.len());
}

#[test]
fn tables_csv_and_charts_hold_the_same_cells() {
    let place = Place::new();
    let trace = looped(&place, "loop.csv");
    let chart = place.text("chart.svg");
    let table = run(lab().args(["sim", &trace, "--size", "0.1", "--chart", &chart]));
    assert!(
        table.starts_with("TRACE") && table.lines().count() == 3,
        "{table}"
    );
    let csv = run(lab().args(["sim", &trace, "--size", "0.1", "--csv"]));
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].starts_with("trace,policy,size_fraction,cache_blocks,"));
    assert!(lines[1].starts_with("loop,auto,0.1,10,1000,"), "{csv}");
    assert_eq!(lines.len(), 3);
    let columns = |line: &str| line.split(',').count();
    assert!(lines.iter().all(|line| columns(line) == columns(lines[0])));
    let chart = fs::read_to_string(chart).unwrap();
    assert!(chart.contains("<svg") && chart.contains("auto"));
}

#[test]
fn curves_have_a_row_for_each_size_and_ranks_compare_policies() {
    let place = Place::new();
    let (trace, chart) = (looped(&place, "loop.csv"), place.text("chart.svg"));
    let sim = |more: &str| run(lab().args(["sim", &trace]).args(more.split(' ')));
    let usual = sim("--mrc");
    let lines: Vec<Vec<&str>> = usual
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        ["TRACE", "LINE", "SIZE", "POOL", "auto", "lru", "belady"]
    );
    // A loop: LRU misses all until the pool holds the whole loop, when only first accesses miss.
    let last = &lines[lines.len() - 1];
    assert_eq!(last[2..], ["100%", "400", "KiB", "10.00", "10.00", "10.00"]);
    let lru = |line: &Vec<&str>| line[6] == "100.00";
    assert!(lines[1..lines.len() - 1].iter().all(lru), "{usual}");

    let command = "--mrc --size 10%..80%*2,400KiB --policy lru,belady --json --chart";
    let curves = rows(&sim(&format!("{command} {chart}")));
    let sizes = |curve: &Value| {
        let points = curve["points"].as_array().unwrap().iter();
        points
            .map(|p| p["cache_bytes"].as_u64().unwrap() >> 12)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (curves.len(), sizes(&curves[1])),
        (2, vec![10, 20, 40, 80, 100])
    );
    assert_eq!(curves[1]["policy"], "belady");
    assert!(fs::read_to_string(&chart).unwrap().contains("belady"));

    let ranks = rows(&sim("--rank --size 50% --json"));
    assert_eq!(ranks.len(), baselines::registry::POLICIES.len() + 1);
    let rising = |pair: &[Value]| pair[0]["miss_ratio"].as_f64() <= pair[1]["miss_ratio"].as_f64();
    assert!(ranks.windows(2).all(rising), "{ranks:?}");
    let belady = ranks.iter().find(|rank| rank["policy"] == "belady");
    let belady = belady.expect("it runs too");
    assert!(belady["over_lru"].as_f64().unwrap() < -0.4);
    assert_eq!(belady["over_belady"], 0.0);
    let few = sim("--rank --size 50% --policy clock");
    let column = |line: &str, at| line.split_whitespace().nth(at).map(str::to_owned);
    let policies: Vec<_> = few.lines().filter_map(|line| column(line, 3)).collect();
    assert_eq!(policies, ["POLICY", "belady", "clock", "lru"], "{few}");
    assert_eq!(column(few.lines().last().unwrap(), 5).unwrap(), "+0.00");
    refused(
        lab().args(["sim", &trace, "--mrc", "--rank"]),
        2,
        &["--rank"],
    );
}

#[test]
fn a_wrong_command_line_lists_what_to_choose_from() {
    let place = Place::new();
    let trace = looped(&place, "loop.csv");
    for (option, value, expected) in [
        ("--policy", "mru", "clock2q-plus"),
        ("--size", "0", "between 0 and 1"),
        ("--size", "1GiB..1MiB", "1GiB..64GiB*2"),
        ("--size", "7", "16GiB"),
        ("--line", "5000", "power of two"),
        ("--format", "vhs", "blkparse"),
    ] {
        refused(lab().args(["sim", &trace, option, value]), 2, &[expected]);
    }
}

#[test]
fn bad_traces_are_reported_with_their_line_or_left_out_and_counted() {
    let place = Place::new();
    let missing = place.text("missing.csv");
    refused(
        lab().args(["sim", &missing]),
        1,
        &["missing.csv", "No such file"],
    );
    let empty = place.text("empty.csv");
    fs::write(&empty, "ts_us,op,offset_bytes,len_bytes,volume\n").unwrap();
    refused(
        lab().args(["sim", &empty]),
        1,
        &["empty.csv", "no requests"],
    );
    let bad = place.text("bad.csv");
    let lines = "ts_us,op,offset_bytes,len_bytes,volume\n1,R,0,4096,0\n2,R,0,0,0\n0,R,0,4096,0\n";
    fs::write(&bad, lines).unwrap();
    refused(lab().args(["sim", &bad]), 1, &["bad.csv:3: ", "zero bytes"]);
    let mut lenient = lab();
    lenient.args(["sim", &bad, "--lenient", "--json"]);
    let output = lenient.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    assert!(all(&output).contains("left out 1 malformed, 1 out of order"));
    assert_eq!(
        rows(&String::from_utf8(output.stdout).unwrap())[0]["accesses"],
        1
    );
}

#[test]
fn the_engine_itself_runs_on_drive_models() {
    let place = Place::new();
    let trace = looped(&place, "loop.csv");
    let simulate = |more: &str| {
        let command = format!("sim {trace} --engine --json --policy lru {more}");
        rows(&run(lab().args(command.split(' '))))
    };
    let all = simulate("--size 2MiB --mode pass-through,write-through,write-around --line 4096");
    let figure = |row: &Value, name: &str| row[name].as_f64().unwrap();
    let [passed, through, around] = &all[..] else {
        panic!("three modes: {all:?}")
    };
    assert_eq!(passed["accesses"], 0);
    // The second pass finds the data of the first, or the data that was written.
    assert!(figure(through, "miss_ratio") < 0.15, "{through}");
    assert!(figure(around, "miss_ratio") < 0.2, "{around}");
    assert!(figure(around, "admitted_bytes") < figure(through, "admitted_bytes"));
    for row in [through, around] {
        let mean = |row: &Value| row["read_us"]["mean"].as_f64().unwrap();
        assert!(mean(row) * 2.0 < mean(passed), "{row}");
    }
    let mut again = simulate("--size 2MiB --mode write-through --line 4096");
    again[0]["seconds"] = through["seconds"].clone();
    assert_eq!(again[0], *through, "deterministic");
    let warm = &simulate("--size 2MiB --line 4096 --skip 0.5")[0];
    assert_eq!(
        (&warm["requests"], &warm["misses"]),
        (&500.into(), &0.into())
    );
    // A longer line holds only the requested blocks.
    let long = &simulate("--size 2MiB")[0];
    assert_eq!(
        (&long["line_bytes"], &long["misses"]),
        (&65536.into(), &through["misses"])
    );
    let bypassed = &simulate("--size 2MiB --line 4096 --sequential 64KiB --depth 1")[0];
    assert!(
        bypassed["sequential_lines"].as_u64().unwrap() > 0,
        "{bypassed}"
    );
    refused(
        lab().args(["sim", &trace, "--engine", "--policy", "belady"]),
        2,
        &["future"],
    );
    let wrong = ["sim", &trace, "--engine", "--origin", "FLOPPY"];
    refused(lab().args(wrong), 2, &["SAS15K"]);
    refused(
        lab().args(["sim", &trace, "--depth", "4"]),
        2,
        &["--engine"],
    );
}
