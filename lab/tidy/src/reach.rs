//! Source files that no target reaches are dead.

use crate::source::RustSource;
use crate::tree::{Finding, Tree, in_crate, room};
use std::collections::BTreeMap;

/// The files that the targets of the workspace reach, and how.
pub(crate) struct FileReach {
    /// `true` for a file reached only by tests, examples or benchmarks.
    reached: BTreeMap<String, bool>,
}

impl FileReach {
    pub(crate) fn of(tree: &Tree) -> FileReach {
        let mut reach = FileReach {
            reached: BTreeMap::new(),
        };
        for (path, _) in tree.ending(".rs") {
            if let Some(is_test) = root(path) {
                reach.visit(tree, path.to_string(), is_test);
            }
        }
        reach
    }

    pub(crate) fn is_test(&self, path: &str) -> bool {
        self.reached.get(path) == Some(&true)
    }

    fn visit(&mut self, tree: &Tree, path: String, is_test: bool) {
        let Some(text) = tree.text(&path) else { return };
        let known = self.reached.get(&path);
        if known.is_some_and(|&test| test <= is_test) {
            return;
        }
        self.reached.insert(path.clone(), is_test);
        let (folder, own) = homes(&path);
        for module in modules(text) {
            let is_test = is_test || module.is_test;
            if let Some(named) = module.path {
                self.visit(tree, normal(&format!("{folder}{named}")), is_test);
                continue;
            }
            let name = module.name;
            for file in [format!("{own}{name}.rs"), format!("{own}{name}/mod.rs")] {
                self.visit(tree, file, is_test);
            }
        }
    }
}

/// `Some` if a file is the root of a target, and then true for a test, example or benchmark.
pub(crate) fn root(path: &str) -> Option<bool> {
    let inside = in_crate(path).map_or(path, |(_, inside)| inside);
    let parts: Vec<_> = inside.split('/').collect();
    match parts[..] {
        ["src", "lib.rs" | "main.rs"] | ["build.rs"] => Some(false),
        ["src", "bin", _] | ["src", "bin", _, "main.rs"] => Some(false),
        ["tests" | "examples" | "benches", _] => Some(true),
        ["tests" | "examples" | "benches", _, "main.rs"] => Some(true),
        _ => None,
    }
}

/// The folder of a file, and the folder of the modules that the file declares.
pub(crate) fn homes(path: &str) -> (String, String) {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    let own = match stem {
        "mod" | "lib" | "main" | "build" => format!("{folder}/"),
        _ if root(path).is_some() => format!("{folder}/"),
        _ => format!("{folder}/{stem}/"),
    };
    (format!("{folder}/"), own)
}

fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

pub(crate) struct ReachModule {
    pub(crate) name: String,
    path: Option<String>,
    pub(crate) is_test: bool,
}

/// The modules a file declares and does not contain.
pub(crate) fn modules(text: &str) -> Vec<ReachModule> {
    let code = RustSource::parse(text).code;
    let mut modules = Vec::new();
    let (mut path, mut is_test) = (None, false);
    for (line, original) in code.lines().zip(text.lines()) {
        let line = line.trim();
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[cfg(test)]");
            if line.starts_with("#[path") {
                path = original.split('"').nth(1).map(str::to_string);
            }
        }
        let item = line.rsplit_once(']').map_or(line, |(_, item)| item).trim();
        let words: Vec<_> = item.trim_end_matches(';').split_whitespace().collect();
        if let ([.., "mod", name], true) = (&words[..], item.ends_with(';')) {
            modules.push(ReachModule {
                name: name.to_string(),
                path: path.take(),
                is_test,
            });
        }
        if !item.is_empty() {
            (path, is_test) = (None, false);
        }
    }
    modules
}

/// Files of the workspace's crates that no target reaches.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let reach = FileReach::of(tree);
    let ours = tree.ending(".rs").filter(|(path, _)| room(path).is_some());
    let dead = ours.filter(|(path, _)| !reach.reached.contains_key(*path));
    let finding = |(path, _)| {
        let what = "no target reaches this file: declare it with mod, or delete it";
        Finding::new(path, 1, what)
    };
    dead.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_a_file_nobody_declares_is_found() {
        let tree = Tree::from_texts(&[
            (
                "crates/a/src/lib.rs",
                "pub mod b;\n// mod dead;\nmod inline { }\n",
            ),
            (
                "crates/a/src/b.rs",
                "#[path = \"../odd.rs\"]\nmod odd;\nmod c;",
            ),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/odd.rs", ""),
            ("crates/a/src/dead.rs", ""),
            ("crates/a/tests/one.rs", "mod common;"),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/tests/unused/mod.rs", ""),
        ]);
        let found: Vec<_> = check(&tree).iter().map(|f| f.to_string()).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/dead.rs"));
        assert!(found[1].starts_with("crates/a/tests/unused/mod.rs"));
    }
}
