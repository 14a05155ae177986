//! Actions of the plan and the test program on the world: disks unplugged and plugged in, power
//! cuts, releases of operations.

use crate::control::WorldCommand;
use crate::fault::{Domain, FaultClass};
use crate::flight::{FlightId, SimOperation};
use crate::operation::is_disk_op;
use crate::plan::PlannedAction;
use crate::trace_hash::TraceEvent;
use crate::world::{SimTarget, SimWorld};
use block::{IoErrorKind, Nanos, Sectors, ShardId, TargetId};

impl SimWorld {
    /// Carries out the commands of the test program.
    #[inline]
    pub(crate) fn obey(&mut self) {
        while let Some(command) = self.control.take() {
            match command {
                WorldCommand::Kill(disk) => self.act(PlannedAction::Gone(disk)),
                WorldCommand::Revive(disk) => self.act(PlannedAction::Back(disk)),
                WorldCommand::Cut(domain) => self.act(PlannedAction::Cut(domain)),
                WorldCommand::PowerOn(domain) => self.power_on(domain),
                WorldCommand::Hang(target) => self.hang(target),
                WorldCommand::Release(target) => self.release(target),
                WorldCommand::Break(target) => self.break_stream(target),
                WorldCommand::Forget(disk) => self.forget(disk),
                WorldCommand::Grow(disk, sectors) => self.grow(disk, sectors),
                WorldCommand::Reserve(disk, elsewhere) => self.reserve(disk, elsewhere),
                WorldCommand::Pause(span) => self.pause(span),
                WorldCommand::Occupy(shard, span) => self.occupy(shard, span),
            }
        }
        if !self.ports.is_empty() {
            self.pull();
        }
    }

    pub(crate) fn act(&mut self, action: PlannedAction) {
        match action {
            PlannedAction::Gone(target) => self.unplug(target),
            PlannedAction::Back(target) => self.plug_in(target),
            PlannedAction::Cut(domain) => self.cut(domain),
        }
    }

    fn unplug(&mut self, target: TargetId) {
        let Some(unit) = self.disk_index(target) else {
            return;
        };
        if !std::mem::replace(&mut self.disks[unit].plugged, false) {
            return;
        }
        self.ledger.record(TraceEvent::Gone { target });
        self.ledger.strike(FaultClass::DeviceGone, target, 0);
        self.lose_disk(unit);
    }

    fn plug_in(&mut self, target: TargetId) {
        let Some(unit) = self.disk_index(target) else {
            return;
        };
        if !std::mem::replace(&mut self.disks[unit].plugged, true) {
            self.ledger.record(TraceEvent::Back { target });
            self.ledger.strike(FaultClass::DeviceBack, target, 0);
        }
    }

    /// A disk loses power: its cache settles, its operations in flight fail.
    fn lose_disk(&mut self, unit: usize) {
        let disk = &mut self.disks[unit];
        let (survival, spoiled) = (self.agenda.survival, self.agenda.spoiled);
        disk.lose_power(&self.flights, survival, spoiled, &mut self.ledger);
        let flights = self.flights.iter();
        let on_it = flights.filter(|(_, f)| f.unit as usize == unit && is_disk_op(&f.op));
        let lost: Vec<FlightId> = on_it.map(|(id, _)| id).collect();
        for id in lost {
            let error = self.disks[unit]
                .geometry
                .error(IoErrorKind::Gone, "the disk is gone");
            self.end(id, Err(error));
        }
    }

    /// Cuts the power of one domain or of all.
    fn cut(&mut self, domain: Option<Domain>) {
        let hit = |d: Domain| domain.is_none_or(|only| only == d);
        let number = domain.map_or(u32::MAX, |d| d.0);
        self.ledger.record(TraceEvent::PowerCut { domain: number });
        self.ledger
            .strike(FaultClass::PowerCut, TargetId::NONE, u64::from(number));
        let dying = self.seats.iter_mut().filter(|s| s.live && hit(s.domain));
        for seat in dying {
            seat.live = false;
            seat.ready.clear();
        }
        for unit in 0..self.disks.len() {
            let disk = &mut self.disks[unit];
            if hit(disk.domain) && std::mem::replace(&mut disk.powered, false) {
                self.lose_disk(unit);
            }
        }
        self.cut_dead_streams();
    }

    pub(crate) fn power_on(&mut self, domain: Domain) {
        self.ledger.record(TraceEvent::PowerOn { domain: domain.0 });
        let here = self.disks.iter_mut().filter(|d| d.domain == domain);
        here.for_each(|d| d.powered = true);
    }

    /// Ends the operations on disks of dead shards.
    pub(crate) fn settle_orphans(&mut self) {
        let orphaned = |f: &SimOperation| is_disk_op(&f.op) && !self.seats[f.shard as usize].live;
        let flights = self.flights.iter().filter(|(_, f)| orphaned(f));
        let orphans: Vec<FlightId> = flights.map(|(id, _)| id).collect();
        for id in orphans {
            self.finish_disk(id);
        }
    }

    fn forget(&mut self, target: TargetId) {
        if let Some(unit) = self.disk_index(target) {
            let survival = self.agenda.survival;
            self.disks[unit].forget(survival, &mut self.ledger);
        }
    }

    fn grow(&mut self, target: TargetId, sectors: Sectors) {
        if let Some(unit) = self.disk_index(target) {
            let block = self.disks[unit].geometry.block;
            self.disks[unit].reshape(sectors, block);
        }
    }

    fn reserve(&mut self, target: TargetId, elsewhere: bool) {
        if let Some(unit) = self.disk_index(target) {
            self.disks[unit].reserved_elsewhere = elsewhere;
        }
    }

    fn occupy(&mut self, shard: ShardId, span: Nanos) {
        let now = self.ledger.now;
        let seats = self.seats[self.boot..].iter_mut();
        for seat in seats.filter(|seat| seat.shard == shard) {
            seat.occupy(now, span);
        }
    }

    fn pause(&mut self, span: Nanos) {
        let now = self.ledger.now;
        self.ledger
            .strike(FaultClass::Paused, TargetId::NONE, span.0);
        self.paused = now..self.paused.end.max(now + span);
    }

    /// Time at which a served operation ends, if not now: half of the operations are of threads,
    /// which were paused too.
    pub(crate) fn after_pause(&mut self) -> Option<Nanos> {
        let (now, paused) = (self.ledger.now, &self.paused);
        let ends = paused.end + now.since(paused.start);
        (self.is_paused() && self.ledger.rng.chance(0.5)).then_some(ends)
    }

    /// True while no shard runs.
    pub(crate) fn is_paused(&self) -> bool {
        self.ledger.now < self.paused.end
    }

    fn hang(&mut self, target: TargetId) {
        if let Some(unit) = self.disk_index(target) {
            self.disks[unit].hung = true;
        }
    }

    /// Releases operations or streams held by a fault.
    fn release(&mut self, target: TargetId) {
        match self.targets.get(target.0 as usize) {
            Some(SimTarget::Disk(unit)) => {
                self.disks[*unit as usize].hung = false;
                for id in std::mem::take(&mut self.disks[*unit as usize].stuck) {
                    self.finish_disk(id);
                }
            }
            _ => self.release_stream(target),
        }
    }
}
