//! The life of a device: made, or recovered from a server that has died.
//!
//! Invariants:
//!     a device is recovered ⟹ its mark is that of the origin, its shape is the wanted one or
//!     smaller, the kernel sends it every flush, and no process serves it any more
//!     a device grows only once it is served: requests that wait lie within its former size
//!     the driver permits a recovery only once every I/O of the dead server has ended
//!     (`uring` keeps the device open until then): a request that is given out again is
//!     never overtaken by an I/O that the dead server had in flight
//!     a recovery that a dead server began is ended, not begun again: the driver refuses a second
//!     a recovery begins with all queues ready or none, where the driver (before Linux 6.15) would
//!     bring the kernel down: the shards of a server that is killed ready their queues one by one
//!     a new device is started by a process of its own, which answers no request with data, and is
//!     then recovered like any other: if the daemon ends while the kernel reads the partition
//!     table, nothing is left that waits for the daemon
//!
//! A machine takes events and returns the next step; it performs no I/O.

#[cfg(test)]
mod campaign;
mod refusal;
#[cfg(test)]
mod tests;

pub use refusal::{AttachRefusal, RELEASE_MAX, ShapeDifference};

use crate::uapi::{
    DeviceInfo, Made, Params, REQUEST_MAX, UblkCommand, UblkControl, UblkFeatures, UblkState,
};
use block::Nanos;

/// Pause between two tries to recover a device that its dead server has not released.
const PAUSE: Nanos = Nanos::from_millis(5);
/// Longest wait for a device that is live although its recorded process is a stranger's: the driver
/// notices the death of a server late, and process numbers are used again.
const LIVE_MAX: Nanos = Nanos::from_secs(3);

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;

/// The first bits of every mark.
const MAGIC: u64 = 0x6873;
const MAGIC_AT: u32 = 48;

fn fnv(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let bytes = bytes.into_iter();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The mark of a device: a hash of its origin's identity. An origin has one volume.
pub fn mark(origin: &[u8]) -> u64 {
    let hash = fnv(b"hotset origin:".iter().chain(origin).copied());
    let hash = (hash ^ (hash >> MAGIC_AT)) & ((1 << MAGIC_AT) - 1);
    (MAGIC << MAGIC_AT) | hash
}

/// True if `mark` is one of hotset's.
pub fn is_marked(mark: u64) -> bool {
    mark >> MAGIC_AT == MAGIC
}

/// The mark that the first releases made of the name of a volume alone.
pub fn mark_of_name(name: &str) -> u64 {
    fnv(b"hotset:".iter().copied().chain(name.bytes()))
}

/// A device of this machine, and the volume recorded for it, if any.
pub type Found = (DeviceInfo, Option<String>);

/// Returns the device among `found` with this mark. `Err`: a device with another mark has the name
/// `name`, so that two devices would have one name.
pub fn choose(found: &[Found], mark: u64, name: &str) -> Result<Option<u32>, AttachRefusal> {
    let of_origin = |state: fn(UblkState) -> bool| {
        let mut all = found.iter().map(|(info, _)| info);
        all.find(|info| info.mark == mark && state(info.state))
    };
    // A device that was never started holds no request.
    let known = of_origin(|state| state != UblkState::Dead).or_else(|| of_origin(|_| true));
    if let Some(info) = known {
        return Ok(Some(info.id));
    }
    let mut named = found.iter().filter(|(info, of)| {
        info.state != UblkState::Dead && of.as_deref().is_some_and(|of| of == name)
    });
    match named.next() {
        Some((info, _)) if is_marked(info.mark) => Err(AttachRefusal::OtherOrigin(info.id)),
        Some((info, _)) if info.mark == mark_of_name(name) => Err(AttachRefusal::Unmarked(info.id)),
        _ => Ok(None),
    }
}

/// The device to make or to recover.
#[derive(Clone, Copy, Debug)]
pub struct WantedDevice {
    /// See [`mark`].
    pub mark: u64,
    /// The process that will serve the device.
    pub pid: u32,
    /// Hardware queues.
    pub queues: u16,
    /// Tags of each queue.
    pub depth: u16,
    /// The device's shape.
    pub params: Params,
    /// The number of the device that has this mark; see [`choose`].
    pub known: Option<u32>,
}

/// The next step, which the caller performs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttachStep {
    /// Send this command to the driver. The next event is its answer.
    Control(UblkControl),
    /// Look whether this process runs, and report that.
    Look(i32),
    /// Wait, then report.
    Pause(Nanos),
    /// Have a process of its own serve the device with errors, start it and end. The next event is
    /// the driver's answer.
    Begin(DeviceInfo),
    /// Have a process of its own ready the queues that are not, and end. The next event is the
    /// driver's answer.
    Ready(DeviceInfo),
    /// Open the device, let each of its tags wait for a request, then report.
    Serve(DeviceInfo),
    /// The block device is there.
    Live(u32),
    /// There will be no block device. A device that was made here is to be removed.
    Refused(AttachRefusal, Option<u32>),
}

