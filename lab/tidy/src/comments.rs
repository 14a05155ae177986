//! Comments say why. A comment marks no unfinished work, expresses no doubt, and is no code that
//! was put aside. None is a doc test, for those are not run.

use crate::source::RustSource;
use crate::tree::{Finding, Tree};

const UNFINISHED: [&str; 5] = ["TODO", "FIXME", "XXX", "HACK", "WIP"];
const DOUBT: [&str; 8] = [
    "hopefully",
    "not sure",
    "i think",
    "i guess",
    "should probably",
    "no idea",
    "somehow",
    "for some reason",
];
/// Beginnings and ends of lines that are code rather than prose.
const CODE_STARTS: [&str; 7] = [
    "let ", "let mut ", "pub fn ", "fn ", "use ", "assert!", "println!",
];
const CODE_ENDS: [&str; 5] = [";", "{", "}", ");", "},"];

/// Marks of unfinished work, doubts and code in comments.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let others = tree
        .ending(".rs")
        .filter(|(path, _)| *path != "lab/tidy/src/comments.rs");
    for (path, text) in others {
        let mut in_block = false;
        for comment in RustSource::parse(text).comments {
            let fence = comment.is_doc && comment.text.starts_with("```");
            in_block ^= fence;
            let has = |word: &&&str| {
                let mut words = comment.text.split(|c: char| !c.is_alphanumeric());
                words.any(|found| found == **word)
            };
            let lower = comment.text.to_lowercase();
            let what = if let Some(mark) = UNFINISHED.iter().find(has) {
                format!("{mark}: finish it, or say plainly in the head what is left out")
            } else if let Some(doubt) = DOUBT.iter().find(|doubt| lower.contains(**doubt)) {
                format!("{doubt:?} expresses doubt: find out, then say what is so")
            } else if fence && in_block && comment.text != "```text" {
                "a doc test, and those are not run: make it a test, or mark the block `text`".into()
            } else if !comment.is_doc && is_code(&comment.text) {
                "this looks like code put aside: delete it".to_string()
            } else {
                continue;
            };
            findings.push(Finding::new(path, comment.line, what));
        }
    }
    findings
}

fn is_code(text: &str) -> bool {
    let starts = CODE_STARTS.iter().any(|start| text.starts_with(start));
    let ends = CODE_ENDS.iter().any(|end| text.ends_with(end));
    let calls = text.contains('(') || text.contains('=') || text.contains("::");
    ends && (starts || calls) && !text.contains('`')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_marks_doubts_and_code_are_found() {
        for comment in [
            "// TODO: the rest",
            "/* FIXME */",
            "/// Hopefully enough.",
            "// this works for some reason",
            "// let x = f(y);",
            "// self.flush().await?;",
            "// if x == y {",
            "/// ```\n/// f(1);\n/// ```",
            "//! ```rust\n//! f(1);\n//! ```",
        ] {
            let tree = Tree::from_texts(&[("a.rs", comment)]);
            assert_eq!(check(&tree).len(), 1, "{comment}");
        }
    }

    #[test]
    fn prose_passes() {
        for comment in [
            "// The lock is held here; a reader waits.",
            "/// let x = f(y);",
            "// SAFETY: `x` is owned;",
            "let s = \"// TODO\";",
            "// AutoDOTs are fine",
            "/// ```text\n/// a | b\n/// ```",
        ] {
            let tree = Tree::from_texts(&[("a.rs", comment)]);
            assert!(check(&tree).is_empty(), "{comment}");
        }
    }
}
