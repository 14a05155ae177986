//! The project's papers agree: one version and one licence.
//!
//! Not here: licences of dependencies, which `cargo about` checks by `about.toml`.

use crate::tree::{Finding, Tree, room};

/// A changelog or a citation of another version, and a crate without the licence.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(version) = tree.text("Cargo.toml").and_then(version_of) else {
        return Vec::new();
    };
    let newest = |text: &str| heading(text, "## ");
    let cited = |text: &str| heading(text, "version: ");
    let dated = [
        ("CHANGELOG.md", &newest as &dyn Fn(&str) -> Heading),
        ("CITATION.cff", &cited),
    ];
    let mut findings = Vec::new();
    for (path, found) in dated {
        let (line, has) = tree.text(path).and_then(found).unwrap_or_default();
        if has != version {
            let what = format!("has version {has:?}, Cargo.toml {version}: make them agree");
            findings.push(Finding::new(path, line, what));
        }
    }
    let crates = tree.ending("/Cargo.toml");
    for (path, text) in crates.filter(|(path, _)| room(path).is_some()) {
        if !text.contains("license.workspace = true") {
            let what = "lacks `license.workspace = true`: add it".to_string();
            findings.push(Finding::new(path, 1, what));
        }
    }
    findings
}

/// A line's number and the first word after its mark.
type Heading = Option<(usize, String)>;

fn heading(text: &str, mark: &str) -> Heading {
    let mut lines = text.lines().zip(1..);
    lines.find_map(|(line, number)| {
        let rest = line.strip_prefix(mark)?;
        Some((number, rest.split(' ').next()?.to_string()))
    })
}

fn version_of(manifest: &str) -> Option<String> {
    let (_, package) = manifest.split_once("[workspace.package]")?;
    let quoted = heading(package, "version = ")?.1;
    Some(quoted.trim_matches('"').to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str = "[workspace.package]\nversion = \"1.2.3\"\n";
    const CRATE: &str = "[package]\nlicense.workspace = true\n";

    fn found(change: &str, cited: &str, manifest: &str) -> usize {
        let files = [
            ("Cargo.toml", WORKSPACE),
            ("CHANGELOG.md", change),
            ("CITATION.cff", cited),
            ("crates/a/Cargo.toml", manifest),
        ];
        check(&Tree::from_texts(&files)).len()
    }

    #[test]
    fn canary_papers_that_disagree_are_found() {
        let (change, cited) = ("# Changes\n\n## 1.2.3\n", "version: 1.2.3\n");
        assert_eq!(found(change, cited, CRATE), 0);
        assert_eq!(found("## 1.2.2\n\n## 1.2.3\n", cited, CRATE), 1);
        assert_eq!(found(change, "version: 1.2.30\n", CRATE), 1);
        assert_eq!(found(change, cited, "[package]\n"), 1);
        assert_eq!(found("", "", "[package]\n"), 3);
    }
}
