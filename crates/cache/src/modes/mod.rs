//! What each mode does with reads and writes, one file a mode.
//!
//! Whatever the mode, a write drops the blocks it overlaps from the pool before
//! it goes to the origin, and keeps their promotion away until it has ended.
//! That alone makes it safe to switch modes while I/O runs.

mod pass_through;
mod rules;
mod write_around;
mod write_through;

pub(crate) use rules::Rules;

/// How a volume uses the pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// Reads are cached; writes go to the origin and to the pool.
    #[default]
    WriteThrough,
    /// Reads are cached; writes go to the origin only.
    WriteAround,
    /// Everything goes to the origin only.
    PassThrough,
}

/// Which rules a mode has.
const TABLE: [(Mode, &Rules); 3] = [
    (Mode::WriteThrough, &write_through::RULES),
    (Mode::WriteAround, &write_around::RULES),
    (Mode::PassThrough, &pass_through::RULES),
];

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 3] = [TABLE[0].0, TABLE[1].0, TABLE[2].0];

    #[inline]
    pub(crate) fn rules(self) -> &'static Rules {
        TABLE[self as usize].1
    }

    /// Its name in configuration and reports.
    pub fn name(self) -> &'static str {
        self.rules().name
    }

    /// What it does, in one line.
    pub fn help(self) -> &'static str {
        self.rules().help
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (i, (mode, rules)) in TABLE.iter().enumerate() {
            assert_eq!(*mode as usize, i);
            assert_eq!(Mode::from_name(rules.name), Some(*mode));
            assert!(!mode.help().is_empty());
        }
        assert_eq!(Mode::from_name("write-sideways"), None);
    }
}
