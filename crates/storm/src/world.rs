//! State that outlives a daemon.

use crate::bystander::Bystander;
use crate::canary::Canary;
use crate::devil::Devil;
use crate::export::Export;
use crate::found::Found;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::standing::Standing;
use crate::weather::Weather;

/// State that outlives a daemon.
pub struct World<'a> {
    /// Files and process of the daemon.
    pub machine: &'a Machine,
    /// Plan of the storm.
    pub plan: &'a Plan,
    /// Rules of the devices.
    pub devil: &'a Devil,
    /// Servers of the exports.
    pub exports: &'a [Export],
    /// Files and devices that have to stay unchanged.
    pub bystanders: &'a [Bystander],
    /// Devices that may be at fault.
    pub standing: &'a Standing,
    /// Present troubles.
    pub weather: &'a Weather,
    /// Results of the storm.
    pub found: &'a Found,
    /// Fault that has to be found.
    pub canary: Option<Canary>,
}
