//! State that is encoded to devices, and may be acted on only once the devices have it.
//!
//! The state is changed in memory; from time to time an [`StateImage`] of the state is taken and written
//! to all holders. The possible contents of a device are known at every instant: the last image
//! that all have, and each that was begun since. A fact is certain if all of these say it.
//!
//! Invariants:
//!     there is a `Proof` of a fact ⟹ after a power cut at any point of the writes so far, every
//!         holder has an image that says it
//!     an image is of one instant: that of `begin`, whatever changes during its write
//!     an image that is dropped, not `written`, proves nothing and disproves the facts it denies
//!     one image is being written at a time, for two could land in any order
//!     there is no holder ⟹ all facts are proved; a new holder has the facts of the next image
//!
//! Not here: the holders, and the place, the number of copies and the encoding of an image. A
//! holder that was lost must be unable to come back as if it were one.

use std::cell::{Cell, Ref, RefCell};
use std::ops::Deref;

/// A state of `T` and its place among the changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Version(u64);

/// Proof that a change is durable. Only [`Durable`] gives one.
#[must_use]
#[derive(Debug)]
pub struct Proof(());

/// The images that holders may have.
#[derive(Debug)]
struct HeldImages<T> {
    version: Version,
    state: T,
}

/// State in memory, and its images on devices.
#[derive(Debug)]
pub struct Durable<T> {
    now: RefCell<T>,
    version: Cell<Version>,
    /// The newest change that an image holds which is being written, or was.
    taken: Cell<Option<Version>>,
    number: Cell<u64>,
    writing: Cell<bool>,
    /// True if the first of `held` is on all holders.
    complete: Cell<bool>,
    held: RefCell<Vec<HeldImages<T>>>,
}

/// A state at the begin of its write. Encode it before anything is awaited.
#[must_use]
#[derive(Debug)]
pub struct StateImage<'a, T> {
    durable: &'a Durable<T>,
    version: Version,
    number: u64,
    state: T,
    written: bool,
}

impl Version {
    /// The version after the next change.
    pub fn next(self) -> Version {
        Version(self.0 + 1)
    }
}

impl<T: Clone> Durable<T> {
    /// A state without a holder yet. Images are numbered from `number + 1` on.
    pub fn new(state: T, number: u64) -> Durable<T> {
        Durable {
            now: RefCell::new(state),
            version: Cell::default(),
            taken: Cell::new(None),
            number: Cell::new(number),
            writing: Cell::new(false),
            complete: Cell::new(false),
            held: RefCell::default(),
        }
    }

    /// A state that was read back from all holders: if any had another, change this one.
    pub fn found(state: T, number: u64) -> Durable<T> {
        let durable = Durable::new(state, number);
        let _proof = durable.begin().written();
        durable.number.set(number);
        durable
    }

    /// The state in memory: changes without proof may be gone after a crash.
    pub fn now(&self) -> Ref<'_, T> {
        self.now.borrow()
    }

    /// The number of the last image that was begun.
    pub fn number(&self) -> u64 {
        self.number.get()
    }

    /// The version after the last change.
    pub fn version(&self) -> Version {
        self.version.get()
    }

    /// Changes the state in memory.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        self.version.set(Version(self.version.get().0 + 1));
        change(&mut self.now.borrow_mut())
    }

    /// True if a change exists that neither all holders have, nor an image in flight.
    pub fn is_due(&self) -> bool {
        self.taken.get() != Some(self.version.get())
    }

    /// The present state, to be written to all. From here on any of the holders may have it.
    ///
    /// # Panics
    ///
    /// If another image is being written.
    pub fn begin(&self) -> StateImage<'_, T> {
        assert!(!self.writing.replace(true), "one image at a time");
        self.number.set(self.number.get() + 1);
        let (version, state) = (self.version.get(), self.now().clone());
        self.taken.set(Some(version));
        self.held.borrow_mut().push(HeldImages {
            version,
            state: state.clone(),
        });
        StateImage {
            durable: self,
            version,
            number: self.number.get(),
            state,
            written: false,
        }
    }

    /// Notes that there is no holder any more.
    pub fn no_holders(&self) {
        assert!(!self.writing.get(), "an image is being written");
        self.held.borrow_mut().clear();
        self.complete.set(true);
    }

    /// Proof that every holder has a state of which `fact` is true, and will after a crash.
    pub fn proof(&self, fact: impl Fn(&T) -> bool) -> Option<Proof> {
        let certain = self.complete.get() && self.held.borrow().iter().all(|h| fact(&h.state));
        certain.then_some(Proof(()))
    }

    /// Proof that every holder has the changes up to `version`.
    pub fn proof_of(&self, version: Version) -> Option<Proof> {
        let oldest = self.held.borrow().first().map(|held| held.version);
        let certain = self.complete.get() && oldest.is_none_or(|oldest| oldest >= version);
        certain.then_some(Proof(()))
    }
}

impl<T> StateImage<'_, T> {
    /// The number of earlier images, those of earlier lives included.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// True if nothing has changed since.
    pub fn is_newest(&self) -> bool {
        self.durable.version.get() == self.version
    }

    /// Notes that every holder has the image durably, and no earlier one.
    pub fn written(mut self) -> Proof {
        let mut held = self.durable.held.borrow_mut();
        let before = held.len() - 1;
        held.drain(..before);
        drop(held);
        self.durable.complete.set(true);
        self.written = true;
        Proof(())
    }
}

impl<T> Deref for StateImage<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T> Drop for StateImage<'_, T> {
    fn drop(&mut self) {
        self.durable.writing.set(false);
        if !self.written {
            // The image's changes are due again.
            self.durable.taken.set(None);
        }
    }
}
