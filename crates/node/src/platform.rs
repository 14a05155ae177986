//! The platform of a node: a machine, or a simulated world.
//!
//! Invariant: one user at a time has a place, from its opening until its hold is dropped.
//!
//! Not here: the use of an open device, and protocols over the shard's own streams, which are the
//! same on every platform (`place`).

use crate::Later;
use crate::event::NodeEvent;
use block::{BoxDevice, Driver, Extent, IoError, IoErrorKind, IoResult, Nanos};
use control::address::NbdUri;
use control::config::{self, Config, Name};
use control::files::{ConfigurationFiles, FileDifference};
use control::memory::MemoryRoom;
use control::place::BasePlace;
use control::protocol::ControlRequest;
use control::status::WearReport;
use layout::LogSuperblock;
use origin::DeviceIdentity;
use shard::{Local, ShardDisk};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The platform of a node; clones are the same.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait Platform: Clone + 'static {
    /// The driver of the shard's operations.
    type Driver: Driver;
    /// Keeps other users away from a place, until dropped.
    type Hold: 'static;

    /// The shard of the node.
    fn local(&self) -> &Local<Self::Driver>;

    /// Opens the file or block device at `path` for `device` alone. `Busy`: another user has the
    /// place, and may be about to release it.
    async fn open_disk(
        &self,
        device: &config::Device,
        path: &Path,
    ) -> IoResult<(ShardDisk<Self::Driver>, Self::Hold)>;

    /// Extents of the file at `path` that are known to read as zeroes without reading them, in
    /// order. The file is not written meanwhile.
    async fn holes(&self, _path: &Path) -> Vec<Extent> {
        Vec::new()
    }

    /// Claims the export at `uri` against other nodes; `Busy` as for [`Platform::open_disk`].
    fn claim_export(&self, uri: &NbdUri) -> IoResult<Self::Hold>;

    /// The bytes of a file of certificates.
    fn read_certificates(&self, file: &Path) -> IoResult<Vec<u8>>;

    /// Reads the present configuration from the files that the node was started from.
    async fn configuration(&self) -> Result<Config, String>;

    /// Returns the reason if the files of the configuration, read as `running`, cannot be read any
    /// more.
    async fn unreadable(&self, _running: &ConfigurationFiles) -> Option<String> {
        None
    }

    /// Sends `request` to the node through a client, so that the file of the configuration is
    /// changed too; `None` without a file.
    async fn amend(&self, _request: ControlRequest) -> Option<Result<(), String>> {
        None
    }

    /// Writes a new text of one of the configuration's files, read as `running`, beside that file.
    /// The text has the effect of `change`. `roles` has the roles of each array with their devices.
    /// `None` if no file has such a change.
    async fn draft(
        &self,
        _running: &ConfigurationFiles,
        _change: &ControlRequest,
        _roles: Roles,
    ) -> Result<Option<Box<dyn ConfigurationDraft>>, String> {
        Ok(None)
    }

    /// Opens the file beside a pool that records its devices, for this node alone. Makes the file
    /// if it is missing. Ends within a time limit even if the file system does not answer.
    async fn witness(&self, pool: &Name) -> IoResult<(BoxDevice, Self::Hold)>;

    /// The recorded pools other than `ours`. `Err` if a record cannot be read.
    async fn other_pools(&self, ours: &[&str]) -> IoResult<Vec<Remembered>>;

    /// Opens the file beside the log of a volume, for this node alone. Makes the file if it is
    /// missing. Ends within a time limit even if the file system does not answer.
    async fn log_witness(&self, volume: &Name) -> IoResult<(BoxDevice, Self::Hold)>;

    /// Reads the files beside all logs. `Err` if one cannot be read.
    async fn logs(&self) -> IoResult<Vec<LogWitness>>;

    /// The identity of the device at `place`, a path or a URI.
    async fn identity(&self, place: &str) -> DeviceIdentity;

    /// The place of `device`, by its name alone if the place cannot be found within a moment.
    async fn place(&self, device: &config::Device) -> BasePlace;

    /// True once the node is to end, so that its start waits for nothing more.
    fn is_ending(&self) -> bool {
        false
    }

    /// The present size in bytes of a file or block device at `place`; `None` if unknown.
    async fn size(&self, _place: &str) -> Option<u64> {
        None
    }

    /// Carries out `step` on the persistent reservation of the device at `place`, by the key of
    /// this machine and `volume`. False: nothing was resumed. `Reserved`: another host has the
    /// device.
    async fn reservation(
        &self,
        place: &str,
        _volume: &Name,
        _step: ReservationStep,
    ) -> IoResult<bool> {
        let what = "has no persistent reservations here; leave out `reserve` of its volume";
        Err(IoError::new(IoErrorKind::Unsupported, what).on(place.to_owned()))
    }

    /// The wear of the device behind `place`, by its own report; `None` if unknown.
    async fn wear(&self, _place: &str) -> Option<WearReport> {
        None
    }

    /// The permanent name of the machine.
    fn host(&self) -> String;

    /// The time of day, in seconds since 1970, never 0. The clock may be set, back as well.
    fn time_of_day(&self) -> u64;

    /// The time of day, in nanoseconds since 1970.
    fn clock(&self) -> Nanos;

    /// A new number that was never used.
    fn uuid(&self) -> u128;

    /// The memory available beside the bytes `promised` already; `None` if unknown.
    fn room(&self, _promised: u64) -> Option<MemoryRoom> {
        None
    }

    /// The resources that the process has used so far.
    fn process(&self) -> UserProcess;

    /// The processor time of each shard so far, if the system reports that.
    fn shard_times(&self) -> Vec<Nanos> {
        Vec::new()
    }

    /// Reports an event to the operator of the node.
    fn event(&self, event: NodeEvent);
}

/// The roles of arrays, by their names: the number of each role, and its device.
pub type Roles = BTreeMap<String, Vec<(u32, Option<String>)>>;

/// A new text of a file of the configuration, not in its place yet. Dropping a draft removes the
/// text.
pub trait ConfigurationDraft {
    /// Puts the text in its place. Returns the files as they are then.
    fn commit(self: Box<Self>) -> Later<'static, Result<ConfigurationFiles, String>>;

    /// The lines that it changes.
    fn difference(&self) -> Option<FileDifference>;
}

/// A step in the life of a persistent reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservationStep {
    /// Resumes the reservation, if no other host had the device since.
    Resume,
    /// Takes the reservation, if no other host has one.
    Take,
    /// Checks that this host has the reservation.
    Check,
    /// Ends the reservation, and leaves a sign for a resumption.
    Release,
    /// Ends the reservation, and leaves no sign.
    Leave,
    /// Takes the reservation from any host.
    TakeOver,
}

/// A pool of another configuration.
pub struct Remembered {
    /// File that records the pool.
    pub file: PathBuf,
    /// Name of the pool.
    pub pool: String,
    /// Names of the pool's volumes.
    pub volumes: Vec<String>,
}

/// The file beside the log of a volume.
pub struct LogWitness {
    /// The file.
    pub file: PathBuf,
    /// Content of the file.
    pub superblock: LogSuperblock,
}

/// A process, as its operating system sees it.
#[derive(Clone, Copy, Default)]
pub struct UserProcess {
    /// Number of the process.
    pub pid: u32,
    /// Processor time of the process.
    pub cpu: Nanos,
    /// Resident memory; 0 if the system does not report it.
    pub resident_bytes: u64,
}
