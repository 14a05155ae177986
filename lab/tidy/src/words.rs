//! The tree stands by itself: its text is about the product, not about how or where the product was
//! made.

use crate::tree::{Finding, Tree};

/// Words that point outside of the repository.
const OUTSIDE: [&str; 10] = [
    "/work/",
    "land.sh",
    "farm-",
    "this session",
    "previous session",
    "next session",
    "the brief",
    "worktree",
    "language model",
    "ai assistant",
];

/// Words of the workplace, and numbers of issues.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree
        .all()
        .filter(|(path, _)| *path != "lab/tidy/src/words.rs")
    {
        for (line, number) in text.lines().zip(1..) {
            let lower = line.to_lowercase();
            let outside = OUTSIDE.iter().find(|word| lower.contains(**word));
            let found = outside
                .map(|word| word.to_string())
                .or_else(|| issue(&lower));
            if let Some(word) = found {
                let what = format!(
                    "{word:?} means nothing outside of the workplace: say what it \
                                    stands for, or drop it"
                );
                findings.push(Finding::new(path, number, what));
            }
        }
    }
    findings
}

/// `issue 12` or `issue #12`, but not `to issue 4 KiB reads`.
fn issue(line: &str) -> Option<String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let numbered = |pair: &[&str]| {
        let number = pair[2].trim_start_matches('#');
        let is_number = number.starts_with(|c: char| c.is_ascii_digit());
        (pair[0] != "to" && pair[1] == "issue" && is_number).then(|| format!("issue {number}"))
    };
    [&[""], &words[..]].concat().windows(3).find_map(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_words_of_the_workplace_are_found() {
        for text in [
            "see issue 12",
            "as Issue #3 asks",
            "cat /work/x",
            "made in this session",
        ] {
            assert_eq!(
                check(&Tree::from_texts(&[("a.md", text)])).len(),
                1,
                "{text}"
            );
        }
    }

    #[test]
    fn words_of_the_product_pass() {
        for text in [
            "to issue 4 KiB reads",
            "an NBD session ends",
            "the issue with caches",
        ] {
            assert!(
                check(&Tree::from_texts(&[("a.md", text)])).is_empty(),
                "{text}"
            );
        }
    }
}
