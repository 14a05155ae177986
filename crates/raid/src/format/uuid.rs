//! What names arrays, members, starts and events for ever.

use std::fmt;

/// Names an array, or a member, for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = matches!(i, 4 | 6 | 8 | 10);
            write!(f, "{}{byte:02x}", if dash { "-" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
