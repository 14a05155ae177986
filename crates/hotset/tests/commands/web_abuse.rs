//! Abuse of the web server does not reach the daemon or its clients.

use crate::common::site::Site;
use crate::common::{Place, faultless, fio};
use serde_json::json;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest that a client's request may take while the web server is abused, in seconds. The
/// machine's disk and the abuse itself share its processors.
const LATENCY_MAX: f64 = 5.0;

/// Abuses the web server while fio reads and writes through the daemon.
fn beside_a_load(abuse: impl FnOnce(&Place, &mut Site)) {
    let place = Place::usual();
    let daemon = place.serve();
    let mut site = Site::start(&place);
    let options = [
        "--rw=randrw",
        "--bs=4k",
        "--iodepth=8",
        "--size=16m",
        "--time_based",
        "--runtime=8",
    ];
    let longest = std::thread::scope(|scope| {
        let load = scope.spawn(|| faultless(&fio(&place, "load", &daemon.uri("vol"), &options)));
        std::thread::sleep(Duration::from_secs(1));
        abuse(&place, &mut site);
        load.join().unwrap()
    });
    assert!(longest < LATENCY_MAX, "a client waited {longest} s");
    let status = daemon.status();
    assert_eq!(status["nbd"]["errors"], 0);
    assert_eq!(status["nbd"]["connections_failed"], 0);
    assert_eq!(status["volumes"][0]["mode"], "write-through");
    site.recovers();
    daemon.stop();
}

#[test]
fn killed_and_stopped() {
    beside_a_load(|place, site| {
        site.process.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_secs(2));
        site.process.signal(libc::SIGCONT);
        site.recovers();
        let mut again = Site::start(place);
        std::mem::swap(site, &mut again);
        again.process.kill();
    });
}

#[test]
fn flooded_with_connections_and_slow_readers() {
    beside_a_load(|_, site| {
        let idle: Vec<TcpStream> = (0..1000)
            .filter_map(|_| TcpStream::connect(site.address()).ok())
            .collect();
        assert!(idle.len() > 900, "{} connections", idle.len());
        // Strangers that hold their connections keep nobody out.
        for _ in 0..10 {
            assert_eq!(site.metric("hotset_up"), Some(1.0));
        }
        drop(idle);
        site.recovers();
        let live = format!(
            "GET /api/v1/live HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
            site.reader
        );
        let slow: Vec<TcpStream> = (0..100)
            .map(|_| {
                let mut stream = site.connect();
                stream.write_all(live.as_bytes()).unwrap();
                stream
            })
            .collect();
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(site.metric("hotset_up"), Some(1.0));
        drop(slow);
    });
}

#[test]
fn fed_what_is_too_long_or_malformed() {
    beside_a_load(|_, site| {
        // A body that is declared and never sent; and one that is sent for as long as the server
        // takes it.
        let head = |length: u64| {
            format!(
                "PUT /api/v1/volumes/vol/mode HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
                 Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
                site.operator
            )
        };
        let mut stream = site.connect();
        stream.write_all(head(1 << 30).as_bytes()).unwrap();
        let piece = vec![b' '; 1 << 20];
        let sent = (0..1024)
            .take_while(|_| stream.write_all(&piece).is_ok())
            .count();
        assert!(sent < 1024, "a body of 1 GiB was taken");
        let mut answer = String::new();
        // The answer may be lost with the connection.
        let _ = stream.read_to_string(&mut answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
            "{answer}"
        );

        for seed in 0..300 {
            let noise = crate::common::noise(seed, 200);
            let mut stream = site.connect();
            let mut bytes = if seed % 2 == 0 {
                head(noise.len() as u64).into_bytes()
            } else {
                Vec::new()
            };
            bytes.extend(&noise);
            bytes.extend(b"\r\n\r\n");
            stream.write_all(&bytes).unwrap();
            // Both ends may close first.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let accepted = answer.starts_with(b"HTTP/1.1 2");
            assert!(
                !accepted,
                "seed {seed}: {}",
                String::from_utf8_lossy(&answer)
            );
        }
    });
}

#[test]
fn shown_ten_thousand_wrong_tokens() {
    beside_a_load(|_, site| {
        let begin = Instant::now();
        let guesses = AtomicU32::new(0);
        let slowed = std::thread::scope(|scope| {
            let guess = || {
                let mut slowed = 0_u32;
                loop {
                    let n = guesses.fetch_add(1, Ordering::Relaxed);
                    if n >= 10_000 {
                        return slowed;
                    }
                    let status = site
                        .with(&format!("{n:064x}"), "GET", "/metrics", "")
                        .status;
                    assert!([401, 429].contains(&status), "{status}");
                    slowed += u32::from(status == 401);
                }
            };
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(guess)).collect();
            // A client with the right token is served meanwhile.
            assert_eq!(site.metric("hotset_up"), Some(1.0));
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum::<u32>()
        });
        let most = begin.elapsed().as_secs_f64() / 0.25 + 1.0;
        assert!(
            f64::from(slowed) <= most,
            "{slowed} guesses were looked at, over {most}"
        );
    });
}

#[test]
fn probed_as_a_scanner_would() {
    beside_a_load(|place, site| {
        for path in [
            "/../etc/passwd",
            "/assets/../index.html",
            "/assets/..%2f..%2fetc%2fpasswd",
            "/assets/%2e%2e/%2e%2e/etc/passwd",
            "/assets/%252e%252e%252fetc%252fpasswd",
            "/assets/..%5c..%5cetc%5cpasswd",
            "/assets/page.js%00.css",
            "/.git/config",
            "/.env",
            "/api/v1/volumes/../status",
        ] {
            // Sent unchanged: a client of good manners would mend the path.
            let answer = raw(site, "GET", path, "");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 404"), "{path}: {head}");
            assert!(!body.contains("root:"), "{path}: {body}");
        }
        for method in ["TRACE", "OPTIONS", "PROPFIND", "POST"] {
            let answer = raw(site, method, "/api/v1/status", "");
            assert!(answer.starts_with("HTTP/1.1 405"), "{method}: {answer}");
        }
        let other = "Origin: https://elsewhere.example\r\n";
        for (method, path) in [
            ("GET", "/"),
            ("OPTIONS", "/api/v1/volumes"),
            ("GET", "/api/v1/session"),
        ] {
            let head = raw(site, method, path, other).to_lowercase();
            for header in ["access-control-allow", "\r\nserver:", "x-powered-by"] {
                assert!(
                    !head.contains(header),
                    "{method} {path} has {header}: {head}"
                );
            }
            assert!(
                head.contains("\r\nx-frame-options: deny"),
                "{method} {path}: {head}"
            );
        }
        let before = fs::read_to_string(place.path("hotset.toml")).unwrap();
        for name in [
            "x\"\nmode = \"pass-through",
            "x'\n[daemon]",
            "<script>",
            "../vol",
            "x\0",
        ] {
            let origin = json!({"name": "new", "path": place.text("none")});
            let volume = json!({"name": name, "origin": origin, "pool": "fast"}).to_string();
            let answer = site.with(&site.operator, "POST", "/api/v1/volumes", &volume);
            assert_eq!(answer.status, 409, "{name:?}: {answer:?}");
        }
        assert_eq!(
            fs::read_to_string(place.path("hotset.toml")).unwrap(),
            before
        );
    });
}

/// The whole answer to a request that is sent unchanged.
fn raw(site: &Site, method: &str, path: &str, headers: &str) -> String {
    let mut stream = site.connect();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
