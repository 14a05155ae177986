//! What outlives a daemon.

use crate::bystander::Bystander;
use crate::canary::Canary;
use crate::devil::Devil;
use crate::export::Export;
use crate::found::Found;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::standing::Standing;
use crate::weather::Weather;

/// What outlives a daemon.
pub struct World<'a> {
    /// Its files.
    pub machine: &'a Machine,
    /// What it is made of.
    pub plan: &'a Plan,
    /// The rules of its devices.
    pub devil: &'a Devil,
    /// The servers of its exports.
    pub exports: &'a [Export],
    /// What lies beside its devices.
    pub bystanders: &'a [Bystander],
    /// Which devices may be at fault.
    pub standing: &'a Standing,
    /// The weather.
    pub weather: &'a Weather,
    /// What is found.
    pub found: &'a Found,
    /// What has to be found.
    pub canary: Option<Canary>,
}
