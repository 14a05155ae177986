//! Checks that this machine has the devices, files, sockets and memory of a configuration.

use super::arrays;
use crate::config::{At, ByteCount, Config, Device, Listen, Name, Volume, VolumeMode};
use crate::memory::{self, LOG_BLOCK_BYTES};
use crate::problem::ConfigurationProblem;
use crate::users::{self, FileUsers};
use nbd::tls::{Acceptor, SIGN_AGAIN, TlsIdentity, old_version, valid_between};
use raid::BLOCK_BYTES;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use writelog::{JOURNAL_BYTES_MIN, LOG_BYTES_MIN};

/// The longest path of a unix socket, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Appends the problems of the devices on this machine. Their users wait, or run without them.
pub fn devices(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    let (volumes, users) = (volumes_by_device(config), FileUsers::read());
    for device in &config.devices {
        readable(&device.tls_ca, problems);
        let Some(path) = &device.path else { continue };
        let volumes = volumes
            .get(&device.name.value)
            .map_or(&[][..], Vec::as_slice);
        let size = match openable(device) {
            Ok(size) => size,
            // An array goes on without some of its members.
            Err(_) if arrays::is_member(config, &device.name) && !path.exists() => continue,
            Err((what, remedy)) => {
                let remedy = match may_be_read(volumes, &device.name.value) {
                    true => format!("{remedy}, or give it and its volume `read_only = true`"),
                    false => remedy.to_owned(),
                };
                problems.push(ConfigurationProblem::new(path.line, what, remedy));
                continue;
            }
        };
        if let Some(by) = users::listed(&users.of(&path.value)) {
            let what = format!("{} is in use by {by}", path.display());
            let remedy = "stop that, perhaps another hotset, or choose another device";
            problems.push(ConfigurationProblem::new(path.line, what, remedy));
        }
        if size == 0 || !size.is_multiple_of(block::SECTOR_BYTES) {
            let what = format!("{} has {}", path.display(), ByteCount(size));
            let remedy = "give it a size that is a multiple of 512 bytes";
            problems.push(ConfigurationProblem::new(path.line, what, remedy));
        }
        for volume in volumes {
            if volume.origin.value == device.name.value
                && let Some(wanted) = &volume.size
                && wanted.value.0 > size
            {
                let what = format!(
                    "volume {} of {} is larger than its origin {} of {}",
                    volume.name.value,
                    wanted.value,
                    device.name.value,
                    ByteCount(size)
                );
                let remedy = "make the origin larger, or the volume smaller";
                problems.push(ConfigurationProblem::new(wanted.line, what, remedy));
            }
        }
        written_back(volumes, device, size, problems);
        cached(config, device, size, problems);
    }
}

/// Appends the arrays with members that are all here and blank: they wait to be made.
pub fn unmade(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    for array in config.arrays.iter().filter(|array| !array.raw.value) {
        let is_blank = |member: &Name| {
            let mut devices = config.devices.iter();
            let device = devices.find(|device| device.name.value == *member);
            let path = device.and_then(|device| device.path.as_ref());
            path.is_some_and(|path| begins_blank(&path.value))
        };
        if array.members.value.iter().all(is_blank) {
            let name = &array.name;
            let what = format!("array {} is not made yet", name.value);
            let remedy = format!("make it with `hotset array create {}`", name.value);
            problems.push(ConfigurationProblem::new(name.line, what, remedy));
        }
    }
}

/// True if a device can be read, and has zeroes in the place of an array's superblocks.
fn begins_blank(path: &Path) -> bool {
    let mut superblocks = [0; 2 * BLOCK_BYTES];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut superblocks, 0));
    read.is_ok() && superblocks.iter().all(|byte| *byte == 0)
}

