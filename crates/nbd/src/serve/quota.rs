//! Places for connections and handshakes, shared out over listeners.
//!
//! Invariants:
//!     places taken <= `places_max`, handshakes under way <= `handshakes_max`
//!     half of the places are set aside, an equal part for each listener: the clients
//!     of one listener keep no client of another out
//!     a place is taken once a handshake has ended, so that a stranger never has one
//!
//! One handshake too many ends the oldest handshake at the listener that has most of them.
//! A sound handshake takes milliseconds, so that a flood of others does not keep it out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// The listeners of a server; each connection is an `L`.
pub(super) struct StreamSources<L> {
    places_max: u32,
    handshakes_max: usize,
    all: RefCell<Vec<Weak<StreamSource<L>>>>,
}

/// A listener, or another source of streams.
pub(super) struct StreamSource<L> {
    sources: Weak<StreamSources<L>>,
    taken: Cell<u32>,
    handshakes: RefCell<VecDeque<Rc<L>>>,
}

/// A place, given back when dropped.
pub(super) struct ConnectionPlace<L>(Rc<StreamSource<L>>);

/// A handshake under way, until dropped.
pub(super) struct Handshake<L> {
    source: Rc<StreamSource<L>>,
    link: Rc<L>,
}

impl<L> StreamSources<L> {
    pub(super) fn new(places_max: u32, handshakes_max: u32) -> Rc<StreamSources<L>> {
        Rc::new(StreamSources {
            places_max,
            handshakes_max: handshakes_max as usize,
            all: RefCell::default(),
        })
    }

    /// Adds a listener, until dropped.
    pub(super) fn open(self: &Rc<Self>) -> Rc<StreamSource<L>> {
        let source = Rc::new(StreamSource {
            sources: Rc::downgrade(self),
            taken: Cell::new(0),
            handshakes: RefCell::default(),
        });
        let mut all = self.all.borrow_mut();
        all.retain(|source| source.strong_count() > 0);
        all.push(Rc::downgrade(&source));
        source
    }

    /// Places that are taken.
    pub(super) fn taken(&self) -> u32 {
        self.live().iter().map(|source| source.taken.get()).sum()
    }

    /// Handshakes under way.
    pub(super) fn handshakes(&self) -> usize {
        let sources = self.live();
        sources.iter().map(|d| d.handshakes.borrow().len()).sum()
    }

    fn live(&self) -> Vec<Rc<StreamSource<L>>> {
        self.all.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// True if `source` may have one more place.
    fn has_room(&self, source: &StreamSource<L>) -> bool {
        let sources = self.live();
        let own = self.places_max / 2 / sources.len().max(1) as u32;
        if source.taken.get() < own {
            return true;
        }
        let common = self.places_max - own * sources.len() as u32;
        let beyond = sources.iter().map(|d| d.taken.get().saturating_sub(own));
        beyond.sum::<u32>() < common
    }

    /// The oldest handshake at the source that has most of them, if one more is too many.
    fn surplus(&self) -> Option<Rc<L>> {
        if self.handshakes() < self.handshakes_max {
            return None;
        }
        let sources = self.live();
        let most = sources.iter().max_by_key(|d| d.handshakes.borrow().len())?;
        most.handshakes.borrow_mut().pop_front()
    }
}

impl<L> StreamSource<L> {
    /// Begins a handshake; returns the handshake that has to end for it, if one has.
    pub(super) fn begin(self: &Rc<Self>, link: &Rc<L>) -> (Handshake<L>, Option<Rc<L>>) {
        let surplus = self.sources.upgrade().and_then(|sources| sources.surplus());
        self.handshakes.borrow_mut().push_back(link.clone());
        let handshake = Handshake {
            source: self.clone(),
            link: link.clone(),
        };
        (handshake, surplus)
    }

    /// A place, if there is one.
    pub(super) fn place(self: &Rc<Self>) -> Option<ConnectionPlace<L>> {
        self.sources
            .upgrade()
            .filter(|sources| sources.has_room(self))?;
        self.taken.set(self.taken.get() + 1);
        Some(ConnectionPlace(self.clone()))
    }
}

impl<L> Drop for ConnectionPlace<L> {
    fn drop(&mut self) {
        self.0.taken.set(self.0.taken.get() - 1);
    }
}

impl<L> Drop for Handshake<L> {
    fn drop(&mut self) {
        let mut all = self.source.handshakes.borrow_mut();
        all.retain(|link| !Rc::ptr_eq(link, &self.link));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::ServerLimits;
    use crate::serve::credit::Credits;
    use crate::serve::link::{Place, ServerLink};

    fn link() -> Rc<ServerLink> {
        let limits = ServerLimits::default();
        Rc::new(ServerLink::new(&limits, &Credits::new(&limits)))
    }

    #[test]
    fn a_crowd_at_one_listener_leaves_the_others_their_places() {
        let sources = StreamSources::new(12, 4);
        let (a, b, c) = (sources.open(), sources.open(), sources.open());
        let mut crowd: Vec<Place> = std::iter::from_fn(|| a.place()).collect();
        assert_eq!(crowd.len(), 2 + 6, "its own and the common ones");
        let others = [&b, &c].map(|d| std::iter::from_fn(|| d.place()).collect::<Vec<_>>());
        assert_eq!(others.each_ref().map(Vec::len), [2, 2]);
        assert_eq!(sources.taken(), 12);
        crowd.pop();
        assert!(b.place().is_some(), "what is common is anybody's");
        drop((others, crowd));
        assert_eq!(sources.taken(), 0);
        // The places set aside for a removed listener are free for the others.
        drop((b, c));
        assert_eq!(
            std::iter::from_fn(|| a.place()).collect::<Vec<_>>().len(),
            12
        );
    }

    #[test]
    fn few_places_are_all_given_out() {
        for most in 1..8 {
            let sources = StreamSources::<ServerLink>::new(most, 4);
            let all: Vec<_> = (0..3).map(|_| sources.open()).collect();
            let places: Vec<_> = all
                .iter()
                .cycle()
                .take(100)
                .filter_map(|source| source.place())
                .collect();
            assert_eq!(places.len() as u32, most);
        }
    }

    #[test]
    fn a_handshake_too_many_ends_the_oldest_of_the_busiest_listener() {
        let sources = StreamSources::new(100, 4);
        let (a, b) = (sources.open(), sources.open());
        let links: Vec<_> = (0..4).map(|_| link()).collect();
        let mut under_way = Vec::new();
        for link in &links {
            let (handshake, surplus) = a.begin(link);
            assert!(surplus.is_none());
            under_way.push(handshake);
        }
        for oldest in &links[..2] {
            let (handshake, surplus) = b.begin(&link());
            assert!(surplus.is_some_and(|s| Rc::ptr_eq(&s, oldest)));
            under_way.push(handshake);
            assert_eq!(sources.handshakes(), 4);
        }
        // Its own oldest, once it has as many as the other.
        let (_handshake, surplus) = b.begin(&link());
        assert!(surplus.is_some());
        drop(under_way);
        assert_eq!(sources.handshakes(), 1);
    }
}
