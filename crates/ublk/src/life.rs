//! The life of a device: made, or taken over from a server that has died.
//!
//! Invariants:
//!     a device is taken over ⟹ its mark is that of the name, its shape is the wanted one
//!     or smaller, and nobody serves it any more
//!     it grows only once it is served: what waits in it lies within its former size
//!     the driver permits a recovery only once every I/O of the dead server has ended
//!     (`uring` keeps the device open until then): a request that is given out again is
//!     never overtaken by what its first server still had in flight
//!
//! A machine is given what happened, and says what to do next; it does nothing itself.

#[cfg(test)]
mod tests;

use crate::uapi::{Command, Control, DeviceInfo, Features, Params, REQUEST_MAX, State};
use block::Nanos;
use std::fmt;

/// How often it is tried whether a dead server has released its device.
const PAUSE: Nanos = Nanos::from_millis(5);
/// How long a dead server may take to release it: a disk that does not answer keeps its I/O.
pub const RELEASE_MAX: Nanos = Nanos::from_secs(60);

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;

/// What marks the device of volume `name` (FNV-1a).
pub fn mark(name: &str) -> u64 {
    let bytes = b"hotset:".iter().chain(name.as_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The device that shall be.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// See [`mark`].
    pub mark: u64,
    /// The process that will serve it.
    pub pid: u32,
    /// Its hardware queues.
    pub queues: u16,
    /// The tags of each.
    pub depth: u16,
    /// Its shape.
    pub params: Params,
    /// The number of the device that had this name last.
    pub known: Option<u32>,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Give the driver this command, and say what it answered.
    Control(Control),
    /// Say whether this process runs.
    Look(i32),
    /// Wait, then say so.
    Pause(Nanos),
    /// Open the device and let each of its tags wait for a request, then say so.
    Serve(DeviceInfo),
    /// The block device is there.
    Live(u32),
    /// It shall not be. A device that was made for it is to be removed.
    Refused(Refusal, Option<u32>),
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing yet.
    Begin,
    /// The command's buffer, or the number of its error.
    Answer(Result<Vec<u8>, i32>),
    /// Whether the process runs.
    Runs(bool),
    /// The pause is over.
    Paused,
    /// The tags wait.
    Serving,
}

/// Why there is no device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The driver lacks what is needed.
    TooOld,
    /// This process may not.
    Denied,
    /// Another process serves it.
    InUse {
        /// The device.
        id: u32,
        /// The process.
        pid: i32,
    },
    /// Its dead server still has I/O in flight.
    NotReleased(u32),
    /// It is there in another shape.
    Reshaped(u32),
    /// The driver refused a command for another reason.
    Failed(Command, i32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooOld => f.write_str(
                "this kernel's ublk is too old: it needs Linux 6.5 or later, best 6.12; \
                 until then reach the volume over NBD",
            ),
            Refusal::Denied => f.write_str(
                "ublk needs CAP_SYS_ADMIN, which this process has not; run it as root, or reach \
                 the volume over NBD",
            ),
            Refusal::InUse { id, pid } => write!(
                f,
                "/dev/ublkb{id} of that name is served by process {pid}; stop that first"
            ),
            Refusal::NotReleased(id) => write!(
                f,
                "the dead server of /dev/ublkb{id} still has I/O in flight after {} s; see to its \
                 disks, then start again",
                RELEASE_MAX.0 / 1_000_000_000
            ),
            Refusal::Reshaped(id) => write!(
                f,
                "/dev/ublkb{id} is left from a server that died, and the volume has shrunk since, \
                 has another logical block, or has grown on a kernel before 6.16, which keeps \
                 devices as they are; unmount it and remove it with `hotset detach`"
            ),
            Refusal::Failed(command, number) => write!(
                f,
                "the kernel's ublk refused {command:?} with error {number}; see its log (dmesg), or \
                 reach the volume over NBD"
            ),
        }
    }
}

