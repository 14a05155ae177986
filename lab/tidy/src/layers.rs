//! The permitted dependencies between crates, checked against the manifests.
//!
//! The product, `crates/`, depends on the laboratory, `lab/`, by a feature or not at all.
//! Development dependencies are free: tests may name any layer.

use crate::tree::{Finding, Room, Tree, in_crate, room};
use std::collections::BTreeMap;
use toml::Table;

/// The permitted dependencies of a crate.
enum May {
    /// These workspace crates, and any crate from elsewhere.
    Use(&'static [&'static str]),
    /// Nothing, not even from elsewhere.
    Nothing,
    /// Every workspace crate but these.
    AllBut(&'static [&'static str]),
}

/// Every crate, from the ground up.
const LAYERS: [(&str, May); 36] = [
    ("block", May::Nothing),
    ("policy", May::Use(&["block"])),
    ("baselines", May::Use(&["policy"])),
    ("layout", May::Use(&["block"])),
    ("origin", May::Use(&["block", "layout"])),
    ("ublk", May::Use(&["block"])),
    // From ublk, uring takes the commands and structures of the driver.
    ("uring", May::Use(&["block", "ublk"])),
    ("drives", May::Use(&["block"])),
    ("sim", May::Use(&["block", "drives"])),
    ("shard", May::Use(&["block"])),
    ("trace", May::Use(&["block"])),
    ("trace-formats", May::Use(&["block", "trace"])),
    ("cache", May::Use(&["block", "policy", "layout"])),
    ("writelog", May::Use(&["block", "layout"])),
    ("raid", May::Use(&["block", "policy", "layout"])),
    ("filter", May::Use(&["block", "policy", "layout"])),
    ("nbd", May::Use(&["block"])),
    ("port", May::Use(&["block"])),
    ("virtio", May::Use(&["block"])),
    (
        "experiment",
        May::Use(&[
            "block", "control", "drives", "node", "policy", "raid", "shard", "sim", "simnode",
            "trace",
        ]),
    ),
    (
        "control",
        May::Use(&[
            "block", "cache", "policy", "raid", "nbd", "trace", "writelog",
        ]),
    ),
    (
        "node",
        May::Use(&[
            "block", "cache", "control", "drives", "filter", "layout", "nbd", "origin", "policy",
            "raid", "shard", "trace", "writelog",
        ]),
    ),
    (
        "simnode",
        May::Use(&[
            "block", "control", "drives", "layout", "node", "origin", "shard", "sim",
        ]),
    ),
    (
        "advise",
        May::Use(&[
            "block", "control", "drives", "layout", "policy", "shard", "trace",
        ]),
    ),
    (
        "tracesim",
        May::Use(&[
            "advise",
            "baselines",
            "block",
            "cache",
            "drives",
            "policy",
            "shard",
            "sim",
            "simnode",
            "trace",
            "trace-formats",
        ]),
    ),
    ("testbed", May::Use(&[])),
    ("storm", May::Use(&["testbed"])),
    (
        "proof",
        May::AllBut(&[
            "experiment",
            "advise",
            "command",
            "drill",
            "measurements",
            "web",
            "hotset",
            "hotset-lab",
        ]),
    ),
    // From sim, node and simnode, the simulated half of drill takes the world, by its feature.
    (
        "drill",
        May::Use(&[
            "advise", "block", "cache", "control", "nbd", "node", "shard", "sim", "simnode",
            "testbed", "uring", "writelog",
        ]),
    ),
    (
        "command",
        May::Use(&["control", "drill", "drives", "trace", "uring"]),
    ),
    (
        "measurements",
        May::AllBut(&["hotset", "hotset-lab", "proof"]),
    ),
    ("amend", May::Use(&["control"])),
    (
        "web",
        May::Use(&["advise", "cache", "control", "policy", "trace"]),
    ),
    ("hotset", May::AllBut(&["testbed"])),
    ("hotset-lab", May::AllBut(&["hotset"])),
    ("tidy", May::Use(&[])),
];

/// Dependencies that the layering forbids, crates that have no layer, and
/// manifests that leave the workspace's lints out.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let manifests: Vec<_> = tree
        .ending("/Cargo.toml")
        .filter_map(|(path, text)| match in_crate(path)? {
            (name, "Cargo.toml") => Some((name, path, text)),
            _ => None,
        })
        .collect();
    let ours: BTreeMap<&str, Room> = manifests
        .iter()
        .filter_map(|(name, path, _)| Some((*name, room(path)?)))
        .collect();
    let mut findings = Vec::new();
    for (name, path, text) in manifests {
        check_manifest(name, path, text, &ours, &mut findings);
    }
    findings
}

