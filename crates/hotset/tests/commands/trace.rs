//! `hotset trace`: import, convert, look at and record traces.

use crate::common::site::Site;
use crate::common::{Daemon, Place, Process, faultless, fio, hotset, refused, run, tool};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const HEADER: &str = "ts_us,op,offset_bytes,len_bytes,volume\n";

/// Requests of two volumes in hotset's text form.
fn text() -> String {
    text_of(5000)
}

fn text_of(requests: u64) -> String {
    let mut text = HEADER.to_owned();
    for i in 0..requests {
        let op = if i % 3 == 0 { 'W' } else { 'R' };
        let at = i * 7919 % 1000 * 4096;
        writeln!(text, "{},{op},{at},{},{}", i * 37, 512 << (i % 8), i % 2).unwrap();
    }
    text
}

#[test]
fn a_trace_survives_every_form() {
    let place = Place::new();
    let text = text();
    fs::write(place.path("0.csv"), &text).unwrap();
    let forms = ["1.hottrace", "2.csv.zst", "3.hottrace", "4.csv"];
    let mut from = place.text("0.csv");
    for form in forms {
        let to = place.text(form);
        let output = run(hotset().args(["trace", "convert", &from, &to]));
        assert!(output.contains("5000 requests"), "{output}");
        from = to;
    }
    assert_eq!(fs::read_to_string(&from).unwrap(), text);
    let sizes = ["0.csv", "1.hottrace"];
    let sizes = sizes.map(|name| fs::metadata(place.path(name)).unwrap().len());
    assert!(sizes[1] * 3 < sizes[0], "{sizes:?}");
    // Parquet is hotset-lab's.
    let to = place.text("5.parquet");
    let convert = ["trace", "convert", &from, &to];
    refused(hotset().args(convert), 2, &["hotset-lab trace convert"]);
}

#[test]
fn foreign_traces_are_recognised_compressed_or_not() {
    let place = Place::new();
    let lines = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
                 128166372016382155,usr,0,Write,2517139456,4096,1963\n";
    fs::write(place.path("msr.csv"), lines).unwrap();
    run(tool("gzip", "gzip").arg("-k").arg(place.path("msr.csv")));
    for name in ["msr.csv", "msr.csv.gz"] {
        let text = run(hotset().args(["trace", "info", "--json", &place.text(name)]));
        let info: Value = serde_json::from_str(&text).unwrap();
        let info = &info[0];
        assert_eq!(
            (&info["format"], &info["requests"]),
            (&"msr".into(), &2.into()),
            "{text}"
        );
        assert_eq!(info["reads"], 1);
        assert_eq!(info["bytes"], 24576 + 4096);
        assert_eq!(info["unique_blocks"], 8);
        assert!((info["seconds"].as_f64().unwrap() - 1.332_052_6).abs() < 1e-9);
    }
    let to = place.text("msr.hottrace");
    run(hotset().args(["trace", "import", &place.text("msr.csv.gz"), &to]));
    let info = run(hotset().args(["trace", "info", &to]));
    assert!(
        info.contains("32.0 KiB: 28.0 KiB read, 4.0 KiB written"),
        "{info}"
    );
}

#[test]
fn standard_input_is_a_trace_too() {
    let place = Place::new();
    let line = "  8,0    3        1     0.000000001   697  Q   W 223490 + 8 [kjournald]\n";
    fs::write(place.path("blk.txt"), line).unwrap();
    let to = place.text("blk.hottrace");
    let mut import = hotset();
    import.args(["trace", "import", "-", &to]);
    run(import.stdin(fs::File::open(place.path("blk.txt")).unwrap()));
    assert!(run(hotset().args(["trace", "info", &to])).contains("1 (100.0%), 4.0 KiB"));
}

