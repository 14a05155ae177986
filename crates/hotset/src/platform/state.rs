//! The directory of the witnesses of pools and logs.
//!
//! A *witness* is a file there, one a pool: it knows which devices were in the pool when its
//! volumes were last written, whatever becomes of the devices. So does a witness of the log of each
//! write-back volume.

use super::claim::{OPEN_MAX, once_left};
use super::ublk::stack::refuse_own;
use block::{Deadline, IoError, IoErrorKind, IoResult, TargetId, Timer};
use control::replace::{SHARED, replace_with};
use layout::{
    BLOCK_BYTES, LOG_WITNESS_BYTES, LogSuperblock, PlannedArea, PoolSuperblock, SUPERBLOCK_BLOCKS,
    SuperblockError, WITNESS_BLOCKS, witness_superblock,
};
use node::{LogWitness, Remembered};
use shard::{Local, ShardDisk};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use uring::{DiskOptions, Uring, UringDriver};

const SUPERBLOCK_BYTES: usize = SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES;
const SUFFIX: &str = "pool";
const LOG_SUFFIX: &str = "log";

/// The path of a pool's witness.
pub fn file_of(state: &Path, pool: &str) -> PathBuf {
    state.join(format!("{pool}.{SUFFIX}"))
}

/// The path of the witness of a volume's log.
pub fn log_file_of(state: &Path, volume: &str) -> PathBuf {
    state.join(format!("{volume}.{LOG_SUFFIX}"))
}

fn cannot(path: &Path, cause: std::io::Error) -> IoError {
    if let Some(refused) = uring::without_descriptor(&cause) {
        return refused.on(path.display().to_string());
    }
    let what = "what pools remember cannot be kept here: let this user write it, free some space, \
                or set `state` of [daemon] to a directory that can be written";
    let error = IoError::new(IoErrorKind::Denied, what).on(path.display().to_string());
    error.because(cause)
}

/// Opens the witness of a pool; makes a missing one.
pub async fn witness(
    state: &Path,
    pool: &str,
    host: &Uring,
    local: &Local<UringDriver>,
) -> IoResult<(TargetId, ShardDisk<UringDriver>)> {
    let path = file_of(state, pool);
    let is_ours = |bytes: &[u8]| superblock(bytes).is_ok();
    let whole = WITNESS_BLOCKS * BLOCK_BYTES as u64;
    let (state, file) = (state.to_owned(), path.clone());
    let making = host.aside(move || make(&state, &file, whole, is_ours));
    in_time(&local.env().timer, &path, async { making.await? }).await?;
    open(&path, host, local).await
}

/// Decodes the superblock of a pool's witness.
fn superblock(bytes: &[u8]) -> Result<PoolSuperblock, SuperblockError> {
    witness_superblock(|area: PlannedArea| {
        let [start, end] = [area.start, area.end()].map(|block| block as usize * BLOCK_BYTES);
        bytes.get(start..end).map(<[u8]>::to_vec)
    })
}

/// Opens the witness of a volume's log; makes a missing one.
pub async fn log_witness(
    state: &Path,
    volume: &str,
    host: &Uring,
    local: &Local<UringDriver>,
) -> IoResult<(TargetId, ShardDisk<UringDriver>)> {
    let path = log_file_of(state, volume);
    let is_ours = |bytes: &[u8]| LogSuperblock::decode(&bytes[..BLOCK_BYTES]).is_ok();
    let (state, file) = (state.to_owned(), path.clone());
    let making = host.aside(move || make(&state, &file, LOG_WITNESS_BYTES, is_ours));
    in_time(&local.env().timer, &path, async { making.await? }).await?;
    open(&path, host, local).await
}

