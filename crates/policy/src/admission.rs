//! Which missed lines are worth a fill, apart from which line makes room.
//!
//! Admission hears of misses only; a hit costs it nothing.

use crate::{Key, Reason, Request};
use block::Nanos;

/// Decides on each miss whether the line may enter.
pub trait Admission {
    /// `Ok` lets `key` in; `Err` says why not. Called once for each miss.
    fn admit(&mut self, key: Key, request: &Request) -> Result<(), Reason>;

    /// Tells the time, as [`crate::Policy::tick`].
    fn tick(&mut self, _now: Nanos) {}

    /// The pool now has `lines` live slots.
    fn resized(&mut self, _lines: u32) {}
}

/// Every miss enters.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstTouch;

impl Admission for FirstTouch {
    #[inline]
    fn admit(&mut self, _: Key, _: &Request) -> Result<(), Reason> {
        Ok(())
    }
}
