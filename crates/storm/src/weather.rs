//! What is wrong with the machine and its devices at the moment, and since when it is not: what a
//! client has to bear, and how long it may have to wait.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long a client's request may take once nothing holds it up, on an idle machine: until a device of a
/// log or of a pool is lost (ten times `hit_latency_max`), and as long for what has to be done then.
const ANSWER: Duration = Duration::from_secs(25);
/// The same of a command, before which others may have their turn.
pub const TURN: Duration = Duration::from_secs(120);
/// The same of a report.
pub const STATUS: Duration = Duration::from_secs(2);

/// Something that is so at times.
pub struct Condition {
    began: Instant,
    times: AtomicU64,
    /// When it last ended, in milliseconds; 0 if it never was.
    ended: AtomicU64,
}

/// It is so until this is dropped.
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

    /// Has it be so until what is returned is dropped.
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

    /// Whether it was so at any time since then.
    pub fn was_since(&self, since: Instant) -> bool {
        self.is_so() || (self.ended.load(SeqCst) > 0 && self.ended() >= since)
    }
}

/// How a volume is.
pub struct Sky {
    /// Requests are held up rightly: a device that is needed for them does not answer.
    pub held: Condition,
    /// It is quiesced, which holds up its clients alone.
    pub quiesced: Condition,
    /// Clients' requests fail rightly.
    pub failing: Condition,
    /// How often its origin has lost what was not flushed.
    pub forgotten: AtomicU64,
}

/// How the machine is.
pub struct Weather {
    /// The daemon is stopped by a signal, or does not run.
    pub paused: Condition,
    /// What holds up commands alone: the folder of the configuration does not answer.
    pub commands: Condition,
    /// That of each volume.
    pub volumes: Vec<Sky>,
    /// The daemon is ending.
    pub ending: AtomicBool,
    /// Clients are to end.
    pub over: AtomicBool,
    /// The greatest load so far, in thousandths.
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
    /// Fair weather for so many volumes.
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

    /// How many times as long as on an idle machine all may take: 1, and the programs that want a
    /// processor for each that there is, as far as some program waits for one at all
    /// (`/proc/loadavg`, and the pressure of processors over ten seconds).
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

    /// The greatest that [`Weather::load`] has been.
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

    /// How long what began then has taken since nothing held it up, if that is more than `limit`.
    pub fn overdue(&self, begun: Instant, limit: Duration) -> Option<Duration> {
        let held = self.volumes.iter().map(|sky| &sky.held);
        let excuses: Vec<&Condition> = held.chain([&self.paused, &self.commands]).collect();
        self.late(begun, limit, &excuses)
    }

    /// The same of a request of a client of a volume.
    pub fn overdue_request(&self, begun: Instant, volume: usize) -> Option<Duration> {
        let sky = &self.volumes[volume];
        let excuses = [&self.paused, &sky.held, &sky.quiesced];
        self.late(begun, ANSWER, &excuses)
    }

    /// The same of what no device holds up.
    pub fn overdue_report(&self, begun: Instant) -> Option<Duration> {
        self.late(begun, STATUS, &[&self.paused])
    }

    /// Whether clients are to end.
    pub fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Whether the daemon is ending.
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