/// An event: the outcome of the last step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttachEvent {
    /// The beginning: no step has been performed.
    Begin,
    /// The command's buffer, or the number of its error.
    Answer(Result<Vec<u8>, i32>),
    /// True if the process runs.
    Runs(bool),
    /// The pause is over.
    Paused,
    /// The tags wait.
    Serving,
}

/// A machine that makes a device, or recovers it.
pub struct Attach {
    wanted: WantedDevice,
    /// The driver's features.
    features: UblkFeatures,
    /// The recovered device has to grow.
    grows: bool,
    /// The device that was made here.
    made: Option<u32>,
    stage: AttachStage,
    waited: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AttachStage {
    Features,
    Info,
    Look(DeviceInfo),
    Params(DeviceInfo),
    Ready(DeviceInfo),
    StartRecovery(DeviceInfo),
    Recovering(u32),
    Removing,
    Add,
    SetParams(DeviceInfo),
    Starting(DeviceInfo),
    Growing(u32),
    End,
}

impl Attach {
    /// A machine for the device `wanted`.
    pub fn new(wanted: WantedDevice) -> Attach {
        Attach {
            wanted,
            features: UblkFeatures(0),
            grows: false,
            made: None,
            stage: AttachStage::Features,
            waited: Nanos::ZERO,
        }
    }

    /// Returns the step that follows `event`.
    ///
    /// # Panics
    /// If `event` is none that the last step leads to.
    pub fn step(&mut self, event: AttachEvent) -> AttachStep {
        match (self.stage, event) {
            (AttachStage::Features, AttachEvent::Begin) => {
                let mut ask = UblkControl::of(UblkCommand::GetFeatures, UblkControl::ANY);
                ask.buffer = vec![0; 8];
                AttachStep::Control(ask)
            }
            (AttachStage::Features, AttachEvent::Answer(answer)) => self.features(answer),
            // A device that is gone is no obstacle.
            (AttachStage::Info, AttachEvent::Answer(Err(_))) => self.add(),
            (AttachStage::Info, AttachEvent::Answer(Ok(bytes))) => self.found(&bytes),
            (AttachStage::Look(info), AttachEvent::Runs(runs)) => self.looked(info, runs),
            (AttachStage::Look(info), AttachEvent::Paused) => self.info(info.id),
            (AttachStage::Params(info), AttachEvent::Answer(answer)) => self.compare(info, answer),
            (AttachStage::Ready(info), AttachEvent::Answer(Ok(_))) => self.recover(info),
            (AttachStage::StartRecovery(info), AttachEvent::Paused) => self.recover(info),
            (AttachStage::StartRecovery(info), AttachEvent::Answer(Ok(_))) => self.recovering(info),
            // Linux refuses to begin a recovery while no queue is ready
            // (`ublk_ctrl_start_recovery`), which in a quiesced device is the work of a recovery
            // before this one.
            (AttachStage::StartRecovery(info), AttachEvent::Answer(Err(EINVAL)))
                if info.state == UblkState::Quiesced =>
            {
                self.recovering(info)
            }
            (AttachStage::StartRecovery(info), AttachEvent::Answer(Err(EBUSY))) => {
                if self.waited >= RELEASE_MAX {
                    return self.refuse(AttachRefusal::NotReleased(info.id));
                }
                self.pause()
            }
            (AttachStage::Removing, AttachEvent::Answer(Ok(_))) => self.add(),
            (AttachStage::Add, AttachEvent::Answer(Ok(bytes))) => self.added(&bytes),
            (AttachStage::SetParams(info), AttachEvent::Answer(Ok(_))) => {
                self.stage = AttachStage::Starting(info);
                AttachStep::Begin(info)
            }
            (AttachStage::Starting(info), AttachEvent::Answer(Ok(_))) => self.recover(info),
            (AttachStage::Recovering(id), AttachEvent::Serving) => {
                let mut ask = UblkControl::of(UblkCommand::EndRecovery, id);
                ask.data = self.wanted.pid.into();
                AttachStep::Control(ask)
            }
            (AttachStage::Recovering(id), AttachEvent::Answer(Ok(_))) if self.grows => {
                self.stage = AttachStage::Growing(id);
                let mut ask = UblkControl::of(UblkCommand::UpdateSize, id);
                ask.data = self.wanted.params.sectors.0;
                AttachStep::Control(ask)
            }
            (
                AttachStage::Recovering(id) | AttachStage::Growing(id),
                AttachEvent::Answer(Ok(_)),
            ) => {
                self.stage = AttachStage::End;
                AttachStep::Live(id)
            }
            (stage, AttachEvent::Answer(Err(number))) => self.failed(stage, number),
            (stage, event) => panic!("{event:?} while {stage:?}"),
        }
    }

