//! Every mutation of a set still fits the source: the file exists, and the text to replace occurs
//! in it exactly once.

use crate::tree::{Finding, Tree};
use toml::Table;

/// The directory of the sets.
const SETS: &str = "lab/proof/mutations/";

/// Mutations that no longer fit.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let sets = tree
        .ending(".toml")
        .filter(|(path, _)| path.starts_with(SETS));
    sets.flat_map(|(path, text)| match text.parse::<Table>() {
        Ok(set) => misfits(tree, path, text, &set),
        Err(error) => vec![Finding::new(path, 1, format!("not TOML: {error}"))],
    })
    .collect()
}

fn misfits(tree: &Tree, path: &str, text: &str, set: &Table) -> Vec<Finding> {
    let mutations = set.get("mutation").and_then(|all| all.as_array());
    let mutations = mutations.into_iter().flatten();
    mutations
        .filter_map(|mutation| {
            let of = |key: &str| mutation.get(key).and_then(|value| value.as_str());
            let name = of("name").unwrap_or_default();
            let what = misfit(tree, of("file")?, of("find")?, of("replace")?)?;
            let is_named = |line: &str| line.starts_with("name") && line.contains(name);
            let line = text.lines().position(is_named).map_or(1, |at| at + 1);
            let what = format!("{name:?}: {what}: bring it up to date, or drop it");
            Some(Finding::new(path, line, what))
        })
        .collect()
}

fn misfit(tree: &Tree, file: &str, find: &str, replace: &str) -> Option<String> {
    let Some(source) = tree.text(file) else {
        return Some(format!("there is no {file}"));
    };
    match source.matches(find).count() {
        1 if find == replace => Some("changes nothing".into()),
        1 => None,
        n => Some(format!("its text occurs {n} times in {file}, not once")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_a_mutation_that_fits_nowhere_or_twice_is_found() {
        let set = ["b", "a", "c", "d"].map(|find| {
            format!("[[mutation]]\nname = \"of {find}\"\nfile = \"x.rs\"\nfind = \"{find}\"\nreplace = \"c\"\n")
        });
        let tree = Tree::from_texts(&[
            ("lab/proof/mutations/one.toml", &set.concat()),
            (
                "lab/proof/mutations/two.toml",
                "[[mutation]]\nname = \"n\"\nfile = \"y.rs\"\nfind = \"\"\nreplace = \"\"\n",
            ),
            ("x.rs", "a a b c"),
        ]);
        let found: Vec<_> = check(&tree).iter().map(|f| f.to_string()).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains("one.toml:7: \"of a\": its text occurs 2 times"));
        assert!(found[1].contains("\"of c\": changes nothing"));
        assert!(found[2].contains("\"of d\": its text occurs 0 times"));
        assert!(found[3].contains("two.toml:2: \"n\": there is no y.rs"));
    }
}
