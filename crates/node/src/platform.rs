//! What a node asks of whatever it runs on: a machine, or a simulated world.
//!
//! Invariant: one user at a time has a place, from its opening until its hold is dropped.
//!
//! Not here: what is done with an open device, and protocols over the shard's own streams,
//! which are the same on every platform (`place`).

use crate::Later;
use crate::event::Event;
use block::{BoxDevice, Driver, Extent, IoResult, Nanos};
use control::address::NbdUri;
use control::config::{self, Config, Name};
use control::files::Files;
use control::memory::Room;
use control::place::Place;
use control::protocol::Request;
use control::status::Wear;
use layout::LogSuperblock;
use origin::Identity;
use shard::{Disk, Local};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What runs a node; clones are the same.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait Platform: Clone + 'static {
    /// What serves the shard's operations.
    type Driver: Driver;
    /// Keeps other users away from a place, until dropped.
    type Hold: 'static;

    /// The shard that everything runs on.
    fn local(&self) -> &Local<Self::Driver>;

    /// Opens the file or block device at `path` for `device`, and for nobody else. `Busy`:
    /// somebody has it, and may be about to release it.
    async fn open_disk(
        &self,
        device: &config::Device,
        path: &Path,
    ) -> IoResult<(Disk<Self::Driver>, Self::Hold)>;

    /// Parts of the file at `path`, in order, that read as zeroes, as far as that is known without
    /// reading them. Nobody writes it meanwhile.
    async fn holes(&self, _path: &Path) -> Vec<Extent> {
        Vec::new()
    }

    /// Claims the export at `uri` against other nodes; `Busy` as above.
    fn claim_export(&self, uri: &NbdUri) -> IoResult<Self::Hold>;

    /// The bytes of a file of certificates.
    fn read_certificates(&self, file: &Path) -> IoResult<Vec<u8>>;

    /// Reads the configuration that the node was started from once more; as it is now.
    async fn configuration(&self) -> Result<Config, String>;

    /// Why the files of the configuration, which were read as `running`, do not read any more;
    /// `None` if they do.
    async fn unreadable(&self, _running: &Files) -> Option<String> {
        None
    }

    /// Has a client ask the node for `request`, and the file of its configuration say the same;
    /// `None` if it has no file.
    async fn amend(&self, _request: Request) -> Option<Result<(), String>> {
        None
    }

    /// Writes a new text of one of the files of the configuration, which were read as `running`,
    /// beside it: the text says what `change` makes of the node. `roles` are those of each array
    /// by number, with their devices. `None` if no file says such a change.
    async fn draft(
        &self,
        _running: &Files,
        _change: &Request,
        _roles: Roles,
    ) -> Result<Option<Box<dyn Draft>>, String> {
        Ok(None)
    }

    /// The file beside a pool that remembers its devices, made if it is missing, and for
    /// nobody else. Ends in time though its file system does not answer.
    async fn witness(&self, pool: &Name) -> IoResult<(BoxDevice, Self::Hold)>;

    /// The pools that are remembered beside those called `ours`. `Err` if one cannot be read.
    async fn other_pools(&self, ours: &[&str]) -> IoResult<Vec<Remembered>>;

    /// The file beside the log of a volume, made if it is missing, and for nobody else. Ends in
    /// time though its file system does not answer.
    async fn log_witness(&self, volume: &Name) -> IoResult<(BoxDevice, Self::Hold)>;

    /// The files beside all logs. `Err` if one cannot be read.
    async fn logs(&self) -> IoResult<Vec<LogWitness>>;

    /// Who is behind `place`, a path or a URI.
    async fn identity(&self, place: &str) -> Identity;

    /// Where `device` is, by its name alone if it does not say within a moment.
    async fn place(&self, device: &config::Device) -> Place;

    /// How many bytes a file or block device at `place` has now; `None` if it does not say.
    async fn size(&self, _place: &str) -> Option<u64> {
        None
    }

    /// How worn the device behind `place` says that it is; `None` if it does not say.
    async fn wear(&self, _place: &str) -> Option<Wear> {
        None
    }

    /// The name of the machine, for ever.
    fn host(&self) -> String;

    /// The time of day, in seconds since 1970, never 0. It may be set, back as well.
    fn time_of_day(&self) -> u64;

    /// The same, exactly.
    fn clock(&self) -> Nanos;

    /// A name that nobody has had.
    fn uuid(&self) -> u128;

    /// The memory available beside the bytes `promised` already; `None` if that is unknown.
    fn room(&self, _promised: u64) -> Option<Room> {
        None
    }

    /// What it has cost so far.
    fn process(&self) -> Process;

    /// Reports to whoever operates the node.
    fn event(&self, event: Event);
}

/// The roles of arrays, by their names: the number of each role, and its device.
pub type Roles = BTreeMap<String, Vec<(u32, Option<String>)>>;

/// A new text of a file of the configuration, which is not in its place yet. Dropped, it is
/// removed.
pub trait Draft {
    /// Puts the text into its place; the files as they are then.
    fn commit(self: Box<Self>) -> Later<'static, Result<Files, String>>;
}

/// A pool of another configuration.
pub struct Remembered {
    /// What remembers it.
    pub file: PathBuf,
    /// Its name.
    pub pool: String,
    /// The names of its volumes.
    pub volumes: Vec<String>,
}

/// The file beside the log of a volume.
pub struct LogWitness {
    /// The file.
    pub file: PathBuf,
    /// What it says.
    pub superblock: LogSuperblock,
}

/// A process, as its operating system sees it.
#[derive(Clone, Copy, Default)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The time that processors have spent on it.
    pub cpu: Nanos,
    /// The memory that it has; 0 where the system does not report it.
    pub resident_bytes: u64,
}
