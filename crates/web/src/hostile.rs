//! A client that sends arbitrary bytes: for the fuzzer, and for the tests on random bytes.
//!
//! Required: nothing panics. An answer that the server made has the headers that protect a browser.
//! A client without the token gets nothing but the page, the sign-in and the daemon's health.

use crate::api;
use crate::app::App;
use crate::daemon::DaemonLink;
use crate::events::EventHistory;
use crate::history::{self, DaemonHistory};
use crate::metrics;
use crate::notify::Notifier;
use crate::report::DaemonReport;
use crate::routes::router;
use crate::serve::converse;
use crate::tokens::Tokens;
use axum::Router;
use control::status::Status;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The operator's token.
pub(crate) const TOKEN: &str = "fuzz";
/// The hash of the token, as in the file of tokens.
const HASH: &str = "93850b707585e404e4951a3ddc1f05a34b3d4f5fc081d616f46d8a2e8f1c8e68";
/// Bytes of the answers that are checked.
const ANSWER_BYTES_MAX: usize = 1 << 16;
/// Time limit of a stream without an end, on the simulated clock.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server without a daemon.
struct HostileBench {
    runtime: Runtime,
    router: Router,
}

thread_local! {
    static BENCH: HostileBench = bench();
}

fn bench() -> HostileBench {
    let reader = "0".repeat(HASH.len());
    let tokens = Tokens::parse(&format!("operator {HASH}\nread-only {reader}\n"));
    let tokens = tokens.expect("these are tokens");
    let nowhere = PathBuf::from("/nonexistent/hotset");
    let daemon = DaemonLink::new(
        nowhere.clone(),
        EventHistory::load(&nowhere),
        DaemonHistory::load(&nowhere).0,
        Notifier::default(),
    );
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    HostileBench {
        runtime: runtime.expect("an event loop can be had"),
        router: router(App::new(daemon, tokens, false, None)),
    }
}

/// Reads `bytes` as everything that the server reads.
pub fn hostile(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        // Most bytes are no tokens.
        let _ = Tokens::parse(text);
        EventHistory::parse(Path::new("/nonexistent/hotset"), text).all();
    }
    api::listed(bytes);
    history::hostile(bytes);
    if let Ok(status) = serde_json::from_slice(bytes) {
        reported(status);
    }
    judge(bytes, &answers(bytes));
}

/// Shows an arbitrary report in every way that writes no file.
fn reported(status: Status) {
    let report = Arc::new(DaemonReport::new(status));
    report.live();
    history::compared(&report.status);
    judge_scrape(&metrics::encode(Some(report)));
}

/// No name reaches beyond its own line.
fn judge_scrape(text: &str) {
    let other = |line: &&str| !line.starts_with("hotset_") && !line.starts_with("# ");
    let other = text.lines().find(other);
    assert!(other.is_none(), "a line of its own: {other:?}");
}

/// The answers to `bytes` on one connection.
pub(crate) fn answers(bytes: &[u8]) -> Vec<u8> {
    BENCH.with(|bench| bench.runtime.block_on(exchange(&bench.router, bytes)))
}

async fn exchange(router: &Router, bytes: &[u8]) -> Vec<u8> {
    let (mut client, server) = duplex(1 << 16);
    let served = tokio::spawn(converse(server, router.clone(), Arc::default()));
    let mut answers = Vec::new();
    let talk = async {
        let (mut from, mut to) = tokio::io::split(&mut client);
        let send = async {
            // The server may close before it has read all bytes.
            let _ = to.write_all(bytes).await;
        };
        let receive = async {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut piece).await {
                answers.extend_from_slice(&piece[..n]);
                if answers.len() > ANSWER_BYTES_MAX {
                    break;
                }
            }
        };
        tokio::join!(send, receive);
    };
    // A stream without an end is cut off.
    let _ = timeout(PATIENCE, talk).await;
    drop(client);
    served.abort();
    let ended = served.await;
    assert!(
        !ended.is_err_and(|error| error.is_panic()),
        "the connection's task panicked"
    );
    answers
}

