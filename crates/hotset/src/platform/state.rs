//! What pools and logs remember by: the directory beside them.
//!
//! A file there, one a pool, is the *witness*: it knows which devices were in
//! the pool when its volumes were last written, whatever becomes of the devices. So does
//! one beside the log of each write-back volume.

use super::claim::once_left;
use super::ublk::stack::refuse_own;
use block::{IoError, IoResult, Kind, TargetId};
use layout::{
    BLOCK_BYTES, LOG_WITNESS_BYTES, LogSuperblock, SUPERBLOCK_BLOCKS, Superblock, SuperblockError,
    newest,
};
use node::{LogWitness, Remembered};
use shard::{Disk, Local};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use uring::{DiskOptions, Uring, UringDriver};

const SUPERBLOCK_BYTES: usize = SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES;
const SUFFIX: &str = "pool";
const LOG_SUFFIX: &str = "log";

/// The file beside a pool.
pub fn file_of(state: &Path, pool: &str) -> PathBuf {
    state.join(format!("{pool}.{SUFFIX}"))
}

fn cannot(path: &Path, cause: std::io::Error) -> IoError {
    if let Some(refused) = uring::without_descriptor(&cause) {
        return refused.on(path.display().to_string());
    }
    let what = "what pools remember cannot be kept here: let this user write it, free some space, \
                or set `state` of [daemon] to a directory that can be written";
    let error = IoError::new(Kind::Denied, what).on(path.display().to_string());
    error.because(cause)
}

/// Makes the file beside a pool if it is missing, written out in full so that a
/// disk that fills up later does not matter, and opens it.
pub async fn witness(
    state: &Path,
    pool: &str,
    host: &Uring,
    local: &Local<UringDriver>,
) -> IoResult<(TargetId, Disk<UringDriver>)> {
    let path = file_of(state, pool);
    let whole = (2 * SUPERBLOCK_BYTES) as u64;
    open(state, &path, whole, host, local).await
}

/// The same beside the log of a volume.
pub async fn log_witness(
    state: &Path,
    volume: &str,
    host: &Uring,
    local: &Local<UringDriver>,
) -> IoResult<(TargetId, Disk<UringDriver>)> {
    let path = state.join(format!("{volume}.{LOG_SUFFIX}"));
    open(state, &path, LOG_WITNESS_BYTES, host, local).await
}

/// Opens a file of `whole` bytes, made if it is missing.
async fn open(
    state: &Path,
    path: &Path,
    whole: u64,
    host: &Uring,
    local: &Local<UringDriver>,
) -> IoResult<(TargetId, Disk<UringDriver>)> {
    let place = state.to_owned();
    host.aside(move || refuse_own(&place)).await??;
    fs::create_dir_all(state).map_err(|cause| cannot(state, cause))?;
    let length = fs::metadata(path).map_or(0, |file| file.len());
    if length < whole {
        let fill = || {
            let mut file = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)?;
            file.write_all(&vec![0; (whole - length) as usize])?;
            file.sync_all()?;
            File::open(state)?.sync_all()
        };
        fill().map_err(|cause| cannot(path, cause))?;
    }
    let options = DiskOptions {
        buffered: true,
        read_only: false,
        exclusive: true,
        block: None,
        name: Some(path.display().to_string()),
    };
    let timer = local.env().timer;
    let open = async || {
        let open = async || host.open_disk_aside(path, &options).await;
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

/// What the files beside all logs say. One that says nothing is that of a log that was never
/// begun.
pub fn logs(state: &Path) -> IoResult<Vec<LogWitness>> {
    let mut found = Vec::new();
    for file in files(state, LOG_SUFFIX)? {
        let bytes = contents(&file)?;
        let blocks = [
            bytes.get(..BLOCK_BYTES),
            bytes.get(BLOCK_BYTES..2 * BLOCK_BYTES),
        ];
        match LogSuperblock::newest(blocks) {
            Ok(superblock) => found.push(LogWitness { file, superblock }),
            Err(SuperblockError::Blank) => {}
            Err(error) => {
                let what = format!(
                    "what a write-back volume owes its origin cannot be read: {error}; if both \
                     devices of its log are there, which say the same, remove it"
                );
                return Err(IoError::new(Kind::Corrupt, what).on(file.display().to_string()));
            }
        }
    }
    Ok(found)
}

/// Pools of other configurations that remember volumes. `Err` if there may be some that
/// cannot be read.
pub fn others(state: &Path, ours: &[&str]) -> IoResult<Vec<Remembered>> {
    let mut found = Vec::new();
    for path in files(state, SUFFIX)? {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let ours = stem.is_some_and(|stem| ours.contains(&stem));
        if ours {
            continue;
        }
        let bytes = contents(&path)?;
        if bytes.len() < 2 * SUPERBLOCK_BYTES {
            continue;
        }
        let (first, second) = bytes.split_at(SUPERBLOCK_BYTES);
        if let Ok(superblock) = newest(Superblock::decode(first), Superblock::decode(second)) {
            let volumes = superblock.volumes.into_iter().map(|volume| volume.name);
            let volumes = volumes.collect();
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
    let error = IoError::new(Kind::Denied, what).on(path.display().to_string());
    error.because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_of_another_configuration_that_cannot_be_read_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        assert!(others(&dir.path().join("none"), &[]).unwrap().is_empty());
        fs::create_dir(dir.path().join("other.pool")).unwrap();
        assert!(others(dir.path(), &["other"]).unwrap().is_empty());
        let error = others(dir.path(), &[]).err().unwrap().to_string();
        assert!(error.contains("other.pool"), "{error}");
    }
}
