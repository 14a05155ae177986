//! Faults put into the product's source by hand, to see that a campaign would
//! find them.
//!
//! A set of mutations is a data file. Each is applied alone to a copy of the
//! workspace, which is built and made to run its campaign, or the one test that
//! sees what no campaign does; if that passes, the mutation lives.
//!
//! Invariant: a mutation was caught by a seed ⟹ that seed passes without it.

use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// What the last command printed, in the copy.
const LOG: &str = "campaign.log";
/// The campaign of nodes, which is built of more than the others.
const NODES: &str = "node";

/// What a campaign exits with when it has seen something wrong.
pub const VIOLATION: i32 = 1;
/// And when it was asked for what it does not know.
const MISUSED: i32 = 2;

/// One fault.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// What is wrong with the product then.
    pub name: String,
    /// The file changed, from the workspace's root.
    pub file: PathBuf,
    /// Text that occurs in it exactly once.
    pub find: String,
    /// What takes its place.
    pub replace: String,
    /// Arguments of the campaign that make the fault likelier, after those of all.
    #[serde(default)]
    pub with: Vec<String>,
    /// The test that sees it in the campaign's place, as arguments of `cargo test`.
    pub test: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    mutation: Vec<Mutation>,
}

/// What became of a mutation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The campaign saw something wrong, as it should.
    Caught,
    /// It did not.
    Survived,
    /// It saw something that is wrong without the fault too.
    Mistaken,
    /// It does not compile, so that nothing was tried.
    Uncompiled,
}

/// The mutations of a data file; the error names the file.
pub fn read(path: &Path) -> Result<Vec<Mutation>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let set: Set = toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(set.mutation)
}

impl Mutation {
    /// The file's text with the fault, the workspace being at `root`.
    pub fn apply(&self, root: &Path) -> Result<String, String> {
        let path = root.join(&self.file);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        match text.matches(&self.find).count() {
            1 => Ok(text.replace(&self.find, &self.replace)),
            n => Err(format!(
                "\"{}\": its text occurs {n} times in {}, not once: bring it up to date",
                self.name,
                self.file.display()
            )),
        }
    }
}

/// A copy of the workspace in which mutations are tried.
pub struct Copy(PathBuf);

impl Copy {
    /// Copies what a build of the workspace at `from` needs to `to`.
    pub fn new(from: &Path, to: &Path) -> Result<Copy, String> {
        fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
        for name in ["Cargo.toml", "Cargo.lock", "contrib", "crates", "web/dist"] {
            copy_tree(&from.join(name), &to.join(name))?;
        }
        Ok(Copy(to.to_path_buf()))
    }

    /// Tries `mutations` one after the other, by `example` of this crate or each by its
    /// own test, and then without them the seeds that caught them.
    pub fn try_all(
        &self,
        mutations: &[Mutation],
        example: &str,
        arguments: &[String],
        mut report: impl FnMut(&Mutation, Fate, Option<String>),
    ) -> Result<Vec<Fate>, String> {
        let mut tried = Vec::new();
        for mutation in mutations {
            let fate = self.try_out(mutation, example, arguments)?;
            let seen = self.seen(fate);
            report(mutation, fate, seen.clone());
            tried.push((fate, seen.filter(|_| mutation.test.is_none())));
        }
        let mut fates = Vec::new();
        for (mutation, (mut fate, seen)) in mutations.iter().zip(tried) {
            if let Some(seed) = seen.as_deref().and_then(seed_of) {
                let one = seed_alone(arguments, &mutation.with, seed);
                if self.campaign(example, &one)? != Some(Fate::Survived) {
                    fate = Fate::Mistaken;
                    report(mutation, fate, seen);
                }
            }
            fates.push(fate);
        }
        Ok(fates)
    }

    /// Tries `mutations` one after the other by the program of a package: `judge` says what it has
    /// seen wrong with it.
    pub fn try_programs(
        &self,
        mutations: &[Mutation],
        package: &str,
        judge: &dyn Fn(&Path) -> Result<Option<String>, String>,
        mut report: impl FnMut(&Mutation, Fate, Option<String>),
    ) -> Result<Vec<Fate>, String> {
        let mut fates = Vec::new();
        for mutation in mutations {
            let (fate, seen) = self.with(mutation, || {
                if !self.cargo("build", &["-p", package])?.success() {
                    return Ok((Fate::Uncompiled, self.seen(Fate::Uncompiled)));
                }
                let seen = judge(&self.0.join("target/debug").join(package))?;
                let fate = seen.as_ref().map_or(Fate::Survived, |_| Fate::Caught);
                Ok((fate, seen))
            })?;
            report(mutation, fate, seen);
            fates.push(fate);
        }
        Ok(fates)
    }

