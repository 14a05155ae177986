//! State that outlives a daemon.

use crate::bystander::Bystander;
use crate::canary::StormCanary;
use crate::devil::Devil;
use crate::export::StormExport;
use crate::found::StormFindings;
use crate::machine::StormMachine;
use crate::plan::StormPlan;
use crate::site::StormSite;
use crate::standing::FaultStanding;
use crate::weather::Weather;

/// State that outlives a daemon.
pub struct StormWorld<'a> {
    /// Files and process of the daemon.
    pub machine: &'a StormMachine,
    /// Web server.
    pub site: &'a StormSite,
    /// Plan of the storm.
    pub plan: &'a StormPlan,
    /// Rules of the devices.
    pub devil: &'a Devil,
    /// Servers of the exports.
    pub exports: &'a [StormExport],
    /// Files and devices that have to stay unchanged.
    pub bystanders: &'a [Bystander],
    /// Devices that may be at fault.
    pub standing: &'a FaultStanding,
    /// Present troubles.
    pub weather: &'a Weather,
    /// Results of the storm.
    pub found: &'a StormFindings,
    /// Fault that has to be found.
    pub canary: Option<StormCanary>,
}
