//! One fault of a set: its place, and the campaign or test that catches the fault.

use serde::Deserialize;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One fault.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// The fault of the product, in words.
    pub name: String,
    /// The file changed, from the workspace's root.
    pub file: PathBuf,
    /// Text that occurs exactly once in the file.
    pub find: String,
    /// The text in its place.
    pub replace: String,
    /// Arguments of the campaign that make the fault likelier, after those of all.
    #[serde(default)]
    pub with: Vec<String>,
    /// The test that catches the fault in the campaign's place, as arguments of `cargo test`.
    pub test: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    mutation: Vec<Mutation>,
}

/// The mutations of a data file; the error names the file.
pub fn read(path: &Path) -> Result<Vec<Mutation>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let set: Set = toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(set.mutation)
}

impl Mutation {
    /// The file's text with the fault, the workspace being at `root`.
    pub(super) fn apply(&self, root: &Path) -> Result<String, String> {
        let path = root.join(&self.file);
        let mut text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        text.replace_range(self.place(&text)?, &self.replace);
        Ok(text)
    }

    /// The place of its text in that of its file.
    pub(super) fn place(&self, text: &str) -> Result<Range<usize>, String> {
        let found: Vec<_> = text.match_indices(&self.find).collect();
        match found[..] {
            [(at, _)] => Ok(at..at + self.find.len()),
            _ => Err(format!(
                "\"{}\": its text occurs {} times in {}, not once: bring it up to date",
                self.name,
                found.len(),
                self.file.display()
            )),
        }
    }

    /// Arguments with which `cargo` builds the fault's test; empty for the campaign.
    pub(super) fn built_for(&self) -> Vec<String> {
        let mut words = self.test.iter().flat_map(|test| test.split_whitespace());
        let mut target = Vec::new();
        while let Some(option) = words.next().filter(|word| word.starts_with('-')) {
            target.push(option.to_string());
            if option != "--lib" {
                target.extend(words.next().map(str::to_string));
            }
        }
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn a_mutation_that_fits_nowhere_or_twice_is_refused() {
        let mut mutation = Mutation {
            name: "none".into(),
            file: "lab/proof/src/mutants/mutation.rs".into(),
            find: "text that is ".to_string() + "nowhere",
            replace: String::new(),
            with: Vec::new(),
            test: Some("-p raid --test suite journals::".into()),
        };
        assert_eq!(mutation.built_for(), ["-p", "raid", "--test", "suite"]);
        assert!(mutation.apply(&root()).unwrap_err().contains("0 times"));
        mutation.find = "fn ".into();
        assert!(mutation.apply(&root()).is_err());
    }
}
