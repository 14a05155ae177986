//! Tests that need a process of their own.

use crate::tools::run;
use std::process::Command;

/// The variable that names the test of a process of its own.
const ALONE: &str = "TESTBED_ALONE";

/// Runs the test `name` of this program in a process of its own, which `prepare` may limit.
/// Returns true in that process, where the test does its work.
///
/// # Errors
/// If the process does not start, runs no test of that name, or fails: with the output.
pub fn runs_alone(name: &str, prepare: impl FnOnce(&mut Command)) -> Result<bool, String> {
    if std::env::var_os(ALONE).is_some_and(|alone| alone == name) {
        return Ok(true);
    }
    let program = std::env::current_exe()
        .map_err(|error| format!("the program of this test is unknown: {error}"))?;
    let mut alone = Command::new(program);
    alone.args(["--exact", name, "--include-ignored", "--nocapture"]);
    prepare(alone.env(ALONE, name));
    let output = run(&mut alone)?;
    print!("{output}");
    match output.contains("1 passed") {
        true => Ok(false),
        false => Err(format!("no test is called {name}: {output}")),
    }
}

#[cfg(test)]
mod tests {
    use super::runs_alone;

    #[test]
    fn a_test_has_a_process_of_its_own_and_an_unknown_test_is_refused() {
        let name = "alone::tests::a_test_has_a_process_of_its_own_and_an_unknown_test_is_refused";
        let (parent, id) = ("TESTBED_PARENT", std::process::id().to_string());
        let alone = runs_alone(name, |alone| {
            alone.env(parent, &id);
        });
        if alone.unwrap() {
            assert_ne!(std::env::var(parent).unwrap(), id);
            return;
        }
        assert!(runs_alone("alone::tests::no_test", |_| ()).is_err());
    }
}
