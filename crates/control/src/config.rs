//! The configuration file: its sections and parameters, and the reader.
//!
//! Each parameter is defined once, in the table below. The table makes the
//! types, the reader with its errors, and the tables of `docs/configuration.md`.

use crate::address::{NbdUri, TcpAddress};
use crate::files::ConfigurationFiles;
pub use crate::parameter::{ByteCount, Name, PolicyName, SHARDS_MAX, ShardCount, VolumeMode};
use crate::problem::ConfigurationProblem;
pub use crate::schema::{At, ParameterRow, ParameterValue};
use crate::schema::{LineEnds, SectionReader, sections};
use raid::Level;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
pub use writelog::Cleaning;

sections! {
    /// The process itself. May be left out.
    Daemon, "[daemon]" {
        control: PathBuf = "/run/hotset/control.sock",
            "The unix socket that `hotset status`, `volume` and `pool` speak to. Its mode is 0600.";
        control_group: String = "",
            "The group of this machine that may use that socket too, whose mode is then 0660. Empty: none.";
        buffers: ByteCount = "256MiB",
            "Memory for data in flight, at least 32 MiB. Half of it is for clients; of the other half each RAID 5 sets aside an eighth, or half of what is left if that is less; what its widest stripe takes if that is more.";
        connections: u32 = optional,
            "NBD connections at one time; half of them are set aside, an equal part for each listener. One more is closed. Without it 100, or what `buffers` is enough for.";
        requests: u32 = 128,
            "Requests of one NBD connection in flight; more wait.";
        shards: ShardCount = 1,
            "Threads that serve NBD connections and the queues of block devices and guests, each on a core: a number, `auto` for one a processor, or a list of processors, as `[2, 4]`, one for each thread. The first also has caches and devices; each further one takes buffers of its own, `buffers` divided by the number.";
        busy_poll: Duration = "0s",
            "How long a shard without work looks for some before it sleeps, at most 1s. Requests that come meanwhile are served sooner; each shard takes a processor for so long after its last one. 0s: none looks.";
        state: PathBuf = "/var/lib/hotset",
            "A directory on a disk that is neither an origin nor a pool's, where a small file for each pool records which of its devices may be trusted. Made if missing.";
        grace: Duration = "10s",
            "How long a shutdown waits for requests in flight before it cuts their connections.";
        stop: Duration = "60s",
            "How long a shutdown then waits for the origins, all at once. Pools, and then arrays, get a quarter of it. What does not answer is left, and named.";
    }

    /// A place that holds data: a file, a block device, or an export of an NBD server.
    Device, "[[device]]" {
        name: Name = required,
            "What pools, volumes and reports call it.";
        path: PathBuf = optional,
            "A file or a block device. Give either this or `nbd`.";
        nbd: NbdUri = optional,
            "An NBD export: `nbd+unix:///EXPORT?socket=PATH` or `nbd://HOST:PORT/EXPORT`.";
        tls_ca: PathBuf = optional,
            "Use TLS towards the NBD server, which must show a certificate of this authority (PEM) for its host name, or for `localhost` on a unix socket.";
        controller: String = "",
            "Its failure domain: what it depends on and fails with. Empty: the device itself.";
        buffered: bool = false,
            "Go through the page cache, where a file system has no direct I/O.";
        read_only: bool = false,
            "Refuse every write.";
        model: String = optional,
            "Be as slow as this drive of [the catalogue](models.md), in real time: a simulated disk. The file must be the faster one.";
        model_disks: u32 = 1,
            "How many such drives, striped.";
        model_stripe: ByteCount = "64KiB",
            "The length of a stripe on one of them.";
    }

    /// Several devices as one, with redundancy where the level has it. Make it once
    /// with `hotset array create`; the daemon assembles it from its members' superblocks.
    Array, "[[array]]" {
        name: Name = required,
            "What pools, volumes, other arrays and reports call it. At most 32 bytes; no device has this name.";
        level: Level = required,
            "How data is spread: one member after the other, in stripes, copied, both, or in stripes with parity.";
        members: Vec<Name> = required,
            "Devices, or other arrays. Their order matters only when the array is made.";
        spares: Vec<Name> = [],
            "Devices that take the place of a lost member by themselves.";
        spare_delay: Duration = "2min",
            "How long a spare leaves a member that does not answer the time to come back, for then it needs only what it missed. A member that refuses writes, or was taken out by hand, is replaced at once.";
        chunk: ByteCount = "64KiB",
            "What lies on one member before the next follows, in striped levels; counts when the array is made.";
        detection: Duration = "10s",
            "A member that does not answer for this long is lost, unless the array cannot do without it. One that is an array with redundancy has twice the time of its own members at least.";
        rebuild_rate: ByteCount = "10MiB",
            "Bytes a second that a rebuild or a scrub moves while clients do I/O; else it takes what the members give.";
        scrub_interval: Duration = "30d",
            "How long after a scrub the next one begins by itself: copies, or data and parity, are compared, and what cannot be read of one is written again from the others. 0s: none does.";
        start_degraded: bool = false,
            "Start although members are not there that may hold newer data. The risk: what they alone hold is missing without a word, and members that are there by turns end as a [split brain](commands/array.md#split-brain).";
        raw: bool = false,
            "Use whole devices, from their first byte on, without superblocks: linear and raid0 alone. The order of members then matters always.";
    }

    /// Fast devices that volumes share as their cache.
    Pool, "[[pool]]" {
        name: Name = required,
            "What volumes and reports call it.";
        devices: Vec<Name> = required,
            "Its devices; may be empty, and changed while it runs.";
        line_size: ByteCount = "64KiB",
            "The unit of replacement: a power of two from 4 KiB to 1 MiB.";
        policy: PolicyName = "auto",
            "Which line makes room for another.";
        sequential: ByteCount = "4MiB",
            "A stream that reads or writes on for longer than this is not promoted; 0B promotes all.";
        fill_rate: ByteCount = optional,
            "Bytes a second that may be promoted. Without it, there is no limit.";
        hit_latency_max: Duration = "100ms",
            "A hit that takes longer is served by the origin.";
        commit: Duration = "1s",
            "How often the devices record what they hold. A crash forgets what was promoted since.";
        trim: bool = false,
            "Trim on their devices the lines that clients' discards empty, with half of each device's time. A line that makes room is never trimmed: its place is written at once.";
        cold: bool = false,
            "Forget everything that the devices hold when the daemon starts.";
    }

    /// A slow device as its clients see it, cached in a pool.
    Volume, "[[volume]]" {
        name: Name = required,
            "Its name, also as an NBD export.";
        origin: Name = required,
            "The device or array that holds its data, from the first byte on. It is neither formatted nor moved.";
        pool: Name = required,
            "The pool it is cached in.";
        mode: VolumeMode = "write-through",
            "How it uses the pool; [write-back](write-back.md) answers writes from its log.";
        off: bool = false,
            "Use the origin alone, as pass-through does, and no log. `mode` is what [`hotset volume on`](commands/volume.md#off-and-on) restores.";
        log: Vec<Name> = [],
            "Of write-back: two devices of different controllers, for nothing but copies of its log.";
        write_back: Cleaning = "ordered",
            "Of write-back, what is left if both devices of the log are lost. `ordered`: the origin alone is an earlier state. `journaled`: once its journal is replayed, by `hotset pool recover`. `coalesced`, in which the origin gets only the newest of what is written again and again: no promise, a file system or a database on it may be damaged.";
        journal: Name = optional,
            "Of write-back that is `journaled`: a device that fails with neither of the log, at least 9 MiB, for nothing but the journal.";
        max_lag: Duration = "30s",
            "Of write-back: the span of acknowledged writes that may be lost with both devices of the log. Where the origin does not keep up, writes wait.";
        dirty_max: ByteCount = "4GiB",
            "Of write-back: how much the origin may lack, at least 1 MiB.";
        size: ByteCount = optional,
            "Its size, at most the origin's. Without it, all of the origin.";
        read_only: bool = false,
            "Refuse every write of clients.";
        reserve: bool = false,
            "Have its origin [reserved](guide/san.md#two-hosts) for this machine while it is served, by SCSI or NVMe: other hosts cannot write there, and another hotset does not serve it.";
        shared: bool = false,
            "Offer it by each of its [frontends](frontends.md) at a time, over NBD too. Only for clients that write with regard to each other, as a cluster file system does.";
    }

    /// A volume as a block device of this machine, by [ublk](frontends.md). It is then not offered
    /// over NBD unless it is `shared`.
    Attach, "[[attach]]" {
        ublk: Name = required,
            "The volume. `/dev/hotset/NAME` leads to its device where the udev rule in `contrib` is installed.";
        queues: u32 = optional,
            "Hardware queues, from 1 to 64, which the [shards](nbd.md#shards) serve by turns. With several, processors of this machine that submit at a time do not wait for each other. Without it, one for each shard.";
        depth: u32 = 128,
            "Requests in flight of each queue; from 1 to 256, and 4096 of all queues. More wait in the kernel.";
    }

    /// A socket on which every volume without a frontend of its own is offered as an NBD
    /// export, or one that is such a frontend: at which a virtual machine has a volume as its
    /// [disk](frontends.md).
    Listen, "[[listen]]" {
        unix: PathBuf = optional,
            "NBD at the path of a unix socket. Give one of this, `tcp` and `vhost_user`.";
        tcp: TcpAddress = optional,
            "NBD at an IP address and a port.";
        vhost_user: PathBuf = optional,
            "vhost-user-blk at the path of a unix socket. The volume is then not offered over NBD unless it is `shared`.";
        volume: Name = optional,
            "Of `vhost_user`: the volume. Without it, what the socket is called: `data` of `/run/hotset/data.sock`.";
        depth: u32 = 128,
            "Of `vhost_user`: requests that a shard serves at one time, from 1 to 1024. More wait in the guest.";
        tls_certificate: PathBuf = optional,
            "A certificate chain in PEM. With it, clients must use TLS.";
        tls_key: PathBuf = optional,
            "The key of the certificate, in PEM.";
        tls_client_ca: PathBuf = optional,
            "Take only clients that show a certificate of this authority.";
        allow_plaintext: bool = false,
            "Listen without TLS on an address that other machines can reach.";
    }
}