fn check_manifest(
    name: &str,
    path: &str,
    text: &str,
    ours: &BTreeMap<&str, Room>,
    findings: &mut Vec<Finding>,
) {
    let mut find = |what: String| findings.push(Finding::new(path, 1, what));
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return find(format!("not a manifest: {error}")),
    };
    let lints = manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"));
    if lints.and_then(|on| on.as_bool()) != Some(true) {
        find("leaves the workspace's lints out: add [lints] workspace = true".into());
    }
    let Some((_, may)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
        return find(format!(
            "{name} has no layer: give it a row in tidy's LAYERS"
        ));
    };
    for (needed, is_optional) in dependencies(&manifest) {
        let inside = ours.contains_key(needed.as_str());
        let is_of_laboratory = ours.get(needed.as_str()) == Some(&Room::Laboratory);
        if room(path) == Some(Room::Product) && is_of_laboratory && !is_optional {
            find(format!(
                "{name} depends on {needed}, which is of the laboratory: the product may by an \
                 optional feature alone"
            ));
            continue;
        }
        let (allowed, rule) = match may {
            May::Nothing => (false, "on nothing".to_string()),
            May::Use(list) => {
                let allowed = !inside || list.contains(&needed.as_str());
                (allowed, format!("on {list:?} of the workspace alone"))
            }
            May::AllBut(list) => {
                let allowed = !list.contains(&needed.as_str());
                (allowed, format!("on everything but {list:?}"))
            }
        };
        if !allowed {
            find(format!(
                "{name} depends on {needed}, and may depend {rule}: move the code to the layer \
                 that may, or pass what it needs in as an argument or a trait of block"
            ));
        }
    }
}

/// Normal and build dependencies, those of targets included, by package name; and if each is
/// optional.
fn dependencies(manifest: &Table) -> Vec<(String, bool)> {
    let mut tables = Vec::new();
    for kind in ["dependencies", "build-dependencies"] {
        tables.extend(manifest.get(kind));
        let targets = manifest.get("target").and_then(|target| target.as_table());
        let targets = targets.into_iter().flat_map(|targets| targets.values());
        tables.extend(targets.filter_map(|target| target.get(kind)));
    }
    let named = |(key, value): (&String, &toml::Value)| {
        let package = value.get("package").and_then(|package| package.as_str());
        let is_optional = value
            .get("optional")
            .and_then(|optional| optional.as_bool());
        (
            package.unwrap_or(key).to_string(),
            is_optional.unwrap_or_default(),
        )
    };
    let tables = tables.into_iter().filter_map(|table| table.as_table());
    tables.flat_map(|table| table.iter().map(named)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn found(name: &str, dependencies: &str) -> Vec<String> {
        let path = format!("crates/{name}/Cargo.toml");
        let text = format!("{dependencies}\n{LINTS}");
        let tree = Tree::from_texts(&[
            (&path, &text),
            ("lab/sim/Cargo.toml", LINTS),
            ("lab/measurements/Cargo.toml", LINTS),
        ]);
        let findings = check(&tree);
        findings.iter().map(|f| f.what().to_string()).collect()
    }

    #[test]
    fn canary_a_layer_that_names_a_driver_is_found() {
        for (name, dependencies) in [
            ("cache", "[dependencies]\nsim.workspace = true"),
            (
                "policy",
                "[build-dependencies]\nmeasurements.workspace = true",
            ),
            (
                "nbd",
                "[target.'cfg(unix)'.dependencies]\nmeasurements = { path = \"../../lab/measurements\" }",
            ),
            (
                "raid",
                "[dependencies]\nother = { package = \"sim\", path = \"../sim\" }",
            ),
            ("block", "[dependencies]\nlibc = \"1\""),
            ("control", "[dependencies]\nmeasurements.workspace = true"),
            ("hotset", "[dependencies]\nsim.workspace = true"),
        ] {
            let found = found(name, dependencies);
            assert!(
                found.len() == 1 && found[0].contains("depends on"),
                "{name}: {found:?}"
            );
        }
    }

    #[test]
    fn canary_an_unknown_crate_and_missing_lints_are_found() {
        assert!(found("novel", "")[0].contains("has no layer"));
        let tree = Tree::from_texts(&[("crates/policy/Cargo.toml", "")]);
        assert!(check(&tree)[0].what().contains("lints"));
    }

    #[test]
    fn what_the_layering_allows_passes() {
        let optional = "[dependencies]\nsim = { workspace = true, optional = true }";
        assert!(found("drill", optional).is_empty());
        assert!(found("cache", "[dev-dependencies]\nsim.workspace = true").is_empty());
        assert!(found("policy", "[dependencies]\nlibc.workspace = true").is_empty());
    }
}
