//! Links teamed to one way: a flow stays on one of them, so that its answers keep their
//! order.
//!
//! Invariant: data leaves a link in order, one transfer behind the other.

use block::Nanos;
use drives::LinkParameters;
use std::cell::Cell;

/// Links, and when each is free.
pub struct Team {
    free: Vec<Cell<Nanos>>,
    rate_mb_s: f64,
}

impl Team {
    /// Creates a team of so many links of one kind.
    pub fn new(links: usize, link: &LinkParameters) -> Team {
        Team {
            free: vec![Cell::default(); links],
            rate_mb_s: link.rate_mb_s.value,
        }
    }

    /// Sends so many bytes of `flow`, which are there at `ready`; returns the time at which they
    /// have left.
    pub fn send(&self, flow: u32, ready: Nanos, bytes: u64) -> Nanos {
        let link = &self.free[flow as usize % self.free.len()];
        let span = Nanos((bytes as f64 * 1e3 / self.rate_mb_s) as u64);
        link.set(link.get().max(ready) + span);
        link.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drives::catalogue::link::GIGABIT;

    /// Sends 1,000 answers of 117 KB, which take 1 ms each, over so many links; returns the time of
    /// the end.
    fn sent(links: usize, flows: u32) -> Nanos {
        let team = Team::new(links, &GIGABIT);
        let answers = (0..1_000).map(|n| team.send(n % flows, Nanos::ZERO, 117_000));
        answers.max().unwrap()
    }

    #[test]
    fn a_team_is_as_fast_as_its_links_and_a_flow_as_one() {
        assert_eq!(sent(1, 8), Nanos::from_millis(1_000));
        assert_eq!(sent(4, 8), Nanos::from_millis(250));
        assert_eq!(sent(4, 1), Nanos::from_millis(1_000));
        assert_ne!(sent(3, 8), sent(4, 8));
    }

    #[test]
    fn an_idle_link_sends_at_once() {
        let team = Team::new(1, &GIGABIT);
        team.send(0, Nanos::ZERO, 117_000);
        let later = team.send(0, Nanos::from_millis(5), 117_000);
        assert_eq!(later, Nanos::from_millis(6));
    }
}
