//! The policies, the engine's own among them, by their contract.

mod conformance;
mod restart;
