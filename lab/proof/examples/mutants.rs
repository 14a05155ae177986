//! Tries every mutation of a set on a copy of the workspace; exits with 1 if one survives its
//! campaign. The working directory must be the workspace's root.
//!
//! `mutants [--name TEXT] SET CAMPAIGN [ARGUMENT...]`, such as
//! `mutants lab/proof/mutations/cache.toml cachesim --seeds 2000`; a text selects the mutations
//! that have the text in their names

use proof::mutants::{Fate, WorkspaceCopy, read};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, arguments) = match &arguments[..] {
        [option, name, rest @ ..] if option == "--name" => (name.as_str(), rest),
        all => ("", all),
    };
    let [set, campaign, rest @ ..] = arguments else {
        eprintln!("usage: mutants [--name TEXT] SET CAMPAIGN [ARGUMENT...]");
        return ExitCode::from(2);
    };
    match try_all(Path::new(set), name, campaign, rest) {
        Ok(survivors) => ExitCode::from(u8::from(survivors > 0)),
        Err(what) => {
            eprintln!("mutants: {what}");
            ExitCode::from(2)
        }
    }
}

fn try_all(set: &Path, name: &str, campaign: &str, arguments: &[String]) -> Result<usize, String> {
    let mut mutations = read(set)?;
    mutations.retain(|mutation| mutation.name.contains(name));
    let copy = WorkspaceCopy::new(Path::new("."), Path::new("target/mutants"))?;
    let fates = copy.try_all(&mutations, campaign, arguments, |mutation, fate, seen| {
        println!("{fate:?}: {}", mutation.name);
        seen.iter().for_each(|seen| println!("    {seen}"));
    })?;
    let caught = fates.iter().filter(|fate| **fate == Fate::Caught).count();
    println!("{caught} of {} caught", fates.len());
    Ok(fates.len() - caught)
}
