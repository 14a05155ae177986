//! The memory that a configuration needs, and the memory available.
//!
//! A pool's tables are as large as its devices, whatever they hold. So the need is known before any
//! device is opened. A configuration that does not fit is refused in words: by `hotset check`, at
//! the start, and by a change of a running daemon.

use crate::config::{ByteCount, Config, Daemon, Name, Pool, Volume};
use crate::problem::ConfigurationProblem;
use std::fs;
use std::path::Path;

/// Most bytes of an index entry of a log, and bytes of the block that an entry stands for.
const LOG_ENTRY_BYTES: u64 = 32;
pub(crate) const LOG_BLOCK_BYTES: u64 = 4096;
/// Most bytes of the places that a further shard keeps (`shard::KEPT_BYTES_MAX`).
pub const KEPT_BYTES_MAX: u64 = 11 << 20;

/// The memory that one parameter of the configuration needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// The line of the parameter.
    pub line: u32,
    /// Name of the part that needs the memory.
    pub what: String,
    /// Remedy that lowers the need.
    pub remedy: &'static str,
    /// Bytes needed.
    pub bytes: u64,
}

/// The memory available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRoom {
    /// Bytes available.
    pub bytes: u64,
    /// The limit that leaves these bytes.
    pub limit: &'static str,
}

/// Bytes of the buffers of each shard but the first.
pub fn further_buffers(daemon: &Daemon) -> u64 {
    daemon.buffers.value.0 / u64::from(daemon.shards.value.count())
}

/// Memory of the buffers, and of the places that further shards keep.
pub fn buffers(config: &Config) -> Need {
    let buffers = &config.daemon.buffers;
    let further = u64::from(config.daemon.shards.value.count() - 1);
    Need {
        line: buffers.line,
        what: format!("`buffers` of {}", buffers.value),
        remedy: "lower `buffers`",
        bytes: buffers
            .value
            .0
            .saturating_add((further_buffers(&config.daemon) + KEPT_BYTES_MAX) * further),
    }
}

/// Memory of the tables of `pool`, on devices of `bytes` together.
pub fn tables(pool: &Pool, bytes: u64) -> Need {
    let line = pool.line_size.value.0.max(1);
    let per_line =
        cache::memory_per_line(line) + policy::registry::memory_per_slot(pool.policy.value.0);
    let lines = bytes / line;
    Need {
        line: pool.name.line,
        what: format!(
            "pool {}, with {lines} lines of {} on its devices,",
            pool.name.value, pool.line_size.value
        ),
        remedy: "give the pool a longer `line_size`, or smaller devices",
        bytes: lines.saturating_mul(per_line),
    }
}

/// Memory of the index of the log of `volume`, on devices of `bytes` each.
fn log(volume: &Volume, bytes: u64) -> Need {
    Need {
        line: volume.log.line,
        what: format!("the log of volume {}", volume.name.value),
        remedy: "give it smaller devices",
        bytes: bytes / LOG_BLOCK_BYTES * LOG_ENTRY_BYTES,
    }
}

/// All needs of `config`; `size` returns the bytes of a device, if known.
pub fn needs(config: &Config, size: impl Fn(&Name) -> Option<u64>) -> Vec<Need> {
    let mut needs = vec![buffers(config)];
    for pool in &config.pools {
        let devices = pool.devices.value.iter().filter_map(&size);
        needs.push(tables(pool, devices.sum()));
    }
    for volume in &config.volumes {
        let devices = volume.log.value.iter().filter_map(&size);
        if let Some(bytes) = devices.max() {
            needs.push(log(volume, bytes));
        }
    }
    needs
}

/// The problem if `needs` exceed the room; names the greatest need.
pub fn shortage(needs: &[Need], room: Option<MemoryRoom>) -> Option<ConfigurationProblem> {
    let room = room?;
    let sum = needs
        .iter()
        .fold(0u64, |sum, need| sum.saturating_add(need.bytes));
    let greatest = needs.iter().max_by_key(|need| need.bytes)?;
    (sum > room.bytes).then(|| {
        let all = match needs.len() {
            1 => String::new(),
            _ => format!(", and all together {}", about(sum)),
        };
        let what = format!(
            "{} needs {} of memory{all}; {} can be had ({})",
            greatest.what,
            about(greatest.bytes),
            about(room.bytes),
            room.limit
        );
        ConfigurationProblem::new(greatest.line, what, greatest.remedy)
    })
}

/// Bytes, rounded up to a MiB or, if there are many, to a GiB.
fn about(bytes: u64) -> String {
    let unit = if bytes < 10 << 30 { 1 << 20 } else { 1 << 30 };
    ByteCount(bytes.div_ceil(unit).saturating_mul(unit)).to_string()
}

