//! The web server of a storm: a process of `hotset web`, which outlives daemons, and its API.
//!
//! Invariant: the server lives as long as its storm.

use crate::form::{RequestParts, api, body, section};
use crate::machine::{PATIENCE, StormMachine};
use crate::weather::{TURN, Weather};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;
use ureq::Agent;
use ureq::http::Request;

/// The body of a request to the API.
type ApiBody = fn(&Value) -> Value;

/// Requests, and the method, the address and the body of each in the API.
const CALLS: [(&str, &str, &str, ApiBody); 21] = [
    ("ping", "GET", "status", |_| Value::Null),
    ("observe", "GET", "volumes/{volume}/observation", |_| {
        Value::Null
    }),
    (
        "explain",
        "GET",
        "volumes/{volume}/explanation?start=0&end=1048576",
        |_| Value::Null,
    ),
    ("set-mode", "PUT", "volumes/{volume}/mode", |of| {
        body(of, &["mode", "log"])
    }),
    ("set-off", "PUT", "volumes/{volume}/off", |of| {
        body(of, &["off"])
    }),
    ("invalidate", "POST", "volumes/{volume}/invalidate", |_| {
        Value::Null
    }),
    (
        "resume",
        "PUT",
        "volumes/{volume}/quiesced",
        |_| json!({"quiesced": false}),
    ),
    (
        "replace-log",
        "PUT",
        "volumes/{volume}/log/{device}",
        |of| json!({"device": api(&of["by"])}),
    ),
    ("add-volume", "POST", "volumes", |of| new_volume(of)),
    ("remove-volume", "DELETE", "volumes/{volume}", |_| {
        Value::Null
    }),
    ("add-pool", "POST", "pools", |of| new_pool(of)),
    ("remove-pool", "DELETE", "pools/{pool}", |_| Value::Null),
    ("add-device", "POST", "pools/{pool}/devices", |of| {
        api(&of["device"])
    }),
    (
        "remove-device",
        "DELETE",
        "pools/{pool}/devices/{device}",
        |_| Value::Null,
    ),
    (
        "readmit-device",
        "POST",
        "pools/{pool}/devices/{device}/readmit",
        |_| Value::Null,
    ),
    (
        "fail-member",
        "DELETE",
        "arrays/{array}/members/{member}",
        |_| Value::Null,
    ),
    ("add-member", "POST", "arrays/{array}/members", |of| {
        body(of, &["device", "overwrite"])
    }),
    (
        "replace-member",
        "PUT",
        "arrays/{array}/members/{member}/device",
        |of| body(of, &["device", "overwrite"]),
    ),
    ("scrub", "POST", "arrays/{array}/scrub", |of| {
        body(of, &["repair"])
    }),
    ("cancel-job", "DELETE", "jobs/{job}", |_| Value::Null),
    ("pause-job", "PUT", "jobs/{job}/paused", |of| {
        body(of, &["paused"])
    }),
];

fn new_volume(request: &Value) -> Value {
    let mut volume = section(request["volume"].as_str().unwrap_or_default());
    volume["origin"] = json!({"name": volume["origin"]});
    volume
}

fn new_pool(request: &Value) -> Value {
    let mut pool = section(request["pool"].as_str().unwrap_or_default());
    let names = pool["devices"].as_array().cloned().unwrap_or_default();
    pool["devices"] = names.iter().map(|name| json!({ "name": name })).collect();
    pool
}

/// Returns the method, the address and the body for a request of the API.
pub fn call(request: &Value) -> Option<(&'static str, String, Value)> {
    let mut calls = CALLS.iter();
    let (_, method, address, body) = calls.find(|(what, ..)| request["request"] == *what)?;
    let address = RequestParts::of(request).fill(address)?;
    Some((method, format!("/api/v1/{address}"), body(request)))
}

/// The web server, which is killed when dropped.
pub struct StormSite {
    process: Mutex<Child>,
    /// Address without a path.
    at: String,
    operator: String,
    agent: Agent,
    log: PathBuf,
    /// Standard output, held open.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl StormSite {
    /// Starts the server.
    pub fn start(machine: &StormMachine) -> io::Result<StormSite> {
        let log = machine.folder.join("web.log");
        let mut command = machine.hotset();
        command.args(["web", "--listen", "127.0.0.1:0", "--state"]);
        command
            .arg(machine.folder.join("web"))
            .stdout(Stdio::piped());
        let mut process = command.stderr(File::create(&log)?).spawn()?;
        let output = process.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(output).lines();
        let mut said = |what: &str| {
            let line = lines
                .next()
                .unwrap_or(Err(ErrorKind::UnexpectedEof.into()))?;
            let said = line.strip_prefix(what).map(str::to_owned);
            said.ok_or_else(|| io::Error::other(format!("`hotset web` says {line}")))
        };
        let operator = said("operator token: ")?;
        said("read-only token: ")?;
        let at = said("hotset web: listening on ")?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Ok(StormSite {
            process: Mutex::new(process),
            at: at.trim_end_matches('/').to_owned(),
            operator,
            agent: config.into(),
            log,
            _lines: lines,
        })
    }

    /// Sends a request. Returns the outcome in the form of the control socket.
    pub fn give(&self, weather: &Weather, request: &Value) -> io::Result<Value> {
        let (method, address, body) = call(request).expect("the API has it");
        let call = Request::builder()
            .method(method)
            .uri(format!("{}{address}", self.at))
            .header("authorization", format!("Bearer {}", self.operator))
            .header("content-type", "application/json");
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let call = call.body(text).map_err(io::Error::other)?;
        let (agent, begun) = (self.agent.clone(), Instant::now());
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let answer = agent.run(call).and_then(|mut answer| {
                let text = answer.body_mut().read_to_string()?;
                Ok((answer.status().as_u16(), text))
            });
            // A client that has given up does not receive.
            let _ = sender.send(answer);
        });
        let answer = loop {
            match receiver.recv_timeout(PATIENCE) {
                Ok(answer) => break answer.map_err(io::Error::other)?,
                Err(RecvTimeoutError::Timeout) => {
                    if weather.overdue(begun, TURN).is_some() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the request was not sent"));
                }
            }
        };
        outcome(weather, begun, answer)
    }

    /// Fails if the server has ended or panicked.
    pub fn check(&self) -> Result<(), String> {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let mut process = self.process.lock().expect("no panic under this lock");
        let ended = process.try_wait().map_err(|error| error.to_string())?;
        match ended {
            Some(status) => Err(format!("the web server has ended: {status}\n{said}")),
            None if said.contains("panicked") => {
                Err(format!("the web server has panicked\n{said}"))
            }
            None => Ok(()),
        }
    }
}

/// An answer of the server in the form of the control socket.
fn outcome(weather: &Weather, begun: Instant, (status, text): (u16, String)) -> io::Result<Value> {
    match status {
        200..300 => Ok(json!("done")),
        503 => weather.silence(begun, &text),
        409 => Ok(json!({ "error": text })),
        _ => Err(io::Error::other(format!("status {status}: {text}"))),
    }
}

impl Drop for StormSite {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let process = self.process.get_mut().expect("no panic under this lock");
        let _ = process.kill();
        let _ = process.wait();
    }
}
