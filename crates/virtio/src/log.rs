//! The log lines about guests and their monitors: the first of a kind in each period, and then a
//! count of the others, since peers determine their number.

use crate::shape::Log;
use block::{LogLimiter, Nanos};
use std::time::Instant;

/// Topic of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GuestTopic {
    CutOff,
    TurnedAway,
    Broken,
}

/// Summaries, by topic.
const TOPICS: [&str; 3] = [
    "monitors of virtual machines were cut off",
    "monitors of virtual machines were turned away",
    "queues of virtual machines were not served",
];

type Limiter = LogLimiter<{ TOPICS.len() }>;

/// The log of one disk.
pub(crate) struct DiskLog {
    log: Log,
    limiter: Limiter,
    began: Instant,
}

impl DiskLog {
    pub(crate) fn new(log: Log) -> DiskLog {
        DiskLog {
            log,
            limiter: Limiter::default(),
            began: Instant::now(),
        }
    }

    fn now(&self) -> Nanos {
        Nanos(self.began.elapsed().as_nanos() as u64)
    }

    pub(crate) fn say(&mut self, topic: GuestTopic, line: &str) {
        self.say_at(self.now(), topic, line);
    }

    /// Logs the counts of suppressed lines, once their period is over. Returns true if more will
    /// follow.
    pub(crate) fn sum_up(&mut self) -> bool {
        self.sum_up_at(self.now())
    }

    fn say_at(&mut self, now: Nanos, topic: GuestTopic, line: &str) {
        self.sum_up_at(now);
        if self.limiter.admits(now, topic as usize) {
            (self.log)(line.to_owned());
        }
    }

    fn sum_up_at(&mut self, now: Nanos) -> bool {
        let log = &self.log;
        self.limiter.sum_up(now, |topic, more| {
            let (what, seconds) = (TOPICS[topic], Limiter::PERIOD.0 / 1_000_000_000);
            log(format!("{more} more {what} in the last {seconds} s"));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn of_a_kind_some_lines_are_said_and_the_others_counted() {
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let into = said.clone();
        let mut log = DiskLog::new(Arc::new(move |line| into.lock().unwrap().push(line)));
        let (began, mut now) = (Nanos::ZERO, Nanos::ZERO);
        for n in 0..9_000 {
            log.say_at(now, GuestTopic::TurnedAway, &format!("line {n}"));
        }
        assert_eq!(said.lock().unwrap().len(), 5);
        log.say_at(now, GuestTopic::CutOff, "another kind");
        assert_eq!(said.lock().unwrap().pop().unwrap(), "another kind");
        assert!(log.sum_up_at(now), "there is more to say");
        now = began + Limiter::PERIOD + Nanos::from_secs(1);
        assert!(!log.sum_up_at(now));
        let last = said.lock().unwrap().pop().unwrap();
        assert_eq!(
            last,
            "8995 more monitors of virtual machines were turned away in the last 10 s"
        );
        log.say_at(now, GuestTopic::TurnedAway, "a new period");
        assert_eq!(said.lock().unwrap().pop().unwrap(), "a new period");
    }
}