/// Makes a device, or takes it over.
pub struct Attach {
    wanted: Wanted,
    /// What the driver can do.
    features: Features,
    /// A device that is taken over has to grow.
    grows: bool,
    stage: Stage,
    waited: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Features,
    Info,
    Params(DeviceInfo),
    Look(DeviceInfo),
    StartRecovery(DeviceInfo),
    Recovering(u32),
    Removing,
    Add,
    SetParams(DeviceInfo),
    Starting(u32),
    Growing(u32),
    End,
}

impl Attach {
    /// Of a device that shall be as `wanted`.
    pub fn new(wanted: Wanted) -> Attach {
        Attach {
            wanted,
            features: Features(0),
            grows: false,
            stage: Stage::Features,
            waited: Nanos::ZERO,
        }
    }

    /// What follows from `event`.
    ///
    /// # Panics
    /// If it is none that the last step asked for.
    pub fn step(&mut self, event: Event) -> Step {
        match (self.stage, event) {
            (Stage::Features, Event::Begin) => {
                let mut ask = Control::of(Command::GetFeatures, Control::ANY);
                ask.buffer = vec![0; 8];
                Step::Control(ask)
            }
            (Stage::Features, Event::Answer(answer)) => self.features(answer),
            // One that is gone is no obstacle.
            (Stage::Info, Event::Answer(Err(_))) => self.add(),
            (Stage::Info, Event::Answer(Ok(bytes))) => self.found(&bytes),
            (Stage::Params(info), Event::Answer(answer)) => self.compare(info, answer),
            (Stage::Look(info), Event::Runs(true)) => {
                let (id, pid) = (info.id, info.pid);
                self.refuse(Refusal::InUse { id, pid }, None)
            }
            (Stage::Look(info), Event::Runs(false)) => self.recover(info),
            (Stage::StartRecovery(info), Event::Paused) => self.recover(info),
            (Stage::StartRecovery(info), Event::Answer(Ok(_))) => {
                self.stage = Stage::Recovering(info.id);
                Step::Serve(info)
            }
            (Stage::StartRecovery(info), Event::Answer(Err(EBUSY))) => {
                if self.waited >= RELEASE_MAX {
                    return self.refuse(Refusal::NotReleased(info.id), None);
                }
                self.waited += PAUSE;
                Step::Pause(PAUSE)
            }
            (Stage::Removing, Event::Answer(Ok(_))) => self.add(),
            (Stage::Add, Event::Answer(Ok(bytes))) => self.added(&bytes),
            (Stage::SetParams(info), Event::Answer(Ok(_))) => {
                self.stage = Stage::Starting(info.id);
                Step::Serve(info)
            }
            (Stage::Recovering(id), Event::Serving) => self.start(Command::EndRecovery, id),
            (Stage::Starting(id), Event::Serving) => self.start(Command::Start, id),
            (Stage::Recovering(id), Event::Answer(Ok(_))) if self.grows => {
                self.stage = Stage::Growing(id);
                let mut ask = Control::of(Command::UpdateSize, id);
                ask.data = self.wanted.params.sectors.0;
                Step::Control(ask)
            }
            (
                Stage::Recovering(id) | Stage::Starting(id) | Stage::Growing(id),
                Event::Answer(Ok(_)),
            ) => {
                self.stage = Stage::End;
                Step::Live(id)
            }
            (stage, Event::Answer(Err(number))) => self.failed(stage, number),
            (stage, event) => panic!("{event:?} while {stage:?}"),
        }
    }

    fn features(&mut self, answer: Result<Vec<u8>, i32>) -> Step {
        self.features = match answer {
            Err(EPERM | EACCES) => return self.refuse(Refusal::Denied, None),
            Err(_) => Features(0),
            Ok(bytes) => Features::decode(&bytes).unwrap_or(Features(0)),
        };
        match self.wanted.known {
            _ if !self.features.has(Features::NEEDED) => self.refuse(Refusal::TooOld, None),
            None => self.add(),
            Some(id) => {
                self.stage = Stage::Info;
                let mut ask = Control::of(Command::GetInfo, id);
                ask.buffer = vec![0; DeviceInfo::BYTES];
                Step::Control(ask)
            }
        }
    }

