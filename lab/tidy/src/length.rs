//! The limit of length applies to functions: text that is read together is one file, of up to
//! [`FILE_LINES_MAX`] lines. A function has at most [`FUNCTION_LINES_MAX`] lines, its signature
//! included. Longer functions are counted, and [`LONG_FUNCTIONS`] may only fall.
//!
//! Not here: whether a function does one thing.

use crate::tree::{Finding, Tree};

/// Lines a file may have.
pub const FILE_LINES_MAX: usize = 1500;
/// Lines a function may have.
pub const FUNCTION_LINES_MAX: usize = 70;
/// The number of longer functions.
const LONG_FUNCTIONS: usize = 19;

/// Files that are too long, and a count of long functions that is not [`LONG_FUNCTIONS`].
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_against(tree, LONG_FUNCTIONS)
}

fn check_against(tree: &Tree, most: usize) -> Vec<Finding> {
    let (mut findings, mut long) = (Vec::new(), Vec::new());
    for (path, text) in tree.ending(".rs") {
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > FILE_LINES_MAX {
            let what = format!("{} lines, over {FILE_LINES_MAX}: split it", lines.len());
            findings.push(Finding::new(path, lines.len(), what));
        }
        for (line, length) in functions(&lines) {
            if length > FUNCTION_LINES_MAX {
                let what = format!("a function of {length} lines, over {FUNCTION_LINES_MAX}");
                long.push(Finding::new(path, line, what));
            }
        }
    }
    match long.len() {
        count if count > most => findings.append(&mut long),
        count if count < most => {
            let what = format!("{count} functions are long: lower tidy's LONG_FUNCTIONS");
            findings.push(Finding::new("lab/tidy/src/length.rs", 1, what));
        }
        _ => {}
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
    fn canary_what_is_too_long_is_found_and_a_count_that_is_stale() {
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
        let found = |most| {
            let found = check_against(&Tree::from_texts(&texts), most);
            let found: Vec<_> = found.iter().map(|f| f.to_string()).collect();
            found
        };
        assert!(
            found(1).len() == 1 && found(1)[0].contains("a.rs"),
            "{:?}",
            found(1)
        );
        assert!(
            found(0).len() == 2 && found(0)[1].contains("b.rs"),
            "{:?}",
            found(0)
        );
        assert!(found(2)[1].contains("lower"), "{:?}", found(2));
    }
}
