//! The table of levels: a new one is a file beside this one and a line here.

use super::{Layout, Redundancy};
use super::{linear, raid0, raid1, raid5, raid10};

/// Makes [`Level`] from the name, layout and meaning of each.
macro_rules! levels {
    ($($(#[cfg($when:meta)])? $variant:ident, $layout:expr, $help:literal;)*) => {
        /// How an array spreads its data over its members.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Level {
            $($(#[cfg($when)])? #[doc = $help] $variant,)*
        }

        const COUNT: usize = [$($(#[cfg($when)])? Level::$variant,)*].len();

        impl Level {
            /// Every level.
            pub const ALL: [Level; COUNT] = [$($(#[cfg($when)])? Level::$variant,)*];

            pub(crate) fn layout(self) -> &'static dyn Layout {
                match self { $($(#[cfg($when)])? Level::$variant => &$layout,)* }
            }
        }
    };
}

levels! {
    Linear, linear::Linear, "One member after the other.";
    Raid0, raid0::Raid0, "Chunks in turn, no redundancy.";
    Raid1, raid1::Raid1, "The same on each of 2 to 4 members.";
    Raid10, raid10::Raid10, "Chunks in turn, each on two neighbouring members.";
    Raid5, raid5::Raid5, "Chunks in turn, with a chunk of parity in each stripe.";
    #[cfg(test)] Triple, super::triple::Triple, "Chunks in turn, each on three members.";
}

impl Level {
    /// Its name, as configurations and reports have it.
    pub fn name(self) -> &'static str {
        self.layout().name()
    }

    /// The level of that name.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// What it is redundant by.
    pub fn redundancy(self) -> Redundancy {
        self.layout().redundancy()
    }

    /// Whether a member can be lost.
    pub fn is_redundant(self) -> bool {
        self.redundancy() != Redundancy::None
    }

    /// Whether stripes have parity, and changes of them go to a journal first.
    pub(crate) fn has_parity(self) -> bool {
        self.redundancy() == Redundancy::Parity
    }

    /// Whether data is spread in chunks.
    pub fn is_striped(self) -> bool {
        self.layout().is_striped()
    }

    /// The fewest and the most members.
    pub fn members(self) -> (usize, usize) {
        self.layout().members()
    }
}
