//! Devices that may be at fault, so that the daemon has to do no more than the documents promise.
//!
//! Invariants:
//!     of an array one device is at fault, its victim, until the array is healthy again
//!     of a log one copy is at fault, until both are online again

use crate::plan::{BACK, LOGS, StormPlan};
use fastrand::Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

struct StandingShared {
    /// Victims by array. An array has none until a report has shown it.
    victims: BTreeMap<&'static str, String>,
    /// Arrays with members that may be at fault now.
    strikable: Vec<&'static str>,
    /// Devices of the log.
    logs: [String; 2],
    /// Index of the log device that may be at fault.
    log: usize,
    /// True if both copies of the log were online in the last report, and none was at fault since.
    log_whole: bool,
    log_may_fail: bool,
    /// True if the write-back volume is detached, or may be, or has not begun write-back.
    detached: bool,
    /// True if a daemon has served all volumes.
    settled: bool,
    /// Arrays with a changed victim, which they have to start without.
    treated: Vec<&'static str>,
}

/// Devices that may be at fault.
pub struct FaultStanding(Mutex<StandingShared>);

/// Returns a list of a report.
pub fn list<'a>(of: &'a Value, what: &str) -> &'a [Value] {
    of[what].as_array().map_or(&[], Vec::as_slice)
}

impl FaultStanding {
    /// A standing in which all devices are whole.
    pub fn new() -> FaultStanding {
        FaultStanding(Mutex::new(StandingShared {
            victims: BTreeMap::new(),
            strikable: Vec::new(),
            logs: [LOGS[0].into(), LOGS[1].into()],
            log: 0,
            log_whole: true,
            log_may_fail: true,
            detached: true,
            settled: false,
            treated: Vec::new(),
        }))
    }

    fn inner(&self) -> MutexGuard<'_, StandingShared> {
        self.0.lock().expect("no panic under this lock")
    }

    /// Returns arrays, each with the device that may be at fault.
    pub fn victims(&self) -> Vec<(&'static str, String)> {
        let inner = self.inner();
        let strikable = inner.strikable.iter();
        strikable
            .filter_map(|array| Some((*array, inner.victims.get(array)?.clone())))
            .collect()
    }

    /// Returns the victim of an array, even if the victim may not be at fault now.
    pub fn victim(&self, array: &str) -> Option<String> {
        self.inner().victims.get(array).cloned()
    }

    /// Returns the device of the log that may be at fault.
    pub fn log(&self) -> String {
        let inner = self.inner();
        inner.logs[inner.log].clone()
    }

    /// Returns the devices of the log.
    pub fn logs(&self) -> [String; 2] {
        self.inner().logs.clone()
    }

    /// Notes that `by` has replaced the log device that may be at fault.
    pub fn replace_log(&self, by: &str) {
        let mut inner = self.inner();
        let log = inner.log;
        inner.logs[log] = by.to_owned();
    }

    /// True if a log device may be at fault.
    pub fn log_may_fail(&self) -> bool {
        self.inner().log_may_fail
    }

    /// Forbids faults of log copies until the next start has both.
    pub fn keep_log(&self) {
        self.inner().log_may_fail = false;
    }

    /// True if both copies of the log are complete.
    pub fn log_is_whole(&self) -> bool {
        self.inner().log_whole
    }

    /// True if the volume is no longer written back.
    pub fn is_detached(&self) -> bool {
        self.inner().detached
    }

    /// Notes that the volume may have left write-back.
    pub fn detach(&self) {
        self.inner().detached = true;
    }

    /// Notes that the volume is written back again, with both copies.
    pub fn attach(&self) {
        self.inner().detached = false;
    }

    /// True if every device has been used, so that a device that is cut short is recognised as
    /// such.
    pub fn is_settled(&self) -> bool {
        self.inner().settled
    }

    /// Notes a fault of a device.
    pub fn strike(&self, device: &str) {
        if LOGS.contains(&device) {
            self.inner().log_whole = false;
        }
    }

    /// Notes that the victim of an array has changed its contents.
    pub fn treat(&self, array: &'static str) {
        self.inner().treated.push(array);
    }

    /// Notes that the victim of an array and `device` have changed places.
    pub fn exchange(&self, array: &'static str, device: &str) {
        self.inner().victims.insert(array, device.to_owned());
    }

    /// True if an array has a reason not to start by itself.
    pub fn is_treated(&self, array: &str) -> bool {
        self.inner().treated.contains(&array)
    }

    /// Begins another life: devices that are whole by this report may be struck elsewhere.
    pub fn settle(&self, status: &Value, plan: &StormPlan, rng: &mut Rng) {
        let mut inner = self.inner();
        let back = list(status, "volumes")
            .iter()
            .find(|volume| volume["name"] == plan.volumes[BACK].name);
        let log = back.map_or(&[][..], |back| list(&back["write_back"], "devices"));
        if let [one, other, ..] = log {
            inner.logs = [one, other].map(|log| log.as_str().unwrap_or_default().to_owned());
        }
        let copies = back.map_or(Some(0), |back| back["write_back"]["copies"].as_u64());
        inner.detached = copies.is_none();
        inner.settled = true;
        if copies.is_none_or(|copies| copies == 2) {
            inner.log_whole = true;
            inner.log = rng.usize(..2);
        }
        inner.log_may_fail = rng.u8(..3) > 0;
        for array in list(status, "arrays") {
            let Some(known) = plan.array(array["name"].as_str().unwrap_or_default()) else {
                continue;
            };
            let members = list(array, "members").iter();
            let names = members.filter_map(|member| member["device"].as_str());
            let mut names = names.filter(|name| plan.device(name).is_some());
            if array["state"] == "healthy" {
                let names: Vec<&str> = names.collect();
                let victim = names[rng.usize(..names.len())].to_owned();
                inner.victims.insert(known.name, victim);
                inner.treated.retain(|treated| *treated != known.name);
            } else if !inner.victims.contains_key(known.name) {
                // An array without a victim so far has no known fault.
                let first = names.next().unwrap_or_default().to_owned();
                inner.victims.insert(known.name, first);
            }
        }
        drop(inner);
        self.look(status);
    }

    /// Notes the arrays that may be struck by this report: not while copies are compared after a
    /// crash.
    pub fn look(&self, status: &Value) {
        let mut inner = self.inner();
        let arrays = list(status, "arrays").iter();
        let steady = arrays.filter(|array| {
            ["healthy", "degraded", "rebuilding"].contains(&array["state"].as_str().unwrap_or(""))
                && array["progress"]["percent"].is_null() == array["progress"]["role"].is_null()
        });
        let names: Vec<&str> = steady.filter_map(|array| array["name"].as_str()).collect();
        inner.strikable = inner.victims.keys().copied().collect();
        inner.strikable.retain(|array| names.contains(array));
    }
}
