//! A server of requests never waits for memory: `Pool::get` is for sources of requests alone.
//! Layers and frontends use `Pool::take`, a `Reserve`, or `Pool::try_get` for optional work.

use crate::reach::FileReach;
use crate::source::{RustSource, line_of, words};
use crate::tree::{Finding, Tree, in_crate};

/// The crates between a client's socket and a device.
const SERVING: [&str; 11] = [
    "block", "shard", "origin", "cache", "writelog", "raid", "filter", "nbd", "ublk", "vhost",
    "control",
];

/// Waits for memory in shipped code.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let reach = FileReach::of(tree);
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let Some((name, inside)) = in_crate(path) else {
            continue;
        };
        let tries = inside.starts_with("src/conformance/");
        let ships = inside.starts_with("src/") && !tries && !reach.is_test(path);
        if !SERVING.contains(&name) || !ships {
            continue;
        }
        let code = RustSource::parse(text).shipped();
        for at in ["pool", "Pool"].iter().flat_map(|word| words(&code, word)) {
            let call = code[at + 4..].trim_start_matches("()").trim_start();
            let call = call.trim_start_matches([':', '.']).trim_start();
            if call.starts_with("get(") {
                let what = "waits for memory that requests in flight hold: use Pool::take within \
                            what the frontend has accounted for, a Reserve, or Pool::try_get";
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
    fn canary_a_layer_that_waits_for_memory_is_found() {
        let text = "fn a() {\n self.env.pool.get(8).await;\n env\n.pool\n  .get(9).await;\n \
                    Pool::get(&pool, 1).await; driver.pool().get(1).await; }\n";
        let found = found("crates/raid/src/a.rs", text);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains(":2: waits for memory"), "{found:?}");
    }

    #[test]
    fn tests_sources_of_requests_and_other_calls_may() {
        let text = "fn a() { env.pool.get(8).await; }";
        assert!(found("crates/raid/tests/a.rs", text).is_empty());
        assert!(found("lab/measurements/src/a.rs", text).is_empty());
        assert!(found("crates/block/src/conformance/a.rs", text).is_empty());
        let text = "fn a() { env.pool.take(8); pool.try_get(1); spool.get(1); pool.getter(); }";
        assert!(found("crates/raid/src/a.rs", text).is_empty());
    }
}
