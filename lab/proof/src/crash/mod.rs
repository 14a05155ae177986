//! The crash laboratory: daemons that are killed, and lose power, over and over.
//!
//! A seed makes a [`CrashCase`]: a topology, a script, faults, and the moments at which power goes, at
//! any boundary of any disk operation, in serving and again in recovery. The origins, the pool and
//! the daemon are power domains of their own. A [`Model`](crate::model::VolumeModel) for each volume,
//! which shares no code with the engine, judges every answer. A case passes if
//!
//! - every acknowledged write is read until the next, and every durable one
//!   after any loss;
//! - no byte is read that was never written, or that a later acknowledged write
//!   replaced, or that changes without a write;
//! - the origin alone is complete after each loss;
//! - no client is given an error that no origin caused, and every life ends;
//! - no two writes to the same sectors of a disk are in flight together.
//!
//! A case that fails is made smaller ([`shrink`]) and repeats from its seed.

mod back_end;
mod bench;
mod case;
mod command;
mod draw;
mod flips;
mod flushes;
mod image;
mod life;
mod neighbours;
mod report;
mod run;
mod shrink;
mod stage;
mod standstill;
mod sweep;

use crate::campaign::Campaign;
pub use case::{CaseCut, CrashCase, CrashStep, DiskFault, PowerLoss, PresentDisks, Setting};
pub use command::{boundaries, command};
pub use draw::Length;
pub use flips::{FlipOutcome, Flips, Structure, flips};
pub use image::{CrashImage, FlipVerdict};
pub use report::{Class, Report};
pub use run::run;
pub use shrink::shrink;
pub use sweep::{Swept, sweep};

/// The campaign of the crash laboratory.
pub struct CrashCampaign;

impl Campaign for CrashCampaign {
    type Class = Class;

    fn case(&self, seed: u64) -> Report {
        run(&CrashCase::new(seed, Length::Long))
    }

    fn replay(&self, seed: u64) -> String {
        format!("hotset-lab crash --cases 1 --seed {seed}")
    }

    fn classes(&self) -> Vec<Class> {
        Class::ALL.to_vec()
    }
}