/// Appends a problem if a pool device of `size` bytes has room for too few lines.
fn cached(config: &Config, device: &Device, size: u64, problems: &mut Vec<ConfigurationProblem>) {
    let name = &device.name.value;
    for pool in &config.pools {
        let line = &pool.line_size.value;
        let lines = cache::lines_on(size, line.0);
        if pool.devices.value.contains(name)
            && let Some(what) = few_lines(lines, *line)
        {
            let what = format!("{name} of pool {} {what}", pool.name.value);
            problems.push(ConfigurationProblem::new(
                pool.devices.line,
                what,
                "give it a larger device",
            ));
        }
    }
}

/// A pool with fewer lines caches hardly anything.
const LINES_FEW: u32 = 64;

/// Says that a device, or a whole pool, has room for few lines; `None` if there are enough.
pub fn few_lines(lines: u32, line: ByteCount) -> Option<String> {
    match lines {
        0 => Some(format!(
            "has no room for a line of {line} beside its metadata"
        )),
        1..LINES_FEW => Some(format!(
            "has room for {lines} lines of {line} alone, which keep hardly anything"
        )),
        _ => None,
    }
}

/// The volumes of each device, as origin, log or journal.
fn volumes_by_device(config: &Config) -> HashMap<&Name, Vec<&Volume>> {
    let mut by_device: HashMap<&Name, Vec<&Volume>> = HashMap::new();
    for volume in &config.volumes {
        let journal = volume.journal.iter().map(|journal| &journal.value);
        let log = volume.log.value.iter().chain(journal);
        for device in log.chain([&volume.origin.value]) {
            let volumes = by_device.entry(device).or_default();
            if volumes
                .last()
                .is_none_or(|last| !std::ptr::eq(*last, volume))
            {
                volumes.push(volume);
            }
        }
    }
    by_device
}

/// True if the device is an origin that can be served without writes.
fn may_be_read(volumes: &[&Volume], device: &Name) -> bool {
    let mut volumes = volumes.iter();
    volumes
        .any(|volume| volume.origin.value == *device && volume.in_force() != VolumeMode::WriteBack)
}

/// Appends sizes of `device` that are too small for those of its `volumes` that are write-back.
fn written_back(
    volumes: &[&Volume],
    device: &Device,
    size: u64,
    problems: &mut Vec<ConfigurationProblem>,
) {
    let device = &device.name.value;
    let all = volumes.iter();
    for volume in all.filter(|v| v.mode.value == VolumeMode::WriteBack) {
        let name = &volume.name.value;
        let mut small = |part: &str, line: u32, least: u64| {
            if size < least {
                let what = format!(
                    "the {part} of volume {name} needs {}, and {device} has {}",
                    ByteCount(least),
                    ByteCount(size)
                );
                problems.push(ConfigurationProblem::new(
                    line,
                    what,
                    "give it a larger device",
                ));
            }
        };
        if volume.log.value.contains(device) {
            small("log", volume.log.line, LOG_BYTES_MIN);
        }
        if let Some(journal) = volume.journal.as_ref().filter(|j| j.value == *device) {
            small("journal", journal.line, JOURNAL_BYTES_MIN);
        }
        let served = volume.size.as_ref().map_or(size, |wanted| wanted.value.0);
        if volume.origin.value == *device && !served.is_multiple_of(LOG_BLOCK_BYTES) {
            let what = format!("volume {name} is write-back and has {}", ByteCount(served));
            let remedy = "give it a `size` that is a multiple of 4 KiB";
            problems.push(ConfigurationProblem::new(volume.mode.line, what, remedy));
        }
    }
}

/// Appends the lack of memory, counting the devices whose files can be opened.
pub fn memory(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    let devices = config.devices.iter();
    let devices: HashMap<&Name, &Device> = devices.map(|d| (&d.name.value, d)).collect();
    let size = |name: &Name| openable(devices.get(name)?).ok();
    let needs = memory::needs(config, size);
    problems.extend(memory::shortage(&needs, memory::room(0)));
}

