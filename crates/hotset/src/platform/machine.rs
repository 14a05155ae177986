//! Facts on this machine, this process, and devices.

use block::Nanos;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Seek as _};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

/// The directory of a block device in sysfs; `None` for another file.
pub fn block_device(file: &fs::Metadata) -> Option<PathBuf> {
    let (major, minor) = (libc::major(file.rdev()), libc::minor(file.rdev()));
    let is_one = file.file_type().is_block_device();
    is_one.then(|| PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
}

/// The size in bytes of the file or block device at `path`.
pub fn size(path: &str) -> io::Result<u64> {
    fs::File::open(path)?.seek(io::SeekFrom::End(0))
}

/// The permanent name of this host.
pub fn host() -> String {
    let read = |path| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let id = read("/etc/machine-id");
    if id.is_empty() {
        read("/etc/hostname")
    } else {
        id
    }
}

/// A random name.
pub fn uuid() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let half = |n: u64| u128::from(RandomState::new().hash_one((n, std::process::id())));
    half(1) << 64 | half(2)
}

/// The time of day, in seconds since 1970.
pub fn time_of_day() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs().max(1))
}

/// A time in seconds since 1970 as a date and a time of day, UTC, for names of files.
pub fn calendar(seconds: u64) -> String {
    let time = libc::time_t::try_from(seconds).unwrap_or(libc::time_t::MAX);
    // SAFETY: both structures are ours, and all zeroes is a valid `tm`.
    let date = unsafe {
        let mut date: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&raw const time, &raw mut date);
        date
    };
    let (year, month, day) = (date.tm_year + 1900, date.tm_mon + 1, date.tm_mday);
    let (hour, minute, second) = (date.tm_hour, date.tm_min, date.tm_sec);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// The time of day since 1970.
pub fn clock() -> Nanos {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// User and system time of this process.
pub fn cpu_time() -> Nanos {
    // SAFETY: all zeroes is a valid, writable `rusage`.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let span = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    let spent = span(usage.ru_utime) + span(usage.ru_stime);
    Nanos(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX))
}

/// The threads of shards, by the number of the shard.
static SHARDS: Mutex<BTreeMap<u32, libc::pid_t>> = Mutex::new(BTreeMap::new());

/// Notes that the calling thread is the shard `number`.
pub fn note_shard(number: u32) {
    // SAFETY: no pointers are involved.
    let thread = unsafe { libc::gettid() };
    let mut shards = SHARDS.lock().expect("no panic under this lock");
    shards.insert(number, thread);
}

/// User and system time of each shard.
pub fn shard_times() -> Vec<Nanos> {
    let shards = SHARDS.lock().expect("no panic under this lock");
    let time = |thread: &libc::pid_t| {
        let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
        let nanos = text.ok()?.split(' ').next()?.parse().ok()?;
        Some(Nanos(nanos))
    };
    let times = shards
        .values()
        .map(|thread| time(thread).unwrap_or_default());
    times.collect()
}

/// Resident memory of this process; 0 where the system reports none.
pub fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    // SAFETY: no pointers are involved.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * u64::try_from(page).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(calendar(0), "19700101-000000");
        assert_eq!(calendar(1_764_353_287), "20251128-180807");
    }
}
