//! Announcements: each once, by its channel.

use super::*;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc::{Receiver, Sender, channel};

const PATIENCE: Duration = Duration::from_secs(30);

/// Passes its notices on, and fails as often as set.
struct Heard(Sender<Notice>, Mutex<u32>);

impl NoticeChannel for Heard {
    fn name(&self) -> &'static str {
        "heard"
    }

    fn deliver(&self, notice: &Notice) -> Result<(), String> {
        let mut failures = self.1.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err("it is broken".into());
        }
        self.0
            .send(notice.clone())
            .map_err(|error| error.to_string())
    }
}

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn begin(&self, failures: u32) -> (Notifier, Receiver<Notice>) {
        let (heard, notices) = channel();
        let notifier = Notifier::default();
        notifier
            .begin(Heard(heard, Mutex::new(failures)), self.dir.path())
            .unwrap();
        (notifier, notices)
    }
}

fn bench() -> Bench {
    Bench {
        dir: tempfile::tempdir().unwrap(),
    }
}

fn next(notices: &Receiver<Notice>) -> (&'static str, String) {
    let notice = notices.recv_timeout(PATIENCE).unwrap();
    assert!(notice.text.contains(&notice.about.what), "{notice:?}");
    (notice.event, notice.about.kind)
}

fn wait_for(what: impl Fn() -> bool) {
    let begin = Instant::now();
    while !what() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_trouble_is_announced_when_it_begins_and_when_it_has_ended_over_restarts() {
    let bench = bench();
    let mut status = crate::sample::report().status;
    let [degraded, ejected] = ["array-degraded", "pool-device-ejected"].map(str::to_owned);
    {
        let (notifier, notices) = bench.begin(0);
        notifier.observe(Some(&status));
        notifier.observe(Some(&status));
        assert_eq!(next(&notices), ("begun", degraded.clone()));
        assert_eq!(next(&notices), ("begun", ejected.clone()));
        status.troubles.remove(0);
        notifier.observe(Some(&status));
        assert_eq!(next(&notices), ("ended", degraded.clone()));
        let file = bench.dir.path().join("announced-heard");
        wait_for(|| {
            !fs::read_to_string(&file)
                .unwrap()
                .contains("array-degraded")
        });
        assert!(notices.try_recv().is_err());
    }
    let (notifier, notices) = bench.begin(0);
    // Nothing is known yet to have ended.
    notifier.observe(None);
    notifier.observe(Some(&status));
    status.troubles.clear();
    notifier.observe(Some(&status));
    assert_eq!(next(&notices), ("ended", ejected));
    assert!(notices.try_recv().is_err());
}

#[test]
fn what_is_not_delivered_is_tried_again_and_a_damaged_file_repeats() {
    let bench = bench();
    fs::write(bench.dir.path().join("announced-heard"), "[{]").unwrap();
    let (notifier, notices) = bench.begin(2);
    let mut status = crate::sample::report().status;
    notifier.observe(Some(&status));
    assert_eq!(next(&notices).0, "begun");
    assert_eq!(next(&notices).0, "begun");
    status.troubles.clear();
    notifier.observe(Some(&status));
    assert_eq!(next(&notices).0, "ended");
}

#[test]
fn a_daemon_that_is_away_for_a_while_is_a_trouble_of_its_own() {
    let mut present = Present {
        is_away: true,
        ..Present::default()
    };
    let announced = [
        away(),
        keyed(TroubleAbout {
            kind: "x".into(),
            ..away().1
        }),
    ];
    let known: Troubles = announced.into();
    // Nothing else has ended, as far as is known.
    assert_eq!(difference(&known, &present), None);
    assert_eq!(
        difference(&Troubles::new(), &present).unwrap().about.kind,
        "daemon-away"
    );
    present.troubles = Some(Troubles::new());
    assert_eq!(difference(&known, &present).unwrap().about.kind, "x");
    present.is_away = false;
    let ended = difference(&[away()].into(), &present).unwrap();
    assert_eq!((ended.event, &*ended.about.kind), ("ended", "daemon-away"));
    let notifier = Notifier::default();
    notifier.observe(None);
    assert!(
        !notifier.0.0.lock().unwrap().is_away,
        "a restart is no trouble"
    );
}

#[test]
fn what_waits_is_bounded() {
    let trouble = crate::sample::report().status.troubles.remove(0);
    let many = (0..3 * TROUBLES_MAX).map(|n| Trouble {
        subject: n.to_string(),
        ..trouble.clone()
    });
    assert_eq!(listed(&many.collect::<Vec<_>>()).len(), TROUBLES_MAX);
}

/// Takes one request, answers it with `status`, and returns its head and body.
fn answer(stream: impl Read + Write, status: &str) -> std::io::Result<(String, String)> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut len) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let from = head.len();
        if stream.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(n) = head[from..].strip_prefix("content-length: ") {
            len = n.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body)?;
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\nLocation: /other\r\n\r\n"
    );
    stream.get_mut().write_all(answer.as_bytes())?;
    Ok((head, String::from_utf8(body).unwrap()))
}