/// Appends obstacles to listening on sockets. `is_listened` tests for a listener on the unix socket
/// at a path.
pub fn sockets(
    config: &Config,
    is_listened: impl Fn(&Path) -> bool,
    problems: &mut Vec<ConfigurationProblem>,
) {
    let control = &config.daemon.control;
    socket(control.line, &control.value, &is_listened, problems);
    for listen in &config.listeners {
        for path in [&listen.unix, &listen.vhost_user].into_iter().flatten() {
            socket(path.line, &path.value, &is_listened, problems);
        }
        if listen.vhost_user.is_none() {
            certificates(listen, problems);
        }
    }
}

/// Appends obstacles to listening on ports.
pub fn ports(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    for tcp in config
        .listeners
        .iter()
        .filter_map(|listen| listen.tcp.as_ref())
    {
        if let Err(cause) = TcpListener::bind(tcp.value.0) {
            let address = tcp.value.0;
            let remedy = match cause.kind() {
                ErrorKind::AddrInUse => {
                    "stop what listens there, perhaps another hotset, or choose another port"
                }
                ErrorKind::AddrNotAvailable => "choose an address of this machine",
                _ => "choose another port",
            };
            let by = users::listed(&users::of_port(address));
            let what = match by.filter(|_| cause.kind() == ErrorKind::AddrInUse) {
                Some(by) => format!("{address} cannot be listened on, for {by} does"),
                None => format!("{address} cannot be listened on ({cause})"),
            };
            problems.push(ConfigurationProblem::new(tcp.line, what, remedy));
        }
    }
}

/// Appends the problems of a listener's certificate, its key, and its authority for clients.
fn certificates(listen: &Listen, problems: &mut Vec<ConfigurationProblem>) {
    let before = problems.len();
    let mut read = |file: &Option<At<PathBuf>>| {
        readable(file, problems);
        let file = file.as_ref()?;
        Some((std::fs::read(&file.value).ok()?, file.line))
    };
    let (certificate, key) = (read(&listen.tls_certificate), read(&listen.tls_key));
    let authority = read(&listen.tls_client_ca);
    let (Some((certificates, line)), Some((key, _))) = (certificate, key) else {
        return;
    };
    if problems.len() > before {
        return;
    }
    if let (Some(old), Some(file)) = (old_version(&certificates), &listen.tls_certificate) {
        let file = file.value.display();
        let what = format!("the certificate of {file} has version {old}, and TLS needs version 3");
        problems.push(ConfigurationProblem::new(line, what, SIGN_AGAIN));
        return;
    }
    let identity = TlsIdentity {
        certificates: &certificates,
        key: &key,
    };
    let authority = authority.as_ref().map(|(pem, _)| pem.as_slice());
    if let Err(error) = Acceptor::new(identity, authority) {
        let remedy = "give files in PEM: a certificate, its own key, and an authority";
        problems.push(ConfigurationProblem::new(line, error.to_string(), remedy));
    }
}

/// Appends certificates that clients refuse for their dates; `now` is in seconds since 1970.
pub fn dates(config: &Config, now: u64, found: &mut Vec<ConfigurationProblem>) {
    for listen in &config.listeners {
        let Some(file) = &listen.tls_certificate else {
            continue;
        };
        let pem = std::fs::read(&file.value).unwrap_or_default();
        let Some((from, until)) = valid_between(&pem) else {
            continue;
        };
        let name = file.value.display();
        let days = |seconds: u64| match seconds.div_ceil(24 * 3600) {
            1 => "1 day".to_owned(),
            days => format!("{days} days"),
        };
        let what = match (now.checked_sub(until), from.checked_sub(now)) {
            (Some(past), _) if past > 0 => {
                format!("the certificate of {name} has expired, {} ago", days(past))
            }
            (_, Some(ahead)) if ahead > 0 => {
                format!(
                    "the certificate of {name} is not valid yet, for {}",
                    days(ahead)
                )
            }
            _ => continue,
        };
        let remedy = "renew it, and run `hotset reload`: clients refuse it";
        found.push(ConfigurationProblem::new(file.line, what, remedy));
    }
}

