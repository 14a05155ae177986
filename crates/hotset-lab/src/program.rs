//! The program under test.

use crate::CommandFailure;
use std::path::PathBuf;

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