/// A server that answers each request with `status`, and the requests that it has received.
fn server(status: &'static str) -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?key=secret", listener.local_addr().unwrap());
    let (heard, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let request = answer(stream.unwrap(), status).unwrap();
            if heard.send(request).is_err() {
                return;
            }
        }
    });
    (url, requests)
}

/// Certificates of servers by one authority, and the authority's file.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    file: tempfile::NamedTempFile,
}

impl Authority {
    fn new() -> Authority {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        file.write_all(pem.as_bytes()).unwrap();
        let issuer = rcgen::Issuer::new(params, key);
        Authority { issuer, file }
    }

    /// A server with a certificate for `name` that is valid in `years`.
    fn server(
        &self,
        name: &str,
        years: std::ops::Range<i32>,
    ) -> (String, Receiver<(String, String)>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let secret = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], secret.into());
        let config = Arc::new(config.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/hook?key=secret", listener.local_addr().unwrap());
        let (heard, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let session = rustls::ServerConnection::new(config.clone()).unwrap();
                let mut stream = rustls::StreamOwned::new(session, stream.unwrap());
                // A client that refuses the certificate sends no request.
                if let Ok(request) = answer(&mut stream, "204 No Content") {
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                    let _ = heard.send(request);
                }
            }
        });
        (url, requests)
    }
}

fn notice() -> Notice {
    let troubles = crate::sample::report().status.troubles;
    let listed = listed(&troubles);
    Notice::new("begun", listed.values().next().unwrap().clone())
}