/// Checks that a file of certificates or a key can be read, if one is given.
fn readable(file: &Option<At<PathBuf>>, problems: &mut Vec<ConfigurationProblem>) {
    if let Some(file) = file
        && let Err(cause) = File::open(&file.value)
    {
        let what = format!("{} cannot be read ({cause})", file.value.display());
        let remedy = "correct the path, or let this user read it";
        problems.push(ConfigurationProblem::new(file.line, what, remedy));
    }
}

/// The size of a device's file in bytes, if the file can be opened as configured; else the problem
/// and the remedy.
pub fn openable(device: &Device) -> Result<u64, (String, &'static str)> {
    let Some(path) = device.path.as_deref() else {
        return Err(("an NBD export is no file".into(), "give a `path`"));
    };
    let name = path.display();
    let cannot = |cause: std::io::Error| {
        let remedy = match cause.kind() {
            ErrorKind::NotFound if path.starts_with("/dev") => {
                "correct the path, or attach the device"
            }
            ErrorKind::NotFound => "correct the path, or mount its file system",
            ErrorKind::PermissionDenied => "let this user read and write it",
            ErrorKind::ReadOnlyFilesystem => "mount its file system for writing",
            _ => "see that the device is attached and works",
        };
        (format!("{name} cannot be opened ({cause})"), remedy)
    };
    let meta = std::fs::metadata(path).map_err(cannot)?;
    if !meta.is_file() && !meta.file_type().is_block_device() {
        let what = format!("{name} is neither a file nor a block device");
        return Err((what, "name one of these"));
    }
    let mut file = OpenOptions::new()
        .read(true)
        .write(!device.read_only.value)
        .open(path)
        .map_err(cannot)?;
    file.seek(SeekFrom::End(0)).map_err(cannot)
}