/// Makes a file of `whole` bytes if missing or cut short. The file is complete or unchanged,
/// whenever the disk is full or the power goes.
fn make(state: &Path, path: &Path, whole: u64, is_ours: fn(&[u8]) -> bool) -> IoResult {
    refuse_own(state)?;
    fs::create_dir_all(state).map_err(|cause| cannot(state, cause))?;
    let mut bytes = match fs::metadata(path) {
        Ok(file) if file.len() >= whole => return Ok(()),
        Ok(_) => contents(path)?,
        Err(cause) if cause.kind() == ErrorKind::NotFound => Vec::new(),
        Err(cause) => return Err(cannot(path, cause)),
    };
    let last = bytes.iter().rposition(|byte| *byte != 0);
    let used = last.map_or(0, |last| last + 1);
    bytes.resize(whole as usize, 0);
    if used > 0 && !is_ours(&bytes) {
        let what = "is somebody else's, or was cut short; move it away";
        return Err(IoError::new(IoErrorKind::Invalid, what).on(path.display().to_string()));
    }
    let made = replace_with(path, SHARED, |file| {
        file.write_all(&bytes[..used])?;
        allocate(file, whole)
    });
    made.map_err(|cause| cannot(path, cause))
}

/// Gives a file so many bytes, which its file system has room for from then on.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: `file` stays open during the call, which takes no memory of ours.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as i64) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Runs `work` at `path`, for at most [`OPEN_MAX`]: the file system of `state` may not answer.
pub async fn in_time<T>(
    timer: &Timer,
    path: &Path,
    work: impl Future<Output = IoResult<T>>,
) -> IoResult<T> {
    let done = Deadline::new(timer, OPEN_MAX).bound(work).await;
    done.unwrap_or_else(|| {
        let what = "does not answer; see to the file system of `state`";
        Err(IoError::new(IoErrorKind::Timeout, what).on(path.display().to_string()))
    })
}

async fn open(
    path: &Path,
    host: &Uring,
    local: &Local<UringDriver>,
) -> IoResult<(TargetId, ShardDisk<UringDriver>)> {
    let options = DiskOptions {
        buffered: true,
        read_only: false,
        exclusive: true,
        block: None,
        name: Some(path.display().to_string()),
    };
    let timer = local.env().timer;
    let open = async || {
        let open = async || in_time(&timer, path, host.open_disk_aside(path, &options)).await;
        once_left(&timer, path, open).await
    };
    let (target, _) = node::claimed(&timer, open).await?;
    Ok((target, local.disk(target)?))
}

/// The files in `state` with that suffix.
fn files(state: &Path, suffix: &str) -> IoResult<Vec<PathBuf>> {
    let files = match fs::read_dir(state) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        files => files.map_err(|cause| cannot(state, cause))?,
    };
    let mut found = Vec::new();
    for file in files {
        let path = file.map_err(|cause| cannot(state, cause))?.path();
        if path.extension().is_some_and(|found| found == suffix) {
            found.push(path);
        }
    }
    Ok(found)
}

fn contents(path: &Path) -> IoResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|cause| unidentified(path, cause))?;
    Ok(bytes)
}

/// The witnesses of all logs. A blank file is that of a log that was never begun; one of another
/// length and without a superblock belongs to another program.
pub fn logs(state: &Path) -> IoResult<Vec<LogWitness>> {
    let mut found = Vec::new();
    for file in files(state, LOG_SUFFIX)? {
        if file.is_dir() {
            continue;
        }
        let mut bytes = contents(&file)?;
        let is_whole = bytes.len() as u64 == LOG_WITNESS_BYTES;
        bytes.resize(LOG_WITNESS_BYTES as usize, 0);
        let (first, second) = bytes.split_at(BLOCK_BYTES);
        match LogSuperblock::newest([Some(first), Some(second)]) {
            Ok(superblock) => found.push(LogWitness { file, superblock }),
            Err(SuperblockError::Blank) => {}
            Err(SuperblockError::Foreign(_)) if !is_whole => {}
            Err(error) => {
                let what = format!(
                    "it may record dirty data of a write-back volume, and cannot be read: {error}. \
                     If both devices of its log are there, which say the same, or it is not \
                     hotset's, move it away"
                );
                return Err(IoError::new(IoErrorKind::Corrupt, what).on(file.display().to_string()));
            }
        }
    }
    Ok(found)
}

