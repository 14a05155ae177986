//! The roles of devices: each use of each device, in one table of the whole configuration.
//!
//! A device has its role even while it waits or is absent. `check` asks the table, and so does
//! every change of a running daemon, for the configuration after the change.

use crate::config::{Config, Device, Name};
use crate::place::{Base, BasePlace};
use crate::problem::ConfigurationProblem;
use std::collections::{HashMap, HashSet};

/// One use of a device.
pub struct DeviceRole<'a> {
    /// The device or array.
    pub device: &'a Name,
    /// The user of the device, and the kind of use.
    pub by: String,
    /// The line that gives this role.
    pub line: u32,
}

/// Every role of a configuration.
pub fn roles(config: &Config) -> Vec<DeviceRole<'_>> {
    let mut all = Vec::new();
    let mut add = |device, by: &str, line| {
        let by = by.to_owned();
        all.push(DeviceRole { device, by, line });
    };
    for array in &config.arrays {
        let by = format!("array {}", array.name.value);
        for members in [&array.members, &array.spares] {
            let each = members.value.iter();
            each.for_each(|name| add(name, &by, members.line));
        }
    }
    for volume in &config.volumes {
        let by = format!("volume {}", volume.name.value);
        add(&volume.origin.value, &by, volume.origin.line);
    }
    for volume in &config.volumes {
        let by = format!("the log of volume {}", volume.name.value);
        let each = volume.log.value.iter();
        each.for_each(|name| add(name, &by, volume.log.line));
        if let Some(journal) = &volume.journal {
            let by = format!("the journal of volume {}", volume.name.value);
            add(&journal.value, &by, journal.line);
        }
    }
    for pool in &config.pools {
        let by = format!("pool {}", pool.name.value);
        let each = pool.devices.value.iter();
        each.for_each(|name| add(name, &by, pool.devices.line));
    }
    all
}

/// Appends roles of devices that do not exist, and second roles of one device by name or place.
pub(super) fn agree(
    config: &Config,
    place: &dyn Fn(&Device) -> BasePlace,
    problems: &mut Vec<ConfigurationProblem>,
) {
    let devices = config.devices.iter().map(|device| &device.name.value);
    let arrays = config.arrays.iter().map(|array| &array.name.value);
    let all: Vec<&Name> = devices.chain(arrays).collect();
    let known: HashSet<&Name> = all.iter().copied().collect();
    let mut used: HashMap<&Name, String> = HashMap::new();
    for DeviceRole { device, by, line } in roles(config) {
        if !known.contains(device) {
            let (named, others) = (("device", device.as_str()), all.iter());
            let others = others.map(|name| name.as_str());
            problems.push(ConfigurationProblem::absent(line, &by, named, others));
        } else if used.get(device) == Some(&by) {
            let what = format!("{by} names device {device} twice");
            problems.push(ConfigurationProblem::new(line, what, "leave it out once"));
        } else if let Some(other) = used.get(device) {
            let what = format!("{by} uses device {device}, which {other} uses");
            let remedy = "give each its own device: one would overwrite the other's data";
            problems.push(ConfigurationProblem::new(line, what, remedy));
        } else {
            used.insert(device, by);
        }
    }
    places(config, place, &used, problems);
}

/// Appends devices of one place under two names, and overlapping devices that both have a role.
fn places(
    config: &Config,
    place: &dyn Fn(&Device) -> BasePlace,
    used: &HashMap<&Name, String>,
    problems: &mut Vec<ConfigurationProblem>,
) {
    let mut by_base: HashMap<Base, Vec<(BasePlace, &Device)>> = HashMap::new();
    for device in &config.devices {
        let line = match (&device.path, &device.nbd) {
            (Some(path), None) => path.line,
            (None, Some(uri)) => uri.line,
            _ => continue,
        };
        let here = place(device);
        let known = by_base.entry(here.base.clone()).or_default();
        let (name, role) = (&device.name.value, used.get(&device.name.value));
        let clash = known.iter().find_map(|(there, other)| {
            let theirs = used.get(&other.name.value);
            let is_same = here.is(there);
            let clashes = is_same || (here.overlaps(there) && role.is_some() && theirs.is_some());
            clashes.then_some((other, theirs, is_same))
        });
        let Some((other, theirs, is_same)) = clash else {
            known.push((here, device));
            continue;
        };
        let how = if is_same {
            "is the same place as"
        } else {
            "shares its disk or file with"
        };
        let whose = theirs.map_or(String::new(), |by| format!(", which {by} uses"));
        let other = &other.name.value;
        let what = format!(
            "device {name} {how} device {other}{whose}: {}",
            shown(device)
        );
        let remedy = match theirs {
            Some(_) => "remove one: two uses of one place overwrite each other's data".into(),
            None => format!("use it by the name {other}"),
        };
        problems.push(ConfigurationProblem::new(line, what, remedy));
    }
}

