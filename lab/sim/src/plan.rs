//! Checks a fault plan against its world, and keeps its timetable.

use crate::contents::Survival;
use crate::disk::SimDisk;
use crate::fault::{
    Domain, FaultEffect, FaultPlan, FaultRule, OpFilter, Outage, RunMoment, StreamEffect, When,
};
use crate::service::ServiceSpan;
use crate::world::SimWorld;
use block::{Extent, IoError, IoErrorKind, IoResult, Nanos, TargetId};

/// An action of the plan on the world.
#[derive(Clone, Copy)]
pub(crate) enum PlannedAction {
    Gone(TargetId),
    Back(TargetId),
    Cut(Option<Domain>),
}

/// The plan's actions by time and by step.
pub(crate) struct PlanAgenda {
    timed: Vec<(Nanos, PlannedAction)>,
    /// Latest first.
    stepped: Vec<(u64, PlannedAction)>,
    next_step: u64,
    /// Numbers the timed actions, so that those of a plan replaced are void.
    base: u32,
    pub survival: Option<Survival>,
    pub spoiled: f64,
}

impl Default for PlanAgenda {
    fn default() -> PlanAgenda {
        PlanAgenda {
            timed: Vec::new(),
            stepped: Vec::new(),
            next_step: u64::MAX,
            base: 0,
            survival: None,
            spoiled: 0.0,
        }
    }
}

impl PlanAgenda {
    pub fn replace(&mut self, plan: &FaultPlan) {
        self.base += self.timed.len() as u32;
        self.timed.clear();
        self.stepped.clear();
        self.survival = plan.survival;
        self.spoiled = plan.spoiled;
        for outage in &plan.outages {
            self.add(outage.gone, PlannedAction::Gone(outage.disk));
            if let Some(back) = outage.back {
                self.add(back, PlannedAction::Back(outage.disk));
            }
        }
        for cut in &plan.cuts {
            self.add(cut.at, PlannedAction::Cut(cut.domain));
        }
        self.stepped
            .sort_by_key(|(step, _)| std::cmp::Reverse(*step));
        self.next_step = self.stepped.last().map_or(u64::MAX, |(step, _)| *step);
    }

    fn add(&mut self, at: RunMoment, action: PlannedAction) {
        match at {
            RunMoment::At(time) => self.timed.push((time, action)),
            RunMoment::Step(step) => self.stepped.push((step, action)),
        }
    }

    /// The actions to be carried out at a time, and their numbers.
    pub fn timed(&self) -> Vec<(Nanos, u32)> {
        let numbered = self.timed.iter().zip(self.base..);
        numbered.map(|((at, _), number)| (*at, number)).collect()
    }

    /// The timed action of this number, if still valid.
    pub fn at_time(&self, number: u32) -> Option<PlannedAction> {
        let index = number.checked_sub(self.base)?;
        self.timed.get(index as usize).map(|(_, action)| *action)
    }

    /// An action due at this step, once.
    #[inline]
    pub fn at_step(&mut self, step: u64) -> Option<PlannedAction> {
        if step < self.next_step {
            return None;
        }
        let (_, action) = self.stepped.pop()?;
        self.next_step = self.stepped.last().map_or(u64::MAX, |(step, _)| *step);
        Some(action)
    }
}

fn invalid(what: String) -> IoError {
    IoError::new(IoErrorKind::Invalid, format!("fault plan: {what}"))
}

fn probability(p: f64, what: &str) -> IoResult {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(invalid(format!(
        "{what} has the probability {p}; use a number from 0 to 1"
    )))
}

/// Refuses an impossible plan.
pub(crate) fn check(plan: &FaultPlan, world: &SimWorld) -> IoResult {
    for rule in &plan.rules {
        check_rule(rule, disk(world, rule.disk)?)?;
    }
    for (target, extent) in &plan.latent {
        check_extent(*extent, disk(world, *target)?)?;
    }
    for outage in &plan.outages {
        check_outage(outage, world)?;
    }
    for cut in &plan.cuts {
        check_point(cut.at, world, "a power cut")?;
        if let Some(domain) = cut.domain.filter(|d| !world.has_domain(*d)) {
            return Err(invalid(format!(
                "a power cut of domain {}, in which nothing is; place a disk or a shard there",
                domain.0
            )));
        }
    }
    for rule in &plan.streams {
        let endless = matches!(rule.effect, StreamEffect::Stall(Some(Nanos::ZERO)));
        if endless {
            let what = "a stream that stalls for no time; give a time, or none to wait for release";
            return Err(invalid(what.into()));
        }
    }
    probability(plan.spoiled, "an unreadable block after a cut")?;
    if let Some(Survival { kept, torn }) = plan.survival {
        probability(kept, "survival of a write")?;
        probability(torn, "tearing of a write")?;
        probability(kept + torn, "survival or tearing of a write")?;
    }
    Ok(())
}