fn judge(bytes: &[u8], answers: &[u8]) {
    let Some(head) = answers.split(|byte| *byte == b'\n').next() else {
        return;
    };
    if head.is_empty() {
        return;
    }
    assert!(
        head.starts_with(b"HTTP/1."),
        "{}",
        String::from_utf8_lossy(head)
    );
    let has = |whole: &[u8], part: &[u8]| whole.windows(part.len()).any(|at| at == part);
    // The HTTP library refuses malformed heads, before the handlers add headers.
    let is_refused = head.ends_with(b" 400 Bad Request\r")
        || head.ends_with(b" 431 Request Header Fields Too Large\r");
    assert!(is_refused || has(answers, b"content-security-policy: default-src 'none'"));
    if !has(bytes, TOKEN.as_bytes()) {
        for secret in [&b"hotset_up"[..], b"event: ", b"\"csrf\":"] {
            assert!(!has(answers, secret), "shown without a token");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const GOOD: &str = "PUT /api/v1/volumes/vol/mode?temporary HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer fuzz\r\n\
        Cookie: hotset_session=0123; a=b\r\nX-CSRF-Token: 1\r\nContent-Type: application/json\r\n\
        Content-Length: 23\r\n\r\n{\"mode\":\"pass-through\"}GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer fuzz\r\n\r\n";

    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("\r\n".to_owned()),
            Just("%00".to_owned()),
            Just("%2e%2e/".to_owned()),
            Just("\"".to_owned()),
            Just(";".to_owned()),
            Just("Bearer ".to_owned()),
            Just("Transfer-Encoding: chunked\r\n".to_owned()),
            Just("99999999999999999999".to_owned()),
            "\\PC{0,8}",
        ]
    }

    #[test]
    fn what_is_asked_rightly_is_answered() {
        let text = String::from_utf8(answers(GOOD.as_bytes())).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert!(text.contains("\nhotset_up 0\n"), "{text}");
        let live = "GET /api/v1/live HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer fuzz\r\n\r\n";
        let text = String::from_utf8(answers(live.as_bytes())).unwrap();
        assert!(text.contains("event: problem"), "{text}");
    }

    #[test]
    fn health_alone_is_shown_without_a_token() {
        let text = answers(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert!(text.contains("the daemon does not answer"), "{text}");
        assert!(!text.contains("/nonexistent"), "{text}");
    }

    /// A client would send its next request on a connection that is about to end.
    #[test]
    fn a_refusal_that_came_before_the_body_says_that_the_connection_ends() {
        let head = "POST /api/v1/volumes/vol/recording HTTP/1.1\r\nHost: x\r\n";
        let whole = format!("{head}\r\n");
        let text = String::from_utf8(answers(whole.as_bytes())).unwrap();
        assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
        assert!(!text.contains("connection: close"), "{text}");
        let cut = format!("{head}Content-Type: application/json\r\nContent-Length: 16\r\n\r\n");
        let text = String::from_utf8(answers(cut.as_bytes())).unwrap();
        assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
        assert!(text.contains("connection: close"), "{text}");
    }

    #[test]
    #[should_panic(expected = "shown without a token")]
    fn canary_what_is_shown_to_anybody_is_found() {
        judge(b"GET /metrics HTTP/1.1\r\n\r\n", &answers(GOOD.as_bytes()));
    }

    #[test]
    #[should_panic(expected = "a line of its own")]
    fn canary_a_name_that_ends_its_line_is_found() {
        judge_scrape("hotset_volume_info{volume=\"a\nb\"} 1\n");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn any_bytes(bytes in vec(any::<u8>(), 0..300)) {
            hostile(&bytes);
        }

        #[test]
        fn a_good_report_changed(changes in vec((any::<prop::sample::Index>(), 0..20_usize, piece()), 1..4)) {
            let good = serde_json::to_vec(&crate::sample::report().status).unwrap();
            let mut bytes = good.clone();
            for (at, cut, piece) in changes {
                let at = at.index(good.len()).min(bytes.len());
                let end = (at + cut).min(bytes.len());
                bytes.splice(at..end, piece.bytes());
            }
            hostile(&bytes);
        }

        #[test]
        fn a_good_report_with_other_names(name in any::<String>()) {
            let mut status = crate::sample::report().status;
            status.volumes[0].name = name.clone();
            status.devices[0].role = name.clone();
            status.arrays[0].state = name;
            reported(status);
        }

        #[test]
        fn a_good_request_changed(changes in vec((0..GOOD.len(), 0..20_usize, piece()), 1..4)) {
            let mut bytes = GOOD.as_bytes().to_vec();
            for (at, cut, piece) in changes {
                let at = at.min(bytes.len());
                let end = (at + cut).min(bytes.len());
                bytes.splice(at..end, piece.bytes());
            }
            hostile(&bytes);
        }
    }
}
