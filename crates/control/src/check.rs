//! Finds all problems of a configuration at once.
//!
//! [`agreement`] checks the configuration alone. [`devices`] and [`sockets`] look at the files and
//! sockets of this machine; both change nothing, and hold nothing open afterwards.

mod agreement;
mod arrays;
mod frontends;
mod machine;
mod roles;
mod write_back;

pub use agreement::agreement;
use agreement::agreement_of;
pub use arrays::{domain, shares, survives};
pub use frontends::frontends_of_volumes;
pub use machine::{dates, devices, few_lines, memory, openable, ports, sockets, unmade};
pub use roles::{DeviceRole, roles};

use crate::config::{Config, Device};
use crate::files::ConfigurationFiles;
use crate::place::BasePlace;
use crate::problem::ConfigurationProblem;
use std::path::Path;

/// Reads `files`, then checks them against themselves, the names of the drive models `drives`, and
/// the sockets of this machine. `is_listened` tests for a listener on the unix socket at a path.
/// Problems are in the order of their lines. Problems of devices do not stop a start; see
/// [`lacking`].
pub fn check(
    files: &ConfigurationFiles,
    drives: &[&str],
    is_listened: impl Fn(&Path) -> bool,
) -> Result<Config, Vec<ConfigurationProblem>> {
    judge(files, drives, |config, problems| {
        memory(config, problems);
        sockets(config, is_listened, problems);
        ports(config, problems);
    })
}

/// As [`check`], but without the ports: a daemon about to listen waits for a port about to be free.
pub fn check_to_serve(
    files: &ConfigurationFiles,
    drives: &[&str],
    is_listened: impl Fn(&Path) -> bool,
) -> Result<Config, Vec<ConfigurationProblem>> {
    judge(files, drives, |config, problems| {
        memory(config, problems);
        sockets(config, is_listened, problems);
    })
}

/// Resources that this machine lacks at `now`, in seconds since 1970. Volumes wait for these
/// resources, pools and arrays run without, clients are refused.
pub fn lacking(config: &Config, now: u64) -> Vec<ConfigurationProblem> {
    let mut found = Vec::new();
    devices(config, &mut found);
    unmade(config, &mut found);
    dates(config, now, &mut found);
    found.sort();
    found
}

/// As [`check`], but without this machine, which may be in use.
pub fn check_alone(
    files: impl Into<ConfigurationFiles>,
    drives: &[&str],
) -> Result<Config, Vec<ConfigurationProblem>> {
    judge(&files.into(), drives, |_, _| ())
}

/// Problems of `after` that `before` does not have, with each device at the place `at`. A change
/// from `before` to `after` is refused for these.
pub fn new_problems(
    before: &Config,
    after: &Config,
    drives: &[&str],
    at: &dyn Fn(&Device) -> BasePlace,
) -> Vec<ConfigurationProblem> {
    let all = |config| {
        let mut found = Vec::new();
        agreement_of(config, drives, at, &mut found);
        found
    };
    let old = all(before);
    // Lines are not compared: a line may have moved.
    let is_old = |new: &ConfigurationProblem| {
        old.iter()
            .any(|o| o.what == new.what && o.remedy == new.remedy)
    };
    let new = all(after).into_iter().filter(|new| !is_old(new));
    new.collect()
}

/// Reasons against a replacement of `before` by `after`: all problems of these files alone that
/// `before` does not have.
pub fn new_problems_of(
    before: &ConfigurationFiles,
    after: &ConfigurationFiles,
) -> Vec<ConfigurationProblem> {
    let mut unreadable = Vec::new();
    let after = after.parse(&mut unreadable);
    if !unreadable.is_empty() {
        return unreadable;
    }
    // No change of a running daemon gives a device a model.
    new_problems(&before.parse(&mut Vec::new()), &after, &[], &BasePlace::of)
}

/// Configurations that are valid but hardly intended.
pub fn warnings(config: &Config) -> Vec<ConfigurationProblem> {
    let mut found = Vec::new();
    agreement::warn(config, &mut found);
    arrays::warn(config, &mut found);
    frontends::warn(config, &mut found);
    write_back::warn(config, &mut found);
    found
}

fn judge(
    files: &ConfigurationFiles,
    drives: &[&str],
    more: impl FnOnce(&Config, &mut Vec<ConfigurationProblem>),
) -> Result<Config, Vec<ConfigurationProblem>> {
    let mut problems = Vec::new();
    let config = files.parse(&mut problems);
    // Sections that refer to an unreadable one would be reported too.
    if problems.is_empty() {
        agreement(&config, drives, &mut problems);
    }
    more(&config, &mut problems);
    if problems.is_empty() {
        return Ok(config);
    }
    problems.sort();
    problems.dedup();
    Err(problems)
}
