//! The arguments of the campaigns' examples.

use crate::mutants::{MISUSED, VIOLATION};
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;

/// The options of every example.
const COMMON: [&str; 5] = ["seeds=", "start=", "threads=", "first", "json"];

/// The arguments of an example: `--seeds N --start S --threads T --first --json`, and the example's
/// own options. Of an option that is given twice the last one counts.
pub struct Arguments {
    /// Number of seeds.
    pub seeds: u64,
    /// The first seed.
    pub start: u64,
    options: BTreeMap<String, String>,
}

impl Arguments {
    /// Runs `work` by this program's arguments, and returns the program's status. `known` are its
    /// own options; the name of an option with a value ends with `=`. On a mistake the usage is
    /// printed.
    pub fn run(
        seeds: u64,
        known: &[&str],
        work: impl FnOnce(&Arguments) -> Result<(), String>,
    ) -> ExitCode {
        let given = std::env::args().skip(1).collect();
        let Some(arguments) = Arguments::parse(given, seeds, known) else {
            let known = COMMON.iter().chain(known);
            let known = known.map(|k| format!(" [--{}]", k.replace('=', " X")));
            eprintln!("usage:{}", String::from_iter(known));
            return ExitCode::from(MISUSED as u8);
        };
        match work(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(what) => {
                eprintln!("{what}");
                ExitCode::from(VIOLATION as u8)
            }
        }
    }

    fn parse(given: Vec<String>, seeds: u64, known: &[&str]) -> Option<Arguments> {
        let mut options = BTreeMap::new();
        let mut given = given.into_iter();
        while let Some(argument) = given.next() {
            let name = argument.strip_prefix("--")?.to_string();
            let mut known = COMMON.iter().chain(known);
            let value = if known.clone().any(|k| *k == format!("{name}=")) {
                given.next()?
            } else if known.any(|k| *k == name) {
                String::new()
            } else {
                return None;
            };
            options.insert(name, value);
        }
        let number = |name, default| match options.get(name) {
            Some(text) => str::parse(text).ok(),
            None => Some(default),
        };
        Some(Arguments {
            seeds: number("seeds", seeds)?,
            start: number("start", 0)?,
            options,
        })
    }

    /// All seeds.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.seeds
    }

    /// Number of threads; one by default.
    pub fn threads(&self) -> u64 {
        let threads = self.value("threads").and_then(|text| text.parse().ok());
        threads.unwrap_or(1).max(1)
    }

    /// True if a flag is given.
    pub fn has(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    /// The value of an option that is given.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Arguments> {
        let given = text.split_whitespace().map(String::from).collect();
        Arguments::parse(given, 300, &["only="])
    }

    #[test]
    fn the_last_of_an_option_counts_and_what_is_not_known_is_refused() {
        let given = parse("--seeds 400 --only Splits --first --seeds 1 --start 37").unwrap();
        assert_eq!(given.range(), 37..38);
        assert!(given.has("first"));
        assert_eq!(given.value("only"), Some("Splits"));
        let none = parse("").unwrap();
        assert_eq!(none.range(), 0..300);
        assert!(!none.has("first") && none.value("only").is_none());
        for wrong in ["--last", "7", "--seeds", "--seeds x", "--only"] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
