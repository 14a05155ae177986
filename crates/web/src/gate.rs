//! The rights of clients: tokens, sessions of browsers, and the token against forgery.
//!
//! Invariants:
//!     a wrong token is answered after a wait, one at a time; a client that would wait behind
//!     [`WRONG_WAITING_MAX`] others is refused at once
//!     a session is known by the hash of its secret, and a role has at most [`SESSIONS_MAX`]

mod callers;

pub use callers::{Asker, NoQuery, Operator, ReaderCaller};

use crate::problem::ProblemAnswer;
use crate::tokens::{Hash, TokenRole, Tokens, hash, secret};
use axum::http::{HeaderMap, Method, StatusCode, header};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The cookie of a session.
const COOKIE: &str = "hotset_session";
/// The header that a browser's change carries.
const FORGERY_HEADER: &str = "x-csrf-token";
/// The longest life of a session.
const SESSION_AGE_MAX: Duration = Duration::from_secs(12 * 3600);
const SESSIONS_MAX: usize = 64;
/// The wait before the answer to a wrong token.
const WRONG_WAIT: Duration = Duration::from_millis(250);
const WRONG_WAITING_MAX: usize = 8;

/// A browser that has signed in.
#[derive(Clone)]
pub struct BrowserSession {
    /// The rights of the browser.
    pub role: TokenRole,
    /// The token against forgery, which each change of the session carries.
    pub csrf: String,
    begun: Instant,
}

/// The tokens and the sessions.
pub struct ClientGate {
    tokens: Tokens,
    secure: bool,
    sessions: Mutex<HashMap<Hash, BrowserSession>>,
    wrong: tokio::sync::Mutex<()>,
    wrong_waiting: AtomicUsize,
}

impl ClientGate {
    /// A gate for `tokens`; `secure` says that clients use TLS.
    pub fn new(tokens: Tokens, secure: bool) -> ClientGate {
        ClientGate {
            tokens,
            secure,
            sessions: Mutex::default(),
            wrong: tokio::sync::Mutex::default(),
            wrong_waiting: AtomicUsize::new(0),
        }
    }

    /// Returns the role of `token`; the answer to a wrong one is delayed.
    pub async fn admit(&self, token: &str) -> Result<TokenRole, ProblemAnswer> {
        if let Some(role) = self.tokens.role(token) {
            return Ok(role);
        }
        let _waiting = WaitingCaller::begin(&self.wrong_waiting)?;
        let _alone = self.wrong.lock().await;
        tokio::time::sleep(WRONG_WAIT).await;
        Err(ProblemAnswer::new(
            StatusCode::UNAUTHORIZED,
            "this token is not known",
            "use one that `hotset web` printed at its first start, or remove its file of tokens \
             and start it again",
        ))
    }

    /// Begins a session. Returns the session, and the cookie that names the session.
    pub fn begin(&self, role: TokenRole) -> (BrowserSession, String) {
        let (id, csrf) = (secret(), secret());
        let begun = Instant::now();
        let session = BrowserSession { role, csrf, begun };
        let mut sessions = self.sessions.lock().expect("no holder panics");
        sessions.retain(|_, session| session.begun.elapsed() < SESSION_AGE_MAX);
        // Sessions are counted by role: a reader signs no operator out.
        let same = sessions.iter().filter(|(_, session)| session.role == role);
        if same.clone().count() >= SESSIONS_MAX {
            let oldest = same.min_by_key(|(_, session)| session.begun);
            let oldest = oldest.map(|(id, _)| *id).expect("there are some");
            sessions.remove(&oldest);
        }
        sessions.insert(hash(&id), session.clone());
        (session, self.cookie(&id, SESSION_AGE_MAX))
    }

    /// Ends the session of a request. Returns the cookie that removes the session's cookie.
    pub fn end(&self, headers: &HeaderMap) -> String {
        if let Some(id) = cookie(headers) {
            self.sessions
                .lock()
                .expect("no holder panics")
                .remove(&hash(id));
        }
        self.cookie("", Duration::ZERO)
    }

    fn cookie(&self, id: &str, age: Duration) -> String {
        let secure = if self.secure { "; Secure" } else { "" };
        let age = age.as_secs();
        format!("{COOKIE}={id}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}")
    }

    /// The session that the cookie of a request names.
    pub fn session(&self, headers: &HeaderMap) -> Option<BrowserSession> {
        let id = cookie(headers)?;
        let sessions = self.sessions.lock().expect("no holder panics");
        let session = sessions.get(&hash(id))?;
        (session.begun.elapsed() < SESSION_AGE_MAX).then(|| session.clone())
    }

    async fn role(&self, method: &Method, headers: &HeaderMap) -> Result<TokenRole, ProblemAnswer> {
        if let Some(token) = bearer(headers) {
            return self.admit(token).await;
        }
        let session = self.session(headers).ok_or_else(|| {
            ProblemAnswer::new(
                StatusCode::UNAUTHORIZED,
                "this needs a token",
                "sign in, or send `Authorization: Bearer TOKEN`",
            )
        })?;
        let shown = headers.get(FORGERY_HEADER).map(|shown| shown.as_bytes());
        if !method.is_safe() && shown.map(sha) != Some(hash(&session.csrf)) {
            return Err(ProblemAnswer::new(
                StatusCode::FORBIDDEN,
                "the token against forged requests is missing or of another session",
                "load the page again",
            ));
        }
        Ok(session.role)
    }
}

fn sha(bytes: &[u8]) -> Hash {
    hash(&String::from_utf8_lossy(bytes))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).into_iter();
    let mut pairs = all
        .filter_map(|value| value.to_str().ok())
        .flat_map(|v| v.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// A client that waits for the answer to a wrong token.
struct WaitingCaller<'a>(&'a AtomicUsize);

impl WaitingCaller<'_> {
    fn begin(count: &AtomicUsize) -> Result<WaitingCaller<'_>, ProblemAnswer> {
        let waiting = WaitingCaller(count);
        if count.fetch_add(1, Ordering::Relaxed) < WRONG_WAITING_MAX {
            return Ok(waiting);
        }
        Err(ProblemAnswer::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many wrong tokens were shown",
            "wait, and use the right one",
        ))
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_only_look_signs_no_operator_out() {
        let digits = |digit: &str| digit.repeat(64);
        let text = format!("operator {}\nread-only {}\n", digits("0"), digits("1"));
        let gate = ClientGate::new(Tokens::parse(&text).unwrap(), false);
        let (_, cookie) = gate.begin(TokenRole::Operator);
        for _ in 0..2 * SESSIONS_MAX {
            gate.begin(TokenRole::ReadOnly);
        }
        let mut headers = HeaderMap::new();
        let cookie = cookie.split(';').next().unwrap();
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        assert!(
            gate.session(&headers)
                .is_some_and(|s| s.role == TokenRole::Operator)
        );
        let all = gate.sessions.lock().unwrap().len();
        assert_eq!(all, SESSIONS_MAX + 1);
    }
}
