//! Checks the sections of a configuration against each other.

use super::arrays;
use super::frontends;
use super::roles;
use super::write_back;
use crate::config::{At, Config, Device, Name, Pool, ShardCount, Volume};
use crate::memory::further_buffers;
use crate::place::BasePlace;
use crate::problem::ConfigurationProblem;
use block::{Nanos, Sectors};
use cache::{DEVICES_MAX, VOLUMES_MAX};
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The least memory for data in flight.
const BUFFERS_BYTES_MIN: u64 = 32 << 20;
/// Least `buffers` for each shard: for a few NBD connections beside other frontends.
const SHARD_BUFFERS_BYTES_MIN: u64 = 8 << 20;
/// The longest time that an idle shard looks for work.
const BUSY_POLL_MAX: Duration = Duration::from_secs(1);
/// The most volumes of a daemon.
const DAEMON_VOLUMES_MAX: usize = 16_384;

/// Appends the disagreements; `drives` are the models that a device can have.
pub fn agreement(config: &Config, drives: &[&str], problems: &mut Vec<ConfigurationProblem>) {
    agreement_of(config, drives, &BasePlace::of, problems);
}

/// As [`agreement`], with each device at the place `at`.
pub(super) fn agreement_of(
    config: &Config,
    drives: &[&str],
    at: &dyn Fn(&Device) -> BasePlace,
    problems: &mut Vec<ConfigurationProblem>,
) {
    daemon(config, problems);
    unique(config, problems);
    for device in &config.devices {
        place(device, problems);
        model(device, drives, problems);
    }
    for pool in &config.pools {
        engine(pool, problems);
        members(pool, problems);
    }
    room(config, problems);
    arrays::agree(config, problems);
    volumes(config, problems);
    roles::agree(config, at, problems);
    frontends::agree(config, problems);
    write_back::agree(config, problems);
}

fn daemon(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    let daemon = &config.daemon;
    let buffers = &daemon.buffers;
    if buffers.value.0 < BUFFERS_BYTES_MIN {
        let what = format!("`buffers` of {} is too small", buffers.value);
        problems.push(ConfigurationProblem::new(
            buffers.line,
            what,
            "give at least 32MiB",
        ));
    }
    let shards = daemon.shards.value.count();
    if further_buffers(daemon) < SHARD_BUFFERS_BYTES_MIN {
        let what = format!(
            "`buffers` of {} are too few for {shards} shards",
            buffers.value
        );
        let remedy = "give at least 8 MiB for each, or fewer `shards`";
        problems.push(ConfigurationProblem::new(daemon.shards.line, what, remedy));
    }
    let most = nbd::serve::connections_for(buffers.value.0 / 2);
    if let Some(connections) = &daemon.connections
        && (connections.value == 0 || connections.value > most)
    {
        let what = format!("{} connections do not fit the buffers", connections.value);
        let remedy = format!("choose from 1 to {most}, or raise `buffers` by 600 KiB for each");
        problems.push(ConfigurationProblem::new(connections.line, what, remedy));
    }
    let poll = &daemon.busy_poll;
    if poll.value > BUSY_POLL_MAX {
        let what = "an idle shard would not sleep for over a second";
        let remedy = "give `busy_poll` of at most 1s";
        problems.push(ConfigurationProblem::new(poll.line, what, remedy));
    }
    if daemon.requests.value == 0 {
        let what = "a connection with no request in flight does nothing";
        let remedy = "give `requests` of at least 1";
        problems.push(ConfigurationProblem::new(
            daemon.requests.line,
            what,
            remedy,
        ));
    }
}

/// Adds a warning of more shards than processors.
pub(super) fn warn(config: &Config, found: &mut Vec<ConfigurationProblem>) {
    let shards = &config.daemon.shards;
    let (wanted, processors) = (shards.value.count(), ShardCount::Auto.count());
    if wanted > processors {
        let what = format!("{wanted} shards share {processors} processors");
        let remedy = format!("give {processors} at most, or `auto`");
        found.push(ConfigurationProblem::new(shards.line, what, remedy));
    }
    let Some(allowed) = allowed_processors() else {
        return;
    };
    for processor in shards.value.processors() {
        if !allowed.iter().any(|range| range.contains(processor)) {
            let what = format!(
                "processor {processor} is offline, not there, or not for this process: its shard \
                 runs on any"
            );
            let remedy = "name others; `lscpu --online` lists them";
            found.push(ConfigurationProblem::new(shards.line, what, remedy));
        }
    }
}

