//! Names that the layers above the seam may not use, with their replacements.
//!
//! Only shipped code is checked: tests may use any name.

use crate::reach::FileReach;
use crate::source::{RustSource, line_of, words};
use crate::tree::{Finding, Tree, in_crate};

/// A name, the reason of the ban, and the replacement.
struct Ban {
    name: &'static str,
    instead: &'static str,
}

const CLOCK: &str = "a clock of its own cannot be simulated: take Nanos as an argument, or use \
                     block::Timer";
const THREAD: &str = "threads belong to hosts: start tasks with block::Spawn";
const FILE: &str = "files belong to drivers: use a block::Device, or take the bytes as an argument";
const NETWORK: &str = "the network belongs to drivers: use block::Stream, Listener or Connector";
const RANDOM: &str = "an unseeded source cannot be repeated: take a seed as an argument";

const PRINT: &str =
    "nothing prints below the command line: return it, or give node's Platform an event";

const BANS: [Ban; 23] = [
    ban("std::time", CLOCK),
    ban("Instant", CLOCK),
    ban("SystemTime", CLOCK),
    ban("std::thread", THREAD),
    ban(
        "thread_local",
        "a shard's state is its own: keep it in a value that the shard owns",
    ),
    ban("std::fs", FILE),
    ban("File", FILE),
    ban("OpenOptions", FILE),
    ban("std::os", FILE),
    ban("std::net", NETWORK),
    ban("TcpStream", NETWORK),
    ban("UnixStream", NETWORK),
    ban(
        "std::process",
        "processes belong to the command line: return an error",
    ),
    ban("std::env", "settings come in as arguments, from control"),
    ban("getrandom", RANDOM),
    ban("thread_rng", RANDOM),
    ban("RandomState", RANDOM),
    ban(
        "libc",
        "the operating system belongs to drivers: add what is needed to block::Driver",
    ),
    ban("println", PRINT),
    ban("print", PRINT),
    ban("eprintln", PRINT),
    ban("eprint", PRINT),
    ban(
        "io_uring",
        "only the crate uring names it: use block::Driver",
    ),
];

const fn ban(name: &'static str, instead: &'static str) -> Ban {
    Ban { name, instead }
}

/// The crates above the seam, the seam and the simulator, which runs them all.
const QUIET: [&str; 13] = [
    "block", "policy", "layout", "cache", "writelog", "raid", "filter", "shard", "nbd", "ublk",
    "vhost", "node", "sim",
];

/// Uses that have their reason.
const ALLOWED: [(&str, &str); 2] = [
    // A pool identifies its thread, to stay off the lists of other threads.
    ("crates/block/src/pool/arena.rs", "thread_local"),
    // A waker tests for being woken on the thread of its own shard.
    ("crates/shard/src/task.rs", "thread_local"),
];

/// Places where `hotset` names its driver; all other code is generic over node's `Platform`.
const DRIVER: &str = "UringDriver";
const DRIVER_IN: [&str; 2] = ["src/platform.rs", "src/serve.rs"];
const DRIVER_DIRECTORY: &str = "src/platform/";

/// Uses of banned names in shipped code.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let reach = FileReach::of(tree);
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let Some(("hotset", inside)) = in_crate(path) else {
            continue;
        };
        if DRIVER_IN.contains(&inside) || inside.starts_with(DRIVER_DIRECTORY) {
            continue;
        }
        for at in words(&RustSource::parse(text).shipped(), DRIVER) {
            let what = format!(
                "names {DRIVER}: let the code be generic over node's Platform, or move it to {}",
                DRIVER_IN[0]
            );
            findings.push(Finding::new(path, line_of(text, at), what));
        }
    }
    for (path, text) in tree.ending(".rs") {
        let Some((name, inside)) = in_crate(path) else {
            continue;
        };
        if !QUIET.contains(&name) || !inside.starts_with("src/") || reach.is_test(path) {
            continue;
        }
        let code = RustSource::parse(text).shipped();
        for Ban { name, instead } in &BANS {
            if ALLOWED.contains(&(path, name)) {
                continue;
            }
            for at in words(&code, name) {
                let what = format!("names {name}: {instead}");
                findings.push(Finding::new(path, line_of(text, at), what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::from_texts(&[(path, text)]);
        check(&tree).iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn canary_a_clock_above_the_seam_is_found() {
        let text = "use std::time::Duration;\nfn now() { Instant::now(); }\n";
        let found = found("crates/cache/src/lib.rs", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains(":1: names std::time") && found[1].contains(":2: names Instant"));
    }

    #[test]
    fn canary_a_driver_beside_the_platform_is_found() {
        let text = "use uring::UringDriver;\n";
        assert_eq!(found("crates/hotset/src/report.rs", text).len(), 1);
        assert!(found("crates/hotset/src/platform.rs", text).is_empty());
        assert!(found("crates/hotset/src/platform/state.rs", text).is_empty());
        assert!(found("lab/measurements/src/bench/nop.rs", text).is_empty());
        let text = "fn f() { eprintln!(); }";
        assert_eq!(found("crates/node/src/report.rs", text).len(), 1);
    }

    #[test]
    fn tests_comments_and_drivers_may_name_it() {
        let tested = "// Instant\n#[cfg(test)]\nmod tests { use std::time::Instant; }\n";
        assert!(found("crates/cache/src/lib.rs", tested).is_empty());
        assert!(found("crates/cache/tests/a.rs", "use std::time::Instant;").is_empty());
        assert!(found("crates/uring/src/lib.rs", "use std::time::Instant;").is_empty());
        assert!(found("crates/cache/src/lib.rs", "struct InstantNoodle;").is_empty());
    }

    #[test]
    fn a_file_that_only_tests_reach_may_name_it() {
        let tree = Tree::from_texts(&[
            (
                "crates/cache/src/lib.rs",
                "#[cfg(test)]\nmod tests;\nmod real;",
            ),
            ("crates/cache/src/tests.rs", "mod deep;\nuse std::fs;"),
            ("crates/cache/src/tests/deep.rs", "use std::fs;"),
            ("crates/cache/src/real.rs", "use std::fs;"),
        ]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].to_string().contains("real.rs"));
    }
}