/// Memory available on this machine beyond the bytes `promised` to this process, used yet or not;
/// `None` if the machine does not say.
pub fn room(promised: u64) -> Option<MemoryRoom> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = kib(&status, "VmRSS:")?;
    // Memory that was promised and is not in use yet is no room for others.
    let unused = promised.saturating_sub(resident);
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| kib(&text, "MemAvailable:"));
    let limits = fs::read_to_string("/proc/self/limits").ok();
    let addresses = limits.and_then(|text| address_space(&text));
    let addresses = addresses.zip(kib(&status, "VmSize:"));
    let rooms = [
        machine.map(|bytes| (bytes.saturating_sub(unused), "MemAvailable")),
        group().map(|bytes| {
            (
                bytes.saturating_sub(unused),
                "the limit of its control group",
            )
        }),
        addresses.map(|(limit, used)| (limit.saturating_sub(used), "its limit of address space")),
    ];
    let least = rooms.into_iter().flatten().min()?;
    Some(MemoryRoom {
        bytes: least.0,
        limit: least.1,
    })
}

/// The value in KiB after `name` in a file of the kernel, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number = line.trim().strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit of address space; `None` if there is none.
fn address_space(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Memory that the control group of this process and those above leave, the least of all. The page
/// cache can be dropped, and so does not count as used.
fn group() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(own);
    let all = own.ancestors().take_while(|path| path.starts_with(root));
    let left = all.filter_map(|path| {
        let number = |file: &str| -> Option<u64> {
            fs::read_to_string(path.join(file))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        let (limit, used) = (number("memory.max")?, number("memory.current")?);
        let stat = fs::read_to_string(path.join("memory.stat")).ok()?;
        let mut lines = stat.lines();
        let cached = lines.find_map(|line| line.strip_prefix("file "))?;
        let cached = cached.trim().parse::<u64>().ok()?;
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    const TEXT: &str = "[daemon]\nbuffers = \"64MiB\"\n[[device]]\nname = \"ssd\"\npath = \"/ssd\"\n\
                        [[pool]]\nname = \"fast\"\ndevices = [\"ssd\"]\n";

    fn wrong(text: &str, size: u64, room: u64) -> Option<String> {
        let mut problems = Vec::new();
        let config = parse(text, &mut problems);
        assert_eq!(problems, [], "{text}");
        let room = MemoryRoom {
            bytes: room,
            limit: "MemAvailable",
        };
        let needs = needs(&config, |name| (name.as_str() == "ssd").then_some(size));
        shortage(&needs, Some(room)).map(|problem| problem.to_string())
    }

    #[test]
    fn what_does_not_fit_is_named_with_what_needs_less() {
        assert_eq!(wrong(TEXT, 1 << 40, 4 << 30), None);
        let pool = wrong(TEXT, 8 << 40, 4 << 30).expect("it is too large");
        assert!(
            pool.starts_with("7: pool fast, with 134217728 lines of 64 KiB"),
            "{pool}"
        );
        assert!(
            pool.contains("4 GiB can be had (MemAvailable); give the pool a longer"),
            "{pool}"
        );
        let text = TEXT.replace("64MiB", "1TiB");
        let buffers = wrong(&text, 1 << 30, 4 << 30).expect("they are too large");
        assert!(
            buffers.starts_with("2: `buffers` of 1 TiB needs 1 TiB of memory"),
            "{buffers}"
        );
        assert!(buffers.ends_with("; lower `buffers`"), "{buffers}");
        let short = TEXT.to_owned() + "line_size = \"4KiB\"\n";
        assert!(wrong(&short, 1 << 40, 4 << 30).is_some());
        assert!(wrong(TEXT, 1 << 60, u64::MAX).is_none());
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        assert_eq!(
            kib("MemFree: 1 kB\nMemAvailable:   20 kB\n", "MemAvailable:"),
            Some(20 << 10)
        );
        let limits = |soft: &str| {
            format!("Limit  Soft  Hard\nMax address space   {soft}  unlimited  bytes\n")
        };
        assert_eq!(address_space(&limits("3072000")), Some(3_072_000));
        assert_eq!(address_space(&limits("unlimited")), None);
        let room = room(0).expect("this machine says");
        assert!(room.bytes > 0 && room.bytes < 1 << 50, "{room:?}");
        // Memory that was promised and is not used is not counted twice.
        assert_eq!(super::room(u64::MAX).map(|room| room.bytes), Some(0));
    }
}
