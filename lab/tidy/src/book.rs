//! The manual: docs/SUMMARY.md lists each page once, and each link to a heading has a target.
//!
//! Not here: whether the files of links exist (`documents`).

use crate::tree::{Finding, Tree};
use std::collections::BTreeSet;

const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages that the manual lacks or repeats, and headings that links do not find.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = headings(tree);
    let Some(summary) = tree.text(SUMMARY) else {
        return findings;
    };
    let listed: Vec<_> = summary
        .lines()
        .flat_map(targets)
        .map(|(file, _)| file)
        .collect();
    for (path, _) in tree.ending(".md") {
        let Some(page) = path.strip_prefix("docs/").filter(|_| path != SUMMARY) else {
            continue;
        };
        let count = listed.iter().filter(|file| **file == page).count();
        if count != 1 {
            let what = format!("docs/SUMMARY.md lists it {count} times: list it once");
            findings.push(Finding::new(path, 1, what));
        }
    }
    findings
}

fn headings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, number) in unfenced(text) {
            for (file, anchor) in targets(line) {
                let at = if file.is_empty() {
                    path.to_owned()
                } else {
                    joined(folder, file)
                };
                let (Some(page), false) = (tree.text(&at), anchor.is_empty()) else {
                    continue;
                };
                if at.ends_with(".md") && !anchors(page).contains(anchor) {
                    let what = format!("{at} has no heading for #{anchor}: correct the link");
                    findings.push(Finding::new(path, number, what));
                }
            }
        }
    }
    findings
}

/// Lines outside of fences, with their numbers.
pub(crate) fn unfenced(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut fenced = false;
    text.lines().zip(1..).filter(move |(line, _)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Files and anchors of a line's links within the tree.
pub(crate) fn targets(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let links = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    let places = links.map(|link| link.split_once('#').unwrap_or((link, "")));
    places.filter(|(file, _)| !file.contains(':'))
}

fn joined(folder: &str, file: &str) -> String {
    let (mut from, mut rest) = (folder, file);
    while let Some(up) = rest.strip_prefix("../") {
        rest = up;
        from = from.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    match from.is_empty() {
        true => rest.to_owned(),
        false => format!("{from}/{rest}"),
    }
}

/// Names of a page's headings in links.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = unfenced(page).filter_map(|(line, _)| line.strip_prefix('#'));
    let name = |heading: &str| {
        let plain = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = plain
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_lost_pages_and_headings_are_found() {
        let tree = Tree::from_texts(&[
            ("docs/SUMMARY.md", "- [a](a.md)\n- [b](b/b.md)\n- [a](a.md)"),
            (
                "docs/a.md",
                "# A `page`, of it\n[b](b/b.md#on-and-off) [c](b/b.md#gone)\n```\n[d](#no)\n```",
            ),
            (
                "docs/b/b.md",
                "## On and off\n[a](../a.md#a-page-of-it) [d](#no)",
            ),
            ("docs/c.md", ""),
        ]);
        let found: Vec<_> = check(&tree).iter().map(|f| f.to_string()).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        for part in [
            "docs/a.md:2: docs/b/b.md has no heading for #gone",
            "docs/b/b.md:2: docs/b/b.md has no",
            "docs/a.md:1: ",
            "docs/c.md:1: ",
        ] {
            assert!(
                found.iter().any(|found| found.starts_with(part)),
                "{part}: {found:?}"
            );
        }
    }
}
