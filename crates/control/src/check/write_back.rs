//! Checks the devices and limits of write-back volumes.

use super::arrays::{domain, shares};
use crate::config::{At, Config, Name, Volume, VolumeMode};
use crate::parameter::Parameter;
use crate::problem::ConfigurationProblem;
use std::time::Duration;
use writelog::Cleaning;

/// The least limit of dirty bytes: a record of the largest write, twice.
const DIRTY_BYTES_MIN: u64 = 1 << 20;
/// Time that an origin may need for one batch: 256 blocks anywhere on a disk of 7,200 rpm.
const LOAD_TIME: Duration = Duration::from_secs(1);

/// Appends the problems of write-back volumes.
pub(super) fn agree(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    let all = config.volumes.iter();
    for volume in all.filter(|v| v.mode.value == VolumeMode::WriteBack) {
        log(config, volume, problems);
        journal(config, volume, problems);
        limits(volume, problems);
        let name = &volume.name.value;
        if volume.read_only.value {
            let what = format!("volume {name} is read-only and write-back");
            let remedy = "leave `mode` out: nothing is written";
            problems.push(ConfigurationProblem::new(volume.mode.line, what, remedy));
        }
    }
}

/// Appends warnings: an origin that is worth nothing without its log, and an origin that may not
/// take a batch within `max_lag`.
pub(super) fn warn(config: &Config, found: &mut Vec<ConfigurationProblem>) {
    let all = config.volumes.iter();
    for volume in all.filter(|v| v.mode.value == VolumeMode::WriteBack) {
        if volume.write_back.value == Cleaning::Coalesced {
            let what = format!(
                "volume {}: if both devices of its log are lost, nothing is promised of {}: a file \
                 system or a database on it may be damaged",
                volume.name.value, volume.origin.value
            );
            let remedy = "have a backup, or leave `write_back` at \"ordered\"";
            found.push(ConfigurationProblem::new(
                volume.write_back.line,
                what,
                remedy,
            ));
        }
        let max_lag = &volume.max_lag;
        if max_lag.value < LOAD_TIME {
            let what = format!(
                "volume {}: within a `max_lag` of {} an origin that is a disk may not take what it \
                 gets at once: writes will mostly wait for it",
                volume.name.value,
                max_lag.value.written()
            );
            let remedy = "give `max_lag` at least 1s, or leave write-back";
            found.push(ConfigurationProblem::new(max_lag.line, what, remedy));
        }
    }
}

fn log(config: &Config, volume: &Volume, problems: &mut Vec<ConfigurationProblem>) {
    let name = &volume.name.value;
    let line = volume.log.line;
    let [first, second] = &volume.log.value[..] else {
        let devices = volume.log.value.len();
        let what = format!("volume {name} is write-back, and its log has {devices} devices");
        let remedy = "give `log` two, of different controllers";
        problems.push(ConfigurationProblem::new(line, what, remedy));
        return;
    };
    for device in [first, second] {
        suits(
            config,
            device,
            &format!("the log of volume {name}"),
            line,
            problems,
        );
    }
    if first != second && shares(config, first, second) {
        let what = format!(
            "{name}: write-back needs two controllers; {first} and {second} have {}",
            domain(config, first)
        );
        let remedy = "give a device with another `controller`: one that fails takes both copies";
        problems.push(ConfigurationProblem::new(line, what, remedy));
    }
}

/// Appends the reasons why `device` does not suit the use `what_for`.
fn suits(
    config: &Config,
    device: &Name,
    what_for: &str,
    line: u32,
    problems: &mut Vec<ConfigurationProblem>,
) {
    if config.arrays.iter().any(|a| a.name.value == *device) {
        let what = format!("{what_for} cannot be on an array, {device}");
        let remedy = "give a device: the log keeps its own copies";
        problems.push(ConfigurationProblem::new(line, what, remedy));
    }
    let device = config.devices.iter().find(|d| d.name.value == *device);
    if let Some(device) = device.filter(|device| device.controller.is_empty()) {
        let what = format!("{what_for} is on a device without `controller`");
        let remedy = "name what it fails with: two parts of one SSD are one copy";
        problems.push(ConfigurationProblem::new(device.line, what, remedy));
    }
    if let Some(uri) = device.and_then(|device| device.nbd.as_ref()) {
        let what = format!("{what_for} cannot be on an NBD export");
        let remedy = "take a device of this machine: a server may carry out a write twice";
        problems.push(ConfigurationProblem::new(uri.line, what, remedy));
    }
    if let Some(device) = device.filter(|d| d.read_only.value) {
        let what = format!("{what_for} cannot be on a read-only device");
        let remedy = "remove `read_only` from it, or take another device";
        problems.push(ConfigurationProblem::new(
            device.read_only.line,
            what,
            remedy,
        ));
    }
}