    fn features(&mut self, answer: Result<Vec<u8>, i32>) -> AttachStep {
        self.features = match answer {
            Err(EPERM | EACCES) => return self.refuse(AttachRefusal::Denied),
            Err(_) => UblkFeatures(0),
            Ok(bytes) => UblkFeatures::decode(&bytes).unwrap_or(UblkFeatures(0)),
        };
        match self.wanted.known {
            _ if !self.features.has(UblkFeatures::NEEDED) => self.refuse(AttachRefusal::TooOld),
            None => self.add(),
            Some(id) => self.info(id),
        }
    }

    fn info(&mut self, id: u32) -> AttachStep {
        self.stage = AttachStage::Info;
        let mut ask = UblkControl::of(UblkCommand::GetInfo, id);
        ask.buffer = vec![0; DeviceInfo::BYTES];
        AttachStep::Control(ask)
    }

    fn pause(&mut self) -> AttachStep {
        self.waited += PAUSE;
        AttachStep::Pause(PAUSE)
    }

    /// Tests the device of the known number for the wanted mark, and looks for its server.
    fn found(&mut self, bytes: &[u8]) -> AttachStep {
        let info = DeviceInfo::decode(bytes);
        let Some(info) = info.filter(|info| info.mark == self.wanted.mark) else {
            return self.add();
        };
        match info.state {
            UblkState::Dead => {
                self.stage = AttachStage::Removing;
                AttachStep::Control(UblkControl::of(UblkCommand::Delete, info.id))
            }
            // The number of the dead server may be this process's: each daemon of a container is
            // its first process.
            UblkState::Live if info.pid != self.wanted.pid as i32 => {
                self.stage = AttachStage::Look(info);
                AttachStep::Look(info.pid)
            }
            UblkState::Live | UblkState::Quiesced | UblkState::Other(_) => self.params(info),
        }
    }

    fn looked(&mut self, info: DeviceInfo, runs: bool) -> AttachStep {
        match runs {
            false => self.params(info),
            true if self.waited < LIVE_MAX => self.pause(),
            true => self.refuse(AttachRefusal::InUse {
                id: info.id,
                pid: info.pid,
            }),
        }
    }

    fn params(&mut self, info: DeviceInfo) -> AttachStep {
        self.stage = AttachStage::Params(info);
        let mut ask = UblkControl::of(UblkCommand::GetParams, info.id);
        ask.buffer = vec![0; Params::BYTES];
        ask.buffer[..4].copy_from_slice(&(Params::BYTES as u32).to_ne_bytes());
        AttachStep::Control(ask)
    }

