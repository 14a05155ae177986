//! The table of disks, streams and listeners that all shards of a host share.
//!
//! A target's number is its place in the table and the place's generation, so
//! that a number kept after `close` does not reach the next target there. A
//! place is used again only after all other free places, at the earliest
//! 4,096 closes of it later under the same number.

use crate::open::Disk;
use crate::socket::Socket;
use block::TargetId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, RwLock};

const PLACE_BITS: u32 = 20;
const PLACES: usize = 1 << PLACE_BITS;

#[derive(Clone)]
pub(crate) enum Target {
    Disk(Arc<Disk>),
    Stream(Arc<Socket>),
    Listener(Arc<Socket>),
}

#[derive(Default)]
pub(crate) struct Targets {
    table: RwLock<Table>,
    disks_closed: AtomicU64,
}

#[derive(Default)]
struct Table {
    places: Vec<Place>,
    free: VecDeque<u32>,
}

#[derive(Default)]
struct Place {
    generation: u32,
    target: Option<Target>,
}

/// The place in the table that `id` names, whatever is there now.
pub(crate) fn place_of(id: TargetId) -> usize {
    id.0 as usize % PLACES
}

impl Targets {
    /// Adds a target; `None` if a million are open.
    pub(crate) fn insert(&self, target: Target) -> Option<TargetId> {
        let mut table = self.table.write().expect("no panic under this lock");
        let place = match table.free.pop_front() {
            Some(place) => place,
            // The last place stays empty, for `TargetId::NONE` lies there.
            None if table.places.len() < PLACES - 1 => {
                table.places.push(Place::default());
                table.places.len() as u32 - 1
            }
            None => return None,
        };
        let entry = &mut table.places[place as usize];
        entry.target = Some(target);
        Some(TargetId(entry.generation << PLACE_BITS | place))
    }

    pub(crate) fn get(&self, id: TargetId) -> Option<Target> {
        let table = self.table.read().expect("no panic under this lock");
        let entry = table.places.get(place_of(id))?;
        (entry.generation == id.0 >> PLACE_BITS)
            .then(|| entry.target.clone())
            .flatten()
    }

    /// Takes a target out and closes it; false if it was not there.
    pub(crate) fn close(&self, id: TargetId) -> bool {
        let mut table = self.table.write().expect("no panic under this lock");
        let Some(entry) = table.places.get_mut(place_of(id)) else {
            return false;
        };
        if entry.generation != id.0 >> PLACE_BITS {
            return false;
        }
        let Some(target) = entry.target.take() else {
            return false;
        };
        entry.generation = (entry.generation + 1) % (1 << (u32::BITS - PLACE_BITS));
        table.free.push_back(place_of(id) as u32);
        drop(table);
        match target {
            Target::Stream(socket) | Target::Listener(socket) => socket.close(),
            Target::Disk(disk) => {
                disk.close();
                self.disks_closed.fetch_add(1, Release);
            }
        }
        true
    }

    /// How many disks have been closed: a change tells a shard to let go.
    pub(crate) fn disks_closed(&self) -> u64 {
        self.disks_closed.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_kept_after_close_reaches_nothing() {
        let targets = Targets::default();
        let socket = || Target::Stream(Arc::new(Socket::pair_for_test().0));
        let first = targets.insert(socket()).unwrap();
        assert!(targets.close(first) && !targets.close(first));
        let second = targets.insert(socket()).unwrap();
        assert_eq!(place_of(first), place_of(second));
        assert_ne!(first, second);
        assert!(targets.get(first).is_none() && targets.get(second).is_some());
        assert!(targets.get(TargetId::NONE).is_none());
    }
}
