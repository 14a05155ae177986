//! What experiments came to, a file each in a directory.
//!
//! Invariant: a file under its own name is whole; what is being written has another name.

use crate::Failure;
use experiment::finished::Finished;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Makes the directory.
pub fn prepare(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|cause| {
        Failure::Runtime(format!(
            "{}: {cause}; choose a directory that can be written",
            directory.display()
        ))
    })
}

/// What `name` came to, if it is there, and where.
pub fn find(directory: &Path, name: &str) -> Result<Option<(PathBuf, Finished)>, Failure> {
    let path = directory.join(format!("{name}.json"));
    let refused = |what: String| {
        Failure::Runtime(format!(
            "{}: {what}; remove it to have {name} run again",
            path.display()
        ))
    };
    match fs::read_to_string(&path) {
        Err(cause) if cause.kind() == ErrorKind::NotFound && directory.is_dir() => Ok(None),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Err(Failure::Usage(format!(
            "{} is no directory; fill one with `hotset lab run all --out`",
            directory.display()
        ))),
        Err(cause) => Err(refused(cause.to_string())),
        Ok(text) => match Finished::parse(&text) {
            Ok(finished) if finished.experiment == name => Ok(Some((path, finished))),
            Ok(finished) => Err(refused(format!("it is of {}", finished.experiment))),
            Err(what) => Err(refused(format!(
                "it is not what an experiment came to: {what}"
            ))),
        },
    }
}

/// Keeps what an experiment came to.
pub fn keep(directory: &Path, finished: &Finished) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(finished).map_err(Failure::runtime)? + "\n";
    let path = directory.join(format!("{}.json", finished.experiment));
    replace(&path, text.as_bytes())
}

/// Puts a file with these bytes at `path`, or leaves what was there.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let part = path.with_extension("part");
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().map_err(|cause| {
        // What could not be written is not left behind.
        let _ = fs::remove_file(&part);
        Failure::Runtime(format!(
            "{}: {cause}; make room, or choose another directory",
            path.display()
        ))
    })
}