/// Pools of other configurations that remember volumes. `Err` if there may be unreadable ones.
pub fn others(state: &Path, ours: &[String]) -> IoResult<Vec<Remembered>> {
    let mut found = Vec::new();
    for path in files(state, SUFFIX)? {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let ours = stem.is_some_and(|stem| ours.iter().any(|pool| pool == stem));
        if ours {
            continue;
        }
        let bytes = contents(&path)?;
        if bytes.len() < 2 * SUPERBLOCK_BYTES {
            continue;
        }
        if let Ok(superblock) = superblock(&bytes) {
            let volumes = superblock.volumes.volumes().into_iter();
            let volumes = volumes.map(|volume| volume.name).collect();
            found.push(Remembered {
                file: path,
                pool: superblock.label,
                volumes,
            });
        }
    }
    Ok(found)
}

fn unidentified(path: &Path, cause: std::io::Error) -> IoError {
    if let Some(refused) = uring::without_descriptor(&cause) {
        return refused.on(path.display().to_string());
    }
    let what = "which volumes this pool remembers cannot be read: let this user read it, or \
                remove it to give the pool up";
    let error = IoError::new(IoErrorKind::Denied, what).on(path.display().to_string());
    error.because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> LogSuperblock {
        LogSuperblock {
            copy: None,
            may_be_dirty: true,
            mask: [true; 2],
            log: layout::Uuid(7),
            sequence: 3,
            epoch: 0,
            incarnation: 1,
            segments: 8,
            sectors: 2048,
            opened_at: 1,
            volume: "db".into(),
            devices: ["log0".into(), "log1".into()],
            host: "h".into(),
            identity: vec![1],
            journal: None,
            record: Vec::new(),
        }
    }

    #[test]
    fn files_of_others_in_state_are_no_logs() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
        put("hotset.log", b"Nov 27 12:00:00 started\n");
        put("empty.log", b"");
        put("long.log", &vec![b'x'; 3 * BLOCK_BYTES]);
        put("blank.log", &vec![0; LOG_WITNESS_BYTES as usize]);
        fs::create_dir(dir.path().join("old.log")).unwrap();
        assert!(logs(dir.path()).unwrap().is_empty());
        let mut block = vec![0; BLOCK_BYTES];
        superblock().encode(&mut block);
        put("db.log", &block);
        let found = logs(dir.path()).unwrap();
        assert_eq!((found.len(), &*found[0].superblock.volume), (1, "db"));
        // A witness of hotset that cannot be read is not passed over.
        block[100] ^= 1;
        block.resize(2 * BLOCK_BYTES, 0xff);
        put("db.log", &block);
        let error = logs(dir.path()).err().unwrap().to_string();
        assert!(error.contains("db.log"), "{error}");
    }

    #[test]
    fn a_file_is_made_as_a_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db.log");
        let is_ours = |bytes: &[u8]| LogSuperblock::decode(&bytes[..BLOCK_BYTES]).is_ok();
        let make = || make(dir.path(), &path, LOG_WITNESS_BYTES, is_ours);
        make().unwrap();
        assert_eq!(fs::read(&path).unwrap(), vec![0; 2 * BLOCK_BYTES]);
        // A file that a former version began is completed; a witness of hotset keeps its bytes.
        fs::write(&path, b"").unwrap();
        make().unwrap();
        let mut block = vec![0; BLOCK_BYTES];
        superblock().encode(&mut block);
        fs::write(&path, &block).unwrap();
        make().unwrap();
        assert!(fs::read(&path).unwrap().starts_with(&block));
        fs::write(&path, b"somebody's").unwrap();
        let refused = make().unwrap_err().to_string();
        assert!(refused.contains("move it away"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"somebody's");
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 1, "nothing is left beside it");
    }

    #[test]
    fn a_pool_of_another_configuration_that_cannot_be_read_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        assert!(others(&dir.path().join("none"), &[]).unwrap().is_empty());
        fs::create_dir(dir.path().join("other.pool")).unwrap();
        assert!(others(dir.path(), &["other".into()]).unwrap().is_empty());
        let error = others(dir.path(), &[]).err().unwrap().to_string();
        assert!(error.contains("other.pool"), "{error}");
    }
}
