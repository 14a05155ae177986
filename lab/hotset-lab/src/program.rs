//! The program under test, directories for its files, and servers as processes of their own.

use crate::CommandFailure;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// Time limit of a server's start.
const READY_MAX: Duration = Duration::from_secs(20);

/// The `hotset` that `HOTSET` names, or that is beside this program.
pub fn hotset() -> Result<PathBuf, CommandFailure> {
    let path = match std::env::var_os("HOTSET") {
        Some(named) => PathBuf::from(named),
        None => {
            let this = std::env::current_exe().map_err(|cause| {
                CommandFailure::of("this program's file cannot be found", cause)
            })?;
            this.with_file_name("hotset")
        }
    };
    match path.is_file() {
        true => Ok(path),
        false => Err(CommandFailure::Runtime(format!(
            "there is no {}: build it (`cargo build -p hotset`), or name the program in HOTSET",
            path.display()
        ))),
    }
}

/// Makes a missing directory at `path`. Returns its absolute path without links.
pub fn made_directory(path: &Path) -> Result<PathBuf, CommandFailure> {
    let made = fs::create_dir_all(path).and_then(|()| path.canonicalize());
    made.map_err(|cause| {
        let path = path.display();
        CommandFailure::Runtime(format!(
            "{path}: {cause}; choose a directory that can be written"
        ))
    })
}

/// Waits until the server called `name` is ready. The error has the server's log.
pub fn until_ready(
    name: &str,
    child: &mut Child,
    log: &Path,
    ready: impl Fn() -> bool,
) -> Result<(), CommandFailure> {
    let start = Instant::now();
    while !ready() {
        let ended = child.try_wait().map_err(CommandFailure::runtime)?;
        if ended.is_some() || start.elapsed() > READY_MAX {
            let said = fs::read_to_string(log).unwrap_or_default();
            return Err(CommandFailure::Runtime(format!(
                "{name} did not start: {}",
                said.trim()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Ends a process by SIGTERM and waits for its end.
pub fn end(mut child: Child) -> Result<(), CommandFailure> {
    // SAFETY: the process is our child and has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    child.wait().map(drop).map_err(CommandFailure::runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_made_and_a_file_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = dir.path().join("some/where");
        let made = made_directory(&wanted).unwrap();
        assert!(made.is_absolute() && wanted.is_dir());
        assert_eq!(made_directory(&wanted).unwrap(), made);
        let file = made.join("file");
        fs::write(&file, "").unwrap();
        let Err(CommandFailure::Runtime(why)) = made_directory(&file) else {
            panic!("a file was taken for a directory");
        };
        assert!(why.contains("choose a directory"), "{why}");
    }
}
