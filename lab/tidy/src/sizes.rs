//! No size of the machine reaches a disk: the crate `layout` holds every written structure, so its
//! types have fields of fixed size alone.

use crate::source::{RustSource, body, line_of, words};
use crate::tree::{Finding, Tree};

/// `usize` and `isize` in the structs, enums and unions of `layout`.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ours = tree
        .ending(".rs")
        .filter(|(path, _)| path.starts_with("crates/layout/src/"));
    for (path, text) in ours {
        let code = RustSource::parse(text).shipped();
        for keyword in ["struct", "enum", "union"] {
            for at in words(&code, keyword) {
                let item = &code[at..];
                for size in ["usize", "isize"] {
                    for inside in words(fields(item), size) {
                        let what = format!(
                            "a field of {size}, which differs between machines: use a \
                             little-endian integer of fixed size"
                        );
                        findings.push(Finding::new(path, line_of(text, at + inside), what));
                    }
                }
            }
        }
    }
    findings
}

/// An item up to the end of its fields.
fn fields(item: &str) -> &str {
    let len = match (item.find('{'), item.find(';')) {
        (Some(open), end) if end.is_none_or(|end| open < end) => body(item, open),
        (_, Some(end)) => end,
        _ => item.len(),
    };
    &item[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_a_usize_in_a_layout_is_found() {
        let text = "struct A { a: u64,\n b: usize }\nstruct B(isize);\nfn f(n: usize) { }\n";
        let tree = Tree::from_texts(&[
            ("crates/layout/src/lib.rs", text),
            ("crates/cache/src/lib.rs", text),
        ]);
        let found: Vec<_> = check(&tree).iter().map(|f| f.to_string()).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("lib.rs:2:") && found[1].contains("lib.rs:3:"));
    }
}
