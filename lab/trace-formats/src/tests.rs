//! The importers.

mod bounded;
mod formats;