/// The processors that this process may use, by the kernel; `None` if that cannot be read.
fn allowed_processors() -> Option<Vec<RangeInclusive<u32>>> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').map(range).collect()
}

fn unique(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    let mut check = |kind: &str, names: Vec<&At<Name>>| {
        let mut lines: HashMap<&Name, u32> = HashMap::new();
        for name in names {
            if let Some(first) = lines.insert(&name.value, name.line) {
                let first = config.files.place(first);
                let what = format!("a second {kind} is named {} ({first})", name.value);
                problems.push(ConfigurationProblem::new(
                    name.line,
                    what,
                    "give each its own name",
                ));
            }
        }
    };
    let devices = config.devices.iter().map(|d| &d.name);
    let arrays = config.arrays.iter().map(|a| &a.name);
    check("device", devices.chain(arrays).collect());
    check("pool", config.pools.iter().map(|p| &p.name).collect());
    check("volume", config.volumes.iter().map(|v| &v.name).collect());
}

/// Checks that a device has exactly one place, and parameters that suit this place.
fn place(device: &Device, problems: &mut Vec<ConfigurationProblem>) {
    let name = &device.name.value;
    if device.path.is_some() == device.nbd.is_some() {
        let what = format!("device {name} must have either `path` or `nbd`");
        let remedy = "give one of the two";
        problems.push(ConfigurationProblem::new(device.line, what, remedy));
    }
    if device.nbd.is_none()
        && let Some(authority) = &device.tls_ca
    {
        let what = format!("device {name} has `tls_ca` and is no NBD export");
        problems.push(ConfigurationProblem::new(
            authority.line,
            what,
            "remove `tls_ca`",
        ));
    }
    if device.nbd.is_some() && device.buffered.value {
        let what = format!("device {name} is an NBD export, which has no page cache");
        problems.push(ConfigurationProblem::new(
            device.buffered.line,
            what,
            "remove `buffered`",
        ));
    }
}

fn model(device: &Device, drives: &[&str], problems: &mut Vec<ConfigurationProblem>) {
    let name = &device.name.value;
    if let Some(model) = &device.model
        && !drives.contains(&model.as_str())
    {
        let what = format!("no drive model is called {:?}", model.value);
        let remedy = format!("choose one of: {}", drives.join(", "));
        problems.push(ConfigurationProblem::new(model.line, what, remedy));
    }
    let stripe = &device.model_stripe;
    if !stripe.value.0.is_power_of_two() || stripe.value.0 < 4096 {
        let what = format!("a stripe of {} is not possible", stripe.value);
        let remedy = "give `model_stripe` a power of two from 4KiB";
        problems.push(ConfigurationProblem::new(stripe.line, what, remedy));
    }
    let disks = &device.model_disks;
    if !(1..=256).contains(&disks.value) {
        let what = format!("{} model disks are not possible", disks.value);
        problems.push(ConfigurationProblem::new(
            disks.line,
            what,
            "give from 1 to 256",
        ));
    }
    if device.model.is_none() && disks.value != 1 {
        let what = format!("device {name} has `model_disks` and no `model`");
        let remedy = "name the drive that it is to be as slow as, or remove it";
        problems.push(ConfigurationProblem::new(disks.line, what, remedy));
    }
}

impl Pool {
    /// The parameters of the cache engine.
    pub fn engine(&self) -> cache::Config {
        let sequential = self.sequential.value.0;
        let latency = u64::try_from(self.hit_latency_max.value.as_nanos()).unwrap_or(u64::MAX);
        let line = self.line_size.value.0;
        let defaults = cache::Config::default();
        cache::Config {
            line_bytes: u32::try_from(line).unwrap_or(u32::MAX),
            fill_bytes_per_s: self.fill_rate.as_ref().map(|rate| rate.value.0),
            hit_latency_max: Nanos(latency),
            sequential_bytes: (sequential > 0).then_some(sequential),
            commit_period: Nanos(u64::try_from(self.commit.value.as_nanos()).unwrap_or(u64::MAX)),
            trims_discarded: self.trim.value,
            ..defaults
        }
    }
}

fn engine(pool: &Pool, problems: &mut Vec<ConfigurationProblem>) {
    if let Err(error) = pool.engine().check() {
        let text = error.to_string();
        let (what, remedy) = text.split_once(": ").unwrap_or((&text, "correct it"));
        let what = format!("pool {} cannot be: {what}", pool.name.value);
        problems.push(ConfigurationProblem::new(pool.line, what, remedy));
    }
}

