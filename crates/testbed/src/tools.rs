//! The machine's own programs, run to their end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn find(tool: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(usual);
    places.find_map(|place| Some(place.join(tool)).filter(|file| file.is_file()))
}

/// Says which of `tools` is not here, if one is not.
pub fn missing(tools: &[&str]) -> Option<String> {
    let absent = tools.iter().find(|tool| find(Path::new(tool)).is_none())?;
    Some(format!("there is no {absent} here"))
}

/// A command by the name of its tool.
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(find(Path::new(name)).unwrap_or_else(|| name.into()));
    command.stdin(Stdio::null());
    command
}

/// A command of `program` that gets SIGTERM when the thread that starts it ends,
/// by whatever means.
pub fn bound(program: &Path) -> Command {
    let mut command = tool("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]);
    command.arg(find(program).unwrap_or_else(|| program.into()));
    command
}

/// Runs a command to its end; what it printed.
///
/// # Errors
/// If it does not start, or fails: with what it printed.
pub fn run(command: &mut Command) -> Result<String, String> {
    let (status, text) = outcome(command)?;
    match status {
        0 => Ok(text),
        _ => Err(format!("{command:?}: status {status}: {text}")),
    }
}

/// Runs a command to its end: its status, and all that it printed.
///
/// # Errors
/// If it does not start.
pub fn outcome(command: &mut Command) -> Result<(i32, String), String> {
    let output: Output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = text + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.code().unwrap_or(-1), text))
}