    /// A device has the number that was recorded; whether it is this one.
    fn found(&mut self, bytes: &[u8]) -> Step {
        let info = DeviceInfo::decode(bytes);
        let Some(info) = info.filter(|info| info.mark == self.wanted.mark) else {
            return self.add();
        };
        if info.state == State::Dead {
            self.stage = Stage::Removing;
            return Step::Control(Control::of(Command::Delete, info.id));
        }
        self.stage = Stage::Params(info);
        let mut ask = Control::of(Command::GetParams, info.id);
        ask.buffer = vec![0; Params::BYTES];
        ask.buffer[..4].copy_from_slice(&(Params::BYTES as u32).to_ne_bytes());
        Step::Control(ask)
    }

    fn compare(&mut self, info: DeviceInfo, answer: Result<Vec<u8>, i32>) -> Step {
        let shape = match answer {
            Ok(bytes) => Params::decode_size(&bytes),
            Err(number) => return self.failed(self.stage, number),
        };
        let wanted = Params::decode_size(&self.wanted.params.encode());
        let (Some((is, block)), Some((wanted, wanted_block))) = (shape, wanted) else {
            return self.refuse(Refusal::Reshaped(info.id), None);
        };
        self.grows = wanted > is;
        let is_possible = !self.grows || self.features.has(Features::UPDATE_SIZE);
        if wanted < is || block != wanted_block || !is_possible {
            return self.refuse(Refusal::Reshaped(info.id), None);
        }
        self.stage = Stage::Look(info);
        Step::Look(info.pid)
    }

    fn recover(&mut self, info: DeviceInfo) -> Step {
        self.stage = Stage::StartRecovery(info);
        Step::Control(Control::of(Command::StartRecovery, info.id))
    }

    fn add(&mut self) -> Step {
        self.stage = Stage::Add;
        let info = DeviceInfo {
            queues: self.wanted.queues,
            depth: self.wanted.depth,
            state: State::Dead,
            bytes_max: REQUEST_MAX.bytes() as u32,
            id: Control::ANY,
            pid: self.wanted.pid as i32,
            features: Features::NEEDED,
            mark: self.wanted.mark,
        };
        let mut ask = Control::of(Command::Add, Control::ANY);
        ask.buffer = info.encode().to_vec();
        Step::Control(ask)
    }

    fn added(&mut self, bytes: &[u8]) -> Step {
        let Some(info) = DeviceInfo::decode(bytes) else {
            return self.failed(self.stage, 0);
        };
        self.stage = Stage::SetParams(info);
        let mut ask = Control::of(Command::SetParams, info.id);
        ask.buffer = self.wanted.params.encode().to_vec();
        Step::Control(ask)
    }

    fn start(&mut self, command: Command, id: u32) -> Step {
        let mut ask = Control::of(command, id);
        ask.data = self.wanted.pid.into();
        Step::Control(ask)
    }

    /// The driver has refused the command of `stage`.
    fn failed(&mut self, stage: Stage, number: i32) -> Step {
        if matches!(number, EPERM | EACCES) && stage == Stage::Add {
            return self.refuse(Refusal::Denied, None);
        }
        let (command, made) = match stage {
            Stage::Features => (Command::GetFeatures, None),
            Stage::Info => (Command::GetInfo, None),
            Stage::Params(_) => (Command::GetParams, None),
            Stage::Look(_) | Stage::StartRecovery(_) => (Command::StartRecovery, None),
            // What waits in a device that is taken over is not to be lost.
            Stage::Recovering(_) => (Command::EndRecovery, None),
            Stage::Growing(_) => (Command::UpdateSize, None),
            Stage::Removing => (Command::Delete, None),
            Stage::Add => (Command::Add, None),
            Stage::SetParams(info) => (Command::SetParams, Some(info.id)),
            Stage::Starting(id) => (Command::Start, Some(id)),
            Stage::End => unreachable!("nothing was asked"),
        };
        self.refuse(Refusal::Failed(command, number), made)
    }

    fn refuse(&mut self, why: Refusal, made: Option<u32>) -> Step {
        self.stage = Stage::End;
        Step::Refused(why, made)
    }
}
