//! Published evaluations, run again in virtual time.
//!
//! An experiment is one file: its machine, its load, and its measurements. The published figures
//! are a data file of their own, in `figures/`, and one piece of code holds the two against each
//! other ([`verdict`]).
//!
//! Invariants:
//!     the same seed gives the same rows on every machine: no clock, no thread, and no
//!     mathematical function but those of `libm` and those that IEEE 754 rounds exactly
//!     a printed figure has one row, met or not
//!
//! Not here: hotset's engine and arrays, which are the ones that serve; models of drives
//! and links (`sim`).

mod access_log;
pub mod cachecade;
pub mod choices;
mod content;
pub mod controllers;
mod entry;
pub mod figures;
pub mod finished;
#[cfg(test)]
mod fixed;
mod host;
pub mod load;
pub mod mail;
pub mod maxiq;
pub mod measured;
pub mod models;
pub mod nytro;
pub mod oltp;
mod pages;
pub mod parameters;
mod parted;
pub mod perc_mail;
pub mod perc_oltp;
pub mod queries;
pub mod record;
pub mod redskin;
pub mod registry;
pub mod replay;
pub mod rig;
mod site;
mod slowed;
pub mod spread;
#[cfg(test)]
mod tests;
pub mod topology;
mod totals;
mod turnstile;
pub mod verdict;
pub mod visitors;
mod wire;
