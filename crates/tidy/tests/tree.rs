//! The tree as it stands passes every check.

use std::path::Path;
use tidy::{CHECKS, Tree};

#[test]
fn the_tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = Tree::read(&root).expect("the tree is readable");
    assert!(
        tree.has("crates/tidy/tests/tree.rs"),
        "not the root: {root:?}"
    );
    let mut findings = 0;
    for (name, check) in CHECKS {
        for finding in check(&tree) {
            println!("{finding} [{name}]");
            findings += 1;
        }
    }
    assert_eq!(findings, 0, "findings above");
}
