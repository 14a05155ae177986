//! The commit that the programs are built from, in the variable `HOTSET_COMMIT` of the compiler.
//!
//! Invariants:
//!     this runs again if the commit of the checkout moves, or a source of the programs changes; else
//!     never
//!     a source differs from the commit ⟺ the name ends in `-modified`
//!     without a checkout of this very tree the name is `unknown`

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders of a crate that no program is built from.
const OTHERS: [&str; 3] = ["tests", "examples", "benches"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let commit = root.canonicalize().ok().and_then(|root| commit(&root));
    let commit = commit.as_deref().unwrap_or("unknown");
    println!("cargo::rustc-env=HOTSET_COMMIT={commit}");
}

/// The commit of the checkout at `root`, which is watched from then on.
fn commit(root: &Path) -> Option<String> {
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    // Sources without a checkout of their own may lie in another's.
    if top.canonicalize().ok()? != root {
        return None;
    }
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let sources = sources(root);
    watched(root)?.iter().chain(&sources).for_each(|path| {
        println!("cargo::rerun-if-changed={}", path.display());
    });
    let mut differences = vec!["--no-optional-locks", "status", "--porcelain", "--"];
    differences.extend(sources.iter().filter_map(|path| path.to_str()));
    let is_modified = !git(root, &differences)?.is_empty();
    Some(commit + if is_modified { "-modified" } else { "" })
}

/// The files that change when the commit moves.
fn watched(root: &Path) -> Option<Vec<PathBuf>> {
    let path = |name: &str| {
        let path = git(root, &["rev-parse", "--git-path", name])?;
        Some(root.join(path))
    };
    let log = path("logs/HEAD")?;
    // Without a log, a branch is a file or a line of a file, whichever was written last.
    let moves = match log.exists() {
        true => vec![log],
        false => vec![path("refs")?, path("packed-refs")?],
    };
    let all = [vec![path("HEAD")?], moves].concat();
    Some(all.into_iter().filter(|path| path.exists()).collect())
}

/// The files and folders that programs are built from.
fn sources(root: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let is_other = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| OTHERS.contains(&name))
    };
    let crates = entries(&root.join("crates"));
    let parts = crates.iter().flat_map(|one| entries(one));
    let mut sources: Vec<PathBuf> = parts.filter(|path| !is_other(path)).collect();
    sources.extend(["Cargo.toml", "Cargo.lock"].map(|name| root.join(name)));
    sources.sort();
    sources
}

/// The output of `git` on the tree at `root`, if it succeeds. A hook's variables, of another tree
/// perhaps, are left out.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(words)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}
