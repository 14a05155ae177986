//! What is said of guests and their monitors, who choose how often something happens: the first
//! lines of a kind are said in each period, and then how many there were more.

use crate::shape::Log;
use std::time::{Duration, Instant};

/// Lines of one kind in a period; more are counted.
const LINES_MAX: u32 = 5;
const PERIOD: Duration = Duration::from_secs(10);

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Topic {
    CutOff,
    TurnedAway,
    Broken,
}

const TOPICS: [(Topic, &str); 3] = [
    (Topic::CutOff, "monitors of virtual machines were cut off"),
    (
        Topic::TurnedAway,
        "monitors of virtual machines were turned away",
    ),
    (Topic::Broken, "queues of virtual machines were not served"),
];

#[derive(Clone, Copy, Default)]
struct Tally {
    /// When its period began.
    since: Option<Instant>,
    lines: u32,
    more: u64,
}

/// The log of one disk.
pub(crate) struct LogLimiter {
    log: Log,
    tallies: [Tally; TOPICS.len()],
}

impl LogLimiter {
    pub(crate) fn new(log: Log) -> LogLimiter {
        LogLimiter {
            log,
            tallies: Default::default(),
        }
    }

    pub(crate) fn say(&mut self, topic: Topic, line: &str) {
        self.say_at(Instant::now(), topic, line);
    }

    /// Says what was left out, once its period is over. Returns whether there is more to come.
    pub(crate) fn sum_up(&mut self) -> bool {
        self.sum_up_at(Instant::now())
    }

    fn say_at(&mut self, now: Instant, topic: Topic, line: &str) {
        self.sum_up_at(now);
        let tally = &mut self.tallies[topic as usize];
        tally.since.get_or_insert(now);
        if tally.lines == LINES_MAX {
            tally.more += 1;
            return;
        }
        tally.lines += 1;
        (self.log)(line.to_owned());
    }

    fn sum_up_at(&mut self, now: Instant) -> bool {
        for (topic, what) in TOPICS {
            let tally = &mut self.tallies[topic as usize];
            let is_over = |since: Instant| now.saturating_duration_since(since) >= PERIOD;
            if tally.since.is_some_and(is_over) {
                let more = std::mem::take(tally).more;
                if more > 0 {
                    (self.log)(format!(
                        "{more} more {what} in the last {} s",
                        PERIOD.as_secs()
                    ));
                }
            }
        }
        self.tallies.iter().any(|tally| tally.more > 0)
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
        let mut log = LogLimiter::new(Arc::new(move |line| into.lock().unwrap().push(line)));
        let (began, mut now) = (Instant::now(), Instant::now());
        for n in 0..9_000 {
            log.say_at(now, Topic::TurnedAway, &format!("line {n}"));
        }
        assert_eq!(said.lock().unwrap().len(), 5);
        log.say_at(now, Topic::CutOff, "another kind");
        assert_eq!(said.lock().unwrap().pop().unwrap(), "another kind");
        assert!(log.sum_up_at(now), "there is more to say");
        now = began + PERIOD + Duration::from_secs(1);
        assert!(!log.sum_up_at(now));
        let last = said.lock().unwrap().pop().unwrap();
        assert_eq!(
            last,
            "8995 more monitors of virtual machines were turned away in the last 10 s"
        );
        log.say_at(now, Topic::TurnedAway, "a new period");
        assert_eq!(said.lock().unwrap().pop().unwrap(), "a new period");
    }
}