/// Checks that the pool's metadata has room for its devices.
fn members(pool: &Pool, problems: &mut Vec<ConfigurationProblem>) {
    let (name, devices) = (&pool.name.value, &pool.devices);
    if devices.value.len() > DEVICES_MAX {
        let what = format!("pool {name} has {} devices", devices.value.len());
        let remedy = format!("give at most {DEVICES_MAX}, or make an array of several");
        problems.push(ConfigurationProblem::new(devices.line, what, remedy));
    }
}

/// Checks that pools, and the daemon, have room for their volumes.
fn room(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    let mut by_pool: HashMap<&Name, Vec<&Volume>> = HashMap::new();
    for volume in &config.volumes {
        by_pool.entry(&volume.pool.value).or_default().push(volume);
    }
    for (name, volumes) in by_pool {
        if let Some(over) = volumes.get(VOLUMES_MAX) {
            let what = format!("pool {name} has {} volumes", volumes.len());
            let remedy =
                format!("a pool remembers at most {VOLUMES_MAX}; use another pool for some");
            problems.push(ConfigurationProblem::new(over.pool.line, what, remedy));
        }
    }
    if let Some(over) = config.volumes.get(DAEMON_VOLUMES_MAX) {
        let what = format!("there are {} volumes", config.volumes.len());
        let remedy = format!("a daemon serves at most {DAEMON_VOLUMES_MAX}; run another for some");
        problems.push(ConfigurationProblem::new(over.line, what, remedy));
    }
}

