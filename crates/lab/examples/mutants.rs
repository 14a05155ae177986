//! Tries every mutation of a set on a copy of the workspace; exits with 1 if
//! one survives its campaign. Run it from the workspace's root.
//!
//! `mutants SET CAMPAIGN [ARGUMENT...]`, such as
//! `mutants crates/lab/mutations/cache.toml cachesim --seeds 2000`

use lab::mutants::{Copy, Fate, read};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [set, campaign, rest @ ..] = &arguments[..] else {
        eprintln!("usage: mutants SET CAMPAIGN [ARGUMENT...]");
        return ExitCode::from(2);
    };
    match try_all(Path::new(set), campaign, rest) {
        Ok(survivors) => ExitCode::from(u8::from(survivors > 0)),
        Err(what) => {
            eprintln!("mutants: {what}");
            ExitCode::from(2)
        }
    }
}

fn try_all(set: &Path, campaign: &str, arguments: &[String]) -> Result<usize, String> {
    let mutations = read(set)?;
    let copy = Copy::new(Path::new("."), Path::new("target/mutants"))?;
    let mut survivors = 0;
    for mutation in &mutations {
        let fate = copy.try_out(mutation, campaign, arguments)?;
        survivors += usize::from(fate == Fate::Survived);
        println!("{fate:?}: {}", mutation.name);
    }
    println!(
        "{} of {} caught",
        mutations.len() - survivors,
        mutations.len()
    );
    Ok(survivors)
}
