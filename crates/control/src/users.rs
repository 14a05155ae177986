//! The processes, mounts and devices that use a port, a socket or a device, by `/proc` and `/sys`.
//!
//! For messages alone: unreadable and hidden entries are left out.
//!
//! Invariant: no port, socket or device is opened.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// State of a listening socket in `/proc/net/tcp`.
const LISTENS: &str = "0A";
/// Flag of a listening socket in `/proc/net/unix`.
const ACCEPTS: &str = "00010000";

/// The users as "X and Y"; `None` without any.
pub fn listed(users: &[String]) -> Option<String> {
    (!users.is_empty()).then(|| users.join(" and "))
}

/// The processes that keep `address` from being listened on.
pub fn of_port(address: SocketAddr) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let inodes = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| listening(&read(file), address));
    with_sockets(&inodes.concat())
}

/// The processes that listen on the unix socket at `path`.
pub fn of_socket(path: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let wanted = path.to_str().unwrap_or_default();
    let inodes = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, _, _, ACCEPTS, _, _, inode, at] if at == wanted => Some(inode.to_owned()),
            _ => None,
        }
    });
    with_sockets(&inodes.collect::<Vec<_>>())
}

/// The kernel's tables of locks, mounts and swap, as of one reading.
pub struct FileUsers {
    locks: String,
    mounts: String,
    swaps: String,
}

impl FileUsers {
    /// Reads the tables.
    pub fn read() -> FileUsers {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        FileUsers {
            locks: read("/proc/locks"),
            mounts: read("/proc/self/mountinfo"),
            swaps: read("/proc/swaps"),
        }
    }

    /// The users of the file or block device at `path`: locks, mounts, swap, devices above it.
    pub fn of(&self, path: &Path) -> Vec<String> {
        let Ok(file) = fs::metadata(path) else {
            return Vec::new();
        };
        let place = format!("{}:{}", numbers(file.dev(), true), file.ino());
        let lockers = lockers(&self.locks, &place);
        let mut users: Vec<String> = lockers.iter().map(|pid| process(pid)).collect();
        if file.file_type().is_block_device() {
            users.extend(swapped(&self.swaps, path));
            for folder in with_partitions(&numbers(file.rdev(), false)) {
                let number = fs::read_to_string(folder.join("dev")).unwrap_or_default();
                users.extend(mounted(&self.mounts, number.trim()));
                let holders = names(&folder.join("holders"));
                users.extend(holders.map(|name| format!("the device {name}")));
            }
        }
        users.sort();
        users.dedup();
        users
    }
}

/// The numbers of a device in the kernel's notation.
fn numbers(device: u64, hexadecimal: bool) -> String {
    // The C library packs the numbers so.
    let major = (device >> 8) & 0xfff | (device >> 32) & !0xfff;
    let minor = device & 0xff | (device >> 12) & !0xff & 0xffff_ffff;
    match hexadecimal {
        true => format!("{major:02x}:{minor:02x}"),
        false => format!("{major}:{minor}"),
    }
}

/// The folders of a block device and its partitions in `/sys`.
fn with_partitions(numbers: &str) -> Vec<PathBuf> {
    let disk = PathBuf::from(format!("/sys/dev/block/{numbers}"));
    let below = names(&disk).map(|name| disk.join(name));
    let parts: Vec<PathBuf> = below.filter(|f| f.join("partition").exists()).collect();
    [vec![disk], parts].concat()
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// The processes that lock all of the file at `place`.
fn lockers(locks: &str, place: &str) -> Vec<String> {
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, "WRITE", pid, at, ..] if at == place => Some(pid.to_owned()),
            _ => None,
        }
    };
    locks.lines().filter_map(of).collect()
}

/// The mounts of a block device.
fn mounted(mounts: &str, number: &str) -> Vec<String> {
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(2) == Some(&number)).then(|| format!("the mount at {}", words[4]))
    };
    mounts.lines().filter_map(of).collect()
}

/// Swap, if it is on the device at `path`.
fn swapped(swaps: &str, path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let is_it = |line: &str| line.split_whitespace().next() == path.to_str();
    swaps.lines().any(is_it).then(|| "swap".into())
}

