//! The build script, in small workspaces of their own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A workspace with this crate's build script, a program that prints the commit, and a library.
struct SmallWorkspace(TempDir);

impl SmallWorkspace {
    fn new() -> SmallWorkspace {
        let workspace = SmallWorkspace(tempfile::tempdir().unwrap());
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = fs::read_to_string(here.join("build.rs")).unwrap();
        for (path, text) in [
            (
                "Cargo.toml",
                "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n",
            ),
            (".gitignore", "target\n"),
            (
                "crates/command/Cargo.toml",
                "[package]\nname = \"command\"\nedition = \"2024\"\n",
            ),
            ("crates/command/build.rs", &script),
            (
                "crates/command/src/main.rs",
                "fn main() { print!(\"{}\", env!(\"HOTSET_COMMIT\")); }\n",
            ),
            (
                "crates/other/Cargo.toml",
                "[package]\nname = \"other\"\nedition = \"2024\"\n",
            ),
            ("crates/other/src/lib.rs", "//! Nothing.\n"),
            ("crates/other/tests/all.rs", "//! Nothing.\n"),
            ("page.md", "A page.\n"),
        ] {
            workspace.write(path, text);
        }
        workspace.cargo(&["generate-lockfile"]);
        workspace
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn cargo(&self, words: &[&str]) -> Output {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(words)
            .arg("--offline")
            .current_dir(self.0.path());
        cargo.env("CARGO_TARGET_DIR", self.0.path().join("target"));
        cargo.env_remove("RUSTC_WRAPPER").env_remove("RUSTFLAGS");
        succeeded(&mut cargo)
    }

    fn git(&self, words: &[&str]) -> String {
        let mut git = Command::new("git");
        git.current_dir(self.0.path());
        git.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]);
        let output = succeeded(git.args(words));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Commits all of the tree. Returns the name of the commit.
    fn commit(&self) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "All"]);
        self.git(&["rev-parse", "--short=12", "HEAD"])
    }

    /// The commit that the program prints after a build, and true if that compiled the program.
    fn built(&self) -> (String, bool) {
        let build = self.cargo(&["build", "--package", "command", "--verbose"]);
        let said = String::from_utf8(build.stderr).unwrap();
        let printed = succeeded(&mut Command::new(
            self.0.path().join("target/debug/command"),
        ));
        let is_compiled = !said.contains("Fresh command");
        (String::from_utf8(printed.stdout).unwrap(), is_compiled)
    }
}

fn succeeded(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

#[test]
fn a_program_names_the_commit_that_it_was_built_from() {
    let workspace = SmallWorkspace::new();
    workspace.git(&["init", "--quiet"]);
    let first = workspace.commit();
    assert_eq!(workspace.built(), (first.clone(), true));
    assert_eq!(workspace.built(), (first.clone(), false));
    // No program is built from these.
    workspace.write("crates/other/tests/all.rs", "//! Other.\n");
    workspace.write("page.md", "Another page.\n");
    assert_eq!(workspace.built(), (first, false));
    let second = workspace.commit();
    assert_eq!(workspace.built(), (second.clone(), true));
    // A commit of another branch.
    let other = workspace.git(&["commit-tree", "HEAD^{tree}", "-m", "Other"]);
    workspace.git(&["branch", "other", &other]);
    assert_eq!(workspace.built(), (second.clone(), false));
    workspace.write("crates/other/src/lib.rs", "//! Changed.\n");
    assert_eq!(workspace.built(), (format!("{second}-modified"), true));
    workspace.git(&["checkout", "--quiet", "--", "crates"]);
    assert_eq!(workspace.built(), (second.clone(), true));
    workspace.write("crates/other/src/new.rs", "//! New.\n");
    assert_eq!(workspace.built().0, format!("{second}-modified"));
    let third = workspace.commit();
    assert_eq!(workspace.built(), (third, true));
    workspace.git(&["checkout", "--quiet", "--detach", &second]);
    assert_eq!(workspace.built(), (second, true));
}

#[test]
fn a_checkout_without_a_log_is_followed_too() {
    let workspace = SmallWorkspace::new();
    workspace.git(&["init", "--quiet"]);
    workspace.git(&["config", "core.logAllRefUpdates", "false"]);
    workspace.commit();
    workspace.git(&["pack-refs", "--all"]);
    workspace.built();
    workspace.write("page.md", "Another page.\n");
    let second = workspace.commit();
    assert_eq!(workspace.built(), (second, true));
}

#[test]
fn a_tree_without_a_checkout_of_its_own_is_unknown() {
    let workspace = SmallWorkspace::new();
    assert_eq!(workspace.built(), ("unknown".into(), true));
    assert_eq!(workspace.built(), ("unknown".into(), false));
    // In the checkout of another project.
    let outer = SmallWorkspace::new();
    outer.git(&["init", "--quiet"]);
    outer.commit();
    let inner = SmallWorkspace::new();
    let place = outer.0.path().join("inner");
    fs::rename(inner.0.path(), &place).unwrap();
    let build = outer.cargo(&[
        "run",
        "--manifest-path",
        "inner/Cargo.toml",
        "--package",
        "command",
    ]);
    assert_eq!(build.stdout, b"unknown");
}
