//! The tree in its present state passes every check.

use crate::{CHECKS, Tree};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_tree_is_tidy() {
    let root = root();
    let tree = Tree::read(&root).expect("the tree is readable");
    assert!(tree.has("lab/tidy/src/tests.rs"), "not the root: {root:?}");
    let mut findings = 0;
    for (name, check) in CHECKS {
        for finding in check(&tree) {
            println!("{finding} [{name}]");
            findings += 1;
        }
    }
    assert_eq!(findings, 0, "findings above");
}

/// Words of a text that have the form of a commit's name.
fn commits(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| {
        let hex = word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        let mixed = word.contains(|c: char| c.is_ascii_digit())
            && word.contains(|c: char| c.is_ascii_alphabetic());
        hex && mixed && matches!(word.len(), 7..=12 | 40)
    })
}

/// The output of git; `None` without git, or outside of a repository.
fn git(arguments: &[&str], input: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root()).args(arguments);
    git.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut git = git.spawn().ok()?;
    git.stdin.take()?.write_all(input.as_bytes()).ok()?;
    let output = git.wait_with_output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}

/// True in a repository with its whole history; says otherwise that the test is skipped.
fn has_history() -> bool {
    let shallow = git(&["rev-parse", "--is-shallow-repository"], "");
    let has = shallow.is_some_and(|shallow| shallow.trim() == "false");
    if !has {
        eprintln!("skipped: no repository, or one without its history: `git fetch --unshallow`");
    }
    has
}

/// The code that serves.
const SERVING: [&str; 16] = [
    "block", "cache", "filter", "hotset", "layout", "nbd", "node", "origin", "policy", "port",
    "raid", "shard", "ublk", "uring", "virtio", "writelog",
];
/// The mark of a page with a figure of earlier code.
const STALE: &str =
    "> **Stale.** Code that serves has changed since the commits of some figures below";

/// True if code that serves has changed since `commit`; its tests do not serve.
fn is_of_earlier_code(commit: &str) -> bool {
    let paths = SERVING.map(|name| format!("crates/{name}/src"));
    let since = format!("{commit}..HEAD");
    let mut arguments = vec!["rev-list", "--max-count=1", &since, "--"];
    arguments.extend(paths.iter().map(String::as_str));
    arguments.extend([":(exclude)*/tests.rs", ":(exclude)*/tests/*"]);
    !git(&arguments, "").expect("the commit exists").is_empty()
}

/// A page without the mark that it needs, or with one that it does not need.
fn is_marked_wrongly(text: &str) -> bool {
    commits(text).any(is_of_earlier_code) != text.contains(STALE)
}

#[test]
fn pages_with_figures_of_earlier_code_are_marked() {
    if !has_history() {
        return;
    }
    let tree = Tree::read(&root()).expect("the tree is readable");
    let pages = tree
        .ending(".md")
        .filter(|(path, _)| path.starts_with("docs/"));
    let wrong: Vec<_> = pages.filter(|(_, text)| is_marked_wrongly(text)).collect();
    let wrong: Vec<_> = wrong.iter().map(|(path, _)| *path).collect();
    assert!(
        wrong.is_empty(),
        "begin them with \"{STALE}\", or remove that: {wrong:?}"
    );
    let canary = "Measured at commit eabade05d825.";
    assert!(is_marked_wrongly(canary) && is_marked_wrongly(STALE));
}

#[test]
fn every_commit_that_a_page_cites_exists() {
    if !has_history() {
        return;
    }
    let tree = Tree::read(&root()).expect("the tree is readable");
    let absent = "0a00000";
    let mut cited: Vec<(&str, &str)> = vec![("the canary", absent)];
    for (path, text) in tree.ending(".md") {
        cited.extend(commits(text).map(|commit| (path, commit)));
    }
    let names: String = cited
        .iter()
        .map(|(_, commit)| format!("{commit}^{{commit}}\n"))
        .collect();
    let found = git(&["cat-file", "--batch-check"], &names).expect("git answers");
    let lines = cited.iter().zip(found.lines());
    let missing: Vec<_> = lines
        .filter(|(_, line)| !line.contains(" commit "))
        .map(|(cited, _)| *cited)
        .collect();
    assert_eq!(missing, [("the canary", absent)]);
}
