//! Checks the arrays of a configuration, and the redundancy left after the loss of one controller.
//!
//! Not here: that members exist and have one use (`agreement`), the content of members (the daemon
//! reads the superblocks).

use crate::config::{Array, Config, Device, Name};
use crate::problem::ConfigurationProblem;
use block::Sectors;
use raid::ArrayShape;
use std::collections::BTreeSet;

/// Appends the problems of the arrays.
pub fn agree(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    for array in &config.arrays {
        let name = &array.name;
        form(array, problems);
        if array.raw.value && array.level.value.is_redundant() {
            let what = format!("{} cannot be raw", array.level.name());
            let remedy =
                "remove `raw`: without superblocks a stale member would pass for a current one";
            problems.push(ConfigurationProblem::new(array.raw.line, what, remedy));
        }
        let spares = &array.spares;
        if !array.level.value.is_redundant() && !spares.value.is_empty() {
            let what = format!("{} has no use for a spare", array.level.name());
            problems.push(ConfigurationProblem::new(
                spares.line,
                what,
                "remove `spares`",
            ));
        }
        let start = &array.start_degraded;
        if !array.level.value.is_redundant() && start.value {
            let what = format!("{} cannot start degraded", array.level.name());
            problems.push(ConfigurationProblem::new(
                start.line,
                what,
                "remove `start_degraded`",
            ));
        }
        let members = array.members.value.iter().chain(&spares.value);
        for device in config.devices.iter().filter(|d| d.read_only.value) {
            if members.clone().any(|name| *name == device.name.value) {
                let what = format!(
                    "array {} cannot write its member {}",
                    name.value, device.name.value
                );
                let remedy = "remove `read_only` from it, or take another device";
                problems.push(ConfigurationProblem::new(
                    device.read_only.line,
                    what,
                    remedy,
                ));
            }
        }
        if within(config, array, &name.value, config.arrays.len()) {
            let what = format!("array {} is a member of itself", name.value);
            problems.push(ConfigurationProblem::new(
                array.members.line,
                what,
                "take it out of its members",
            ));
        }
        if array.detection.value.is_zero() || array.rebuild_rate.value.0 == 0 {
            let what = format!(
                "array {} would lose every member, or never fill one",
                name.value
            );
            let remedy = "give `detection` and `rebuild_rate` of more than 0";
            problems.push(ConfigurationProblem::new(array.line, what, remedy));
        }
    }
}

/// Checks the name, the number of members and the chunk of an array.
fn form(array: &Array, problems: &mut Vec<ConfigurationProblem>) {
    let (level, members) = (array.level.value, array.members.value.len());
    let chunk = Sectors(array.chunk.value.0 / block::SECTOR_BYTES);
    if let Err(error) = raid::check_form(array.name.as_str(), level, members, chunk) {
        let text = error.to_string();
        let (what, remedy) = text.split_once(": ").unwrap_or((&text, "correct it"));
        let what = format!("array {} cannot be: {what}", array.name.value);
        problems.push(ConfigurationProblem::new(array.line, what, remedy));
    }
}

/// True if `name` is below `array`, in at most `depth` steps.
fn within(config: &Config, array: &Array, name: &Name, depth: usize) -> bool {
    array.members.value.iter().any(|member| {
        let below = config.arrays.iter().find(|a| a.name.value == *member);
        let deeper = |below| depth > 0 && within(config, below, name, depth - 1);
        member == name || below.is_some_and(deeper)
    })
}

/// True if a device is a member or spare of an array, which may run without this device.
pub fn is_member(config: &Config, device: &Name) -> bool {
    config.arrays.iter().any(|array| {
        let mut members = array.members.value.iter().chain(&array.spares.value);
        members.any(|name| name == device)
    })
}

/// The failure domains of `name`, by way of its members if it is an array.
fn controllers<'a>(config: &'a Config, name: &'a Name, out: &mut BTreeSet<&'a str>) {
    if let Some(array) = config.arrays.iter().find(|a| a.name.value == *name) {
        for member in &array.members.value {
            controllers(config, member, out);
        }
    }
    if let Some(device) = config.devices.iter().find(|d| d.name.value == *name) {
        out.insert(domain_of(device));
    }
}

/// The failure domain of `name`: its controller if all of it is behind one, else `name` itself.
pub fn domain(config: &Config, name: &Name) -> String {
    let mut all = BTreeSet::new();
    controllers(config, name, &mut all);
    match all.first() {
        Some(only) if all.len() == 1 => (*only).to_owned(),
        _ => name.to_string(),
    }
}

/// True if `one` and `other` share a controller or a device.
pub fn shares(config: &Config, one: &Name, other: &Name) -> bool {
    let (mut ones, mut others) = (BTreeSet::new(), BTreeSet::new());
    controllers(config, one, &mut ones);
    controllers(config, other, &mut others);
    !ones.is_disjoint(&others)
}

/// True if `name` can be read without the devices that are `lost`. An array is taken to be made by
/// `hotset array create`.
pub fn survives(config: &Config, name: &Name, lost: &dyn Fn(&Device) -> bool) -> bool {
    let Some(array) = config.arrays.iter().find(|a| a.name.value == *name) else {
        let mut devices = config.devices.iter();
        return devices.all(|device| device.name.value != *name || !lost(device));
    };
    let (members, level) = (&array.members.value, array.level.value);
    let domains: Vec<_> = members.iter().map(|m| domain(config, m).into()).collect();
    let order = raid::order(level, &domains);
    let some = vec![Sectors::from_mib(1); members.len()];
    let shape = ArrayShape::new(level, &some, Sectors(8));
    shape.is_ok_and(|shape| shape.can_run(|role| survives(config, &members[order[role]], lost)))
}

