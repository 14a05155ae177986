//! The requirements of the stack: block devices, file systems, PostgreSQL.

use std::path::PathBuf;
use testbed::attached;
use testbed::tools::{is_root, missing};

/// Where Debian keeps the servers' programs, a directory for each version.
const POSTGRESQL: &str = "/usr/lib/postgresql";
const TOOLS: [&str; 3] = ["mkfs.ext4", "e2fsck", "mount"];

/// The requirement that is missing here; `None` if the stack can be built.
pub fn obstacle() -> Option<String> {
    let tools = || missing(&TOOLS);
    attached::obstacle()
        .or_else(tools)
        .or_else(database_obstacle)
}

/// The requirement that is missing here; `None` if a database can be made and run.
pub fn database_obstacle() -> Option<String> {
    if !is_root() {
        return Some("this needs root, to become the user postgres".into());
    }
    missing(&["runuser", "psql"]).or_else(|| postgresql().err())
}

/// The directory of the newest PostgreSQL's programs.
pub(super) fn postgresql() -> Result<PathBuf, String> {
    let versions = std::fs::read_dir(POSTGRESQL)
        .into_iter()
        .flatten()
        .flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    let newest = programs.filter(|bin| bin.join("initdb").is_file()).max();
    newest.ok_or_else(|| "PostgreSQL is not installed: the Debian package postgresql".into())
}
