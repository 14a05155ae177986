//! Faults put into the product's source by hand, to see that a campaign would
//! find them.
//!
//! A set of mutations is a data file. A copy of the workspace has them side by side, and a variable
//! of the environment chooses one, so that a set costs one build. A mutation that lies outside of a
//! function, or compiles beside no other, has a build of its own. With each mutation the campaign
//! runs, or the one test that catches a fault which no campaign does. If that passes, the mutation
//! lives.
//!
//! Invariant: a seed or a test caught a mutation ⟹ that seed or test passes without the mutation.

mod mutation;
mod weave;

pub use mutation::{Mutation, read};

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use weave::{CHOICE, Woven};

/// The output of the last command, in the copy.
const LOG: &str = "campaign.log";
/// The campaign of nodes, which has a feature of its own.
const NODES: &str = "node";

/// Exit code of a campaign that has seen a violation.
pub(crate) const VIOLATION: i32 = 1;
/// Exit code of a campaign that was given unknown arguments.
pub(crate) const MISUSED: i32 = 2;

/// The outcome of a mutation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The campaign saw a violation, as it should.
    Caught,
    /// The campaign saw no violation.
    Survived,
    /// The campaign saw a violation that occurs without the fault too.
    Mistaken,
    /// The mutation does not compile, so that nothing was tried.
    Uncompiled,
}

/// A copy of the workspace in which mutations are tried.
pub struct WorkspaceCopy(PathBuf);

impl WorkspaceCopy {
    /// Copies the files that a build of the workspace at `from` needs to `to`.
    pub fn new(from: &Path, to: &Path) -> Result<WorkspaceCopy, String> {
        fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
        for name in [
            "Cargo.toml",
            "Cargo.lock",
            "contrib",
            "docs",
            "crates",
            "lab",
            "web/dist",
        ] {
            copy_tree(&from.join(name), &to.join(name))?;
        }
        // Programs are run from within the copy.
        let to = to.canonicalize();
        let to = to.map_err(|e| format!("the copy of the workspace: {e}"))?;
        Ok(WorkspaceCopy(to))
    }

    /// Tries `mutations` by `example` of this crate or each by its own test. Then runs the seeds
    /// and tests that caught mutations without the mutations.
    pub fn try_all(
        &self,
        mutations: &[Mutation],
        example: &str,
        arguments: &[String],
        report: impl FnMut(&Mutation, Fate, Option<String>),
    ) -> Result<Vec<Fate>, String> {
        let judge = CampaignJudge {
            copy: self,
            example,
            arguments,
        };
        self.try_by(&judge, mutations, report)
    }

    /// Tries `mutations` by the program of a package. `violation` returns the
    /// violation seen of a program.
    pub fn try_programs(
        &self,
        mutations: &[Mutation],
        package: &str,
        violation: &dyn Fn(&Path) -> Result<Option<String>, String>,
        report: impl FnMut(&Mutation, Fate, Option<String>),
    ) -> Result<Vec<Fate>, String> {
        let judge = ProgramJudge {
            copy: self,
            package,
            violation,
        };
        self.try_by(&judge, mutations, report)
    }

    fn try_by(
        &self,
        judge: &impl MutationJudge,
        mutations: &[Mutation],
        mut report: impl FnMut(&Mutation, Fate, Option<String>),
    ) -> Result<Vec<Fate>, String> {
        let mut fates = BTreeMap::new();
        // Those that have a build of their own.
        let mut apart = BTreeSet::new();
        while fates.is_empty() {
            let woven = Woven::new(&self.0, mutations, &apart)?;
            if woven.chosen.is_empty() {
                break;
            }
            self.with(&woven.files, || {
                let chosen: Vec<_> = woven.chosen.iter().map(|i| &mutations[*i]).collect();
                if !judge.build(&chosen)? {
                    apart.extend(woven.blamed(&self.log()));
                    return Ok(());
                }
                for index in &woven.chosen {
                    let mutation = &mutations[*index];
                    let (mut fate, seen) = judge.run(mutation, Some(*index))?;
                    if fate == Fate::Caught && !judge.is_sound_without(mutation, &seen)? {
                        fate = Fate::Mistaken;
                    }
                    report(mutation, fate, seen);
                    fates.insert(*index, fate);
                }
                Ok(())
            })?;
        }
        let mut caught = Vec::new();
        for (index, mutation) in mutations.iter().enumerate() {
            if fates.contains_key(&index) {
                continue;
            }
            let changed = BTreeMap::from([(mutation.file.clone(), mutation.apply(&self.0)?)]);
            let (fate, seen) = self.with(&changed, || match judge.build(&[mutation])? {
                true => judge.run(mutation, None),
                false => Ok((Fate::Uncompiled, self.seen(Fate::Uncompiled))),
            })?;
            report(mutation, fate, seen.clone());
            fates.insert(index, fate);
            caught.extend((fate == Fate::Caught).then_some((mutation, index, seen)));
        }
        let again: Vec<_> = caught.iter().map(|(mutation, ..)| *mutation).collect();
        judge.build(&again)?;
        for (mutation, index, seen) in caught {
            if !judge.is_sound_without(mutation, &seen)? {
                report(mutation, Fate::Mistaken, seen);
                fates.insert(index, Fate::Mistaken);
            }
        }
        Ok(fates.into_values().collect())
    }

