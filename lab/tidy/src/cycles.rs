//! The imports of a crate's modules form a hierarchy: no two modules need each other, so that any
//! module can be read after those it names.
//!
//! A module is a file. A module needs another if the other defines a name that the first reaches by
//! `crate`, `super`, `self` or one of its own modules. A name that is handed on (`use`) is followed
//! to its definition. Names that only tests use do not count.

mod graph;
mod paths;

use crate::tree::{Finding, Tree};
use graph::Graph;

/// Modules that may need each other, and the reason.
type Circle = (&'static [&'static str], &'static str);

const ALLOWED: [Circle; 3] = [
    (
        &["crates/raid/src/member.rs", "crates/raid/src/members.rs"],
        "a member asks its array before the wait for the member ends, and the array holds \
         its members",
    ),
    (
        &[
            "crates/shard/src/disk.rs",
            "crates/shard/src/executor.rs",
            "crates/shard/src/local.rs",
            "crates/shard/src/mesh.rs",
            "crates/shard/src/ops.rs",
            "crates/shard/src/perform.rs",
            "crates/shard/src/queue.rs",
            "crates/shard/src/stream.rs",
            "crates/shard/src/task.rs",
        ],
        "a message between shards is work that is given the handle of the shard that it \
         arrives at",
    ),
    (
        &[
            "lab/sim/src/clockwork.rs",
            "lab/sim/src/disk.rs",
            "lab/sim/src/operation.rs",
            "lab/sim/src/pipe.rs",
            "lab/sim/src/plan.rs",
            "lab/sim/src/port.rs",
            "lab/sim/src/stream.rs",
            "lab/sim/src/world.rs",
        ],
        "a world owns its disks and streams, and what happens to one of them schedules \
         what happens next in the world",
    ),
];
/// Circles that the list may hold.
const ALLOWED_MAX: usize = 3;
const _: () = assert!(ALLOWED.len() <= ALLOWED_MAX);

/// Circles of imports that are not listed, and entries of the list that are out of date.
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_against(tree, &ALLOWED)
}

fn check_against(tree: &Tree, allowed: &[Circle]) -> Vec<Finding> {
    let graph = Graph::of(tree);
    let circles = graph.circles();
    let listed = |circle: &Vec<&str>| {
        let is_it = |(files, _): &&Circle| circle.iter().all(|file| files.contains(file));
        allowed.iter().find(is_it)
    };
    let mut findings = Vec::new();
    for circle in circles.iter().filter(|circle| listed(circle).is_none()) {
        let what = format!(
            "needs what needs it: {}: move what both need to a module below them, or pass \
             what one needs of the other in as an argument",
            graph.explain(circle)
        );
        findings.push(Finding::new(circle[0], 1, what));
    }
    for entry in allowed {
        let is_met = circles.iter().any(|circle| listed(circle) == Some(entry));
        if !is_met {
            let what = "is in no circle any more: take it off tidy's ALLOWED";
            findings.push(Finding::new(entry.0[0], 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: [(&str, &str); 11] = [
        (
            "crates/a/src/lib.rs",
            "mod x;\nmod y;\nmod z;\npub use x::X;\npub use z::deep::Z;\n",
        ),
        (
            "crates/a/src/x.rs",
            "use crate::{y::{self, Y as Other}, Z};\npub struct X;\n",
        ),
        (
            "crates/a/src/y.rs",
            "pub struct Y;\nfn f() -> super::X { todo() }\n",
        ),
        ("crates/a/src/z.rs", "pub mod deep;\nfn f() { deep::g() }\n"),
        (
            "crates/a/src/z/deep.rs",
            "pub struct Z;\npub fn g() {}\n// use crate::X;\n#[cfg(test)]\nmod tests { use crate::X; }\n",
        ),
        (
            "crates/b/src/main.rs",
            "mod p;\nfn main() { p::run() }\nstruct Cli;\n",
        ),
        (
            "crates/b/src/p.rs",
            "use super::Cli;\nuse std::fmt;\nuse x::y::Z;\n",
        ),
        ("crates/a/tests/t.rs", "use a::X;\n"),
        ("crates/c/src/lib.rs", "mod m;\nmod n;\n"),
        ("crates/c/src/m.rs", "use crate::n;\npub struct M(n::N);\n"),
        (
            "crates/c/src/n.rs",
            "pub struct N { m: Option<&'static crate::m::M>, of: crate::m::M }\n",
        ),
    ];

    #[test]
    fn canary_modules_that_need_each_other_are_found() {
        let found: Vec<_> = check_against(&Tree::from_texts(&TREE), &[]);
        let found: Vec<_> = found.iter().map(|f| f.to_string()).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/x.rs") && found[0].contains("a/src/y.rs"));
        assert!(!found[0].contains("deep.rs") && !found[0].contains("lib.rs"));
        assert!(found[1].starts_with("crates/b/src/main.rs"));
        assert!(found[2].starts_with("crates/c/src/m.rs"));
    }

    #[test]
    fn a_circle_may_be_listed_while_it_is_one() {
        let tree = Tree::from_texts(&TREE);
        let first: Circle = (&["crates/a/src/x.rs", "crates/a/src/y.rs"], "why");
        let second: Circle = (&["crates/b/src/main.rs", "crates/b/src/p.rs"], "why");
        let third: Circle = (&["crates/c/src/m.rs", "crates/c/src/n.rs"], "why");
        let none: Circle = (&["crates/a/src/z.rs"], "why");
        assert!(check_against(&tree, &[first, second, third]).is_empty());
        assert_eq!(check_against(&tree, &[first, third]).len(), 1);
        assert_eq!(check_against(&tree, &[first, second, third, none]).len(), 1);
    }
}