/// A configuration in which every value is valid by itself. [`crate::check`] checks the values
/// against each other and the machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The process.
    pub daemon: Daemon,
    /// Places that hold data.
    pub devices: Vec<Device>,
    /// Devices made of devices.
    pub arrays: Vec<Array>,
    /// Caches.
    pub pools: Vec<Pool>,
    /// Volumes to serve.
    pub volumes: Vec<Volume>,
    /// Volumes as block devices of this machine.
    pub attachments: Vec<Attach>,
    /// Sockets of all other frontends.
    pub listeners: Vec<Listen>,
    /// The files of this configuration; none if it was read from a text alone.
    pub files: ConfigurationFiles,
}

/// The name of each section in the file, and true if the section may be repeated.
const SECTIONS: [(&str, bool); 7] = [
    ("daemon", false),
    ("device", true),
    ("array", true),
    ("pool", true),
    ("volume", true),
    ("attach", true),
    ("listen", true),
];

/// The content of one file.
pub(crate) struct ConfigurationPart {
    pub(crate) config: Config,
    /// The line of its `[daemon]`, if it has one.
    pub(crate) daemon: Option<u32>,
}

/// Reads a configuration. Appends the problems found; the configuration then lacks the sections
/// concerned, and only the problems are of use.
pub fn parse(text: &str, problems: &mut Vec<ConfigurationProblem>) -> Config {
    part(text, problems).config
}