    /// Does `work` while `files` have other texts.
    fn with<T>(
        &self,
        files: &BTreeMap<PathBuf, String>,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        // The tree that was copied may have changed since.
        let mut sound = Vec::new();
        for (file, changed) in files {
            let path = self.0.join(file);
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            put(&path, changed)?;
            sound.push((path, text));
        }
        let done = work();
        for (path, text) in sound {
            put(&path, &text)?;
        }
        done
    }

    /// The output of the last command.
    fn log(&self) -> String {
        fs::read_to_string(self.0.join(LOG)).unwrap_or_default()
    }

    /// The first violation that the last campaign printed, or the first line of a failing test's
    /// output; or the first error of the compiler.
    fn seen(&self, fate: Fate) -> Option<String> {
        let is_of_note = |line: &&str| match fate {
            Fate::Caught => line.starts_with("seed ") || line.contains(" panicked at "),
            Fate::Uncompiled => line.starts_with("error"),
            Fate::Survived | Fate::Mistaken => false,
        };
        self.log().lines().find(is_of_note).map(str::to_string)
    }

    fn cargo(&self, verb: &str, arguments: &[&str]) -> Result<ExitStatus, String> {
        let mut command = Command::new("cargo");
        command.args([verb, "--quiet"]).args(arguments);
        self.run(command)
    }

    fn run(&self, mut command: Command) -> Result<ExitStatus, String> {
        let explain = |e: std::io::Error| format!("{}: {e}", command.get_program().display());
        let log = fs::File::create(self.0.join(LOG)).map_err(explain)?;
        let both = log.try_clone().map_err(explain)?;
        command.current_dir(&self.0).stderr(both).stdout(log);
        command
            .status()
            .map_err(|e| format!("{}: {e}", command.get_program().display()))
    }
}

/// A judge of mutated workspaces.
trait MutationJudge {
    /// Builds the programs for `mutations`. Returns false on an error of the compiler.
    fn build(&self, mutations: &[&Mutation]) -> Result<bool, String>;

    /// Tries `mutation`, once built: the one of index `chosen` if several were woven.
    fn run(
        &self,
        mutation: &Mutation,
        chosen: Option<usize>,
    ) -> Result<(Fate, Option<String>), String>;

    /// True if the seed or test that has `seen` a mutation passes without, once built.
    fn is_sound_without(&self, mutation: &Mutation, seen: &Option<String>) -> Result<bool, String>;
}

/// Judges a program by its violations.
struct ProgramJudge<'a> {
    copy: &'a WorkspaceCopy,
    package: &'a str,
    violation: &'a dyn Fn(&Path) -> Result<Option<String>, String>,
}

impl MutationJudge for ProgramJudge<'_> {
    fn build(&self, _: &[&Mutation]) -> Result<bool, String> {
        let built = self.copy.cargo("build", &["-p", self.package])?;
        Ok(built.success())
    }

    fn run(&self, _: &Mutation, chosen: Option<usize>) -> Result<(Fate, Option<String>), String> {
        let program = self.copy.0.join("target/debug").join(self.package);
        // The judge starts the program as any other, so that a script makes the choice.
        let script = self.copy.0.join("target").join(self.package);
        let choice = chosen.map_or_else(String::new, |index| format!("{CHOICE}={index} "));
        let text = format!("#!/bin/sh\n{choice}exec '{}' \"$@\"\n", program.display());
        put(&script, &text)?;
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&script, mode).map_err(|e| format!("{}: {e}", script.display()))?;
        let seen = (self.violation)(&script)?;
        let fate = seen.as_ref().map_or(Fate::Survived, |_| Fate::Caught);
        Ok((fate, seen))
    }

    /// A storm is no case that could be repeated.
    fn is_sound_without(&self, _: &Mutation, _: &Option<String>) -> Result<bool, String> {
        Ok(true)
    }
}

/// A campaign, unless a mutation names a test.
struct CampaignJudge<'a> {
    copy: &'a WorkspaceCopy,
    example: &'a str,
    arguments: &'a [String],
}