/// The place of a device as the configuration has it.
fn shown(device: &Device) -> String {
    let path = device
        .path
        .as_ref()
        .map(|path| path.value.display().to_string());
    let uri = device.nbd.as_ref().map(|uri| uri.value.to_string());
    path.or(uri).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::check::{check_alone, new_problems};
    use crate::config::parse;
    use crate::place::BasePlace;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// Two volumes of which one is write-back, and a pool: devices `o`, `l0`, `l1`, `j`, `s`;
    /// `more` are unused.
    fn text(dir: &Path, more: &[&str]) -> String {
        let mut text = format!("[[listen]]\nunix = '{}/socket'\n", dir.display());
        for (n, name) in ["o", "l0", "l1", "j", "s"].iter().chain(more).enumerate() {
            text += &format!(
                "[[device]]\nname = '{name}'\npath = '{}/{name}'\ncontroller = 'c{n}'\n",
                dir.display()
            );
        }
        text + "[[pool]]\nname = 'p'\ndevices = ['s']\n\
             [[volume]]\nname = 'v'\norigin = 'o'\npool = 'p'\nmode = 'write-back'\n\
             log = ['l0', 'l1']\nwrite_back = 'journaled'\njournal = 'j'\n"
    }

    fn problems(text: &str) -> Vec<String> {
        let found = check_alone(text, &[]).err().unwrap_or_default();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_role_is_one_by_any_name_of_its_place() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["o", "l0", "l1", "j", "s"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(problems(&text(dir.path(), &[])), Vec::<String>::new());
        for (of, by) in [
            ("o", "which volume v uses"),
            ("l0", "which the log of volume v uses"),
            ("l1", "which the log of volume v uses"),
            ("j", "which the journal of volume v uses"),
            ("s", "which pool p uses"),
        ] {
            let at = |name: &str| dir.path().join(name);
            symlink(at(of), at("soft")).unwrap();
            std::fs::hard_link(at(of), at("hard")).unwrap();
            for alias in ["soft", "hard"] {
                let found = problems(&text(dir.path(), &[alias]));
                assert_eq!(found.len(), 1, "{found:#?}");
                let what = format!("device {alias} is the same place as device {of}, {by}: ");
                assert!(found[0].contains(&what), "{found:#?}");
            }
            std::fs::remove_file(at("soft")).unwrap();
            std::fs::remove_file(at("hard")).unwrap();
        }
    }

    #[test]
    fn a_change_is_blamed_for_what_it_brings_alone() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| parse(text, &mut Vec::new());
        let before = text(dir.path(), &["x"]);
        let wrong = format!("{before}size = 513\n");
        let taken = before.replace("['s']", "['s', 'l0']");
        let found = |before: &str, after: &str| {
            let found = new_problems(&read(before), &read(after), &[], &BasePlace::of);
            found
                .into_iter()
                .map(|problem| problem.what)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&before, &before), Vec::<String>::new());
        let uses = "pool p uses device l0, which the log of volume v uses";
        assert_eq!(found(&before, &taken), [uses]);
        assert_eq!(
            found(&before, &wrong),
            ["a volume of 513 B is not possible"]
        );
        let moved = format!("# a comment\n{wrong}");
        assert_eq!(found(&wrong, &moved), Vec::<String>::new());
    }

    #[test]
    fn parts_of_one_disk_clash_only_if_both_are_used() {
        let text = text(Path::new("/none"), &["x"]);
        let config = parse(&text, &mut Vec::new());
        let place = |from: u64, to: u64| BasePlace {
            from,
            to,
            ..BasePlace::named("disk")
        };
        let problems = |config: &crate::config::Config| {
            let mut found = Vec::new();
            super::agree(
                config,
                &|device| match device.name.as_str() {
                    "o" => place(0, 100),
                    "s" => place(100, 200),
                    "x" => place(0, 200),
                    other => BasePlace::named(other),
                },
                &mut found,
            );
            found
                .into_iter()
                .map(|problem| problem.what)
                .collect::<Vec<_>>()
        };
        assert_eq!(problems(&config), Vec::<String>::new());
        let used = text.replace("['s']", "['s', 'x']");
        let found = problems(&parse(&used, &mut Vec::new()));
        let what = "device x shares its disk or file with device o, which volume v uses";
        assert!(found.len() == 1 && found[0].starts_with(what), "{found:?}");
    }
}