    /// Builds and runs `example` of this crate, or its own test, with `mutation` applied.
    fn try_out(
        &self,
        mutation: &Mutation,
        example: &str,
        arguments: &[String],
    ) -> Result<Fate, String> {
        let fate = self.with(mutation, || match &mutation.test {
            Some(test) => self.test(test),
            None => self.campaign(example, &[arguments, &mutation.with].concat()),
        });
        Ok(fate?.unwrap_or(Fate::Uncompiled))
    }

    /// Does `work` while `mutation` is applied.
    fn with<T>(
        &self,
        mutation: &Mutation,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let path = self.0.join(&mutation.file);
        let mutated = mutation.apply(&self.0)?;
        // The tree that was copied may have changed since.
        let sound = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        put(&path, &mutated)?;
        let done = work();
        put(&path, &sound)?;
        done
    }

    /// The first violation that the last campaign printed, or the first line of what a test
    /// printed as it failed; or the first error of what does not compile.
    fn seen(&self, fate: Fate) -> Option<String> {
        let log = fs::read_to_string(self.0.join(LOG)).ok()?;
        let is_of_note = |line: &&str| match fate {
            Fate::Caught => line.starts_with("seed ") || line.contains(" panicked at "),
            Fate::Uncompiled => line.starts_with("error"),
            Fate::Survived | Fate::Mistaken => false,
        };
        log.lines().find(is_of_note).map(str::to_string)
    }

    /// `None` if it does not compile.
    fn campaign(&self, example: &str, arguments: &[String]) -> Result<Option<Fate>, String> {
        let nodes = if example == NODES { "nodes" } else { "" };
        let what = ["-p", "proof", "--no-default-features", "--features", nodes];
        let what = [&what[..], &["--example", example]].concat();
        if !self.cargo("build", &what)?.success() {
            return Ok(None);
        }
        let given = arguments.iter().map(String::as_str);
        let run: Vec<_> = what.iter().copied().chain(["--"]).chain(given).collect();
        match self.cargo("run", &run)?.code() {
            Some(VIOLATION) => Ok(Some(Fate::Caught)),
            Some(MISUSED) => Err(format!(
                "{example} does not take {arguments:?}: {}",
                fs::read_to_string(self.0.join(LOG)).unwrap_or_default()
            )),
            _ => Ok(Some(Fate::Survived)),
        }
    }

    /// `None` if it does not compile.
    fn test(&self, test: &str) -> Result<Option<Fate>, String> {
        let what: Vec<_> = test.split_whitespace().collect();
        if !self
            .cargo("test", &[&["--no-run"], &what[..]].concat())?
            .success()
        {
            return Ok(None);
        }
        let passed = self.cargo("test", &what)?.success();
        Ok(Some(if passed { Fate::Survived } else { Fate::Caught }))
    }

    fn cargo(&self, verb: &str, arguments: &[&str]) -> Result<ExitStatus, String> {
        let explain = |e: std::io::Error| format!("cargo: {e}");
        let log = fs::File::create(self.0.join(LOG)).map_err(explain)?;
        let mut command = Command::new("cargo");
        command.current_dir(&self.0);
        // A mutation may leave code unused or never true.
        command.env("RUSTFLAGS", "--cap-lints=allow");
        // Each differs from the one before by a function.
        command.env("CARGO_INCREMENTAL", "1");
        command.env("CARGO_PROFILE_DEV_CODEGEN_UNITS", "256");
        command.args([verb, "--quiet"]).args(arguments);
        command
            .stderr(log.try_clone().map_err(explain)?)
            .stdout(log);
        command.status().map_err(explain)
    }
}

/// The seed of a violation, as campaigns print it.
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
    // Files that stay as they are keep their time, so that they are not rebuilt.
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

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
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

    #[test]
    fn a_mutation_that_fits_nowhere_or_twice_is_refused() {
        let mut mutation = Mutation {
            name: "none".into(),
            file: "crates/proof/src/mutants.rs".into(),
            find: "text that is ".to_string() + "nowhere",
            replace: String::new(),
            with: Vec::new(),
            test: None,
        };
        assert!(mutation.apply(&root()).unwrap_err().contains("0 times"));
        mutation.find = "fn ".into();
        assert!(mutation.apply(&root()).is_err());
    }
}
