//! What outlives a daemon.

use crate::devil::Devil;
use crate::found::Found;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::weather::Weather;

/// What outlives a daemon.
pub struct World<'a> {
    /// Its files.
    pub machine: &'a Machine,
    /// What it is made of.
    pub plan: &'a Plan,
    /// The rules of its devices.
    pub devil: &'a Devil,
    /// The weather.
    pub weather: &'a Weather,
    /// What is found.
    pub found: &'a Found,
}
