//! Origin of a result, to make it again: a command, and the commit of the program.

use std::process::Command;

/// The command that runs an experiment again.
pub fn again(name: &str, quick: bool, seed: u64, seeds: Option<u64>) -> String {
    let quick = if quick { " --quick" } else { "" };
    let seeds = seeds.map_or(String::new(), |seeds| format!(" --seeds {seeds}"));
    format!("hotset-lab run {name}{quick} --seed {seed}{seeds}")
}

/// The commit of the tree around this program, if there is one.
pub fn commit() -> String {
    let ask = || {
        let program = std::env::current_exe().ok()?;
        let output = Command::new("git")
            .arg("-C")
            .arg(program.parent()?)
            .args(["rev-parse", "--short=12", "HEAD"])
            .output()
            .ok()?;
        let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !name.is_empty()).then_some(name)
    };
    ask().unwrap_or_else(|| format!("unknown; version {}", env!("CARGO_PKG_VERSION")))
}