fn disk(world: &SimWorld, target: TargetId) -> IoResult<&SimDisk> {
    let index = world.disk_index(target);
    index.map(|index| &world.disks[index]).ok_or_else(|| {
        let what = "is no disk of this world; use what `add_disk` returned";
        invalid(format!("target {} {what}", target.0))
    })
}

fn check_rule(rule: &FaultRule, disk: &SimDisk) -> IoResult {
    let name = &disk.geometry.name;
    match rule.when {
        When::Chance(p) => probability(p, &format!("a rule on {name}"))?,
        When::Nth(0) => {
            let what = "a rule strikes operation 0; they are counted from 1";
            return Err(invalid(format!("{name}: {what}")));
        }
        _ => {}
    }
    if let Some(extent) = rule.within {
        check_extent(extent, disk)?;
    }
    let stores = matches!(rule.ops, OpFilter::Writes | OpFilter::All);
    let moves = stores || rule.ops == OpFilter::Reads;
    let flushes = matches!(rule.ops, OpFilter::Flushes | OpFilter::All);
    let keeps = disk.contents.is_some();
    let elsewhere = disk.geometry.sectors > disk.geometry.block;
    let impossible = match rule.effect {
        FaultEffect::FlipBit if !moves => Some("a bit flip in operations that move no bytes"),
        FaultEffect::Ruin | FaultEffect::Misdirect | FaultEffect::Drop | FaultEffect::Late(_)
            if !stores =>
        {
            Some("a write fault on operations that do not write")
        }
        FaultEffect::Misdirect if !elsewhere => Some("a misdirected write on a disk of one block"),
        FaultEffect::IgnoreFlush if !flushes => {
            Some("an ignored flush on operations that do not flush")
        }
        FaultEffect::FlipBit
        | FaultEffect::Misdirect
        | FaultEffect::Drop
        | FaultEffect::IgnoreFlush
        | FaultEffect::Late(_)
            if !keeps =>
        {
            Some("a fault of contents on a disk that keeps none")
        }
        _ => None,
    };
    match impossible {
        None => Ok(()),
        Some(what) => Err(invalid(format!("{name}: {what}; it could never be seen"))),
    }
}

fn check_extent(extent: Extent, disk: &SimDisk) -> IoResult {
    disk.geometry.check(extent).map_err(|error| {
        let what = "fault plan: sectors that the disk has not; move them inside";
        IoError::new(IoErrorKind::Invalid, what).because(error)
    })
}

fn check_outage(outage: &Outage, world: &SimWorld) -> IoResult {
    let name = &disk(world, outage.disk)?.geometry.name;
    check_point(outage.gone, world, &format!("the outage of {name}"))?;
    let backwards = match (outage.gone, outage.back) {
        (RunMoment::At(gone), Some(RunMoment::At(back))) => back <= gone,
        (RunMoment::Step(gone), Some(RunMoment::Step(back))) => back <= gone,
        _ => false,
    };
    if let Some(back) = outage.back {
        check_point(back, world, &format!("the return of {name}"))?;
    }
    if backwards {
        let what = "is back before it is gone; put the return later";
        return Err(invalid(format!("{name} {what}")));
    }
    Ok(())
}

fn check_point(point: RunMoment, world: &SimWorld, what: &str) -> IoResult {
    let (passed, now) = match point {
        RunMoment::At(at) => (at < world.now(), format!("it is {}", world.now())),
        RunMoment::Step(step) => (
            step <= world.steps(),
            format!("{} steps have been taken", world.steps()),
        ),
    };
    if passed {
        let what = format!("{what} at {point:?} lies in the past ({now}); put it later");
        return Err(invalid(what));
    }
    Ok(())
}

/// Refuses a span of time with its end before its begin.
pub(crate) fn check_span(span: ServiceSpan, what: &str) -> IoResult {
    if span.min <= span.max {
        return Ok(());
    }
    let what = format!("{what} of {} to {}; swap them", span.min, span.max);
    Err(IoError::new(IoErrorKind::Invalid, what))
}
