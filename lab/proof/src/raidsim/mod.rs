//! Simulated lives of arrays against a reference model.
//!
//! A seed makes a scenario: a level, members, clients, and trouble: members that are unplugged and
//! return, sectors that cannot be read, and losses of power at any step, at a start or a rebuild as
//! well. Clients read and write through a gate and ask a model that shares no code with the array.
//! In the end everything is read, and compared member by member.
//!
//! Not here: silent corruption, which an array without checksums cannot detect.

mod between;
mod chaos;
mod client;
mod course;
mod draw;
mod kind;
mod life;
mod model;
mod nest;
mod refuse;
mod report;
mod run;
mod scenario;
mod split;
mod start;
mod strikes;
mod trouble;
mod unit;

use crate::campaign::Campaign;
pub use kind::ArrayTrouble;
#[cfg(feature = "nodes")]
pub(crate) use model::ArrayModel;
pub use report::{Class, Report};
pub use run::run;
pub use scenario::ArrayScenario;

/// The campaign of the arrays.
#[derive(Default)]
pub struct ArrayCampaign {
    /// No trouble but losses, refusals and unreadable data.
    pub plain: bool,
    /// The seeds with this trouble alone.
    pub only: Option<String>,
}

impl ArrayCampaign {
    fn scenario(&self, seed: u64) -> ArrayScenario {
        match self.plain {
            true => ArrayScenario::plain(seed),
            false => ArrayScenario::new(seed),
        }
    }
}

impl Campaign for ArrayCampaign {
    type Class = Class;

    fn has(&self, seed: u64) -> bool {
        let trouble = || format!("{:?}", self.scenario(seed).trouble);
        self.only.as_ref().is_none_or(|only| *only == trouble())
    }

    fn case(&self, seed: u64) -> Report {
        run(self.scenario(seed))
    }

    fn replay(&self, seed: u64) -> String {
        let plain = if self.plain { " --plain" } else { "" };
        format!("cargo run --release -p proof --example raidsim -- --seeds 1 --start {seed}{plain}")
    }

    fn classes(&self) -> Vec<Class> {
        Class::ALL.to_vec()
    }

    fn cases_for_all(&self) -> u64 {
        match self.plain || self.only.is_some() {
            true => u64::MAX,
            false => 5000,
        }
    }
}
