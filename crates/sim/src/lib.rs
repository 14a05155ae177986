//! The driver in virtual time: one seeded world of disks and streams, with all shards
//! on one thread, faults by plan, and power cuts. Disks may be as slow as a model of `drives`.
//!
//! Same seed, same program, same [`World::trace_hash`], on any machine.
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
mod trace_hash;
mod verb;
mod world;

pub use contents::Survival;
pub use control::Control;
pub use disk::{DiskSpec, Keep};
pub use driver::SimDriver;
pub use fault::{
    Class, Direction, Domain, Effect, Landed, Ops, Outage, Plan, Point, PowerCut, Rule,
    StreamEffect, StreamRule, Tally, When,
};
pub use host::{Budget, Outcome, Sim};
pub use medium::{Image, Medium};
pub use port::{Asked, Client, PortSpec};
pub use rng::Rng;
pub use service::{ModelId, Service, Span};
pub use stream::LinkSpec;
pub use trace_hash::{Event, Log};
pub use verb::Verb;
pub use world::World;