/// Checks that a unix socket can be made at `path`.
fn socket(
    line: u32,
    path: &Path,
    is_listened: &impl Fn(&Path) -> bool,
    problems: &mut Vec<ConfigurationProblem>,
) {
    let name = path.display();
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        let what = format!("the path of the socket {name} is too long");
        let remedy = format!("choose one of at most {SOCKET_PATH_BYTES_MAX} bytes");
        problems.push(ConfigurationProblem::new(line, what, remedy));
        return;
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    if !directory.is_dir() {
        let what = format!("there is no directory {} for a socket", directory.display());
        let remedy = format!("create it: mkdir -p {}", directory.display());
        problems.push(ConfigurationProblem::new(line, what, remedy));
        return;
    }
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            let what = format!("{name} exists and is no socket");
            problems.push(ConfigurationProblem::new(
                line,
                what,
                "choose another path, or remove it",
            ));
        }
        Ok(_) if is_listened(path) => {
            let by = users::listed(&users::of_socket(path));
            let by = by.unwrap_or_else(|| "another process".into());
            let what = format!("the socket {name} is in use by {by}");
            let remedy = "stop that, perhaps another hotset, or choose another path";
            problems.push(ConfigurationProblem::new(line, what, remedy));
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let config = parse(text, &mut problems);
        assert_eq!(problems, [], "{text}");
        let connects = |path: &Path| UnixStream::connect(path).is_ok();
        devices(&config, &mut problems);
        sockets(&config, connects, &mut problems);
        ports(&config, &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sizes_that_write_back_cannot_have_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let found = |size: u64, volume: &str| {
            File::create(&path).unwrap().set_len(size).unwrap();
            let text = format!(
                "[[device]]\nname = \"d\"\npath = \"{}\"\n[[volume]]\nname = \"v\"\npool = \"p\"\n\
                 mode = \"write-back\"\n{volume}\n",
                path.display()
            );
            let mut found = Vec::new();
            devices(&parse(&text, &mut Vec::new()), &mut found);
            let each = found.iter().map(ToString::to_string);
            each.collect::<Vec<String>>()
        };
        let least = LOG_BYTES_MIN;
        for (size, volume, expected) in [
            (
                least - 4096,
                "origin = \"o\"\nlog = [\"d\"]",
                "the log of volume v needs 9 MiB, and d has 9212 KiB",
            ),
            (
                least - 4096,
                "origin = \"o\"\njournal = \"d\"",
                "the journal of volume v needs 9 MiB, and d has 9212 KiB",
            ),
            (
                4608,
                "origin = \"d\"",
                "volume v is write-back and has 4608 B; give it a `size`",
            ),
        ] {
            let said = found(size, volume);
            assert!(said.len() == 1 && said[0].contains(expected), "{said:?}");
        }
        for volume in [
            "origin = \"d\"",
            "origin = \"o\"\nlog = [\"d\"]\njournal = \"d\"",
        ] {
            assert_eq!(found(least, volume), Vec::<String>::new());
        }
        assert_eq!(
            found(4608, "origin = \"d\"\nsize = \"4KiB\""),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_device_too_small_for_its_pool_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let text = format!(
            "[[device]]\nname = \"d\"\npath = \"{}\"\n[[pool]]\nname = \"p\"\ndevices = [\"d\"]\n",
            path.display()
        );
        for (size, expected) in [
            (128 << 10, "6: d of pool p has no room for a line of 64 KiB"),
            (1 << 20, "lines of 64 KiB alone, which keep hardly anything"),
            (16 << 20, ""),
        ] {
            File::create(&path).unwrap().set_len(size).unwrap();
            let mut found = Vec::new();
            devices(&parse(&text, &mut Vec::new()), &mut found);
            let said: String = found.iter().map(ToString::to_string).collect();
            assert!(
                said.contains(expected) && said.is_empty() == expected.is_empty(),
                "{said}"
            );
        }
    }

    #[test]
    fn what_the_machine_lacks_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let file = at("file");
        std::fs::write(&file, [0; 4096]).unwrap();
        let live = at("live");
        let _listener = UnixListener::bind(&live).unwrap();
        let long = at(&"x".repeat(100));
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = port.local_addr().unwrap();
        let odd = at("odd");
        std::fs::write(&odd, [0; 513]).unwrap();
        let device = |path: &str| format!("[[device]]\nname = \"d\"\npath = \"{path}\"\n");
        let listen =
            |rest: &str| format!("[daemon]\ncontrol = \"{}\"\n[[listen]]\n{rest}\n", at("c"));
        let volume = "[[volume]]\nname = \"v\"\norigin = \"d\"\npool = \"p\"\nsize = \"1MiB\"\n";
        let directory = dir.path().display().to_string();
        for (text, expected) in [
            (
                device(&at("missing")),
                "correct the path, or mount its file system",
            ),
            (device(&directory), "is neither a file"),
            (
                device(&file) + volume,
                "8: volume v of 1 MiB is larger than its origin d of 4 KiB",
            ),
            (listen(&format!("unix = \"{live}\"")), "4: the socket"),
            (
                listen(&format!("unix = \"{file}\"")),
                "exists and is no socket",
            ),
            (listen(&format!("unix = \"{long}\"")), "too long"),
            (
                listen(&format!("unix = \"{}\"", at("no/where"))),
                "there is no directory",
            ),
            (
                listen(&format!("tls_key = \"{}\"", at("key"))),
                "cannot be read",
            ),
            (
                listen(&format!(
                    "tls_certificate = \"{file}\"\ntls_key = \"{file}\""
                )),
                "no certificate in it",
            ),
            (
                listen(&format!("tcp = \"{taken}\"")),
                "cannot be listened on",
            ),
            (device(&odd), "has 513 B"),
        ] {
            let mut text = text;
            if !text.contains("[daemon]") {
                text += &listen("");
            }
            let problems = problems(&text);
            assert_eq!(problems.len(), 1, "{expected:?}: {problems:#?}");
            assert!(
                problems[0].contains(expected),
                "{expected:?}: {problems:#?}"
            );
        }
        assert_eq!(
            problems(&(device(&file) + &listen(""))),
            Vec::<String>::new()
        );
        assert_eq!(std::fs::read(&file).unwrap(), [0; 4096]);
    }
}
