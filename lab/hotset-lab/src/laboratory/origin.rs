//! Origin of a result, to make it again: a command, and the commit of the program.

use command::{COMMIT, UNKNOWN_COMMIT};

/// The command that runs an experiment again.
pub fn again(name: &str, quick: bool, seed: u64, seeds: Option<u64>) -> String {
    let quick = if quick { " --quick" } else { "" };
    let seeds = seeds.map_or(String::new(), |seeds| format!(" --seeds {seeds}"));
    format!("hotset-lab run {name}{quick} --seed {seed}{seeds}")
}

/// The commit that this program was built from; without one, the version.
pub fn commit() -> String {
    match COMMIT {
        UNKNOWN_COMMIT => format!("{UNKNOWN_COMMIT}; version {}", env!("CARGO_PKG_VERSION")),
        commit => commit.to_owned(),
    }
}
