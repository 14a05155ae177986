//! What is said of connections: peers choose how often something happens, so that only
//! the first lines of a kind are said in each period, and then how many there were more.

use block::{Nanos, Timer};
use std::cell::RefCell;
use std::rc::Rc;

/// What the server does to have something logged, one line without its end.
pub type Log = Rc<dyn Fn(&str)>;

/// Lines of one kind in a period; more are counted.
const LINES_MAX: u32 = 5;
const PERIOD: Nanos = Nanos::from_secs(10);

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Topic {
    NotAccepted,
    Refused,
    Closed,
}

const TOPICS: [(Topic, &str); 3] = [
    (Topic::NotAccepted, "NBD connections were not accepted"),
    (Topic::Refused, "NBD connections were refused"),
    (Topic::Closed, "NBD connections were closed"),
];

#[derive(Clone, Copy, Default)]
struct Tally {
    /// When its period began; none runs if `lines` is 0.
    since: Nanos,
    lines: u32,
    more: u64,
}

pub(super) struct Journal {
    log: Log,
    timer: Timer,
    tallies: RefCell<[Tally; TOPICS.len()]>,
}

impl Journal {
    pub(super) fn new(log: Log, timer: Timer) -> Journal {
        Journal {
            log,
            timer,
            tallies: RefCell::default(),
        }
    }

    pub(super) fn say(&self, topic: Topic, line: &str) {
        self.sum_up();
        let tally = &mut self.tallies.borrow_mut()[topic as usize];
        if tally.lines == 0 {
            tally.since = self.timer.now();
        }
        if tally.lines == LINES_MAX {
            tally.more += 1;
            return;
        }
        tally.lines += 1;
        (self.log)(line);
    }

    /// Ends the periods that are over, and says what was left out in them.
    pub(super) fn sum_up(&self) {
        let now = self.timer.now();
        for (topic, what) in TOPICS {
            let tally = &mut self.tallies.borrow_mut()[topic as usize];
            if tally.lines == 0 || now.since(tally.since) < PERIOD {
                continue;
            }
            let more = std::mem::take(tally).more;
            if more > 0 {
                (self.log)(&format!("{more} more {what} in the last {PERIOD}"));
            }
        }
    }
}