#[test]
fn captures_of_several_devices_are_refused_until_one_is_named() {
    let place = Place::new();
    let lines = "  8,0  0 1 0.000000000 7 A WS 2048 + 8 <- (8,1) 0\n  8,0  0 2 0.000000001 7 Q WS 2048 + 8 [fio]\n\
                 253,0  0 3 0.000000002 7 Q WS 0 + 8 [fio]\n  8,0  0 4 0.000000003 7 Q R 8 + 8 [fio]\n";
    fs::write(place.path("blk.txt"), lines).unwrap();
    let (from, to) = (place.text("blk.txt"), place.text("blk.hottrace"));
    let import = ["trace", "import", &from, &to];
    refused(
        hotset().args(import),
        1,
        &["blk.txt:3: ", "(8,0 253,0)", "--device"],
    );
    for (device, requests) in [("8,0", 2), ("253:0", 1), ("all", 3)] {
        let output = run(hotset().args(import).args(["--device", device, "--force"]));
        assert!(output.contains(&format!("{requests} request")), "{output}");
    }
    let none = ["--device", "9,9", "--force"];
    refused(hotset().args(import).args(none), 1, &["no requests"]);
    refused(hotset().args(import).args(["--device", "sda"]), 2, &["8,0"]);
}

#[test]
fn a_log_of_fio_is_read() {
    let place = Place::new();
    let (log, file) = (place.text("iolog"), place.text("file"));
    let job = "--name=job --size=256k --rw=randrw --bs=4k --fsync=16 --ioengine=psync";
    let mut fio = tool("fio", "fio");
    fio.current_dir(place.dir.path()).args(job.split(' '));
    run(fio.args([format!("--filename={file}"), format!("--write_iolog={log}")]));
    let text = run(hotset().args(["trace", "info", "--json", &log]));
    let info: Value = serde_json::from_str(&text).unwrap();
    let info = &info[0];
    assert_eq!(info["format"], "fio-iolog", "{text}");
    assert_eq!(
        (&info["requests"], &info["volumes"]),
        (&64.into(), &1.into())
    );
    assert_eq!(
        (&info["unique_blocks"], &info["bytes"]),
        (&64.into(), &(256 << 10).into())
    );
}

#[test]
fn archives_are_read_as_published() {
    let place = Place::new();
    fs::write(
        place.path("io_traces.csv"),
        "419,W,8792731648,16384,1577808144360767\n",
    )
    .unwrap();
    fs::write(place.path("device_size.csv"), "419,42949672960\n").unwrap();
    let archive = place.text("alibaba.tar.gz");
    let directory = place.dir.path();
    let members = ["device_size.csv", "io_traces.csv"];
    run(tool("tar", "tar")
        .arg("-C")
        .arg(directory)
        .args(["-czf", &archive])
        .args(members));
    let info = run(hotset().args(["trace", "info", &archive]));
    assert!(
        info.contains("alibaba") && info.contains("16.0 KiB"),
        "{info}"
    );
}

#[test]
fn what_is_wrong_is_reported_with_file_and_line_and_leaves_nothing() {
    let place = Place::new();
    let to = place.text("out.hottrace");
    let good = "1,R,0,4096,0\n";
    for (name, bad, output) in [
        ("op", "1,X,0,4096,0\n", "neither a read nor a write"),
        ("zero", "1,R,0,0,0\n", "zero bytes"),
        ("back", "0,R,0,4096,0\n", "time runs back"),
        (
            "mixed",
            "128166372003061629,usr,0,Read,0,512,1\n",
            "7 columns where 5",
        ),
        ("columns", "1,R,0,4096\n", "4 columns where 5"),
        ("far", "1,R,18446744073709551615,4096,0\n", "2^64"),
        (
            "beyond",
            "1,R,1048576,4096,0\n",
            "beyond the device of 1048576 bytes",
        ),
    ] {
        let file = place.text(&format!("{name}.csv"));
        fs::write(&file, format!("{HEADER}{good}{bad}{good}")).unwrap();
        let command = ["trace", "import", &file, &to, "--device-size", "1MiB"];
        let place_reported = format!("{name}.csv:3: ");
        refused(hotset().args(command), 1, &[&place_reported, output]);
        assert!(!place.path("out.hottrace").exists());
        let output = hotset().args(command).arg("--lenient").output().unwrap();
        assert!(output.status.success(), "{name}");
        let left = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(left.contains("left out") && left.contains('1'), "{left}");
        let info = run(hotset().args(["trace", "info", &to, "--json"]));
        assert!(info.contains("\"requests\": 2"), "{name}: {info}");
        fs::remove_file(&to).unwrap();
    }
    let leftovers = fs::read_dir(place.dir.path()).unwrap().flatten();
    let partial = |name: String| name.contains("partial");
    assert!(
        !leftovers
            .map(|f| f.file_name().to_string_lossy().into_owned())
            .any(partial)
    );
}