/// The inodes of sockets that listen on a port of `address`, by a table of the kernel's.
fn listening(table: &str, address: SocketAddr) -> Vec<String> {
    let ours = written(address.ip());
    let any = |ip: &str| ip.bytes().all(|digit| digit == b'0');
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = words.get(1)?.split_once(':')?;
        let same = ip == ours || any(ip) || any(&ours);
        let port = u16::from_str_radix(port, 16).ok()?;
        let found = words[3] == LISTENS && port == address.port() && same;
        found.then(|| words.get(9).copied().unwrap_or_default().to_owned())
    };
    table.lines().filter_map(of).collect()
}

/// An address in the notation of the kernel's tables: words of 32 bits, each in the byte order of
/// this machine.
fn written(ip: IpAddr) -> String {
    let words = |bytes: &[u8]| {
        let words = bytes.chunks(4).map(|word| {
            let word = u32::from_ne_bytes(word.try_into().expect("4 bytes"));
            format!("{word:08X}")
        });
        words.collect()
    };
    match ip {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    }
}

/// The processes that have one of these sockets open.
fn with_sockets(inodes: &[String]) -> Vec<String> {
    let links: Vec<PathBuf> = inodes
        .iter()
        .map(|inode| PathBuf::from(format!("socket:[{inode}]")))
        .collect();
    if links.is_empty() {
        return Vec::new();
    }
    let is_process = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    let has = |pid: &String| {
        let folder = format!("/proc/{pid}/fd");
        names(Path::new(&folder)).any(|fd| {
            let link = fs::read_link(format!("{folder}/{fd}"));
            link.is_ok_and(|link| links.contains(&link))
        })
    };
    let processes = names(Path::new("/proc")).filter(is_process).filter(has);
    processes.map(|pid| process(&pid)).collect()
}

/// The description of a process.
fn process(pid: &str) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{} (process {pid})", name.trim()),
        Err(_) => format!("process {pid}, which has ended or is another user's"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    fn me() -> String {
        process(&std::process::id().to_string())
    }

    #[test]
    fn a_process_is_found_by_what_it_listens_on() {
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = v4.local_addr().unwrap();
        assert_eq!(of_port(address), [me()]);
        let any = SocketAddr::new("0.0.0.0".parse().unwrap(), address.port());
        assert_eq!(of_port(any), [me()]);
        drop(v4);
        assert_eq!(of_port(address), Vec::<String>::new());
        if let Ok(v6) = TcpListener::bind("[::1]:0") {
            assert_eq!(of_port(v6.local_addr().unwrap()), [me()]);
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listens = UnixListener::bind(&path).unwrap();
        assert_eq!(of_socket(&path), [me()]);
        assert_eq!(of_socket(&dir.path().join("none")), Vec::<String>::new());
    }

    #[test]
    fn a_process_is_found_by_its_lock_as_of_one_reading() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = fs::File::create(&path).unwrap();
        let before = FileUsers::read();
        file.lock().unwrap();
        assert_eq!(before.of(&path), Vec::<String>::new());
        let now = FileUsers::read();
        assert_eq!(now.of(&path), [me()]);
        assert_eq!(listed(&now.of(&path)), Some(me()));
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let tcp = "  sl  local_address rem_address   st\n\
                   0: 0100007F:2A51 00000000:0000 0A 0:0 00:0 0 0 0 4711 1\n\
                   1: 0100007F:2A51 0100007F:99 01 0:0 00:0 0 0 0 4712 1\n\
                   2: 00000000:2A52 00000000:0000 0A 0:0 00:0 0 0 0 4713 1\n";
        let at = |text: &str| listening(tcp, text.parse().unwrap());
        assert_eq!(at("127.0.0.1:10833"), ["4711"]);
        assert_eq!(at("127.0.0.2:10833"), Vec::<String>::new());
        assert_eq!(at("127.0.0.2:10834"), ["4713"]);
        let mounts = "29 1 8:1 / /boot rw - ext4 /dev/sda1 rw\n30 1 8:2 / / rw - ext4 x rw\n";
        assert_eq!(mounted(mounts, "8:1"), ["the mount at /boot"]);
        let swaps = "Filename Type Size\n/dev/null partition 8 0 -2\n";
        assert_eq!(swapped(swaps, Path::new("/dev/null")), Some("swap".into()));
        assert_eq!(swapped(swaps, Path::new("/dev/zero")), None);
        let locks = "1: FLOCK  ADVISORY  WRITE 12 08:01:77 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 13 08:01:77 0 EOF\n";
        assert_eq!(lockers(locks, "08:01:77"), ["12"]);
    }
}