/// Checks the journal of a journaled volume; the journal of another volume is kept unchecked.
fn journal(config: &Config, volume: &Volume, problems: &mut Vec<ConfigurationProblem>) {
    if volume.write_back.value != Cleaning::Journaled {
        return;
    }
    let name = &volume.name.value;
    let Some(At {
        value: device,
        line,
    }) = &volume.journal
    else {
        let what = format!("volume {name} is journaled, and has no journal");
        let remedy = "give `journal` a device that fails with neither of the log";
        problems.push(ConfigurationProblem::new(
            volume.write_back.line,
            what,
            remedy,
        ));
        return;
    };
    let line = *line;
    suits(
        config,
        device,
        &format!("the journal of volume {name}"),
        line,
        problems,
    );
    let mut pools = config.pools.iter();
    let pool = pools.find(|pool| pool.name.value == volume.pool.value);
    let cached = pool.map_or(&[][..], |pool| &pool.devices.value);
    for (whose, others) in [("log", &volume.log.value[..]), ("pool", cached)] {
        let mut others = others.iter().filter(|other| *other != device);
        if let Some(other) = others.find(|other| shares(config, device, other)) {
            let what = format!(
                "{name}: its journal needs a controller that its {whose} has not; {device} and \
                 {other} have {}",
                domain(config, device)
            );
            let remedy =
                "give a device with another `controller`: it is for when log and pool are lost";
            problems.push(ConfigurationProblem::new(line, what, remedy));
            return;
        }
    }
}

fn limits(volume: &Volume, problems: &mut Vec<ConfigurationProblem>) {
    let name = &volume.name.value;
    if volume.max_lag.value == Duration::ZERO {
        let what = format!("volume {name} may lag by nothing");
        let remedy = "give `max_lag` a time over 0, or leave write-back";
        problems.push(ConfigurationProblem::new(volume.max_lag.line, what, remedy));
    }
    if volume.dirty_max.value.0 < DIRTY_BYTES_MIN {
        let what = format!("`dirty_max` of {} is too small", volume.dirty_max.value);
        problems.push(ConfigurationProblem::new(
            volume.dirty_max.line,
            what,
            "give at least 1MiB",
        ));
    }
}

#[cfg(test)]
mod tests {
    use crate::check::check_alone;

    const GOOD: &str = r#"
[[device]]
name = "hdd"
path = "/none/hdd"
controller = "sas0"
[[device]]
name = "ssd0"
path = "/none/ssd0"
controller = "pcie0"
[[device]]
name = "ssd1"
path = "/none/ssd1"
controller = "pcie1"
[[pool]]
name = "fast"
devices = []
[[volume]]
name = "db"
origin = "hdd"
pool = "fast"
mode = "write-back"
log = ["ssd0", "ssd1"]
[[listen]]
unix = "/none/socket"
"#;

    fn problems(text: &str) -> Vec<String> {
        let checked = check_alone(text, &[]);
        let problems = checked.err().unwrap_or_default();
        problems.iter().map(ToString::to_string).collect()
    }

    /// Changes of one line of [`GOOD`], each with a part of its problem.
    const NEEDS: [(&str, &str, &str); 13] = [
        (
            "controller = \"pcie1\"",
            "controller = \"pcie0\"",
            "22: db: write-back needs two controllers; ssd0 and ssd1 have pcie0",
        ),
        (
            "[\"ssd0\", \"ssd1\"]",
            "[\"ssd0\"]",
            "22: volume db is write-back, and its log has 1",
        ),
        ("log = [\"ssd0\", \"ssd1\"]", "", "its log has 0 devices"),
        (
            "[\"ssd0\", \"ssd1\"]",
            "[\"ssd0\", \"hdd\"]",
            "22: the log of volume db uses device hdd",
        ),
        (
            "[\"ssd0\", \"ssd1\"]",
            "[\"ssd0\", \"ssd2\"]",
            "a device ssd2 that does not exist",
        ),
        (
            "devices = []",
            "devices = [\"ssd1\"]",
            "16: pool fast uses device ssd1",
        ),
        (
            "path = \"/none/ssd1\"",
            "path = \"/none/ssd1\"\nread_only = true",
            "13: the log of volume db",
        ),
        (
            "path = \"/none/ssd1\"",
            "nbd = \"nbd://h\"",
            "12: the log of volume db cannot be on an NBD",
        ),
        (
            "pool = \"fast\"",
            "pool = \"fast\"\nread_only = true",
            "22: volume db is read-only and",
        ),
        (
            "pool = \"fast\"",
            "pool = \"fast\"\nwrite_back = \"journaled\"",
            "21: volume db is journaled, and has no journal",
        ),
        (
            "pool = \"fast\"",
            "pool = \"fast\"\nmax_lag = \"0s\"",
            "21: volume db may lag by nothing",
        ),
        (
            "pool = \"fast\"",
            "pool = \"fast\"\ndirty_max = \"1KiB\"",
            "21: `dirty_max` of 1 KiB",
        ),
        (
            "controller = \"pcie1\"",
            "",
            "10: the log of volume db is on a device without `controller`",
        ),
    ];

