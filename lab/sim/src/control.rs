//! The test program's control of the world while its shards run.

use crate::fault::Domain;
use block::{Nanos, Sectors, ShardId, TargetId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy)]
pub(crate) enum WorldCommand {
    Kill(TargetId),
    Revive(TargetId),
    Cut(Option<Domain>),
    PowerOn(Domain),
    Hang(TargetId),
    Release(TargetId),
    Break(TargetId),
    Forget(TargetId),
    Grow(TargetId, Sectors),
    Reserve(TargetId, bool),
    Pause(Nanos),
    Occupy(ShardId, Nanos),
}

/// A handle on the world; takes effect at the next submission of an operation or
/// when the shard that runs pauses, whichever is first.
#[derive(Clone, Default)]
pub struct WorldControl(Arc<ControlInbox>);

#[derive(Default)]
struct ControlInbox {
    any: AtomicBool,
    commands: Mutex<VecDeque<WorldCommand>>,
}

impl WorldControl {
    /// Unplugs a disk; see [`crate::Outage`].
    pub fn kill(&self, disk: TargetId) {
        self.send(WorldCommand::Kill(disk));
    }

    /// Plugs a disk in again.
    pub fn revive(&self, disk: TargetId) {
        self.send(WorldCommand::Revive(disk));
    }

    /// Cuts the power of one domain, or of all.
    pub fn cut_power(&self, domain: Option<Domain>) {
        self.send(WorldCommand::Cut(domain));
    }

    /// Gives the disks of a domain power again; its shards stay dead.
    pub fn power_on(&self, domain: Domain) {
        self.send(WorldCommand::PowerOn(domain));
    }

    /// Hangs a disk: from now on none of its operations completes, those in flight included, until
    /// the disk is released, loses its power or is unplugged.
    pub fn hang(&self, disk: TargetId) {
        self.send(WorldCommand::Hang(disk));
    }

    /// Releases the stuck operations of a disk, or a stalled stream, named by either end.
    pub fn release(&self, target: TargetId) {
        self.send(WorldCommand::Release(target));
    }

    /// Makes a disk lose its volatile writes, as in a power cut, and continue: as a server that is
    /// killed and found again, or a kernel that cannot write back. Operations in flight are carried
    /// out. If any write was lost, the next flush to end fails, and later flushes do not report the
    /// loss.
    pub fn forget(&self, disk: TargetId) {
        self.send(WorldCommand::Forget(disk));
    }

    /// Gives a disk `sectors` from now on. Its present users have the former size.
    pub fn grow(&self, disk: TargetId, sectors: Sectors) {
        self.send(WorldCommand::Grow(disk, sectors));
    }

    /// Has a disk refuse changes by this target, as one does that another host has reserved, or lets
    /// it take them again. Operations in flight are carried out.
    pub fn reserve(&self, disk: TargetId, elsewhere: bool) {
        self.send(WorldCommand::Reserve(disk, elsewhere));
    }

    /// Stops all shards for `span`, while the clock runs: a signal, a freezer or a suspended
    /// machine. Of the operations that end meanwhile some wait to be noticed, as those that
    /// hardware carries out. The others are served no further before the shards run.
    pub fn pause(&self, span: Nanos) {
        self.send(WorldCommand::Pause(span));
    }

    /// Keeps a shard of a host busy for `span` more, from the end of its present turn: its work costs
    /// time, or its thread does not run. Completions meanwhile wait for its next turn.
    pub fn occupy(&self, shard: ShardId, span: Nanos) {
        self.send(WorldCommand::Occupy(shard, span));
    }

    /// Breaks a stream, named by either end.
    pub fn break_stream(&self, end: TargetId) {
        self.send(WorldCommand::Break(end));
    }

    fn send(&self, command: WorldCommand) {
        let mut commands = self.0.commands.lock().expect("no panic under this lock");
        commands.push_back(command);
        self.0.any.store(true, Release);
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<WorldCommand> {
        if !self.0.any.load(Acquire) {
            return None;
        }
        let mut commands = self.0.commands.lock().expect("no panic under this lock");
        let command = commands.pop_front();
        self.0.any.store(!commands.is_empty(), Release);
        command
    }
}
