//! Nodes in the simulated world: the daemon that serves, built from an ordinary
//! configuration.
//!
//! [`SimMachine`] outlives its nodes: disks by their paths. [`SimPlatform`] is the machine as seen by
//! the node of one boot, [`RunningNode`] that node, and [`Direct`] a frontend for clients that are
//! tasks beside the node. [`run_alone`] runs one shard of such a world. [`modelled`] makes disks of
//! models of drives.

mod alone;
#[cfg(feature = "node")]
mod direct;
#[cfg(feature = "node")]
mod machine;
#[cfg(feature = "node")]
pub mod modelled;
#[cfg(feature = "node")]
mod running;

pub use alone::run_alone;
#[cfg(feature = "node")]
pub use direct::{Direct, DirectClient};
#[cfg(feature = "node")]
pub use machine::{SimMachine, SimPlatform};
#[cfg(feature = "node")]
pub use running::{RunningNode, create_array};
