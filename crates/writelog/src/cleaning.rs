//! The order in which the origin gets writes, and the state of an origin without the log.

/// Order in which the origin gets writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cleaning {
    /// Interval by interval: the origin alone is an earlier state.
    Ordered,
    /// Windows of several intervals, each through the journal: the origin alone is an earlier state
    /// once the journal is replayed.
    Journaled,
    /// Windows of several intervals, only the newest version of each block: the origin alone is no
    /// state that the volume ever had.
    Coalesced,
}

impl Cleaning {
    /// Every order.
    pub const ALL: [Cleaning; 3] = [Cleaning::Ordered, Cleaning::Journaled, Cleaning::Coalesced];

    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Cleaning::Ordered => "ordered",
            Cleaning::Journaled => "journaled",
            Cleaning::Coalesced => "coalesced",
        }
    }

    /// Parses a name.
    pub fn from_name(name: &str) -> Option<Cleaning> {
        Cleaning::ALL.into_iter().find(|order| order.name() == name)
    }
}
