//! A list of requests to a web server, one after the other on one connection a request,
//! as fast as answers come: an access log replayed on one thread.
//!
//! A request takes a round trip to connect, one for question and answer, the server's processor,
//! the host's reads, and the wire. The first byte leaves when the first window of the file is read,
//! and the rest is read while the wire is busy. The client then spends time on the answer, and
//! again before the next request.

use crate::host::{PageCacheHost, WINDOW_PAGES};
use crate::site::SiteFile;
use crate::visitors::{ServedRequest, VisitCurve, VisitTally};
use block::{Env, IoResult, Nanos};
use drives::LinkParameters;
use serde::Serialize;

/// The server and the network to the server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReplayServer {
    /// Processor time for a request.
    pub processor: Nanos,
    /// Time of a round trip to the server.
    pub round_trip: Nanos,
    /// Payload a second.
    pub rate_mb_s: f64,
}

impl ReplayServer {
    /// A server behind one link.
    pub fn behind(link: &LinkParameters, processor: Nanos) -> ReplayServer {
        ReplayServer {
            processor,
            round_trip: Nanos((link.round_trip_us.value * 1e3) as u64),
            rate_mb_s: link.rate_mb_s.value,
        }
    }

    /// Time of so many bytes on the wire.
    pub fn on_wire(&self, bytes: u64) -> Nanos {
        Nanos((bytes as f64 * 1e3 / self.rate_mb_s) as u64)
    }
}

/// Time of the client itself.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ReplayClient {
    /// Time with an answer, once complete: part of the request's time.
    pub answer: Nanos,
    /// Time from there to the next request.
    pub between: Nanos,
}

/// Results of a replay, in the terms of the load tool.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ReplayMeasured {
    /// Mean test time: from the start of a request to its last byte.
    pub mtt_ms: f64,
    /// Test time standard deviation.
    pub ttsd_ms: f64,
    /// Tests a second.
    pub tps: f64,
    /// Bytes of answers a second.
    pub rbps: f64,
    /// Mean time to the first byte.
    pub mttfb_ms: f64,
    /// Seconds from the first request to the last answer.
    pub span_s: f64,
}

impl ReplayMeasured {
    /// Each result by the name of its figure.
    pub fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("mtt", self.mtt_ms),
            ("ttsd", self.ttsd_ms),
            ("tps", self.tps),
            ("rbps", self.rbps),
            ("mttfb", self.mttfb_ms),
        ]
    }
}

/// Time covered by a point of the curve.
const INTERVAL: Nanos = Nanos::from_secs(1);

/// Sends every request of `log`, once the one before is answered, and calls `answered` then;
/// returns the results of all requests, and the curve over time.
pub async fn replay(
    env: &Env,
    host: &PageCacheHost,
    (server, client): (ReplayServer, ReplayClient),
    log: impl Iterator<Item = SiteFile>,
    answered: impl Fn(),
) -> IoResult<(ReplayMeasured, VisitCurve)> {
    let begun = env.timer.now();
    let mut sums = ReplaySums::default();
    let mut points: Vec<VisitTally> = Vec::new();
    for file in log {
        let asked = env.timer.now() + client.between;
        let half = Nanos(server.round_trip.0 / 2);
        let arrived = asked + server.round_trip + half;
        env.timer.until(arrived + server.processor).await;
        host.read(file.directory, 1).await?;
        host.read(file.inode, 1).await?;
        let first = file.pages().min(WINDOW_PAGES);
        host.read(file.data, first).await?;
        let read = env.timer.now();
        host.read(file.data + first, file.pages() - first).await?;
        let sent = env.timer.now().max(read + server.on_wire(file.bytes));
        env.timer.until(sent + half + client.answer).await;
        answered();
        let ended = env.timer.now();
        sums.add(read + half - asked, ended - asked, file.bytes);
        let point = ((ended - begun).0 / INTERVAL.0) as usize;
        points.resize(points.len().max(point + 1), VisitTally::default());
        let answer = ServedRequest {
            first: read + half,
            bytes: file.bytes,
        };
        points[point].hit(asked, answer, ended);
    }
    let curve = VisitCurve {
        interval_s: INTERVAL.0 as f64 / 1e9,
        points,
    };
    Ok((sums.over(env.timer.now() - begun), curve))
}

/// Sums over the requests of a replay.
#[derive(Clone, Copy, Default)]
pub struct ReplaySums {
    requests: f64,
    bytes: u64,
    first_ms: f64,
    all_ms: f64,
    squares: f64,
}

impl ReplaySums {
    /// Adds a request: times to its first byte and to its last, and bytes of the answer.
    pub fn add(&mut self, first: Nanos, all: Nanos, bytes: u64) {
        let ms = |span: Nanos| span.0 as f64 / 1e6;
        self.requests += 1.0;
        self.bytes += bytes;
        self.first_ms += ms(first);
        self.all_ms += ms(all);
        self.squares += ms(all) * ms(all);
    }

