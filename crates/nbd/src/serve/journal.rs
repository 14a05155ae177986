//! Log lines about connections. Peers choose the rate of such events. Only the first lines of a
//! kind are logged in each period, then the number of further ones.

use block::{LogLimiter, Timer};
use std::cell::RefCell;
use std::rc::Rc;

/// Logs one line, without its end.
pub type Log = Rc<dyn Fn(&str)>;

/// Subject of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionTopic {
    NotAccepted,
    Refused,
    Closed,
}

/// Descriptions of the topics, by topic.
const TOPICS: [&str; 3] = [
    "NBD connections were not accepted",
    "NBD connections were refused",
    "NBD connections were closed",
];

type Limiter = LogLimiter<{ TOPICS.len() }>;

pub(super) struct ConnectionJournal {
    log: Log,
    timer: Timer,
    limiter: RefCell<Limiter>,
}

impl ConnectionJournal {
    pub(super) fn new(log: Log, timer: Timer) -> ConnectionJournal {
        ConnectionJournal {
            log,
            timer,
            limiter: RefCell::default(),
        }
    }

    pub(super) fn say(&self, topic: ConnectionTopic, line: &str) {
        self.sum_up();
        let now = self.timer.now();
        if self.limiter.borrow_mut().admits(now, topic as usize) {
            (self.log)(line);
        }
    }

    /// Ends the periods that are over, and logs the number of lines left out in each. Returns
    /// whether lines are counted that will be logged later.
    pub(super) fn sum_up(&self) -> bool {
        let said = |topic: usize, more: u64| {
            let (what, period) = (TOPICS[topic], Limiter::PERIOD);
            (self.log)(&format!("{more} more {what} in the last {period}"));
        };
        self.limiter.borrow_mut().sum_up(self.timer.now(), said)
    }
}