#[test]
fn truncated_files_are_reported_and_read_as_far_as_they_go() {
    let place = Place::new();
    // More than one block of zstd's, for a damaged one is lost as a whole.
    fs::write(place.path("t.csv"), text_of(50_000)).unwrap();
    let from = place.text("t.csv");
    for form in ["t.hottrace", "t.csv.zst"] {
        let file = place.text(form);
        run(hotset().args(["trace", "convert", &from, &file]));
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() - whole.len() / 3]).unwrap();
        refused(hotset().args(["trace", "info", &file]), 1, &[form]);
        let output = hotset()
            .args(["trace", "info", "--lenient", &file])
            .output()
            .unwrap();
        assert!(output.status.success(), "{form}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("damaged or cut off"), "{error}");
    }
}

#[test]
fn nothing_is_overwritten_unasked() {
    let place = Place::new();
    fs::write(place.path("a.csv"), text()).unwrap();
    fs::write(place.path("b.csv"), "precious").unwrap();
    let (a, b) = (place.text("a.csv"), place.text("b.csv"));
    refused(
        hotset().args(["trace", "convert", &a, &b]),
        1,
        &["exists", "--force"],
    );
    assert_eq!(fs::read_to_string(&b).unwrap(), "precious");
    run(hotset().args(["trace", "convert", &a, &b, "--force"]));
    assert_eq!(fs::read_to_string(&b).unwrap(), text());
    refused(
        hotset().args(["trace", "convert", &a, "noend"]),
        2,
        &["--to-format"],
    );
    let to = ["trace", "convert", &a, "x.msr", "--to-format", "msr"];
    refused(hotset().args(to), 2, &["msr can be read but not written"]);
}

/// 100 reads and 50 writes.
fn read_and_write(place: &Place, daemon: &Daemon) {
    let uri = daemon.uri("vol");
    for (name, kind, size) in [
        ("reads", "--rw=read", "400k"),
        ("writes", "--rw=write", "200k"),
    ] {
        let size = format!("--size={size}");
        faultless(&fio(place, name, &uri, &[kind, "--bs=4k", &size]));
    }
}

/// Checks that a trace has them all.
fn has_both(file: &str) {
    let info = run(hotset().args(["trace", "info", "--json", file]));
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(
        (&info[0]["reads"], &info[0]["writes"]),
        (&100.into(), &50.into()),
        "{info}"
    );
    assert_eq!(info[0]["read_bytes"], 100 * 4096);
}

#[test]
fn a_served_volume_is_recorded() {
    let place = Place::usual();
    let daemon = place.serve();
    let file = place.text("vol.hottrace");
    refused(
        &mut place.command(&format!("trace record nosuch {file}")),
        1,
        &["no volume is named nosuch"],
    );
    assert!(!place.path("vol.hottrace").exists());
    let mut record = place.command(&format!("trace record vol {file}"));
    let mut recorder = Process(record.stderr(Stdio::piped()).spawn().unwrap());
    let mut begun = String::new();
    let stderr = recorder.0.stderr.take().unwrap();
    BufReader::new(stderr).read_line(&mut begun).unwrap();
    assert!(begun.contains("recording vol"), "{begun}");
    let other = format!("trace record vol {}", place.text("other.hottrace"));
    refused(&mut place.command(&other), 1, &["vol is being recorded"]);
    read_and_write(&place, &daemon);
    recorder.signal(libc::SIGINT);
    assert!(recorder.0.wait().unwrap().success());
    has_both(&file);
    // And the end of one lets another begin.
    let again = place.text("again.csv");
    let output = run(&mut place.command(&format!("trace record vol {again} --seconds 0.2")));
    assert!(
        output.contains("0 requests") && output.contains("0 dropped"),
        "{output}"
    );
    daemon.stop();
}

