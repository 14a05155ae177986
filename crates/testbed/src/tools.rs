//! The machine's own programs, run to their end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn find(tool: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(usual);
    places.find_map(|place| Some(place.join(tool)).filter(|file| file.is_file()))
}

/// Names a tool of `tools` that is not here, if any.
pub fn missing(tools: &[&str]) -> Option<String> {
    let absent = tools.iter().find(|tool| find(Path::new(tool)).is_none())?;
    Some(format!("there is no {absent} here"))
}

/// True if this process is root's.
pub fn is_root() -> bool {
    // SAFETY: no pointers are involved.
    unsafe { libc::geteuid() == 0 }
}

/// A command by the name of its tool.
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(find(Path::new(name)).unwrap_or_else(|| name.into()));
    command.stdin(Stdio::null());
    command
}

/// A command of `program` that gets SIGTERM at the end of the thread that starts the command, by
/// whatever means.
pub fn bound(program: &Path) -> Command {
    let mut command = tool("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]);
    command.arg(find(program).unwrap_or_else(|| program.into()));
    command
}

/// Runs a command to its end. Returns the output.
///
/// # Errors
/// If the command does not start, or fails: with the output.
pub fn run(command: &mut Command) -> Result<String, String> {
    let (status, text) = outcome(command)?;
    match status {
        0 => Ok(text),
        _ => Err(format!("{command:?}: status {status}: {text}")),
    }
}

/// Runs a command to its end. Returns the status and all output.
///
/// # Errors
/// If the command does not start.
pub fn outcome(command: &mut Command) -> Result<(i32, String), String> {
    let output: Output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = text + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.code().unwrap_or(-1), text))
}
