//! What is said of connections: peers choose how often something happens, so that only
//! the first lines of a kind are said in each period, and then how many there were more.

use block::{LogLimiter, Timer};
use std::cell::RefCell;
use std::rc::Rc;

/// What the server does to have something logged, one line without its end.
pub type Log = Rc<dyn Fn(&str)>;

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Topic {
    NotAccepted,
    Refused,
    Closed,
}

/// By topic.
const TOPICS: [&str; 3] = [
    "NBD connections were not accepted",
    "NBD connections were refused",
    "NBD connections were closed",
];

type Limiter = LogLimiter<{ TOPICS.len() }>;

pub(super) struct Journal {
    log: Log,
    timer: Timer,
    limiter: RefCell<Limiter>,
}

impl Journal {
    pub(super) fn new(log: Log, timer: Timer) -> Journal {
        Journal {
            log,
            timer,
            limiter: RefCell::default(),
        }
    }

    pub(super) fn say(&self, topic: Topic, line: &str) {
        self.sum_up();
        let now = self.timer.now();
        if self.limiter.borrow_mut().admits(now, topic as usize) {
            (self.log)(line);
        }
    }

    /// Ends the periods that are over, and says what was left out in them.
    pub(super) fn sum_up(&self) {
        let said = |topic: usize, more: u64| {
            let (what, period) = (TOPICS[topic], Limiter::PERIOD);
            (self.log)(&format!("{more} more {what} in the last {period}"));
        };
        self.limiter.borrow_mut().sum_up(self.timer.now(), said);
    }
}
