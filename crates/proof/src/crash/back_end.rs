//! What befalls origins beside losses of power: they forget writes and go on, they
//! are away for a while, and their back end takes and restores snapshots.
//!
//! What an origin holds, now and durably, is asked of its medium, behind everything
//! that the engine sees.

use crate::model::Saved;
use sim::{Image, Medium};
use std::cell::{Cell, RefCell};

/// The origins from behind, by volume.
pub(super) struct BackEnd {
    pub(super) media: Vec<Medium>,
    pub(super) snapshots: RefCell<Vec<Option<(Image, Saved)>>>,
    pub(super) volumes: Vec<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// Somebody works on it.
    pub(super) busy: Cell<bool>,
    /// It was restored, and has not been invalidated.
    pub(super) restored: Cell<bool>,
    /// The daemon stops, and has closed it at a standstill.
    pub(super) closed: Cell<bool>,
    /// It answers with errors.
    pub(super) away: Cell<bool>,
    /// How often it did.
    pub(super) absences: Cell<u64>,
    /// How many of its losses were reported to who quiesces it.
    pub(super) reported: Cell<Reported>,
    /// And who invalidates it, whose flush may be the one that meets a loss.
    pub(super) reported_invalidating: Cell<Reported>,
}

/// What was reported of an origin's losses to an administrator.
#[derive(Clone, Copy, Default)]
pub(super) struct Reported {
    /// How many.
    pub(super) losses: u64,
    /// It was away then, and may fail once more.
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
            volumes: media.iter().map(|_| State::default()).collect(),
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

    /// Whether the origin has answered with errors since then.
    pub(super) fn was_away(&self, volume: usize, since: Since) -> bool {
        since.away || self.volumes[volume].absences.get() != since.absences
    }

    /// Whether a client may be given an error for what happened since then.
    pub(super) fn is_excused(&self, volume: usize, since: Since) -> bool {
        self.was_away(volume, since) || self.is_closed(volume)
    }

    /// Whether the daemon serves it no more.
    pub(super) fn is_closed(&self, volume: usize) -> bool {
        self.volumes[volume].closed.get()
    }

    /// The daemon is dead; whether a volume was restored that it had not invalidated.
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
