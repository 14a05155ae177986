//! What order the origin gets writes in, and what is left of them without the log.

/// What order the origin gets writes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cleaning {
    /// Interval by interval: the origin alone is an earlier state.
    Ordered,
    /// Windows of several intervals, each by a journal: the origin alone is an earlier state
    /// once that is replayed.
    Journaled,
    /// Windows of several intervals, the newest version of each block alone: the origin alone
    /// is no state that the volume ever had.
    Coalesced,
}

impl Cleaning {
    /// Every order.
    pub const ALL: [Cleaning; 3] = [Cleaning::Ordered, Cleaning::Journaled, Cleaning::Coalesced];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Cleaning::Ordered => "ordered",
            Cleaning::Journaled => "journaled",
            Cleaning::Coalesced => "coalesced",
        }
    }

    /// The order of that name.
    pub fn from_name(name: &str) -> Option<Cleaning> {
        Cleaning::ALL.into_iter().find(|order| order.name() == name)
    }
}
