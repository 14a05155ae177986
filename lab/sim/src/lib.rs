//! The driver in virtual time: one seeded world of disks and streams, with all shards
//! on one thread, faults by plan, and power cuts. Disks may be as slow as a model of `drives`.
//!
//! Same seed, same program, same [`SimWorld::trace_hash`], on any machine.
//!
//! Not here, on purpose: clocks, threads, files and system randomness.

mod clockwork;
mod contents;
mod control;
mod disk;
mod driver;
mod fault;
mod flight;
mod heap;
mod host;
mod ledger;
mod medium;
mod operation;
mod pages;
mod pipe;
mod plan;
mod port;
mod power;
mod rng;
mod service;
mod stream;
#[cfg(test)]
mod tests;
mod trace_hash;
mod verb;
mod world;

pub use contents::Survival;
pub use control::WorldControl;
pub use disk::{DiskSpec, Keep};
pub use driver::SimDriver;
pub use fault::{
    Direction, Domain, FaultClass, FaultEffect, FaultPlan, FaultRule, FaultTally, Landed, OpFilter,
    Outage, PowerCut, RunMoment, StreamEffect, StreamRule, When,
};
pub use host::{RunBudget, RunOutcome, SimHost};
pub use medium::{Medium, MediumImage};
pub use port::{PortClient, PortRequest, PortSpec};
pub use rng::SimRng;
pub use service::{ModelId, ServiceSpan, ServiceTime};
pub use stream::LinkSpec;
pub use trace_hash::{TraceEvent, TraceLog};
pub use verb::SimVerb;
pub use world::SimWorld;
