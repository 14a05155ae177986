//! A web server beside a daemon, and requests to it.

use super::{Place, Process, hotset, until};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use ureq::Agent;

/// `hotset web` on a port of its own.
pub struct Site {
    pub process: Process,
    /// The address, such as `http://127.0.0.1:1234`.
    pub origin: String,
    pub operator: String,
    pub reader: String,
    agent: Agent,
}

/// An answer of the server.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// The command that serves on any port, for the daemon of `place`.
pub fn web(place: &Place) -> Command {
    web_on(place, "127.0.0.1:0")
}

/// The command that serves on `address`.
pub fn web_on(place: &Place, address: &str) -> Command {
    let mut command = hotset();
    command
        .args(["web", "--listen", address, "--state"])
        .arg(place.path("web"))
        .env("HOTSET_CONTROL", place.path("control"));
    command
}

impl Site {
    /// Starts a server, with new tokens.
    pub fn start(place: &Place) -> Site {
        Site::start_with(place, &[])
    }

    /// Starts a server with more flags.
    pub fn start_with(place: &Place, flags: &[&str]) -> Site {
        let _ = std::fs::remove_file(place.path("web/tokens"));
        let mut command = web(place);
        let command = command.args(flags).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut printed = |what: &str| {
            let line = lines.next().unwrap().unwrap();
            let printed = line.strip_prefix(what).unwrap_or_else(|| panic!("{line}"));
            printed.trim_end_matches('/').to_owned()
        };
        let operator = printed("operator token: ");
        let reader = printed("read-only token: ");
        let origin = printed("hotset web: listening on ");
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .build();
        Site {
            process: Process(child),
            origin,
            operator,
            reader,
            agent: config.into(),
        }
    }

    /// Its address without the scheme.
    pub fn address(&self) -> &str {
        self.origin.split_once("//").unwrap().1
    }

    /// Sends a request with `headers`, and `body` as JSON if there is one.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let url = format!("{}{path}", self.origin);
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = if body.is_empty() {
            self.agent.run(request.body(()).unwrap())
        } else {
            let request = request.header("content-type", "application/json");
            self.agent.run(request.body(body.to_owned()).unwrap())
        };
        let mut answer = answer.unwrap();
        Answer {
            status: answer.status().as_u16(),
            headers: answer.headers().clone(),
            body: answer.body_mut().read_to_string().unwrap(),
        }
    }

    /// Sends a request with `token`.
    pub fn with(&self, token: &str, method: &str, path: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        self.send(method, path, &[("authorization", &bearer)], body)
    }

    /// Sends an operator's request, which must succeed.
    pub fn operate(&self, method: &str, path: &str, body: &str) -> Answer {
        let answer = self.with(&self.operator, method, path, body);
        assert!(answer.status < 300, "{method} {path}: {answer:?}");
        answer
    }

    /// The beginning of the answer to an operator's request, which must succeed.
    pub fn begin(&self, path: &str, body: &str) -> ureq::Body {
        let url = format!("{}{path}", self.origin);
        let bearer = format!("Bearer {}", self.operator);
        let request = self.agent.post(url).header("authorization", bearer);
        let request = request.header("content-type", "application/json");
        let answer = request.send(body).unwrap();
        assert_eq!(answer.status(), 200);
        answer.into_body()
    }

    /// The value of a metric, by its name and labels in printed form.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let answer = self.with(&self.reader, "GET", "/metrics", "");
        let line = answer
            .body
            .lines()
            .find_map(|line| line.strip_prefix(series));
        line.map(|value| value.trim().parse().unwrap())
    }

    /// A connection of its own.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
    }

    /// Waits until the server answers and shows the daemon.
    pub fn recovers(&self) {
        until("the web server to answer", || {
            let connected = TcpStream::connect(self.address()).is_ok();
            connected && self.metric("hotset_up") == Some(1.0)
        });
    }
}
