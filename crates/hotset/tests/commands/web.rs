//! The web server as its clients see it: metrics, the API, and the rights of clients.

use crate::common::site::{Site, web, web_on};
use crate::common::{Place, copy_out, refused, run, tool};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

#[test]
fn a_scrape_shows_what_the_daemon_counts() {
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    assert_eq!(site.metric("hotset_up"), Some(1.0));
    copy_out(&daemon.uri("vol"), &place.path("out"));
    crate::common::until("a scrape with the reads", || {
        site.metric(r#"hotset_device_read_bytes_total{device="origin",role="origin"}"#)
            >= Some(128.0 * 1024.0 * 1024.0)
    });
    let status = daemon.status();
    let counters = &status["volumes"][0]["counters"];
    for counter in ["blocks_missed", "reads_missed", "lines_admitted"] {
        let series = format!("hotset_volume_{counter}_total{{volume=\"vol\"}}");
        assert_eq!(
            site.metric(&series),
            counters[counter].as_f64(),
            "{counter}"
        );
    }
    let scrape = site.with(&site.reader, "GET", "/metrics", "");
    assert!(
        scrape
            .header("content-type")
            .starts_with("text/plain; version=0.0.4")
    );
    let mut promtool = tool("promtool", "prometheus");
    let promtool = promtool.args(["check", "metrics"]);
    let mut child = promtool
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(scrape.body.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    daemon.stop();
    crate::common::until("a scrape without the daemon", || {
        site.metric("hotset_up") == Some(0.0)
    });
    let gone = site.with(&site.reader, "GET", "/api/v1/status", "");
    assert_eq!(gone.status, 503);
    assert!(
        gone.json()["remedy"]
            .as_str()
            .unwrap()
            .contains("hotset serve"),
        "{gone:?}"
    );
}

#[test]
fn volumes_and_pools_are_changed_by_the_api() {
    let place = Place::usual();
    place.file("other", 32);
    place.file("second", 32);
    let daemon = place.serve();
    let site = Site::start(&place);
    let origin = json!({"name": "other", "path": place.text("other")});
    let volume = json!({"name": "b", "origin": origin, "pool": "fast", "mode": "write-around"});
    site.operate("POST", "/api/v1/volumes", &volume.to_string());
    let bytes = copy_out(&daemon.uri("b"), &place.path("out"));
    assert_eq!(bytes.len(), 32 << 20);
    site.operate(
        "PUT",
        "/api/v1/volumes/b/mode",
        r#"{"mode":"pass-through"}"#,
    );
    site.operate("PUT", "/api/v1/volumes/b/quiesced", r#"{"quiesced":true}"#);
    let status = daemon.status();
    assert_eq!(status["volumes"][0]["mode"], "pass-through");
    assert_eq!(status["volumes"][0]["quiesced"], true);
    site.operate("PUT", "/api/v1/volumes/b/quiesced", r#"{"quiesced":false}"#);
    site.operate("POST", "/api/v1/volumes/b/invalidate", "");
    let explained = site.operate("GET", "/api/v1/volumes/b/explanation?start=0&end=65536", "");
    assert_eq!(explained.json()["range"]["lines"][0]["start"], 0);
    let observed = site.operate("GET", "/api/v1/volumes/b/observation", "");
    assert_eq!(observed.json()["pool"], "fast");
    site.operate("DELETE", "/api/v1/volumes/b", "");
    let device = json!({"name": "second", "path": place.text("second")});
    site.operate("POST", "/api/v1/pools/fast/devices", &device.to_string());
    site.operate("DELETE", "/api/v1/pools/fast/devices/pool", "");
    let status = daemon.status();
    assert_eq!(status["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(status["pools"][0]["devices"][0]["name"], "second");
    let place_of = |name: &str| {
        let places = site.operate("GET", "/api/v1/places", "").json();
        let mut all = places.as_array().unwrap().iter();
        all.find(|place| place["name"] == name).cloned()
    };
    crate::common::until("the device to be offered", || {
        let pool = place_of("pool");
        pool.is_some_and(|pool| pool["used_by"].is_null() && pool["size_bytes"] == 64 << 20)
    });
    // A file in use is shown, and cannot be chosen.
    assert_eq!(place_of("second").unwrap()["used_by"], "hotset, as pool");
    daemon.stop();
}

/// Requests, each with the status of its answer and a part of the reason.
const REFUSED: [(&str, &str, &str, u16, &str); 9] = [
    (
        "PUT",
        "/api/v1/volumes/no/mode",
        r#"{"mode":"pass-through"}"#,
        409,
        "no volume is named",
    ),
    (
        "PUT",
        "/api/v1/volumes/vol/mode",
        r#"{"mode":"fast"}"#,
        409,
        "is no mode",
    ),
    (
        "PUT",
        "/api/v1/volumes/vol/mode",
        r#"{"mode":"#,
        400,
        "parse",
    ),
    (
        "PUT",
        "/api/v1/volumes/vol/mode",
        r#"{"mood":"x"}"#,
        422,
        "unknown field",
    ),
    ("DELETE", "/api/v1/volumes/%2e%2e%2f", "", 409, "name"),
    (
        "GET",
        "/api/v1/volumes/vol/explanation?start=x",
        "",
        400,
        "invalid digit",
    ),
    (
        "GET",
        "/api/v1/../../etc/passwd",
        "",
        404,
        "nothing at this address",
    ),
    (
        "PATCH",
        "/api/v1/status",
        "",
        405,
        "does not take this method",
    ),
    ("POST", "/api/v1/arrays/no/scrub", "{}", 409, "no array"),
];

#[test]
fn what_cannot_be_done_is_reported_with_a_remedy_and_changes_nothing() {
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    let before = daemon.status()["volumes"].clone();
    for (method, path, body, status, reason) in REFUSED {
        let answer = site.with(&site.operator, method, path, body);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let problem = answer.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(reason), "{method} {path}: {problem}");
        assert_ne!(problem["remedy"], "");
    }
    let long = format!(r#"{{"mode":"{}"}}"#, "x".repeat(100_000));
    let answer = site.with(&site.operator, "PUT", "/api/v1/volumes/vol/mode", &long);
    assert_eq!(answer.status, 413, "{answer:?}");
    assert_eq!(daemon.status()["volumes"], before);
    daemon.stop();
}

#[test]
fn nothing_is_shown_without_a_token_or_changed_without_the_right_one() {
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    let mode = (r#"{"mode":"pass-through"}"#, "/api/v1/volumes/vol/mode");
    for path in [
        "/metrics",
        "/api/v1/status",
        "/api/v1/live",
        "/api/v1/places",
    ] {
        assert_eq!(site.send("GET", path, &[], "").status, 401, "{path}");
        assert_eq!(site.with("guess", "GET", path, "").status, 401, "{path}");
    }
    assert_eq!(site.with(&site.reader, "PUT", mode.1, mode.0).status, 403);

    let wrong = site.send("POST", "/api/v1/session", &[], r#"{"token":"guess"}"#);
    assert_eq!(wrong.status, 401);
    let right = json!({"token": site.operator}).to_string();
    let signed_in = site.send("POST", "/api/v1/session", &[], &right);
    assert_eq!(signed_in.status, 200, "{signed_in:?}");
    let set = signed_in.header("set-cookie").to_owned();
    assert!(
        set.contains("HttpOnly") && set.contains("SameSite=Strict"),
        "{set}"
    );
    let cookie = set.split(';').next().unwrap();
    let csrf = signed_in.json()["csrf"].as_str().unwrap().to_owned();
    let with = |headers: &[(&str, &str)]| site.send("PUT", mode.1, headers, mode.0).status;
    assert_eq!(with(&[("cookie", cookie)]), 403);
    assert_eq!(with(&[("cookie", cookie), ("x-csrf-token", "guess")]), 403);
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-through");
    assert_eq!(with(&[("cookie", cookie), ("x-csrf-token", &csrf)]), 204);
    assert_eq!(daemon.status()["volumes"][0]["mode"], "pass-through");
    let shown = site.send("GET", "/api/v1/session", &[("cookie", cookie)], "");
    assert_eq!(shown.json()["role"], "operator");
    site.send("DELETE", "/api/v1/session", &[("cookie", cookie)], "");
    assert_eq!(with(&[("cookie", cookie), ("x-csrf-token", &csrf)]), 401);

    let answer = site.send("GET", "/metrics", &[], "");
    let policy = answer.header("content-security-policy");
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    for (header, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(answer.header(header), value);
    }
    daemon.stop();
}

/// The samples of the volume `vol`, from the oldest.
fn samples(site: &Site) -> Vec<serde_json::Value> {
    let answer = site.with(&site.reader, "GET", "/api/v1/history?volume=vol", "");
    assert_eq!(answer.status, 200, "{answer:?}");
    let history = answer.json();
    assert_eq!(history["trouble"], json!(null));
    history["samples"].as_array().unwrap().clone()
}

#[test]
fn a_server_that_was_killed_finds_its_history_and_one_with_another_file_begins_again() {
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    assert_eq!(samples(&site), Vec::<serde_json::Value>::new());
    let has_read = |sample: &serde_json::Value| sample["reads_s"].as_f64() > Some(0.0);
    crate::common::until("a sample with reads", || {
        copy_out(&daemon.uri("vol"), &place.path("out"));
        samples(&site).iter().any(has_read)
    });
    let before = samples(&site);
    let read = before.iter().find(|sample| has_read(sample)).unwrap();
    assert!(read["read_us_p50"].as_f64() > Some(0.0), "{read}");
    assert!(read["origin_s"].as_f64() > Some(0.0), "{read}");
    site.process.kill();

    let site = Site::start(&place);
    let after = samples(&site);
    assert_eq!(after[..before.len()], before);
    let early = site.with(&site.reader, "GET", "/api/v1/history?to=5&from=9", "");
    assert_eq!(early.status, 400, "{early:?}");
    let none = site.with(&site.reader, "GET", "/api/v1/history?volume=none", "");
    assert_eq!(none.json()["samples"], json!([]));
    site.process.kill();

    fs::write(place.path("web/history"), "of another version").unwrap();
    let site = Site::start(&place);
    assert!(samples(&site).is_empty());
    assert!(place.path("web/history.old1").exists());
    daemon.stop();
}

#[test]
fn whether_the_daemon_answers_is_shown_to_all_and_its_troubles_are_announced() {
    let place = Place::usual();
    let daemon = place.serve();
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", hook.local_addr().unwrap());
    refused(
        web(&place).args(["--webhook", "ftp://x/"]),
        1,
        &["http or https"],
    );
    let site = Site::start_with(&place, &["--webhook", &url]);
    // Takes the next message that is posted.
    let posted = || {
        let (stream, _) = hook.accept().unwrap();
        let mut stream = BufReader::new(stream);
        let mut len = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            match line.trim().strip_prefix("content-length: ") {
                Some(n) => len = n.parse().unwrap(),
                None if line.trim().is_empty() => break,
                None => (),
            }
        }
        let mut body = vec![0; len];
        stream.read_exact(&mut body).unwrap();
        let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
        stream.get_mut().write_all(answer).unwrap();
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()
    };
    site.operate("DELETE", "/api/v1/pools/fast/devices/pool", "");
    let begun = posted();
    assert_eq!(
        (&begun["event"], &begun["kind"]),
        (&json!("begun"), &json!("pool-empty"))
    );
    assert_ne!(begun["remedy"], "");
    let device = json!({"name": "pool"}).to_string();
    site.operate("POST", "/api/v1/pools/fast/devices", &device);
    let ended = posted();
    assert_eq!(
        (&ended["event"], &ended["kind"]),
        (&json!("ended"), &json!("pool-empty"))
    );
    let health = site.send("GET", "/healthz", &[], "");
    assert_eq!((health.status, &*health.body), (200, "ok\n"));
    daemon.stop();
    crate::common::until("the daemon to be away", || {
        site.send("GET", "/healthz", &[], "").status == 503
    });
}

#[test]
fn a_webhook_of_which_the_certificate_is_refused_is_named_once() {
    let place = Place::usual();
    let daemon = place.serve();
    let made = [(); 2].map(|()| {
        let names = vec!["127.0.0.1".to_owned()];
        rcgen::generate_simple_self_signed(names).unwrap()
    });
    fs::write(place.path("cert.pem"), made[0].cert.pem()).unwrap();
    fs::write(place.path("key.pem"), made[0].signing_key.serialize_pem()).unwrap();
    fs::write(place.path("ca.pem"), made[1].cert.pem()).unwrap();
    let mut server = testbed::tools::bound(Path::new("openssl"));
    server.args(["s_server", "-accept", "127.0.0.1:0", "-cert"]);
    server.arg(place.path("cert.pem")).arg("-key");
    server.arg(place.path("key.pem")).stdout(Stdio::piped());
    let mut server = server.stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| Some(line.unwrap().strip_prefix("ACCEPT ")?.to_owned()));
    let url = format!("https://{}/hook?S3CRET", address.unwrap());
    let _server = crate::common::Process(server);
    run(&mut place.command("pool remove-device fast pool"));
    let said = place.path("said");
    let mut command = web(&place);
    command.args(["--webhook", &url, "--webhook-ca"]);
    command.arg(place.path("ca.pem")).stdout(Stdio::null());
    let child = command.stderr(fs::File::create(&said).unwrap()).spawn();
    let _site = crate::common::Process(child.unwrap());
    let said = || fs::read_to_string(&said).unwrap();
    crate::common::until("a line about the certificate", || said().contains('\n'));
    // Two more attempts follow within this time.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let said = said();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("the certificate of 127.0.0.1 is refused: no authority"),
        "{said}"
    );
    assert!(!said.contains("S3CRET"), "{said}");
    daemon.stop();
}

#[test]
fn live_figures_arrive_every_second() {
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    let mut stream = site.connect();
    let request = format!(
        "GET /api/v1/live HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
        site.reader
    );
    stream.write_all(request.as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let data = lines.filter_map(|line| Some(line.strip_prefix("data: ")?.to_owned()));
    let mut last = 0.0;
    for event in data.take(3) {
        let status: serde_json::Value = serde_json::from_str(&event).unwrap();
        let uptime = status["uptime_s"].as_f64().unwrap();
        assert!(uptime > last);
        assert!(status["volumes"][0]["counters"]["blocks_hit"].is_u64());
        last = uptime;
    }
    daemon.stop();
}

/// The metrics for a client that trusts the certificate in the file `trusted`.
fn scrape(place: &Place, trusted: &str, address: &str, token: &str) -> String {
    let mut client = tool("openssl", "openssl");
    client.args(["s_client", "-quiet", "-verify_return_error"]);
    client.args(["-servername", "localhost", "-CAfile"]);
    client.arg(place.path(trusted)).args(["-connect", address]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = client.stderr(Stdio::null()).spawn().unwrap();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let mut stdin = client.stdin.take().unwrap();
    // A client that does not trust the server may be gone before.
    let _ = stdin.write_all(request.as_bytes());
    let mut answer = String::new();
    let mut stdout = client.stdout.take().unwrap();
    stdout.read_to_string(&mut answer).unwrap();
    client.wait().unwrap();
    answer
}

#[test]
fn other_machines_are_served_with_tls_alone() {
    let place = Place::usual();
    let daemon = place.serve();
    refused(
        &mut web_on(&place, "0.0.0.0:0"),
        1,
        &["needs TLS", "--tls-certificate"],
    );
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(place.path("cert.pem"), made.cert.pem()).unwrap();
    fs::write(place.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(place.path("other.pem"), other.signing_key.serialize_pem()).unwrap();
    let tls = |command: &mut std::process::Command, key: &str| {
        command.arg("--tls-certificate").arg(place.path("cert.pem"));
        command.arg("--tls-key").arg(place.path(key));
    };
    let mut wrong = web(&place);
    tls(&mut wrong, "other.pem");
    refused(&mut wrong, 1, &["do not fit each other"]);
    let mut right = web(&place);
    tls(&mut right, "key.pem");
    right.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = right.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let site = crate::common::Process(child);
    let token = lines
        .find_map(|l| Some(l.strip_prefix("read-only token: ")?.to_owned()))
        .unwrap();
    let url = lines.next().unwrap();
    let address = url.split("https://").nth(1).unwrap().trim_end_matches('/');
    let answer = |trusted: &str| scrape(&place, trusted, address, &token);
    fs::copy(place.path("cert.pem"), place.path("old.pem")).unwrap();
    fs::write(place.path("new.pem"), other.cert.pem()).unwrap();
    let first = answer("old.pem");
    assert!(first.contains("hotset_up 1"), "{first}");
    assert!(first.contains("strict-transport-security"), "{first}");
    assert_eq!(answer("new.pem"), "");

    // The certificate is renewed, but not by one that its key does not fit.
    fs::copy(place.path("new.pem"), place.path("cert.pem")).unwrap();
    site.signal(libc::SIGHUP);
    let said = said.next().unwrap().unwrap();
    assert!(
        said.contains("stays as it was") && said.contains("do not fit each other"),
        "{said}"
    );
    assert!(answer("old.pem").contains("hotset_up 1"));
    fs::copy(place.path("other.pem"), place.path("key.pem")).unwrap();
    site.signal(libc::SIGHUP);
    crate::common::until("the new certificate", || {
        answer("new.pem").contains("hotset_up 1")
    });
    daemon.stop();
}

#[test]
fn a_start_that_cannot_be_is_refused_with_one_line() {
    let place = Place::usual();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(
        &mut web_on(&place, &address),
        1,
        &[&address, "another port"],
    );
    assert!(
        !place.path("web/tokens").exists(),
        "tokens were made that nobody saw"
    );
    fs::create_dir(place.path("web")).unwrap();
    fs::write(place.path("web/tokens"), "x").unwrap();
    fs::set_permissions(place.path("web/tokens"), fs::Permissions::from_mode(0o644)).unwrap();
    refused(&mut web(&place), 1, &["can be read by others", "chmod 600"]);
    fs::set_permissions(place.path("web/tokens"), fs::Permissions::from_mode(0o600)).unwrap();
    refused(&mut web(&place), 1, &["holds no tokens"]);
    refused(
        web(&place).args(["--tls-key", "x"]),
        2,
        &["--tls-certificate"],
    );
}

#[test]
fn a_daemon_of_another_version_is_called_one() {
    let place = Place::usual();
    // A possible answer of a future daemon.
    let socket = UnixListener::bind(place.path("control")).unwrap();
    std::thread::spawn(move || {
        for stream in socket.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while let Some(Ok(_)) = lines.next() {
                // The client may be gone.
                let _ = { &stream }.write_all(b"{\"state\":{\"version\":9}}\n");
            }
        }
    });
    let site = Site::start(&place);
    let other = site.with(&site.reader, "GET", "/api/v1/status", "");
    assert_eq!(other.status, 503, "{other:?}");
    let problem = other.json();
    assert_eq!(
        problem["remedy"],
        "use hotset and a daemon of the same version"
    );
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("is of another version"), "{detail}");
    let mode = r#"{"mode":"pass-through"}"#;
    let change = site.with(&site.operator, "PUT", "/api/v1/volumes/vol/mode", mode);
    assert_eq!(change.json()["remedy"], problem["remedy"], "{change:?}");
    let expected = ["is of another version", "of the same version"];
    refused(&mut place.command("status"), 1, &expected);
    assert_eq!(site.metric("hotset_up"), Some(0.0));
}

#[test]
fn of_two_operators_the_second_is_shown_what_the_first_has_written() {
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    let file = place.path("hotset.toml");
    let text = fs::read_to_string(&file).unwrap();
    let by_hand = text.replace("hit_latency_max = \"10s\"", "hit_latency_max = \"20s\"");
    fs::write(&file, &by_hand).unwrap();
    let mode = r#"{"mode":"pass-through"}"#;
    let refused = site.with(&site.operator, "PUT", "/api/v1/volumes/vol/mode", mode);
    assert_eq!(refused.status, 409, "{refused:?}");
    let problem = refused.json();
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("20s") && detail.contains("nothing was changed"),
        "{detail}"
    );
    let remedy = problem["remedy"].as_str().unwrap();
    assert!(remedy.contains("hotset reload"), "{remedy}");
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-through");
    assert_eq!(fs::read_to_string(&file).unwrap(), by_hand);
    daemon.stop();
}

#[test]
fn a_configuration_that_cannot_be_written_changes_nothing() {
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    // Of root's, permissions are no obstacle; a second name is.
    fs::hard_link(place.path("hotset.toml"), place.path("second")).unwrap();
    let before = fs::read_to_string(place.path("hotset.toml")).unwrap();
    let mode = r#"{"mode":"pass-through"}"#;
    let answer = site.with(&site.operator, "PUT", "/api/v1/volumes/vol/mode", mode);
    assert_eq!(answer.status, 409, "{answer:?}");
    let detail = answer.json()["detail"].to_string();
    assert!(
        detail.contains("cannot be written") && detail.contains("nothing was changed"),
        "{detail}"
    );
    assert!(answer.json()["remedy"].to_string().contains("--temporary"));
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-through");
    assert_eq!(
        fs::read_to_string(place.path("hotset.toml")).unwrap(),
        before
    );
    daemon.stop();
}
