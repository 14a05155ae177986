//! The table of disks, streams, listeners and ports that all shards of a host share.
//!
//! Numbers are small, so that others may index by them. A number is given again
//! only after thousands of later closes, so that one kept after `close` does
//! not soon reach another target.

use crate::open::OpenDisk;
use crate::port::ServedPort;
use crate::socket::RingSocket;
use block::TargetId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, RwLock};

const TARGETS_MAX: usize = 1 << 20;
/// Closed targets' numbers that stay unused, as long as there are others.
const RESTING: usize = 4096;

#[derive(Clone)]
pub(crate) enum RingTarget {
    Disk(Arc<OpenDisk>),
    Stream(Arc<RingSocket>),
    Listener(Arc<RingSocket>),
    Port(Arc<ServedPort>),
}

#[derive(Default)]
pub(crate) struct RingTargets {
    table: RwLock<TargetTable>,
    held_closed: AtomicU64,
}

#[derive(Default)]
struct TargetTable {
    open: Vec<Option<RingTarget>>,
    closed: VecDeque<u32>,
}

impl RingTargets {
    /// Adds a target; `None` if a million are open.
    pub(crate) fn insert(&self, target: RingTarget) -> Option<TargetId> {
        let mut table = self.table.write().expect("no panic under this lock");
        if table.closed.len() <= RESTING && table.open.len() < TARGETS_MAX {
            table.open.push(Some(target));
            return Some(TargetId(table.open.len() as u32 - 1));
        }
        let number = table.closed.pop_front()?;
        table.open[number as usize] = Some(target);
        Some(TargetId(number))
    }

    pub(crate) fn get(&self, id: TargetId) -> Option<RingTarget> {
        let table = self.table.read().expect("no panic under this lock");
        table.open.get(id.0 as usize)?.clone()
    }

    /// Takes a target out and closes it; false if there was none.
    pub(crate) fn close(&self, id: TargetId) -> bool {
        let mut table = self.table.write().expect("no panic under this lock");
        let Some(target) = table.open.get_mut(id.0 as usize).and_then(Option::take) else {
            return false;
        };
        table.closed.push_back(id.0);
        drop(table);
        match target {
            RingTarget::Stream(socket) | RingTarget::Listener(socket) => socket.close(),
            RingTarget::Disk(disk) => {
                disk.close();
                self.held_closed.fetch_add(1, Release);
            }
            RingTarget::Port(port) => {
                port.close();
                self.held_closed.fetch_add(1, Release);
            }
        }
        true
    }

    /// Count of closed disks and ports: at a change, a shard releases its own.
    pub(crate) fn held_closed(&self) -> u64 {
        self.held_closed.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_rests_after_close_and_stays_small() {
        let targets = RingTargets::default();
        let open = || {
            let target = RingTarget::Stream(Arc::new(RingSocket::pair_for_test().0));
            targets.insert(target).unwrap()
        };
        let first = open();
        assert!(targets.close(first) && !targets.close(first));
        for _ in 0..RESTING {
            let id = open();
            assert_ne!(id, first);
            assert!(targets.get(first).is_none() && targets.get(id).is_some());
            targets.close(id);
        }
        assert_eq!(open(), first);
        assert!(targets.get(TargetId::NONE).is_none());
    }
}
