//! The limit of length applies to functions: text that is read together is one file, of up to
//! [`FILE_LINES_MAX`] lines. A function has at most [`FUNCTION_LINES_MAX`] lines, its signature
//! included.
//!
//! Not here: whether a function does one thing.

use crate::tree::{Finding, Tree};

/// Lines a file may have.
pub const FILE_LINES_MAX: usize = 1500;
/// Lines a function may have.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Files and functions that are too long.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > FILE_LINES_MAX {
            let what = format!("{} lines, over {FILE_LINES_MAX}: split it", lines.len());
            findings.push(Finding::new(path, lines.len(), what));
        }
        for (line, length) in functions(&lines) {
            if length > FUNCTION_LINES_MAX {
                let what = format!("a function of {length} lines, over {FUNCTION_LINES_MAX}");
                findings.push(Finding::new(path, line, what));
            }
        }
    }
    findings
}

/// The first line of each function, from 1 on, and its length. A function ends at the brace with
/// its own indentation, as rustfmt writes it.
fn functions(lines: &[&str]) -> Vec<(usize, usize)> {
    let begins = |line: &str| {
        let mut words = line.split_whitespace();
        let before = |word: &&str| {
            word.starts_with("pub")
                || ["const", "async", "unsafe", "extern", "\"C\""].contains(word)
        };
        words.find(|word| !before(word)) == Some("fn")
    };
    let starts = lines.iter().enumerate().filter(|(_, line)| begins(line));
    let measured = starts.filter_map(|(start, line)| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let ends = |line: &&&str| line.ends_with(['{', ';', '}']);
        let signature = lines[start..].iter().find(ends)?;
        let closes = |line: &&str| line.strip_prefix(indent) == Some("}");
        let length = lines[start..].iter().position(closes)? + 1;
        signature.ends_with('{').then_some((start + 1, length))
    });
    measured.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_too_long_files_and_functions_are_found() {
        let file = "x\n".repeat(FILE_LINES_MAX + 1);
        let body = |lines| {
            format!(
                "    pub async fn f() {{\n{}    }}\n",
                "        x;\n".repeat(lines)
            )
        };
        let texts = [
            ("a.rs", file),
            ("b.rs", body(FUNCTION_LINES_MAX - 1)),
            ("c.rs", body(FUNCTION_LINES_MAX - 2)),
            (
                "d.rs",
                "    fn declared();\n".repeat(FUNCTION_LINES_MAX) + "    }\n",
            ),
        ];
        let texts: Vec<_> = texts
            .iter()
            .map(|(at, text)| (*at, text.as_str()))
            .collect();
        let found = check(&Tree::from_texts(&texts));
        let found: Vec<_> = found.iter().map(|f| f.to_string()).collect();
        let [file, function] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(
            file.contains("a.rs") && function.contains("b.rs"),
            "{found:?}"
        );
    }
}
