//! The interface between operators and hotset: the configuration file, the control protocol, the
//! status report.
//!
//! - [`config`]: the file's sections, each parameter defined once.
//! - [`files`]: the files that a configuration is read from.
//! - [`check`]: all problems of a configuration at once.
//! - [`place`]: the bytes of this machine that a device stands for.
//! - [`plan`]: the steps from one configuration to another.
//! - [`protocol`]: requests and replies, a line of JSON each.
//! - [`secrets`]: texts without their secrets.
//! - [`section`]: one section as a request carries it.
//! - [`serve`] and [`client`]: the two ends of the control socket.
//! - [`recording`]: clients' requests of a volume, as recorded.
//! - [`recovery`]: the report of `hotset pool recover`.
//! - [`status`], [`observed`], [`explained`]: the reports of a running daemon.
//! - [`trouble`]: the troubles of a daemon, in one list.
//!
//! Not here: acting on any of this. The command line does that.

pub mod address;
pub mod check;
pub mod client;
pub mod config;
mod counters;
pub mod explained;
pub mod files;
pub mod frontends;
pub mod job;
mod lines;
pub mod memory;
mod near;
pub mod observed;
mod parameter;
pub mod place;
pub mod plan;
pub mod problem;
pub mod protocol;
mod read;
pub mod recording;
pub mod recovery;
pub mod replace;
mod schema;
pub mod secrets;
pub mod section;
pub mod serve;
pub mod status;
pub mod trouble;
pub mod users;
mod written;

pub use block::plain;
pub use nbd::tls::{SIGN_AGAIN, old_version};
pub use near::meant;