/// Reads one file of a configuration, as [`parse`] does.
pub(crate) fn part(text: &str, problems: &mut Vec<ConfigurationProblem>) -> ConfigurationPart {
    let before = problems.len();
    let ends = &LineEnds::of(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let line = ends.line(&error.span().unwrap_or_default());
        let (what, remedy) = (error.message().trim(), "correct the TOML (https://toml.io)");
        problems.push(ConfigurationProblem::new(line, what, remedy));
    }
    // After an error, replacement values would only cause more errors.
    let nothing = DeTable::new();
    let root = match problems.len() == before {
        true => document.get_ref(),
        false => &nothing,
    };
    for (key, value) in root {
        let line = ends.line(&key.span());
        let name = key.get_ref().as_ref();
        let section = SECTIONS.iter().find(|(known, _)| *known == name);
        let (what, remedy) = match (section, value.get_ref()) {
            (None, _) => {
                let known = SECTIONS.map(|(name, repeated)| title(name, repeated));
                let what = format!("the file has no section `{name}`");
                (what, format!("use {}", known.join(", ")))
            }
            (Some((_, true)), DeValue::Array(_)) | (Some((_, false)), DeValue::Table(_)) => {
                continue;
            }
            (Some((_, repeated)), _) => {
                let title = title(name, *repeated);
                let kind = ["a table", "an array of tables"][usize::from(*repeated)];
                (format!("`{name}` must be {kind}"), format!("write {title}"))
            }
        };
        problems.push(ConfigurationProblem::new(line, what, remedy));
    }
    let line = root.get("daemon").map(|found| ends.line(&found.span()));
    let daemon = match root.get("daemon").map(Spanned::get_ref) {
        Some(DeValue::Table(table)) => {
            let line = line.unwrap_or(1);
            Daemon::read(reader(ends, Daemon::TITLE, table, line, problems))
        }
        _ => None,
    };
    let defaults = || {
        let read = Daemon::read(reader(ends, Daemon::TITLE, &nothing, 1, &mut Vec::new()));
        read.expect("every parameter has a default")
    };
    let config = Config {
        daemon: daemon.unwrap_or_else(defaults),
        devices: each(root, "device", ends, Device::TITLE, Device::read, problems),
        arrays: each(root, "array", ends, Array::TITLE, Array::read, problems),
        pools: each(root, "pool", ends, Pool::TITLE, Pool::read, problems),
        volumes: each(root, "volume", ends, Volume::TITLE, Volume::read, problems),
        attachments: each(root, "attach", ends, Attach::TITLE, Attach::read, problems),
        listeners: each(root, "listen", ends, Listen::TITLE, Listen::read, problems),
        files: ConfigurationFiles::default(),
    };
    ConfigurationPart {
        config,
        daemon: line,
    }
}

