//! Operations in flight: a slab with slots used again, so that steady traffic allocates nothing.

use crate::fault::FaultStrike;
use block::{DriverOp, Token};

/// Identifier of an operation in flight; stale once the operation has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlightId {
    slot: u32,
    generation: u32,
}

impl FlightId {
    /// The identifier as one number, for a service-time model.
    pub fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// Undoes [`FlightId::pack`].
    pub fn unpack(id: u64) -> FlightId {
        FlightId {
            slot: id as u32,
            generation: (id >> 32) as u32,
        }
    }
}

/// An operation that has been submitted and has not completed.
pub(crate) struct SimOperation {
    pub shard: u32,
    /// Index of the disk, listener or stream end among those of its kind.
    pub unit: u32,
    pub token: Token,
    /// Number of the operation, in order of submission.
    pub number: u64,
    pub op: DriverOp,
    /// The fault plan's strike on the operation.
    pub strike: FaultStrike,
    /// Number of the last acknowledged write that a flush covers.
    pub covers: u64,
    /// The shard has had its answer; the bytes have not landed.
    pub answered: bool,
}

#[derive(Default)]
pub(crate) struct SimOperations {
    slots: Vec<(u32, Option<SimOperation>)>,
    free: Vec<u32>,
}

impl SimOperations {
    #[inline]
    pub fn insert(&mut self, flight: SimOperation) -> FlightId {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            entry.1 = Some(flight);
            return FlightId {
                slot,
                generation: entry.0,
            };
        }
        self.slots.push((0, Some(flight)));
        FlightId {
            slot: self.slots.len() as u32 - 1,
            generation: 0,
        }
    }

    #[inline]
    pub fn get_mut(&mut self, id: FlightId) -> Option<&mut SimOperation> {
        let (generation, flight) = self.slots.get_mut(id.slot as usize)?;
        flight.as_mut().filter(|_| *generation == id.generation)
    }

    #[inline]
    pub fn get(&self, id: FlightId) -> Option<&SimOperation> {
        let (generation, flight) = self.slots.get(id.slot as usize)?;
        flight.as_ref().filter(|_| *generation == id.generation)
    }

    #[inline]
    pub fn remove(&mut self, id: FlightId) -> Option<SimOperation> {
        let (generation, flight) = self.slots.get_mut(id.slot as usize)?;
        if *generation != id.generation {
            return None;
        }
        let flight = flight.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(flight)
    }

    /// Every operation in flight, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (FlightId, &SimOperation)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let id = FlightId {
                slot: slot as u32,
                generation: entry.0,
            };
            entry.1.as_ref().map(|flight| (id, flight))
        })
    }
}
