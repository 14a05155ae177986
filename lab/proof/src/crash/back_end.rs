//! Trouble of origins beside losses of power: an origin forgets writes and goes on, or is away for
//! a while, and the back end takes and restores snapshots.
//!
//! The origin's bytes, latest and durable, are read from the medium, behind all that the engine
//! sees.

use crate::model::Saved;
use sim::{Medium, MediumImage};
use std::cell::{Cell, RefCell};

/// The origins from behind, by volume.
pub(super) struct BackEnd {
    pub(super) media: Vec<Medium>,
    pub(super) snapshots: RefCell<Vec<Option<(MediumImage, Saved)>>>,
    pub(super) volumes: Vec<BackEndState>,
}

#[derive(Default)]
pub(super) struct BackEndState {
    /// An administrator works on the volume.
    pub(super) busy: Cell<bool>,
    /// The origin was restored, and the volume has not been invalidated.
    pub(super) restored: Cell<bool>,
    /// The daemon stops, and has closed the volume at a standstill.
    pub(super) closed: Cell<bool>,
    /// The origin answers with errors.
    pub(super) away: Cell<bool>,
    /// Number of times that the origin was away.
    pub(super) absences: Cell<u64>,
    /// The losses that were reported to quiescing administrators.
    pub(super) reported: Cell<Reported>,
    /// The losses that were reported to invalidating administrators, whose flush may meet a loss
    /// first.
    pub(super) reported_invalidating: Cell<Reported>,
}

/// The losses of an origin that were reported to an administrator.
#[derive(Clone, Copy, Default)]
pub(super) struct Reported {
    /// Number of losses.
    pub(super) losses: u64,
    /// The origin was away then, and may fail once more.
    pub(super) once_more: bool,
}

/// A moment, as far as the answers of an origin go.
#[derive(Clone, Copy)]
pub(super) struct Since {
    pub(super) away: bool,
    pub(super) absences: u64,
}

impl BackEnd {
    pub(super) fn new(media: Vec<Medium>) -> BackEnd {
        BackEnd {
            snapshots: RefCell::new(vec![None; media.len()]),
            volumes: media.iter().map(|_| BackEndState::default()).collect(),
            media,
        }
    }

    pub(super) fn since(&self, volume: usize) -> Since {
        let state = &self.volumes[volume];
        Since {
            away: state.away.get(),
            absences: state.absences.get(),
        }
    }

    /// True if the origin has answered with errors since then.
    pub(super) fn was_away(&self, volume: usize, since: Since) -> bool {
        since.away || self.volumes[volume].absences.get() != since.absences
    }

    /// True if a client may be given an error because of an event since then.
    pub(super) fn is_excused(&self, volume: usize, since: Since) -> bool {
        self.was_away(volume, since) || self.is_closed(volume)
    }

    /// True if the daemon no longer serves the volume.
    pub(super) fn is_closed(&self, volume: usize) -> bool {
        self.volumes[volume].closed.get()
    }

    /// Resets the state of a dead daemon. Returns true if a restored volume was not invalidated.
    pub(super) fn end_life(&self) -> bool {
        let mut restored = false;
        for state in &self.volumes {
            restored |= state.restored.take();
            state.busy.set(false);
            state.closed.set(false);
            state.reported.take();
            state.reported_invalidating.take();
            state.away.set(false);
        }
        restored
    }
}
