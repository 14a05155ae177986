//! Present troubles of the machine and its devices, and the times of their ends. From these follow
//! the errors and the delays that a client has to accept.

use serde_json::{Value, json};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Longest time of a client's request once nothing holds it up, on an idle machine. That is the
/// time to lose a log or pool device (ten times `hit_latency_max`), and as long for the work after
/// that.
const ANSWER: Duration = Duration::from_secs(25);
/// Likewise of a command, which other commands may precede.
pub const TURN: Duration = Duration::from_secs(120);
/// Likewise of a report.
pub const STATUS: Duration = Duration::from_secs(2);

/// A condition that holds at times.
pub struct Condition {
    began: Instant,
    times: AtomicU64,
    /// Time of its last end, in milliseconds; 0 if it never held.
    ended: AtomicU64,
}

/// A guard: the condition holds until the guard is dropped.
pub struct While<'a>(&'a Condition);

impl Drop for While<'_> {
    fn drop(&mut self) {
        let now = self.0.began.elapsed().as_millis() as u64 + 1;
        self.0.ended.store(now, SeqCst);
        self.0.times.fetch_sub(1, SeqCst);
    }
}

impl Condition {
    fn new() -> Condition {
        Condition {
            began: Instant::now(),
            times: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Sets the condition until the result is dropped.
    pub fn begin(&self) -> While<'_> {
        self.times.fetch_add(1, SeqCst);
        While(self)
    }

    fn is_so(&self) -> bool {
        self.times.load(SeqCst) > 0
    }

    fn ended(&self) -> Instant {
        self.began + Duration::from_millis(self.ended.load(SeqCst))
    }

    /// True if the condition held at any time since `since`.
    pub fn was_since(&self, since: Instant) -> bool {
        self.is_so() || (self.ended.load(SeqCst) > 0 && self.ended() >= since)
    }
}

/// Troubles of a volume.
pub struct Sky {
    /// Requests are rightly held up: a device that they need does not answer.
    pub held: Condition,
    /// The volume is quiesced, which holds up only its clients.
    pub quiesced: Condition,
    /// Requests of clients rightly fail.
    pub failing: Condition,
    /// Number of times that the origin has lost unflushed writes.
    pub forgotten: AtomicU64,
}

/// Troubles of the machine.
pub struct Weather {
    /// The daemon is stopped by a signal, or does not run.
    pub paused: Condition,
    /// Only commands are held up: the folder of the configuration does not answer.
    pub commands: Condition,
    /// Troubles of each volume.
    pub volumes: Vec<Sky>,
    /// True while the daemon is ending.
    pub ending: AtomicBool,
    /// True once clients are to end.
    pub over: AtomicBool,
    /// Greatest load so far, in thousandths.
    load: AtomicU64,
}

impl Sky {
    fn new() -> Sky {
        Sky {
            held: Condition::new(),
            quiesced: Condition::new(),
            failing: Condition::new(),
            forgotten: AtomicU64::new(0),
        }
    }
}

impl Weather {
    /// Weather without troubles for `volumes` volumes.
    pub fn new(volumes: usize) -> Weather {
        Weather {
            paused: Condition::new(),
            commands: Condition::new(),
            volumes: (0..volumes).map(|_| Sky::new()).collect(),
            ending: AtomicBool::new(false),
            over: AtomicBool::new(false),
            load: AtomicU64::new(1000),
        }
    }

    /// Returns the factor by which limits grow over those of an idle machine. The factor is 1, plus
    /// the load average per processor times the share of the last ten seconds in which a program
    /// waited for a processor (`/proc/loadavg`, `/proc/pressure/cpu`).
    pub fn load(&self) -> f64 {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (average, pressure) = (read("/proc/loadavg"), read("/proc/pressure/cpu"));
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<f64>().ok());
        let average = number(average.split(' ').next()).unwrap_or(1.0);
        let pressure = pressure.split("avg10=").nth(1).unwrap_or_default();
        let pressure = number(pressure.split(' ').next()).unwrap_or(0.0);
        let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let load = 1.0 + pressure / 100.0 * average / processors;
        self.load.fetch_max((load * 1000.0) as u64, SeqCst);
        load
    }

    /// Returns the greatest [`Weather::load`] so far.
    pub fn load_max(&self) -> f64 {
        self.load.load(SeqCst) as f64 / 1000.0
    }

    fn late(&self, begun: Instant, limit: Duration, excuses: &[&Condition]) -> Option<Duration> {
        if excuses.iter().any(|condition| condition.is_so()) {
            return None;
        }
        let eased = excuses.iter().map(|condition| condition.ended());
        let waited = eased.fold(begun, Instant::max).elapsed();
        // The load is read only where it matters.
        let is_late = waited > limit && waited > limit.mul_f64(self.load());
        is_late.then_some(waited)
    }

    /// Returns the time since `begun`, or since a later end of all hindrances, if that exceeds
    /// `limit`. `None` while a hindrance holds.
    pub fn overdue(&self, begun: Instant, limit: Duration) -> Option<Duration> {
        let held = self.volumes.iter().map(|sky| &sky.held);
        let excuses: Vec<&Condition> = held.chain([&self.paused, &self.commands]).collect();
        self.late(begun, limit, &excuses)
    }

    /// Likewise for a request of a volume's client.
    pub fn overdue_request(&self, begun: Instant, volume: usize) -> Option<Duration> {
        let sky = &self.volumes[volume];
        let excuses = [&self.paused, &sky.held, &sky.quiesced];
        self.late(begun, ANSWER, &excuses)
    }

    /// Likewise for a report, which no device holds up.
    pub fn overdue_report(&self, begun: Instant) -> Option<Duration> {
        self.late(begun, STATUS, &[&self.paused])
    }

    /// Returns the outcome of a request since `begun` to which the daemon gave no answer: unknown if
    /// the daemon may be late, an error otherwise.
    pub fn silence(&self, begun: Instant, why: &str) -> io::Result<Value> {
        match self.overdue_report(begun) {
            Some(_) => Err(io::Error::other(why)),
            None => Ok(json!({ "left": why })),
        }
    }

    /// True if clients are to end.
    pub fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// True if the daemon is ending.
    pub fn is_ending(&self) -> bool {
        self.ending.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_up_is_not_late_and_is_when_nothing_holds_it() {
        let weather = Weather::new(1);
        let begun = Instant::now();
        let held = weather.volumes[0].held.begin();
        std::thread::sleep(Duration::from_millis(5));
        assert!(weather.overdue(begun, Duration::ZERO).is_none());
        drop(held);
        std::thread::sleep(Duration::from_millis(50));
        let waited = weather.overdue(begun, Duration::ZERO).unwrap();
        assert!(waited < begun.elapsed(), "{waited:?}");
        let held = &weather.volumes[0].held;
        assert!(held.was_since(begun) && !held.was_since(Instant::now()));
    }
}
