//! A file has one reason to exist and seldom needs more than [`LINES_MAX`]
//! lines. Those that are longer are listed, and may only shrink; an entry with
//! more than [`SLACK`] lines to spare has to follow.

use crate::tree::{Finding, Tree};

/// Lines a file may have.
pub const LINES_MAX: usize = 500;
/// Lines by which a listed file may be shorter than its entry says.
pub const SLACK: usize = 50;

/// A longer file, and the lines it may have.
type Long = (&'static str, usize);

const LONG: &[Long] = &[];

/// Files that are too long, and entries of the list that are out of date.
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_against(tree, LONG)
}

fn check_against(tree: &Tree, long: &[Long]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let lines = text.lines().count();
        let listed = long.iter().find(|(other, _)| *other == path);
        let most = listed.map_or(LINES_MAX, |(_, most)| *most);
        if lines > most {
            let what = format!("{lines} lines, over {most}: split it by reason to exist");
            findings.push(Finding::new(path, lines, what));
        } else if listed.is_some() && lines <= LINES_MAX {
            let what = format!("{lines} lines: take it off tidy's LONG");
            findings.push(Finding::new(path, lines, what));
        } else if listed.is_some() && lines + SLACK < most {
            let what = format!("{lines} lines: lower its entry in tidy's LONG from {most}");
            findings.push(Finding::new(path, lines, what));
        }
    }
    for (path, _) in long {
        if tree.text(path).is_none() {
            let what = "no such file: take it off tidy's LONG";
            findings.push(Finding::new(path, 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_a_file_that_grows_is_found_and_a_list_that_is_stale() {
        let (long, short) = ("x\n".repeat(LINES_MAX + 2), "x\n".repeat(9));
        let tree = Tree::from_texts(&[
            ("a.rs", &long),
            ("b.rs", &long),
            ("c.rs", &long),
            ("d.rs", &short),
        ]);
        let list = [
            ("b.rs", LINES_MAX + 2),
            ("c.rs", LINES_MAX + SLACK + 3),
            ("d.rs", LINES_MAX + 9),
            ("e.rs", LINES_MAX + 9),
        ];
        let found = check_against(&tree, &list);
        let found: Vec<_> = found.iter().map(|f| f.to_string()).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains("a.rs") && found[0].contains("split"));
        assert!(found[1].contains("c.rs") && found[1].contains("lower"));
        assert!(found[2].contains("d.rs") && found[2].contains("take it off"));
        assert!(found[3].contains("e.rs") && found[3].contains("no such file"));
    }
}
