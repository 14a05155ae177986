//! The formats on devices.

mod arrays;
mod contents;
mod document;
mod properties;
mod refusals;
mod sealed;
mod segments;