fn title(name: &str, repeated: bool) -> String {
    if repeated {
        format!("[[{name}]]")
    } else {
        format!("[{name}]")
    }
}

fn reader<'a>(
    ends: &'a LineEnds,
    section: &'static str,
    table: &'a DeTable<'a>,
    line: u32,
    problems: &'a mut Vec<ConfigurationProblem>,
) -> SectionReader<'a> {
    SectionReader {
        section,
        ends,
        table,
        line,
        problems,
    }
}

/// Reads every section called `name`.
fn each<T>(
    root: &DeTable<'_>,
    name: &str,
    ends: &LineEnds,
    title: &'static str,
    read: impl Fn(SectionReader<'_>) -> Option<T>,
    problems: &mut Vec<ConfigurationProblem>,
) -> Vec<T> {
    let Some(DeValue::Array(sections)) = root.get(name).map(Spanned::get_ref) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for section in sections.iter() {
        let line = ends.line(&section.span());
        match section.get_ref() {
            DeValue::Table(table) => all.extend(read(reader(ends, title, table, line, problems))),
            other => {
                let what = format!("`{name}` holds a {}", other.type_str());
                problems.push(ConfigurationProblem::new(
                    line,
                    what,
                    format!("write {title}"),
                ));
            }
        }
    }
    all
}

/// Reads the parameters of one section alone, as a command gives them.
fn alone<T>(
    text: &str,
    title: &'static str,
    read: impl Fn(SectionReader<'_>) -> Option<T>,
) -> Result<T, String> {
    let table = DeTable::parse(text).map_err(|error| error.message().to_owned())?;
    let mut problems = Vec::new();
    let ends = LineEnds::of(text);
    let section = read(reader(&ends, title, table.get_ref(), 1, &mut problems));
    let messages = || {
        let messages = problems.iter().map(ConfigurationProblem::text);
        messages.collect::<Vec<_>>().join("; ")
    };
    section.ok_or_else(messages)
}

impl Device {
    /// Reads the parameters of a device, as TOML.
    pub fn parse(text: &str) -> Result<Device, String> {
        alone(text, Device::TITLE, Device::read)
    }
}

impl Pool {
    /// Reads the parameters of a pool, as TOML.
    pub fn parse(text: &str) -> Result<Pool, String> {
        alone(text, Pool::TITLE, Pool::read)
    }
}

impl Volume {
    /// Reads the parameters of a volume, as TOML.
    pub fn parse(text: &str) -> Result<Volume, String> {
        alone(text, Volume::TITLE, Volume::read)
    }

    /// The mode in force: pass-through while the volume is off.
    pub fn in_force(&self) -> VolumeMode {
        self.mode.value.unless(self.off.value)
    }
}

impl Attach {
    /// Reads the parameters of an attachment, as TOML.
    pub fn parse(text: &str) -> Result<Attach, String> {
        alone(text, Attach::TITLE, Attach::read)
    }
}

impl Listen {
    /// Reads the parameters of a listener, as TOML.
    pub fn parse(text: &str) -> Result<Listen, String> {
        alone(text, Listen::TITLE, Listen::read)
    }
}

/// A section as the documentation shows it.
pub struct Reference {
    /// The title, with brackets.
    pub title: &'static str,
    /// The purpose of the section.
    pub about: &'static str,
    /// The parameters of the section.
    pub rows: Vec<ParameterRow>,
}

macro_rules! references {
    ($($section:ident)+) => {
        [$(Reference {
            title: $section::TITLE,
            about: $section::ABOUT.trim_ascii(),
            rows: $section::rows(),
        }),+]
    };
}

/// Every section, in the order of the documentation.
pub fn sections() -> [Reference; 7] {
    references!(Daemon Device Array Pool Volume Attach Listen)
}

/// The reference of every section, in Markdown.
pub fn reference() -> String {
    let mut out = String::new();
    for section in sections() {
        out += &format!("### `{}`\n\n{}\n\n", section.title, section.about);
        out += "| Parameter | Value | Default | Meaning |\n|---|---|---|---|\n";
        for row in &section.rows {
            let (name, form, help) = (row.name, &row.form, row.help);
            out += &format!("| `{name}` | {form} | {} | {help} |\n", row.default_text());
        }
        out += "\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use cache::CacheMode;

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        parse(text, &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_default_is_valid() {
        let config = "[[device]]\nname = 'a'\n[[array]]\nname = 'r'\nlevel = 'raid1'\nmembers = []\n\
             [[pool]]\nname = 'p'\ndevices = []\n\
             [[volume]]\nname = 'v'\norigin = 'a'\npool = 'p'\n[[listen]]\n";
        let mut problems = Vec::new();
        let config = parse(config, &mut problems);
        assert_eq!(problems, []);
        assert_eq!(config.daemon.buffers.value, ByteCount(256 << 20));
        assert_eq!(config.pools[0].line_size.value, ByteCount(64 << 10));
        assert_eq!(
            config.volumes[0].mode.value,
            VolumeMode::Cached(CacheMode::WriteThrough)
        );
        assert_eq!(config.volumes[0].line, 10);
    }

    #[test]
    fn every_error_is_reported_with_its_line() {
        let messages = problems(
            "colour = 1\n[[device]]\nname = 3\nsize = 1\n[[pool]]\nline_size = \"3k\"\npolicy = \"fifo\"\n",
        );
        let lines: Vec<&str> = messages
            .iter()
            .filter_map(|p| p.split(':').next())
            .collect();
        assert_eq!(lines, ["1", "4", "3", "5", "5", "6", "7"], "{messages:#?}");
        assert!(
            messages[1].contains("remove it, or use one of: name, path"),
            "{messages:#?}"
        );
    }

    #[test]
    fn broken_toml_is_reported_with_its_line() {
        let messages = problems("[daemon]\nbuffers = \n[[pool\n");
        assert_eq!(messages.len(), 2, "{messages:#?}");
        assert!(
            messages[0].starts_with("3: ") && messages[1].starts_with("2: "),
            "{messages:#?}"
        );
    }

    #[test]
    fn sections_of_the_wrong_shape_are_refused() {
        let messages = problems("device = 1\npool = [2]\n[[daemon]]\n");
        assert_eq!(messages.len(), 3, "{messages:#?}");
    }

    #[test]
    fn a_section_alone_is_read_as_in_the_file() {
        let volume = Volume::parse("name = \"v\"\norigin = \"o\"\npool = \"p\"\n").unwrap();
        assert_eq!(
            volume.mode.value,
            VolumeMode::Cached(CacheMode::WriteThrough)
        );
        assert!(
            Volume::parse("name = \"v\"")
                .unwrap_err()
                .contains("`origin`")
        );
        Device::parse("name = ").unwrap_err();
    }
}