/// Checks that volumes and pools suit the devices and pools that they name.
fn volumes(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    let devices = config.devices.iter();
    let devices: HashMap<&Name, &Device> = devices.map(|d| (&d.name.value, d)).collect();
    let device = |name: &Name| devices.get(name).copied();
    let pools: HashSet<&Name> = config.pools.iter().map(|p| &p.name.value).collect();
    for volume in &config.volumes {
        if !pools.contains(&volume.pool.value) {
            let by = format!("volume {}", volume.name.value);
            let pool = ("pool", volume.pool.value.as_str());
            let others = config.pools.iter().map(|pool| pool.name.value.as_str());
            let line = volume.pool.line;
            problems.push(ConfigurationProblem::absent(line, &by, pool, others));
        }
        if let Some(size) = &volume.size
            && (size.value.0 == 0 || Sectors::from_bytes(size.value.0).is_none())
        {
            let what = format!("a volume of {} is not possible", size.value);
            let remedy = "give a multiple of 512 bytes";
            problems.push(ConfigurationProblem::new(size.line, what, remedy));
        }
        let origin = device(&volume.origin.value);
        let is_reservable = !volume.read_only.value && origin.is_some_and(|d| d.path.is_some());
        if volume.reserve.value && !is_reservable {
            let what = format!(
                "volume {} cannot reserve {}: arrays and exports have no reservations, and nothing \
                 is written for a volume with `read_only`",
                volume.name.value, volume.origin.value
            );
            problems.push(ConfigurationProblem::new(
                volume.reserve.line,
                what,
                "leave out `reserve`",
            ));
        }
        if origin.is_some_and(|d| d.read_only.value) && !volume.read_only.value {
            let what = format!(
                "volume {} is writable on a read-only device",
                volume.name.value
            );
            let remedy = "give the volume `read_only = true`, or let its device be written";
            problems.push(ConfigurationProblem::new(volume.line, what, remedy));
        }
    }
    for pool in &config.pools {
        let devices = pool.devices.value.iter().filter_map(device);
        for device in devices.filter(|device| device.read_only.value) {
            let what = format!(
                "pool {} cannot use the read-only device {}",
                pool.name.value, device.name.value
            );
            let remedy = "remove `read_only` from it, or take another device";
            problems.push(ConfigurationProblem::new(
                device.read_only.line,
                what,
                remedy,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    const GOOD: &str = r#"
[[device]]
name = "hdd"
path = "/nonexistent/hdd"
[[device]]
name = "ssd"
path = "/nonexistent/ssd"
[[pool]]
name = "fast"
devices = ["ssd"]
[[volume]]
name = "web"
origin = "hdd"
pool = "fast"
[[listen]]
unix = "/nonexistent/socket"
"#;

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let config = parse(text, &mut problems);
        assert_eq!(problems, [], "{text}");
        agreement(&config, &["SAS15K"], &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn more_shards_than_processors_are_a_warning() {
        let warned = |shards: &str| {
            let text = format!("[daemon]\nshards = {shards}\n");
            let mut found = Vec::new();
            warn(&parse(&text, &mut Vec::new()), &mut found);
            found.first().map(ToString::to_string)
        };
        assert_eq!(warned("1"), None);
        assert_eq!(warned("\"auto\""), None);
        let first = allowed_processors().unwrap()[0].start().to_string();
        assert_eq!(warned(&format!("[{first}]")), None);
        let warning = warned("[65535]").expect("there are fewer processors");
        assert!(warning.contains("65535 is offline, not there"), "{warning}");
        if ShardCount::Auto.count() < 64 {
            let warning = warned("64").expect("there are fewer processors");
            assert!(warning.starts_with("2: 64 shards share "), "{warning}");
        }
    }

    #[test]
    fn a_sound_configuration_has_no_problem() {
        assert_eq!(problems(GOOD), Vec::<String>::new());
    }

    /// Changes of one line of [`GOOD`], each with a part of its problem.
    const DISAGREEMENTS: [(&str, &str, &str); 22] = [
        (
            "origin = \"hdd\"",
            "origin = \"ssd\"",
            "10: pool fast uses device ssd",
        ),
        (
            "origin = \"hdd\"",
            "origin = \"hd\"",
            "13: volume web names a device hd",
        ),
        (
            "pool = \"fast\"",
            "pool = \"quick\"",
            "14: volume web names a pool quick",
        ),
        ("/ssd", "/hdd", "7: device ssd is the same place"),
        (
            "name = \"ssd\"",
            "name = \"hdd\"",
            "6: a second device is named hdd",
        ),
        (
            "path = \"/nonexistent/hdd\"",
            "",
            "2: device hdd must have either",
        ),
        (
            "path = \"/nonexistent/hdd\"",
            "nbd = \"nbd://h\"\nbuffered = true",
            "5: device hdd is an NBD",
        ),
        (
            "name = \"hdd\"",
            "name = \"hdd\"\nmodel_disks = 4",
            "4: device hdd has `model_disks`",
        ),
        (
            "name = \"hdd\"",
            "name = \"hdd\"\ntls_ca = \"/ca\"",
            "4: device hdd has `tls_ca` and is no NBD export",
        ),
        (
            "name = \"hdd\"",
            "name = \"hdd\"\nmodel = \"floppy\"",
            "4: no drive model is called \"floppy\"; choose one of: SAS15K",
        ),
        (
            "name = \"hdd\"",
            "name = \"hdd\"\nmodel_stripe = 5000",
            "4: a stripe of",
        ),
        (
            "name = \"web\"",
            "name = \"web\"\nreserve = true\nread_only = true",
            "13: volume web cannot reserve hdd",
        ),
        (
            "name = \"hdd\"",
            "name = \"hdd\"\nread_only = true",
            "12: volume web is writable",
        ),
        (
            "name = \"ssd\"",
            "name = \"ssd\"\nread_only = true",
            "7: pool fast cannot use",
        ),
        (
            "name = \"fast\"",
            "name = \"fast\"\nline_size = 5000",
            "8: pool fast cannot be",
        ),
        (
            "name = \"web\"",
            "name = \"web\"\nsize = 1000",
            "13: a volume of",
        ),
        ("unix = \"/nonexistent/socket\"", "", "15: a [[listen]]"),
        (
            "unix = \"/nonexistent/socket\"",
            "tcp = \"0.0.0.0:1\"",
            "16: 0.0.0.0:1 can be reached",
        ),
        (
            "unix = \"/nonexistent/socket\"",
            "tcp = \"0.0.0.0:1\"\ntls_key = \"/k\"",
            "`tls_certificate`",
        ),
        (
            "[[listen]]",
            "[daemon]\nbuffers = \"1MiB\"\nconnections = 0\n[[listen]]",
            "buffers",
        ),
        (
            "[[listen]]",
            "[daemon]\nbuffers = \"32MiB\"\nshards = 5\n[[listen]]",
            "too few for 5 shards",
        ),
        (
            "[[listen]]",
            "[daemon]\nbusy_poll = \"2s\"\n[[listen]]",
            "at most 1s",
        ),
    ];

    #[test]
    fn each_disagreement_is_reported_once_on_its_line() {
        for (from, to, expected) in DISAGREEMENTS {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            let problems = problems(&text);
            let found = problems.iter().any(|problem| problem.contains(expected));
            assert!(found, "{expected:?} is not in {problems:#?}");
        }
    }

    #[test]
    fn two_volumes_on_one_origin_are_refused() {
        let second = "[[volume]]\nname = \"b\"\norigin = \"hdd\"\npool = \"fast\"\n";
        let problems = problems(&format!("{GOOD}{second}"));
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert!(problems[0].contains("volume b uses device hdd, which volume web uses"));
    }
}
