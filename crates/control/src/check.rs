//! What is wrong with a configuration, all of it at once.
//!
//! [`agreement`] looks at the configuration alone; [`devices`] and [`sockets`] ask this
//! machine about its files and sockets, change nothing, and hold nothing afterwards.

mod agreement;
mod arrays;
mod doors;
mod machine;
mod roles;
mod write_back;

pub use agreement::agreement;
use agreement::agreement_of;
pub use arrays::{domain, shares, survives};
pub use doors::doors_of_volumes;
pub use machine::{dates, devices, few_lines, memory, openable, ports, sockets};
pub use roles::{Role, roles};

use crate::config::{Config, Device};
use crate::files::Files;
use crate::place::Place;
use crate::problem::Problem;
use std::path::Path;

/// Reads `files` and checks them against themselves, the names of the drive models
/// there are, and this machine's sockets, where `is_listened` says whether a process listens on
/// the unix socket at a path. Problems are in the order of their lines. What is wrong with
/// devices keeps nobody from being served ([`lacking`]).
pub fn check(
    files: &Files,
    drives: &[&str],
    is_listened: impl Fn(&Path) -> bool,
) -> Result<Config, Vec<Problem>> {
    judge(files, drives, |config, problems| {
        memory(config, problems);
        sockets(config, is_listened, problems);
        ports(config, problems);
    })
}

/// As [`check`], but for ports: who is about to listen waits for one that is about to be free.
pub fn check_to_serve(
    files: &Files,
    drives: &[&str],
    is_listened: impl Fn(&Path) -> bool,
) -> Result<Config, Vec<Problem>> {
    judge(files, drives, |config, problems| {
        memory(config, problems);
        sockets(config, is_listened, problems);
    })
}

/// What this machine lacks at the moment, in seconds since 1970 `now`: volumes wait for it, pools
/// and arrays go without, clients are refused.
pub fn lacking(config: &Config, now: u64) -> Vec<Problem> {
    let mut found = Vec::new();
    devices(config, &mut found);
    dates(config, now, &mut found);
    found.sort();
    found
}

/// As [`check`], but for this machine, which may be in use.
pub fn check_alone(files: impl Into<Files>, drives: &[&str]) -> Result<Config, Vec<Problem>> {
    judge(&files.into(), drives, |_, _| ())
}

/// What is wrong with `after`, where devices are `at`, and is not with `before`: what the change
/// from one to the other is to be refused for.
pub fn new_problems(
    before: &Config,
    after: &Config,
    drives: &[&str],
    at: &dyn Fn(&Device) -> Place,
) -> Vec<Problem> {
    let all = |config| {
        let mut found = Vec::new();
        agreement_of(config, drives, at, &mut found);
        found
    };
    let old = all(before);
    // A line may have moved.
    let is_old = |new: &Problem| {
        old.iter()
            .any(|o| o.what == new.what && o.remedy == new.remedy)
    };
    let new = all(after).into_iter().filter(|new| !is_old(new));
    new.collect()
}

/// What keeps `after` from taking the place of `before`: whatever `check` finds in these files
/// alone, and did not before.
pub fn new_problems_of(before: &Files, after: &Files) -> Vec<Problem> {
    let mut unreadable = Vec::new();
    let after = after.parse(&mut unreadable);
    if !unreadable.is_empty() {
        return unreadable;
    }
    // No change of a running daemon gives a device a model.
    new_problems(&before.parse(&mut Vec::new()), &after, &[], &Place::of)
}

/// What is possible and hardly meant.
pub fn warnings(config: &Config) -> Vec<Problem> {
    let mut found = Vec::new();
    arrays::warn(config, &mut found);
    doors::warn(config, &mut found);
    write_back::warn(config, &mut found);
    found
}

fn judge(
    files: &Files,
    drives: &[&str],
    more: impl FnOnce(&Config, &mut Vec<Problem>),
) -> Result<Config, Vec<Problem>> {
    let mut problems = Vec::new();
    let config = files.parse(&mut problems);
    // A section that could not be read would be missed by those that name it.
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
