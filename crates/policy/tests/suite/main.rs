//! The policies by their contract, and by hand.

mod behaviour;
mod conformance;
mod restart;
