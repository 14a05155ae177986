//! Arrays on disks in memory: how they are put together, the contract of a device,
//! and what they bear to lose.

mod assembly;
mod common;
mod conformance;
mod losses;
mod pace;
mod power;
mod refusals;
mod streams;
mod zeroed;
