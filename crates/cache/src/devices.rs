//! The pool's devices and which slots are on which.
//!
//! Invariants:
//!     slot ranges of members and vacant ranges are disjoint and cover `..total`
//!     a range is vacant ⟹ no operation on its former device is in flight
//!
//! Slots are numbered through all devices, a contiguous range for each.

use crate::durable::MemberStore;
use crate::health::{DeviceFault, DeviceHealth};
use crate::lines::{BLOCK_SECTORS, LineShape};
use crate::pool_device::{NewPoolDevice, SLOTS_MAX};
use block::{Device, Extent, InFlight, Lba, Sectors};
use policy::{SlotNumber, SlotPart};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Names a pool device of one cache; never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u32);

/// State of a pool device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeviceState {
    /// The device serves.
    Online,
    /// No longer, because of faults, the last of which was this.
    Ejected(DeviceFault),
    /// The device is being removed.
    Leaving,
}

/// A pool device in reports.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Its name in this cache.
    pub id: DeviceId,
    /// Its place in the geometry.
    pub name: Arc<str>,
    /// Its failure domain.
    pub controller: Arc<str>,
    /// State of the device.
    pub state: DeviceState,
    /// Number of lines that fit on the device.
    pub lines: u32,
    /// Those lines on the device.
    pub place: Extent,
    /// Operations in flight.
    pub in_flight: u32,
    /// Faults since the device was added.
    pub faults: u64,
}

pub(crate) struct PoolMember<P> {
    pub(crate) id: DeviceId,
    pub(crate) device: P,
    pub(crate) controller: Arc<str>,
    pub(crate) slots: Range<u32>,
    pub(crate) health: DeviceHealth,
    pub(crate) state: Cell<DeviceState>,
    /// Operations in flight that the engine waits for.
    pub(crate) operations: InFlight,
    /// The pool's metadata on the device, if any.
    pub(crate) store: Option<MemberStore>,
    start: Lba,
    shape: LineShape,
}

impl<P: Device> PoolMember<P> {
    /// Place of a block of one of its slots.
    #[inline]
    pub(crate) fn at(&self, slot: SlotNumber, block: u32) -> Lba {
        let blocks =
            (u64::from(slot.0 - self.slots.start) << self.shape.shift()) + u64::from(block);
        self.start + Sectors(blocks * BLOCK_SECTORS)
    }

    /// True if the device's lines are known, so that they may rest and be used again.
    pub(crate) fn may_return(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.warm.get())
    }

    fn report(&self) -> DeviceReport {
        let lines = self.slots.end - self.slots.start;
        DeviceReport {
            id: self.id,
            name: self.device.geometry().name.clone(),
            controller: self.controller.clone(),
            state: self.state.get(),
            lines,
            place: Extent::new(
                self.start,
                Sectors(u64::from(lines) * self.shape.sectors().0),
            ),
            in_flight: self.operations.count(),
            faults: self.health.faults_ever(),
        }
    }
}

pub(crate) struct PoolDevices<P> {
    members: Vec<Rc<PoolMember<P>>>,
    vacant: Vec<Range<u32>>,
    total: u32,
    next_id: u32,
}

/// Place of a new device's slots.
pub(crate) enum NewDeviceRoom {
    /// The slots of a device that left.
    Reused(Range<u32>),
    /// After all others.
    Added(Range<u32>),
}

impl<P: Device> PoolDevices<P> {
    pub(crate) fn new() -> PoolDevices<P> {
        PoolDevices {
            members: Vec::new(),
            vacant: Vec::new(),
            total: 0,
            next_id: 0,
        }
    }

    /// Finds room for `lines` slots; `None` if there would be too many.
    pub(crate) fn place(&mut self, lines: u32) -> Option<NewDeviceRoom> {
        if let Some(i) = self.vacant.iter().position(|r| r.end - r.start >= lines) {
            let range = self.vacant.remove(i);
            let used = range.start..range.start + lines;
            if used.end < range.end {
                self.vacant.push(used.end..range.end);
            }
            return Some(NewDeviceRoom::Reused(used));
        }
        let total = self.total.checked_add(lines).filter(|t| *t <= SLOTS_MAX)?;
        let range = self.total..total;
        self.total = total;
        Some(NewDeviceRoom::Added(range))
    }

    pub(crate) fn add(
        &mut self,
        device: NewPoolDevice<P>,
        slots: Range<u32>,
        shape: LineShape,
        store: Option<MemberStore>,
    ) -> DeviceId {
        let id = DeviceId(self.next_id);
        self.next_id += 1;
        self.members.push(Rc::new(PoolMember {
            id,
            device: device.device,
            controller: device.controller,
            slots,
            health: DeviceHealth::default(),
            state: Cell::new(DeviceState::Online),
            operations: InFlight::default(),
            start: match &store {
                Some(store) => store.at(store.plan.lines, 0),
                None => device.extent.start,
            },
            store,
            shape,
        }));
        id
    }

    /// The device that `slot` is on.
    #[inline]
    pub(crate) fn of(&self, slot: SlotNumber) -> Option<&Rc<PoolMember<P>>> {
        self.members.iter().find(|m| m.slots.contains(&slot.0))
    }

    pub(crate) fn get(&self, id: DeviceId) -> Option<Rc<PoolMember<P>>> {
        self.members.iter().find(|member| member.id == id).cloned()
    }

    /// The devices that serve and keep their lines.
    pub(crate) fn kept(&self) -> Vec<Rc<PoolMember<P>>> {
        let kept =
            |m: &&Rc<PoolMember<P>>| m.store.is_some() && m.state.get() == DeviceState::Online;
        self.members.iter().filter(kept).cloned().collect()
    }

    /// True if all devices that serve have their lines in use.
    pub(crate) fn all_warm(&self) -> bool {
        self.cold() == 0
    }

    /// Devices that serve and do not have their lines in use yet.
    pub(crate) fn cold(&self) -> usize {
        let cold = |m: &&Rc<PoolMember<P>>| {
            let cold = m.store.as_ref().is_some_and(|store| !store.warm.get());
            cold && m.state.get() == DeviceState::Online
        };
        self.members.iter().filter(cold).count()
    }

    /// The slots of the devices that serve, each with the share of its turns in use.
    pub(crate) fn parts(&self) -> Vec<SlotPart> {
        let serving = |m: &&Rc<PoolMember<P>>| m.state.get() == DeviceState::Online;
        let serving = self.members.iter().filter(serving);
        let fastest = serving.clone().filter_map(|m| m.health.write_mean()).min();
        let lives = serving.clone().map(|m| m.health.life());
        let freshest = lives.fold(0.0, f32::max);
        let part = |member: &Rc<PoolMember<P>>| SlotPart {
            slots: member.slots.clone(),
            service: member.health.service(fastest, freshest),
        };
        serving.map(part).collect()
    }

    /// Takes a device out of the list; its range is vacated later.
    pub(crate) fn take(&mut self, id: DeviceId) -> Option<Rc<PoolMember<P>>> {
        let i = self.members.iter().position(|m| m.id == id)?;
        Some(self.members.remove(i))
    }

    /// Lets the range of a device that left be used again.
    pub(crate) fn vacate(&mut self, slots: Range<u32>) {
        self.vacant.push(slots);
    }

    pub(crate) fn reports(&self) -> Vec<DeviceReport> {
        self.members.iter().map(|m| m.report()).collect()
    }
}