    #[test]
    fn what_write_back_needs() {
        assert_eq!(problems(GOOD), Vec::<String>::new());
        let off = GOOD.replace("mode = \"write-back\"\n", "");
        assert_eq!(problems(&off), Vec::<String>::new(), "its log is kept");
        for (from, to, expected) in NEEDS {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            let found = problems(&text);
            assert_eq!(found.len(), 1, "{expected:?}: {found:#?}");
            assert!(found[0].contains(expected), "{expected:?}: {found:#?}");
        }
    }

    #[test]
    fn it_may_have_any_frontend() {
        let attached = GOOD.replace("[[listen]]", "[[attach]]\nublk = \"db\"\n[[listen]]");
        assert_eq!(problems(&attached), Vec::<String>::new());
    }

    #[test]
    fn what_a_journal_needs() {
        let journaled = "write_back = \"journaled\"\njournal = \"hdd9\"\n[[listen]]";
        let device =
            "[[device]]\nname = \"hdd9\"\npath = \"/none/hdd9\"\ncontroller = \"sas0\"\n[[pool]]";
        let good = GOOD
            .replace("[[listen]]", journaled)
            .replace("[[pool]]", device);
        assert_eq!(problems(&good), Vec::<String>::new(), "beside its origin");
        let unused = good.replace("\"journaled\"", "\"ordered\"");
        assert_eq!(problems(&unused), Vec::<String>::new(), "it is kept");
        for (from, to, expected) in [
            (
                "path = \"/none/hdd9\"\ncontroller = \"sas0\"",
                "path = \"/none/hdd9\"\ncontroller = \"pcie1\"",
                "28: db: its journal needs a controller that its log has not; hdd9 and ssd1 have pcie1",
            ),
            (
                "[[pool]]\nname = \"fast\"\ndevices = []",
                "[[device]]\nname = \"ssd2\"\npath = \"/none/ssd2\"\ncontroller = \"sas0\"\n[[pool]]\n\
                 name = \"fast\"\ndevices = [\"ssd2\"]",
                "32: db: its journal needs a controller that its pool has not; hdd9 and ssd2 have sas0",
            ),
            (
                "journal = \"hdd9\"",
                "",
                "27: volume db is journaled, and has no journal",
            ),
            (
                "path = \"/none/hdd9\"\ncontroller = \"sas0\"",
                "path = \"/none/hdd9\"",
                "14: the journal of volume db is on a device without `controller`",
            ),
            (
                "path = \"/none/hdd9\"",
                "nbd = \"nbd://h\"",
                "16: the journal of volume db cannot be on an NBD export",
            ),
            (
                "path = \"/none/hdd9\"",
                "path = \"/none/hdd9\"\nread_only = true",
                "17: the journal of volume db cannot be on a read-only device",
            ),
            (
                "\"hdd9\"\n[[listen]]",
                "\"ssd0\"\n[[listen]]",
                "28: the journal of volume db uses device ssd0",
            ),
            (
                "\"hdd9\"\n[[listen]]",
                "\"hdd\"\n[[listen]]",
                "28: the journal of volume db uses device hdd",
            ),
            (
                "\"hdd9\"\n[[listen]]",
                "\"hdd7\"\n[[listen]]",
                "a device hdd7 that does not exist",
            ),
        ] {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good);
            let found = problems(&text);
            assert_eq!(found.len(), 1, "{expected:?}: {found:#?}");
            assert!(found[0].contains(expected), "{expected:?}: {found:#?}");
        }
    }

    #[test]
    fn what_promises_less_than_it_seems_is_reported_for_as_long_as_it_counts() {
        let warnings = |text: &str| {
            let config = check_alone(text, &[]).expect("it is sound");
            let warnings = crate::check::warnings(&config).into_iter();
            warnings.map(|w| w.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(warnings(GOOD), Vec::<String>::new());
        let coalesced = GOOD.replace("log =", "write_back = \"coalesced\"\nlog =");
        let found = warnings(&coalesced);
        assert_eq!(found.len(), 1, "{found:?}");
        let what = "22: volume db: if both devices of its log are lost, nothing is promised of hdd";
        assert!(found[0].starts_with(what), "{found:?}");
        let off = coalesced.replace("mode = \"write-back\"\n", "");
        assert_eq!(warnings(&off), Vec::<String>::new());
        for (max_lag, expected) in [("999ms", 1), ("1s", 0)] {
            let text = GOOD.replace("log =", &format!("max_lag = \"{max_lag}\"\nlog ="));
            let found = warnings(&text);
            assert_eq!(found.len(), expected, "{found:?}");
            let what = "22: volume db: within a `max_lag` of \"999ms\" an origin";
            assert!(found.iter().all(|w| w.starts_with(what)), "{found:?}");
            let off = text.replace("mode = \"write-back\"\n", "");
            assert_eq!(warnings(&off), Vec::<String>::new());
        }
    }
}
