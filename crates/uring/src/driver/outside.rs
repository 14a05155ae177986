//! Events outside the ring: look-ups of hosts, and closed disks and ports. A shard releases the
//! files of those once no operation on them is in flight.

use super::{DriverWork, UringDriver};
use crate::stream::StreamOp;
use block::{Completion, Payload};

impl UringDriver {
    /// Acts on events outside the ring, if there are some.
    #[inline]
    pub(super) fn catch_up(&mut self) {
        if self.resolver.has_answers() || self.host.targets.held_closed() != self.held_closed {
            self.act_on_outside();
        }
    }

    #[cold]
    fn act_on_outside(&mut self) {
        for (key, resolved) in self.resolver.take() {
            let DriverWork::Stream(StreamOp::Connect(connect)) = &mut self.slots[key].work else {
                unreachable!("only a connect waits for a host, and keeps its slot")
            };
            match connect.resolved(resolved) {
                Ok(()) => self.queue(key),
                Err(error) => {
                    let token = self.slots.remove(key).token;
                    self.refuse(token, error, Payload::None);
                }
            }
        }
        let closed = self.host.targets.held_closed();
        if closed != self.held_closed {
            self.leave_closed_ports();
            let slots = &self.slots;
            let disk_in_use = |disk| {
                let mut all = slots.iter();
                all.any(|(_, slot)| matches!(slot.work, DriverWork::Disk(d, _) if d == disk))
            };
            let port_in_use = |port| {
                let mut all = slots.iter();
                all.any(|(_, slot)| matches!(&slot.work, DriverWork::Port(op) if op.port() == port))
            };
            let disks = self.disks.release_closed(&self.ring, disk_in_use);
            let ports = self.ports.release_closed(&self.ring, port_in_use);
            if disks && ports {
                self.held_closed = closed;
            }
        }
    }

    /// Ends the tags of closed ports that wait for requests; the kernel's answers come later.
    fn leave_closed_ports(&mut self) {
        for (_, slot) in &mut self.slots {
            if let DriverWork::Port(op) = &mut slot.work
                && let Some(error) = self.ports.leave(op)
            {
                self.ended.push(Completion {
                    token: slot.token,
                    result: Err(error),
                    payload: Payload::None,
                });
            }
        }
    }
}
