//! The manual's page of messages quotes messages of the programs.

use crate::tree::{Finding, Tree};

/// The page. Its tables begin each row with words of a message in backticks.
const PAGE: &str = "docs/guide/messages.md";

/// Quoted words that no program prints, or that are quoted twice.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.ending(".rs").filter(|(path, _)| {
        let is_test = path.contains("/tests") || path.contains("lab/tidy/");
        path.contains("/src/") && !is_test
    });
    let sources: Vec<String> = sources.map(|(_, text)| joined(text)).collect();
    let pages = tree.ending(".md").filter(|(path, _)| *path == PAGE);
    let (mut findings, mut seen) = (Vec::new(), Vec::<&str>::new());
    for (line, number) in pages.flat_map(|(_, text)| text.lines().zip(1..)) {
        let row = line
            .strip_prefix("| `")
            .and_then(|row| row.split_once(" | "));
        let cell = row.map_or("", |(cell, _)| cell);
        for words in cell.split('`').step_by(2).filter(|words| !words.is_empty()) {
            let what = match sources.iter().any(|text| text.contains(words)) {
                false => "is printed by no program: quote the words as they are printed",
                true if seen.iter().any(|o| o.contains(words) || words.contains(o)) => {
                    "is in a row above: make one row of both"
                }
                true => "",
            };
            seen.push(words);
            if !what.is_empty() {
                findings.push(Finding::new(PAGE, number, format!("`{words}` {what}")));
            }
        }
    }
    findings
}

/// A source whose literals are not broken over lines.
fn joined(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |all, line| all + line.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_words_that_no_program_prints_and_words_quoted_twice_are_found() {
        let code = "fn f() { print(\"the device is \\\n            mounted on {place}\"); }";
        let page = "| Message | Cause |\n|---|---|\n| `device is mounted`, `is gone` | a |\n\
                    | `the device is mounted on` | c |\n";
        let tree = Tree::from_texts(&[("crates/a/src/lib.rs", code), (PAGE, page)]);
        let found: Vec<_> = check(&tree).iter().map(|f| f.to_string()).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains(":3: `is gone`") && found[1].contains("row above"));
    }
}
