//! The program under test, and directories for its files.

use crate::CommandFailure;
use std::fs;
use std::path::{Path, PathBuf};

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