    fn compare(&mut self, info: DeviceInfo, answer: Result<Vec<u8>, i32>) -> AttachStep {
        let made = match answer {
            Ok(bytes) => Made::decode(&bytes),
            Err(number) => return self.failed(self.stage, number),
        };
        let wanted = &self.wanted.params;
        let difference = match made {
            None => Some(ShapeDifference::Unknown),
            Some(made) => {
                self.grows = wanted.sectors > made.sectors;
                let can_grow = self.features.has(UblkFeatures::UPDATE_SIZE);
                let differs = [
                    (wanted.sectors < made.sectors, ShapeDifference::Shrunk),
                    (self.grows && !can_grow, ShapeDifference::Grown),
                    (
                        wanted.block_shift() != made.block_shift,
                        ShapeDifference::Block,
                    ),
                    (
                        wanted.read_only && !made.read_only,
                        ShapeDifference::Writable,
                    ),
                    (!made.flushes, ShapeDifference::Unflushed),
                ];
                let first = differs.into_iter().find(|(differs, _)| *differs);
                first.map(|(_, difference)| difference)
            }
        };
        match difference {
            Some(difference) => self.refuse(AttachRefusal::Reshaped(info.id, difference)),
            None if self.is_unevenly_ready(info) => {
                self.stage = AttachStage::Ready(info);
                AttachStep::Ready(info)
            }
            None => self.recover(info),
        }
    }

    /// True if some queues of a device may be ready and others not, which only later drivers bear.
    /// Those that can enlarge a device do.
    fn is_unevenly_ready(&self, info: DeviceInfo) -> bool {
        let is_later = self.features.has(UblkFeatures::UPDATE_SIZE);
        info.state == UblkState::Quiesced && info.queues > 1 && !is_later
    }

    fn recover(&mut self, info: DeviceInfo) -> AttachStep {
        self.stage = AttachStage::StartRecovery(info);
        AttachStep::Control(UblkControl::of(UblkCommand::StartRecovery, info.id))
    }

    fn recovering(&mut self, info: DeviceInfo) -> AttachStep {
        self.stage = AttachStage::Recovering(info.id);
        AttachStep::Serve(info)
    }

    fn add(&mut self) -> AttachStep {
        self.stage = AttachStage::Add;
        let info = DeviceInfo {
            queues: self.wanted.queues,
            depth: self.wanted.depth,
            state: UblkState::Dead,
            bytes_max: REQUEST_MAX.bytes() as u32,
            id: UblkControl::ANY,
            pid: self.wanted.pid as i32,
            features: UblkFeatures::NEEDED,
            mark: self.wanted.mark,
        };
        let mut ask = UblkControl::of(UblkCommand::Add, UblkControl::ANY);
        ask.buffer = info.encode().to_vec();
        AttachStep::Control(ask)
    }

    fn added(&mut self, bytes: &[u8]) -> AttachStep {
        let Some(info) = DeviceInfo::decode(bytes) else {
            return self.failed(self.stage, 0);
        };
        self.made = Some(info.id);
        self.stage = AttachStage::SetParams(info);
        let mut ask = UblkControl::of(UblkCommand::SetParams, info.id);
        ask.buffer = self.wanted.params.encode().to_vec();
        AttachStep::Control(ask)
    }

    /// The driver has refused the command of `stage`.
    fn failed(&mut self, stage: AttachStage, number: i32) -> AttachStep {
        if matches!(number, EPERM | EACCES) && stage == AttachStage::Add {
            return self.refuse(AttachRefusal::Denied);
        }
        if let (AttachStage::Ready(info), EBUSY) = (stage, number) {
            return self.refuse(AttachRefusal::NotReleased(info.id));
        }
        let command = match stage {
            AttachStage::Features => UblkCommand::GetFeatures,
            AttachStage::Info | AttachStage::Look(_) => UblkCommand::GetInfo,
            AttachStage::Params(_) => UblkCommand::GetParams,
            AttachStage::Ready(_) | AttachStage::StartRecovery(_) => UblkCommand::StartRecovery,
            AttachStage::Recovering(_) => UblkCommand::EndRecovery,
            AttachStage::Growing(_) => UblkCommand::UpdateSize,
            AttachStage::Removing => UblkCommand::Delete,
            AttachStage::Add => UblkCommand::Add,
            AttachStage::SetParams(_) => UblkCommand::SetParams,
            AttachStage::Starting(_) => UblkCommand::Start,
            AttachStage::End => unreachable!("nothing was asked"),
        };
        self.refuse(AttachRefusal::Failed(command, number))
    }

    /// Refuses. Requests that wait in a recovered device must not be lost: only a device that was
    /// made here is to be removed.
    fn refuse(&mut self, why: AttachRefusal) -> AttachStep {
        self.stage = AttachStage::End;
        AttachStep::Refused(why, self.made)
    }
}
