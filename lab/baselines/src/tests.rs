//! The policies, the engine's own among them, by their contract.

mod allocation;
mod conformance;
mod restart;
