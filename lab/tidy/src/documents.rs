//! Documents speak of files that exist.

use crate::book::{targets, unfenced};
use crate::tree::{Finding, Tree};

/// The endings and beginnings of a path in a document.
const ENDS: [&str; 9] = [
    ".rs", ".md", ".toml", ".sh", ".py", ".json", ".svg", ".yml", ".csv",
];
const FOLDERS: [&str; 6] = ["crates/", "lab/", "docs/", "vm/", "web/", "tools/"];

/// Links to, and mentions in backticks of, files that are not there.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, number) in unfenced(text) {
            for named in links(line).chain(mentions(line)) {
                if !exists(tree, folder, named) {
                    let what = format!("{named} does not exist: put the name right, or drop it");
                    findings.push(Finding::new(path, number, what));
                }
            }
        }
    }
    findings
}

/// Targets of links to files beside or below.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let files = targets(line).map(|(file, _)| file);
    files.filter(|file| !file.is_empty())
}

/// Paths in backticks that name one file or folder of the tree.
fn mentions(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|text| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let is_path = text.contains('/') && text.chars().all(plain);
        let ours = FOLDERS.iter().any(|folder| text.starts_with(folder));
        let made = text.starts_with("target/") || text.starts_with('/');
        is_path && !made && (ours || ENDS.iter().any(|end| text.ends_with(end)))
    })
}

/// Beside the document, from the root, or inside a crate.
fn exists(tree: &Tree, folder: &str, named: &str) -> bool {
    let mut from = folder;
    let mut rest = named.strip_prefix("./").unwrap_or(named);
    while let Some(up) = rest.strip_prefix("../") {
        rest = up;
        from = from.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    let beside = if from.is_empty() {
        rest.to_string()
    } else {
        format!("{from}/{rest}")
    };
    let in_a_room = |room: &str| tree.has(&format!("{room}/{named}"));
    tree.has(&beside) || tree.has(named) || in_a_room("crates") || in_a_room("lab")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_a_missing_file_is_found() {
        let text = "See [it](models.md#top), [gone](gone.md), `crates/a/src/lib.rs`,\n\
                    `crates/a/src/gone.rs`, [web](https://x.y/z.md), `a/b` and `target/bench.json`.\n\
                    ```\n`crates/not/looked/at.rs`\n```\n[up](../crates/a/src/lib.rs)";
        let tree = Tree::from_texts(&[
            ("docs/design.md", text),
            ("docs/models.md", ""),
            ("crates/a/src/lib.rs", ""),
        ]);
        let found: Vec<_> = check(&tree).iter().map(|f| f.to_string()).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("docs/design.md:1: gone.md"));
        assert!(found[1].starts_with("docs/design.md:2: crates/a/src/gone.rs"));
    }
}
