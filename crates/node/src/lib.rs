//! The daemon between its configuration and its frontends: devices, arrays, pools and
//! volumes, and changing them while they run, on any [`Platform`].
//!
//! Invariants:
//!     a place has one user at a time                          (`arrays::lease`, `Platform::Hold`)
//!     a change that fails has changed nothing                 (`node`)
//!     nothing here names a driver, a file, a clock or a random source, and nothing prints
//!
//! Not here: the command line, sockets, signals (`hotset`), and the work of each layer on bytes
//! (`cache`, `raid`, `nbd`).

mod arrays;
mod event;
mod frontend;
mod hold;
mod leaf;
mod log;
mod model;
mod node;
mod origins;
mod place;
mod platform;
mod record;
mod recover;
mod report;
mod served_volume;
mod sink;
mod witness;

pub use arrays::{Before, DeviceSource, Lease, OpenDevices};
pub use event::{NodeEvent, Priority};
pub use frontend::further::{FurtherShards, LentGate, end_fronts, lent_gate, run_front};
pub use frontend::nbd::{NbdFrontend, ServedListener};
pub use frontend::{Frontend, VolumeAbout};
pub use leaf::Leaf;
pub use node::{Controlled, EndWait, Frontends, Node, left_out};
pub use place::{CLAIM_ATTEMPTS, CLAIM_PAUSE, OpenedPlace, RawRole, claimed, open, retried};
pub use platform::{
    ConfigurationDraft, LogWitness, Platform, Remembered, ReservationStep, Roles, UserProcess,
};
pub use recover::{RecoverAction, RecoverTarget, Recovery, recover};
pub use report::ReportSession;
pub use served_volume::{ServedVolume, VolumeFront, VolumeGate};
pub use sink::Sink;

use block::Nanos;
use core::time::Duration;
use std::pin::Pin;

/// A future in a box, where a trait or a recursion needs one: never on the path of a request.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

fn seconds(span: Nanos) -> String {
    format!("{:?}", Duration::from_nanos(span.0))
}
