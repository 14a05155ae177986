//! The driver of one simulated shard.
//!
//! A host that steps shards parks them with a deadline that has come, so that
//! `park` is a poll. Driven without a host, `park` lets the world move until
//! an event is due for this shard.

use crate::world::{Flag, SimWorld};
use block::{Completion, Driver, DriverOp, Geometry, Nanos, Pool, TargetId, Token, Unpark};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// One shard's queue pair in a simulated world.
pub struct SimDriver {
    world: Rc<RefCell<SimWorld>>,
    seat: usize,
    pool: Pool,
    unparked: Arc<Flag>,
}

impl SimDriver {
    pub(crate) fn new(world: Rc<RefCell<SimWorld>>, seat: usize, pool: Pool) -> SimDriver {
        let unparked = world.borrow().seats[seat].unparked.clone();
        SimDriver {
            world,
            seat,
            pool,
            unparked,
        }
    }

    /// True if the shard still has power. Without power no operation completes any more, and `park`
    /// returns at once.
    pub fn has_power(&self) -> bool {
        self.world.borrow().seats[self.seat].live
    }
}

impl Driver for SimDriver {
    fn now(&self) -> Nanos {
        self.world.borrow().now()
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn submit(&mut self, token: Token, target: TargetId, op: DriverOp) {
        self.world.borrow_mut().submit(self.seat, token, target, op);
    }

    /// # Panics
    /// If the park could never return: no deadline, and no event left to happen.
    fn park(&mut self, deadline: Nanos, done: &mut Vec<Completion>) {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        loop {
            world.obey();
            let paused = world.is_paused();
            let seat = &mut world.seats[self.seat];
            let runs = !paused || !seat.live;
            let unparked = runs && self.unparked.take();
            if runs && (!seat.ready.is_empty() || unparked || !seat.live) {
                done.append(&mut seat.ready);
                return;
            }
            if world.happen() {
                continue;
            }
            if runs && deadline <= world.now() {
                return;
            }
            let until = match runs {
                true => deadline,
                false => world.paused.end,
            };
            let next = world.next_at().unwrap_or(Nanos::MAX).min(until);
            assert!(
                next < Nanos::MAX,
                "seed {}: parked for ever, and nothing is left to happen",
                world.seed()
            );
            world.ledger.now = next;
        }
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        self.unparked.clone()
    }

    fn geometry(&self, target: TargetId) -> Option<Geometry> {
        self.world.borrow().geometry(target)
    }

    fn tags(&self, target: TargetId) -> Option<u16> {
        self.world.borrow().port(target).map(|port| port.tags())
    }

    fn peer_closed(&self, target: TargetId) -> bool {
        self.world.borrow().peer_closed(target)
    }

    fn close(&mut self, target: TargetId) {
        let mut world = self.world.borrow_mut();
        if world.seats[self.seat].live {
            world.close(target);
        }
    }
}