/// The failure domain of a device: its controller, else the device itself.
fn domain_of(device: &Device) -> &str {
    match device.controller.as_str() {
        "" => device.name.as_str(),
        controller => controller,
    }
}

/// Appends arrays whose redundancy is lost with one controller.
pub(super) fn warn(config: &Config, found: &mut Vec<ConfigurationProblem>) {
    for array in config
        .arrays
        .iter()
        .filter(|a| a.level.value.is_redundant())
    {
        if array.start_degraded.value {
            let what = format!(
                "array {} starts without members that may hold newer data: what they alone hold is \
                 missing without a word, and members that are there by turns end as a split brain",
                array.name.value
            );
            let remedy = "leave `start_degraded` out where old data are worse than none";
            found.push(ConfigurationProblem::new(
                array.start_degraded.line,
                what,
                remedy,
            ));
        }
        let mut all = BTreeSet::new();
        controllers(config, &array.name.value, &mut all);
        for lost in all
            .into_iter()
            .filter(|c| !survives(config, &array.name.value, &|device| domain_of(device) == *c))
        {
            let what = format!("losing controller {lost} stops array {}", array.name.value);
            let remedy = "place what holds the same data on different controllers";
            found.push(ConfigurationProblem::new(array.members.line, what, remedy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::agreement;
    use crate::config::parse;

    /// Four devices, two on each of the controllers x and y, and `arrays`.
    fn config(arrays: &str) -> (Config, Vec<String>) {
        let mut text = String::from("[[listen]]\nunix = '/nonexistent/s'\n");
        for (name, controller) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y")] {
            text += &format!(
                "[[device]]\nname = '{name}'\npath = '/nonexistent/{name}'\ncontroller = '{controller}'\n"
            );
        }
        text += arrays;
        let mut problems = Vec::new();
        let config = parse(&text, &mut problems);
        assert_eq!(problems, [], "{text}");
        agreement(&config, &[], &mut problems);
        (config, problems.iter().map(ToString::to_string).collect())
    }

    fn array(name: &str, level: &str, members: &str) -> String {
        format!("[[array]]\nname = '{name}'\nlevel = '{level}'\nmembers = [{members}]\n")
    }

    #[test]
    fn arrays_that_cannot_be_are_reported() {
        for (arrays, expected) in [
            (array("m", "raid1", "'a'"), "from 2 to 4"),
            (array("m", "raid5", "'a','b'"), "from 3 to"),
            (
                array("m", "raid1", "'a','z'"),
                "names a device z that does not exist",
            ),
            (
                array("m", "raid1", "'a','a'"),
                "array m names device a twice",
            ),
            (array("a", "raid1", "'b','c'"), "a second device is named a"),
            (array("m", "raid1", "'a','m'"), "is a member of itself"),
            (
                array("m", "raid0", "'a','b'") + "chunk = '1000B'\n",
                "chunk of",
            ),
            (
                array("m", "raid0", "'a','b'") + "spares = ['c']\n",
                "no use for a spare",
            ),
            (
                array("m", "raid1", "'a','b'") + "raw = true\n",
                "cannot be raw",
            ),
            (
                array("m", "raid1", "'a','b'") + "detection = '0s'\n",
                "would lose every member",
            ),
            (
                array("m", "raid1", "'a','b'") + &array("n", "raid1", "'b','c'"),
                "array n uses device b, which array m uses",
            ),
            (array(&"m".repeat(33), "raid1", "'a','b'"), "does not fit"),
        ] {
            let problems = config(&arrays).1;
            let found = problems.iter().any(|problem| problem.contains(expected));
            assert!(found, "{expected:?} is not in {problems:#?}");
        }
    }

    #[test]
    fn mirrors_on_one_controller_are_warned_about() {
        let nested = |first: &str, second: &str| {
            array("s", "raid0", first)
                + &array("t", "raid0", second)
                + &array("m", "raid1", "'s','t'")
        };
        for (arrays, warned) in [
            (array("m", "raid1", "'a','c'"), 0),
            (array("m", "raid1", "'a','b'"), 1),
            (array("m", "raid0", "'a','b'"), 0),
            (array("m", "raid10", "'a','c','b','d'"), 0),
            // The roles are ordered so that copies are apart.
            (array("m", "raid10", "'a','b','c','d'"), 0),
            (array("m", "raid10", "'a','b','c'"), 1),
            (array("m", "raid5", "'a','b','c'"), 1),
            (nested("'a','b'", "'c','d'"), 0),
            (nested("'a','c'", "'b','d'"), 2),
        ] {
            let (config, problems) = config(&arrays);
            assert_eq!(problems, Vec::<String>::new(), "{arrays}");
            let warnings = crate::check::warnings(&config);
            assert_eq!(warnings.len(), warned, "{arrays}: {warnings:?}");
        }
    }

    #[test]
    fn an_array_on_one_controller_fails_with_it() {
        let arrays = array("s", "raid0", "'a','b'") + &array("t", "raid0", "'c'");
        let config = config(&arrays).0;
        let of = |name: &str| domain(&config, &Name::new(name).unwrap());
        assert_eq!(
            (of("s").as_str(), of("t").as_str(), of("a").as_str()),
            ("x", "y", "x")
        );
        assert_eq!(of("nothing"), "nothing");
    }
}
