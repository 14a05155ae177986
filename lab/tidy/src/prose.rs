//! Measures of the prose, as ratchets: none may rise above its limit. A limit is lowered when its
//! measure has fallen. Comments are those of every Rust file. Sentences are those of every page,
//! without tables, headings and code.
//!
//! Not here: words that are refused in any place (`dialect`).

use crate::book::unfenced;
use crate::source::{RustSource, words as places};
use crate::tree::{Finding, Tree};
use std::collections::BTreeMap;

/// Words with a limited share: pronouns and relatives that stand where a noun belongs.
const COUNTED: [(&str, &[&str]); 4] = [
    ("\"what\" in ten thousand words of comments", &["what"]),
    (
        "\"who\" in ten thousand words of comments",
        &["who", "whose", "whom"],
    ),
    (
        "\"nobody\", \"something\" in ten thousand words of comments",
        &["nobody", "somebody", "something", "somewhere"],
    ),
    (
        "\"it\", \"they\" in ten thousand words of comments",
        &["it", "they"],
    ),
];
/// Beginnings of a doc comment that name no subject.
const VAGUE: [&str; 5] = ["What", "How", "Whether", "It", "Who"];
/// Names that each crate may give to a type of its own.
const COMMON: [&str; 3] = ["Config", "Options", "Error"];

/// The limits, in the order of [`measures`].
const LIMITS: [u64; 8] = [1, 2, 1, 54, 0, 138, 21, 0];

/// Measures above their limits.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let own = tree.has("lab/tidy/src/prose.rs");
    match own {
        true => check_against(tree, LIMITS),
        false => Vec::new(),
    }
}

fn check_against(tree: &Tree, limits: [u64; 8]) -> Vec<Finding> {
    let measured = measures(tree).into_iter().zip(limits);
    let risen = measured.filter(|((_, measure), limit)| measure > limit);
    let finding = |((name, measure), limit)| {
        let what =
            format!("{name}: {measure}, over {limit}: say it with nouns, in shorter sentences");
        Finding::new("lab/tidy/src/prose.rs", 1, what)
    };
    risen.map(finding).collect()
}

/// Each measure by its name.
pub fn measures(tree: &Tree) -> [(&'static str, u64); 8] {
    let (mut words, mut counts) = (0, [0; 4]);
    let (mut begun, mut vague) = (0, 0);
    for (_, text) in tree.ending(".rs") {
        let mut last = usize::MAX - 1;
        for comment in RustSource::parse(text).comments {
            for word in comment.text.split(|c: char| !c.is_alphanumeric()) {
                let word = word.to_lowercase();
                words += u64::from(!word.is_empty());
                for (count, (_, counted)) in counts.iter_mut().zip(COUNTED) {
                    *count += u64::from(counted.contains(&&*word));
                }
            }
            if comment.is_doc && comment.line != last + 1 {
                begun += 1;
                let first = comment.text.split(' ').next().unwrap_or_default();
                vague += u64::from(VAGUE.contains(&first));
            }
            last = comment.line;
        }
    }
    let mut lengths = sentences(tree);
    lengths.sort_unstable();
    let mean = lengths.iter().sum::<u64>() * 10 / (lengths.len() as u64).max(1);
    let longest = lengths.get(lengths.len() * 9 / 10).copied().unwrap_or(0);
    let share = |n: u64, of: u64, parts: u64| (n * parts).div_ceil(of.max(1));
    let [what, who, nobody, it] =
        [0, 1, 2, 3].map(|at| (COUNTED[at].0, share(counts[at], words, 10_000)));
    [
        what,
        who,
        nobody,
        it,
        (
            "doc comments in a thousand that begin with What, How, Whether, It, Who",
            share(vague, begun, 1000),
        ),
        ("words of ten sentences of the pages", mean),
        (
            "words of a sentence of the pages that nine in ten do not exceed",
            longest,
        ),
        ("types in a thousand that share their name", shared(tree)),
    ]
}

/// The length of each sentence of the pages, in words.
fn sentences(tree: &Tree) -> Vec<u64> {
    let mut lengths = Vec::new();
    for (_, text) in tree.ending(".md") {
        let mut length = 0;
        let mut end = |length: &mut u64| {
            if *length > 0 {
                lengths.push(std::mem::take(length));
            }
        };
        for (line, _) in unfenced(text) {
            let line = match line.strip_prefix("    ") {
                Some(code) if !code.starts_with(' ') => "",
                _ => line.trim(),
            };
            if line.is_empty() || line.starts_with(['#', '|', '-', '!', '<']) {
                end(&mut length);
            }
            if line.starts_with(['#', '|', '!', '<']) {
                continue;
            }
            for word in line.split_whitespace() {
                length += u64::from(word.contains(char::is_alphanumeric));
                if word
                    .trim_end_matches(['*', '"', ')', '_'])
                    .ends_with(['.', '!', '?'])
                {
                    end(&mut length);
                }
            }
        }
        end(&mut length);
    }
    lengths
}

/// Types in a thousand that share their name with another type.
fn shared(tree: &Tree) -> u64 {
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    for (path, text) in tree.ending(".rs") {
        if !path.contains("/src/") || path.ends_with("tests.rs") || path.contains("/tests/") {
            continue;
        }
        let code = RustSource::parse(text).shipped();
        for keyword in ["struct", "enum", "trait", "union"] {
            for at in places(&code, keyword) {
                let rest = code[at + keyword.len()..].trim_start();
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
                let is_type = name.starts_with(|c: char| c.is_uppercase());
                if is_type && !COMMON.contains(&&*name) {
                    *names.entry(name).or_default() += 1;
                }
            }
        }
    }
    let all: u64 = names.values().sum();
    let borne: u64 = names.values().filter(|count| **count > 1).sum();
    (borne * 1000).div_ceil(all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_measures_that_rise_are_found() {
        let code = "//! A head of it.\n\n/// What is sent, who sends.\n/// It is more.\nstruct Twice;\n/// Twice.\n\
                    struct Once;\nmod a { struct Twice; }\n";
        let page = "# A heading of words\n\nOne two three. Four five\nsix seven.\n\n    code code code\n\n| a | b |\n- eight\n";
        let tree = Tree::from_texts(&[("crates/a/src/lib.rs", code), ("docs/a.md", page)]);
        let measured = measures(&tree).map(|(_, measure)| measure);
        // 13 words of comments; three doc comments; sentences of 3, 4 and 1 words.
        assert_eq!(measured, [770, 770, 0, 1539, 334, 26, 4, 667]);
        assert!(check_against(&tree, measured).is_empty());
        let less = measured.map(|measure| measure.saturating_sub(1));
        assert_eq!(check_against(&tree, less).len(), 7);
    }
}