    /// Adds the requests of another thread.
    pub fn join(&mut self, other: &ReplaySums) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.first_ms += other.first_ms;
        self.all_ms += other.all_ms;
        self.squares += other.squares;
    }

    /// The results of a replay that took `span`.
    pub fn over(&self, span: Nanos) -> ReplayMeasured {
        let mean = self.all_ms / self.requests;
        let seconds = span.0 as f64 / 1e9;
        ReplayMeasured {
            mtt_ms: mean,
            ttsd_ms: (self.squares / self.requests - mean * mean).max(0.0).sqrt(),
            tps: self.requests / seconds,
            rbps: self.bytes as f64 / seconds,
            mttfb_ms: self.first_ms / self.requests,
            span_s: seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::on_disk;

    const READ: Nanos = Nanos::from_micros(5_000);
    const SERVER: ReplayServer = ReplayServer {
        processor: Nanos::from_micros(200),
        round_trip: Nanos::from_micros(150),
        rate_mb_s: 100.0,
    };

    fn file(number: u64) -> SiteFile {
        SiteFile {
            directory: 10,
            inode: 11,
            data: 100 + 2 * number,
            bytes: 5_000,
        }
    }

    const CLIENT: ReplayClient = ReplayClient {
        answer: Nanos::from_micros(120),
        between: Nanos::from_micros(40),
    };

    fn replayed(server: ReplayServer, files: Vec<u64>) -> ReplayMeasured {
        replayed_by(ReplayClient::default(), server, files)
    }

    fn replayed_by(client: ReplayClient, server: ReplayServer, files: Vec<u64>) -> ReplayMeasured {
        on_disk(READ, async move |gate, env| {
            let log = files.into_iter().map(file);
            let host = PageCacheHost::new(gate, 1_000);
            let both = (server, client);
            replay(&env, &host, both, log, || ()).await.unwrap().0
        })
    }

    fn near(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-3
    }

    /// Each request takes two round trips, the processor and the wire; of ten, four read
    /// data, and the first also a directory and an inode.
    #[test]
    fn a_request_takes_what_its_parts_take() {
        let log = vec![0, 1, 0, 2, 1, 3, 3, 2, 1, 0];
        let found = replayed(SERVER, log.clone());
        let floor_ms = 0.150 * 2.0 + 0.200 + 0.050;
        let reads_ms = 5.0 * 6.0 / 10.0;
        assert!(near(found.mtt_ms, floor_ms + reads_ms), "{found:?}");
        assert!(near(found.mttfb_ms, found.mtt_ms - 0.050), "{found:?}");
        assert!(near(found.tps, 1e3 / found.mtt_ms), "{found:?}");
        assert!(near(found.rbps, found.tps * 5_000.0), "{found:?}");
        // One of 15.55 ms, three of 5.55, six of 0.55.
        let squares = (15.0 * 15.0 + 3.0 * 25.0) / 10.0 - reads_ms * reads_ms;
        assert!(near(found.ttsd_ms, squares.sqrt()), "{found:?}");
        // A slower processor is seen.
        let slower = ReplayServer {
            processor: Nanos::from_micros(300),
            ..SERVER
        };
        assert!(!near(replayed(slower, log).mtt_ms, found.mtt_ms));
    }

    /// Two threads with halves of the requests are one with all of them.
    #[test]
    fn sums_of_threads_are_joined() {
        let ms = Nanos::from_millis;
        let (mut all, mut halves) = (ReplaySums::default(), [ReplaySums::default(); 2]);
        for n in 1..=10 {
            all.add(ms(n), ms(2 * n), 100 * n);
            halves[n as usize % 2].add(ms(n), ms(2 * n), 100 * n);
        }
        let [mut joined, other] = halves;
        joined.join(&other);
        assert_eq!(joined.over(ms(50)), all.over(ms(50)));
        assert_eq!(all.over(ms(50)).mtt_ms, 11.0);
    }

    /// The client's time with an answer is in the request's time, and its time between two requests
    /// is not; neither is before the first byte.
    #[test]
    fn the_client_takes_its_own_time() {
        let log = vec![0, 1, 0, 2, 1, 3, 3, 2, 1, 0];
        let without = replayed(SERVER, log.clone());
        let with = replayed_by(CLIENT, SERVER, log);
        assert!(near(with.mttfb_ms, without.mttfb_ms), "{with:?}");
        assert!(near(with.mtt_ms, without.mtt_ms + 0.120), "{with:?}");
        let cycle_ms = 1e3 / without.tps + 0.160;
        assert!(near(with.tps, 1e3 / cycle_ms), "{with:?}");
        assert!(near(with.ttsd_ms, without.ttsd_ms), "{with:?}");
    }
}
