//! Checks of the tree itself, run by `cargo test -p tidy`.
//!
//! One file a check. Each check takes the tree as paths and texts, returns findings that name the
//! remedy, and has a canary: a tree in which the check must find a fault.
//!
//! Not here: the checks of rustfmt and clippy. Left out of every check: `fuzz/`, which is a
//! workspace of its own, and build output.

pub mod book;
pub mod comments;
pub mod cycles;
pub mod dialect;
pub mod documents;
pub mod layers;
pub mod length;
pub mod messages;
pub mod mutations;
pub mod names;
pub mod papers;
pub mod prose;
pub mod reach;
pub mod sizes;
mod source;
#[cfg(test)]
mod tests;
mod tree;
pub mod waits;
pub mod words;

pub use tree::{Finding, Tree};

/// A check of the whole tree.
pub type Check = fn(&Tree) -> Vec<Finding>;

/// Every check, by name.
pub const CHECKS: [(&str, Check); 16] = [
    ("book", book::check),
    ("comments", comments::check),
    ("cycles", cycles::check),
    ("dialect", dialect::check),
    ("documents", documents::check),
    ("layers", layers::check),
    ("length", length::check),
    ("messages", messages::check),
    ("mutations", mutations::check),
    ("names", names::check),
    ("papers", papers::check),
    ("prose", prose::check),
    ("reach", reach::check),
    ("sizes", sizes::check),
    ("waits", waits::check),
    ("words", words::check),
];
