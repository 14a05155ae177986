//! Origin of a result: the commit of the program.

use command::{COMMIT, UNKNOWN_COMMIT};

/// The commit that this program was built from; without one, the version.
pub fn commit() -> String {
    match COMMIT {
        UNKNOWN_COMMIT => format!("{UNKNOWN_COMMIT}; version {}", env!("CARGO_PKG_VERSION")),
        commit => commit.to_owned(),
    }
}