#[test]
fn a_webhook_gets_json_and_a_refusal_or_a_redirect_is_a_failure() {
    let (url, requests) = server("204 No Content");
    Webhook::new(&url, None)
        .unwrap()
        .deliver(&notice())
        .unwrap();
    let (head, body) = requests.recv_timeout(PATIENCE).unwrap();
    assert!(
        head.starts_with("POST /hook?key=secret HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("content-type: application/json"), "{head}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["event"], "begun");
    assert_eq!(body["kind"], "array-degraded");
    assert_eq!(body["subject"], "array mirror");
    assert_eq!(body["severity"], "critical");
    assert!(body["text"].as_str().unwrap().contains("mend it"), "{body}");
    for status in ["500 Oh", "302 Found", "404 Not Found"] {
        let (url, requests) = server(status);
        let why = Webhook::new(&url, None)
            .unwrap()
            .deliver(&notice())
            .unwrap_err();
        assert!(why.contains(&status[..3]), "{why}");
        assert!(!why.contains("secret"), "{why}");
        requests.recv_timeout(PATIENCE).unwrap();
        assert!(requests.try_recv().is_err(), "it was followed");
    }
}

#[test]
fn a_webhook_of_https_is_posted_to_if_its_certificate_is_good() {
    let (ours, other) = (Authority::new(), Authority::new());
    let ca = Some(ours.file.path());
    let (url, requests) = ours.server("127.0.0.1", 2000..2100);
    let webhook = Webhook::new(&url, ca).unwrap();
    for _ in 0..2 {
        webhook.deliver(&notice()).unwrap();
        let (head, body) = requests.recv_timeout(PATIENCE).unwrap();
        assert!(head.starts_with("POST /hook?key=secret "), "{head}");
        assert!(body.contains("array-degraded"), "{body}");
    }
    let refusals = [
        (other.server("127.0.0.1", 2000..2100), "--webhook-ca"),
        (ours.server("127.0.0.1", 2000..2001), "expired; renew it"),
        (ours.server("127.0.0.1", 2090..2100), "not valid yet"),
        (ours.server("127.0.0.2", 2000..2100), "another name"),
    ];
    for ((url, requests), cause) in refusals {
        let webhook = Webhook::new(&url, ca).unwrap();
        let why = webhook.deliver(&notice()).unwrap_err();
        assert!(why.contains("certificate of 127.0.0.1"), "{why}");
        assert!(why.contains(cause) && !why.contains("secret"), "{why}");
        assert!(requests.try_recv().is_err(), "it was sent");
    }
    // A server without TLS is distinguished.
    let (url, _requests) = server("204 No Content");
    let url = url.replace("http:", "https:");
    let why = Webhook::new(&url, ca).unwrap().deliver(&notice());
    let why = why.unwrap_err();
    assert!(why.starts_with("no TLS with 127.0.0.1: "), "{why}");
    for file in ["/dev/null", "/nonexistent/ca.pem"] {
        let why = Webhook::new(&url, Some(Path::new(file))).err().unwrap();
        assert!(why.contains(file) && why.contains("PEM"), "{why}");
    }
}

#[test]
fn addresses_that_are_none_are_refused_with_a_remedy() {
    for url in [
        "",
        "example.com/hook",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://",
        "https:///x",
    ] {
        let why = Webhook::new(url, None)
            .err()
            .unwrap_or_else(|| panic!("{url:?} was taken"));
        assert!(why.contains("https://example.com/hook"), "{why}");
    }
    for to in ["", "ops", "-oops@x", "a@b\nBcc: c@d", "a@b,c@d", "<a@b>"] {
        let why = Mail::new(to, "/bin/true".into())
            .err()
            .unwrap_or_else(|| panic!("{to:?} was taken"));
        assert!(why.contains("ops@example.com"), "{why}");
    }
}

#[test]
fn mail_goes_to_the_program_which_may_fail() {
    let bench = bench();
    let program = bench.dir.path().join("sendmail");
    let sent = bench.dir.path().join("sent");
    let text = format!("#!/bin/sh\necho \"$@\" >{0}\ncat >>{0}\n", sent.display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut notice = notice();
    notice.about.subject = "array a\nBcc: other@example.com".into();
    Mail::new("ops@example.com", program)
        .unwrap()
        .deliver(&notice)
        .unwrap();
    let sent = fs::read_to_string(sent).unwrap();
    assert!(
        sent.starts_with("-i -- ops@example.com\nTo: ops@example.com\nSubject: [hotset] "),
        "{sent}"
    );
    let (head, body) = sent.split_once("\n\n").unwrap();
    assert!(!head.contains("\nBcc:"), "{head}");
    assert!(body.contains("mend it"), "{body}");
    let failing = Mail::new("ops@example.com", "/bin/false".into()).unwrap();
    assert!(failing.deliver(&notice).is_err());
    let none = Mail::new("ops@example.com", "/nonexistent/sendmail".into()).unwrap();
    let why = none.deliver(&notice).unwrap_err();
    assert!(why.contains("/nonexistent/sendmail cannot be run"), "{why}");
}
