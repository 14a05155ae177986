//! What an operator says to hotset and hears from it: the configuration file,
//! the control protocol, the status report.
//!
//! - [`config`]: the file's sections, each parameter defined once.
//! - [`files`]: the files that a configuration is read from.
//! - [`check`]: what is wrong with a configuration, all of it at once.
//! - [`place`]: which bytes of this machine a device is.
//! - [`plan`]: what leads from one configuration to another.
//! - [`protocol`]: requests and replies, a line of JSON each.
//! - [`section`]: one section as a request carries it.
//! - [`serve`] and [`client`]: the two ends of the control socket.
//! - [`recording`]: what clients ask of a volume, as it is fetched.
//! - [`status`], [`observed`], [`explained`]: what a running daemon reports.
//! - [`trouble`]: what is wrong with it, in one list.
//!
//! Not here: acting on any of it. The command line does that.

pub mod address;
pub mod check;
pub mod client;
pub mod config;
mod counters;
pub mod doors;
pub mod explained;
pub mod files;
pub mod job;
mod lines;
pub mod memory;
pub mod observed;
mod parameter;
pub mod place;
pub mod plan;
pub mod problem;
pub mod protocol;
mod read;
pub mod recording;
mod schema;
pub mod section;
pub mod serve;
pub mod status;
pub mod trouble;
pub mod users;
mod written;