impl MutationJudge for CampaignJudge<'_> {
    fn build(&self, mutations: &[&Mutation]) -> Result<bool, String> {
        let targets: BTreeSet<_> = mutations.iter().map(|m| m.built_for()).collect();
        for target in targets {
            let nodes = if self.example == NODES { "nodes" } else { "" };
            let done = match target.is_empty() {
                true => {
                    let campaign = ["-p", "proof", "--no-default-features", "--features", nodes];
                    let campaign = [&campaign[..], &["--example", self.example]].concat();
                    self.copy.cargo("build", &campaign)?
                }
                false => {
                    let target = target.iter().map(String::as_str);
                    let target: Vec<_> = ["--no-run"].into_iter().chain(target).collect();
                    self.copy.cargo("test", &target)?
                }
            };
            if !done.success() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn run(
        &self,
        mutation: &Mutation,
        chosen: Option<usize>,
    ) -> Result<(Fate, Option<String>), String> {
        let is_caught = match &mutation.test {
            Some(test) => !self.passes(test, chosen)?,
            None => self.is_violated(&[self.arguments, &mutation.with].concat(), chosen)?,
        };
        let fate = if is_caught {
            Fate::Caught
        } else {
            Fate::Survived
        };
        Ok((fate, self.copy.seen(fate)))
    }

    fn is_sound_without(&self, mutation: &Mutation, seen: &Option<String>) -> Result<bool, String> {
        match (&mutation.test, seen.as_deref().and_then(seed_of)) {
            (Some(test), _) => self.passes(test, None),
            (None, Some(seed)) => {
                let one = seed_alone(self.arguments, &mutation.with, seed);
                Ok(!self.is_violated(&one, None)?)
            }
            (None, None) => Ok(true),
        }
    }
}

impl CampaignJudge<'_> {
    fn is_violated(&self, arguments: &[String], chosen: Option<usize>) -> Result<bool, String> {
        let program = self.copy.0.join("target/debug/examples").join(self.example);
        let mut command = Command::new(program);
        command.args(arguments);
        choose(&mut command, chosen);
        match self.copy.run(command)?.code() {
            Some(VIOLATION) => Ok(true),
            Some(MISUSED) => Err(format!(
                "{} does not take {arguments:?}: {}",
                self.example,
                self.copy.log()
            )),
            _ => Ok(false),
        }
    }

    fn passes(&self, test: &str, chosen: Option<usize>) -> Result<bool, String> {
        let mut command = Command::new("cargo");
        command
            .args(["test", "--quiet"])
            .args(test.split_whitespace());
        choose(&mut command, chosen);
        let passed = self.copy.run(command)?.success();
        match passed && !has_run_tests(&self.copy.log()) {
            true => Err(format!("no test is `cargo test {test}`")),
            false => Ok(passed),
        }
    }
}

/// True if a test ran: names that match none pass.
fn has_run_tests(log: &str) -> bool {
    log.lines()
        .filter_map(|line| line.strip_prefix("running "))
        .any(|count| !count.starts_with("0 "))
}

fn choose(command: &mut Command, chosen: Option<usize>) {
    match chosen {
        Some(index) => command.env(CHOICE, index.to_string()),
        None => command.env_remove(CHOICE),
    };
}

/// The seed of a violation that a campaign printed.
fn seed_of(seen: &str) -> Option<&str> {
    let rest = seen.strip_prefix("seed ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()
}

/// The arguments by which a campaign runs the case of `seed` alone.
fn seed_alone(arguments: &[String], with: &[String], seed: &str) -> Vec<String> {
    let one = ["--seeds", "1", "--start", seed].map(String::from);
    [arguments, with, &one].concat()
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    let explain = |e: std::io::Error| format!("{}: {e}", from.display());
    if from.is_dir() {
        fs::create_dir_all(to).map_err(explain)?;
        for entry in fs::read_dir(from).map_err(explain)? {
            let entry = entry.map_err(explain)?;
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    let text = fs::read(from).map_err(explain)?;
    // Unchanged files keep their time, so that they are not rebuilt.
    if fs::read(to).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(to, text).map_err(explain)
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_match_no_test_have_not_run_one() {
        assert!(has_run_tests("running 0 tests\n\nrunning 1 test\n."));
        assert!(!has_run_tests("running 0 tests\n\nrunning 0 tests\n"));
    }

    #[test]
    fn the_seed_that_caught_a_mutation_is_run_alone() {
        let seen = "seed 37: life 0: a stale byte";
        assert_eq!(seed_of(seen), Some("37"));
        assert_eq!(seed_of("seed 37 (raid5, None): a stale byte"), Some("37"));
        assert_eq!(seed_of("thread 'a' panicked at b.rs"), None);
        let all = ["--seeds", "400"].map(String::from);
        let with = ["--only", "Splits"].map(String::from);
        let one = seed_alone(&all, &with, "37").join(" ");
        assert_eq!(one, "--seeds 400 --only Splits --seeds 1 --start 37");
    }
}