#[test]
fn a_recording_is_sent_while_it_is_made() {
    const ALL: &str = r#"{"seconds": 600}"#;
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    let path = "/api/v1/volumes/vol/recording";
    for (token, path, end, status, what) in [
        (&site.reader, path, ALL, 403, "look"),
        (&site.operator, path, r#"{"seconds": 601}"#, 422, "601 s"),
        (&site.operator, path, r#"{"seconds": -1}"#, 422, "-1 s"),
        (
            &site.operator,
            "/api/v1/volumes/no/recording",
            ALL,
            409,
            "no volume",
        ),
    ] {
        let answer = site.with(token, "POST", path, end);
        assert!(
            answer.status == status && answer.body.contains(what),
            "{answer:?}"
        );
    }
    let end = r#"{"seconds": 600, "requests": 150}"#;
    let mut trace = site.begin(path, end);
    let answer = site.with(&site.operator, "POST", path, ALL);
    assert!(answer.body.contains("vol is being recorded"), "{answer:?}");
    read_and_write(&place, &daemon);
    fs::write(place.path("sent.hottrace"), trace.read_to_vec().unwrap()).unwrap();
    has_both(&place.text("sent.hottrace"));

    // A recording ends with the server and with the daemon, visibly cut off.
    let mut trace = site.begin(path, ALL);
    site.process.signal(libc::SIGTERM);
    trace.read_to_vec().unwrap_err();
    let mut process = site.process;
    assert!(process.0.wait().unwrap().success());
    let site = Site::start(&place);
    let mut trace = site.begin(path, ALL);
    daemon.stop();
    trace.read_to_vec().unwrap_err();
}

fn replay(words: &[&str]) -> Value {
    serde_json::from_str(&run(hotset()
        .args(["trace", "replay", "--json"])
        .args(words)))
    .unwrap()
}

#[test]
fn a_trace_is_replayed_and_writes_only_when_confirmed_twice() {
    let place = Place::new();
    fs::write(place.path("t.csv"), text()).unwrap();
    let zeroes = vec![0; 8 << 20];
    fs::write(place.path("disk"), &zeroes).unwrap();
    let (trace, disk) = (place.text("t.csv"), place.text("disk"));
    let reads = replay(&[&trace, &disk, "--depth", "8"]);
    assert_eq!(
        (&reads["requests"], &reads["writes_left_out"]),
        (&3333.into(), &1667.into())
    );
    assert_eq!(reads["read_us"]["count"], 3333);
    let bins = reads["read_us"]["histogram"].as_array().unwrap();
    let counted: u64 = bins.iter().map(|bin| bin[1].as_u64().unwrap()).sum();
    assert_eq!(counted, 3333);
    let unsure = ["trace", "replay", &trace, &disk, "--writes"];
    refused(hotset().args(unsure), 2, &["destroys", "--yes"]);
    assert!(
        fs::read(place.path("disk")).unwrap() == zeroes,
        "nothing was written"
    );
    let both = replay(&[&trace, &disk, "--writes", "--yes", "--speed", "10"]);
    assert_eq!(
        (&both["requests"], &both["failed"]),
        (&5000.into(), &0.into())
    );
    // 185 ms of trace, ten times as fast.
    assert!(both["seconds"].as_f64().unwrap() > 0.018, "{both}");
    assert!(fs::read(place.path("disk")).unwrap() != zeroes);
    fs::write(place.path("small"), &zeroes[..1 << 20]).unwrap();
    let small = ["trace", "replay", &trace, &place.text("small")];
    refused(
        hotset().args(small),
        1,
        &["t.csv:", "beyond the device of 1048576 bytes"],
    );
    let missing = ["trace", "replay", &trace, &place.text("missing")];
    refused(hotset().args(missing), 1, &["missing"]);
}

#[test]
fn a_served_volume_is_replayed_to() {
    let place = Place::usual();
    let daemon = place.serve();
    fs::write(place.path("t.csv"), text()).unwrap();
    let (trace, uri) = (place.text("t.csv"), daemon.uri("vol"));
    for _ in 0..2 {
        let figures = replay(&[&trace, &uri, "--depth", "4"]);
        assert_eq!(
            (&figures["requests"], &figures["failed"]),
            (&3333.into(), &0.into())
        );
    }
    assert!(
        daemon.count("blocks_hit") > 1000,
        "the second time it is cached"
    );
    let brief = replay(&[&trace, &uri, "--speed", "0.01", "--seconds", "0.3"]);
    let sent = brief["requests"].as_u64().unwrap();
    assert!((1..1000).contains(&sent), "{brief}");
    daemon.stop();
}
