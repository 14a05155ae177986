//! One file of a web server, as a client sees it come.

use std::io::{self, Read};
use std::time::{Duration, Instant};

/// Time limit of an answer; a device that answers nothing ends the run.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// An answer, read whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// Bytes of the body.
    pub bytes: u64,
    /// Time to the first byte.
    pub first_byte: Duration,
    /// Time to the last byte.
    pub whole: Duration,
}

/// A client that keeps up to `connections` open between requests.
pub fn client(connections: usize) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .max_idle_connections(connections)
        .max_idle_connections_per_host(connections)
        .timeout_global(Some(ANSWER_MAX));
    config.build().into()
}

/// Loads the file at `path` below `base`. The error names the address.
pub fn fetch(client: &ureq::Agent, base: &str, path: &str) -> io::Result<Fetched> {
    let begin = Instant::now();
    let url = format!("{base}/{path}");
    let failed = |e: ureq::Error| io::Error::other(format!("{url}: {e}"));
    let mut answer = client.get(&url).call().map_err(failed)?;
    let mut body = answer.body_mut().as_reader();
    let mut chunk = vec![0; 64 << 10];
    let mut bytes = body.read(&mut chunk)? as u64;
    let first_byte = begin.elapsed();
    loop {
        match body.read(&mut chunk)? {
            0 => break,
            n => bytes += n as u64,
        }
    }
    Ok(Fetched {
        bytes,
        first_byte,
        whole: begin.elapsed(),
    })
}
