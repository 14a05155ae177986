//! The field has a term for the meaning of these words; ARCHITECTURE.md has the glossary.

use crate::tree::{Finding, Tree};

/// Words, and the terms to write instead. `_` and letters of either case bound a word, so that
/// names in the code are found too.
const DIALECT: [(&str, &str); 20] = [
    ("told", "reported, logged, passed, listed or notified"),
    ("tell", "report, log, pass, distinguish or show"),
    ("tells", "reports, shows, decides or names"),
    ("untold", "unreported"),
    ("retell", "mark dirty"),
    ("anew", "again: reopen, restart, rewrite, reinitialise"),
    ("believe", "trust"),
    ("believes", "trusts"),
    ("believed", "trusted"),
    ("doubtful", "suspect"),
    ("in doubt", "suspect"),
    ("let go", "release, drop or abandon"),
    ("lets go", "releases, drops or abandons"),
    ("put together", "assembled or joined"),
    ("puts together", "assembles or joins"),
    ("went on alone", "diverged"),
    ("went on apart", "diverged: a split brain"),
    ("hangs on", "is in the failure domain of, or depends on"),
    ("stood still", "was quiesced, or stalled"),
    ("stands still", "is quiesced, or stalls"),
];

/// Files with the list of words, or with words of other programs or of a language.
const ALLOWED: [(&str, &str); 3] = [
    ("lab/tidy/src/dialect.rs", ""),
    // `let go = ...`
    (
        "crates/nbd/src/protocol/client_handshake/tests.rs",
        "let go",
    ),
    (
        "crates/nbd/src/protocol/server_handshake/tests.rs",
        "let go",
    ),
];

/// Words of the dialect in code, messages and documents.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.all() {
        for (line, number) in text.lines().zip(1..) {
            let line = line.to_lowercase();
            let line = format!(
                " {} ",
                line.replace(|c: char| !c.is_ascii_alphanumeric(), " ")
            );
            for (word, instead) in DIALECT {
                let allowed = |(file, only): &(&str, &str)| {
                    *file == path && (only.is_empty() || *only == word)
                };
                if line.contains(&format!(" {word} ")) && !ALLOWED.iter().any(allowed) {
                    let what = format!("{word:?} is not the field's term: say {instead}");
                    findings.push(Finding::new(path, number, what));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_dialect_is_found_in_prose_and_in_names() {
        for text in [
            "/// The client is told.",
            "fn retell() {}",
            "the device begins anew",
            "Believe nothing.",
            "fn lets_go_of_members() {}",
        ] {
            let tree = Tree::from_texts(&[("crates/cache/src/a.rs", text)]);
            assert_eq!(check(&tree).len(), 1, "{text}");
        }
    }

    #[test]
    fn the_fields_terms_pass() {
        for text in [
            "intelligent storyteller",
            "`loss_reported` counts it",
            "a newer one",
        ] {
            let tree = Tree::from_texts(&[("docs/a.md", text)]);
            assert!(check(&tree).is_empty(), "{text}");
        }
    }
}
