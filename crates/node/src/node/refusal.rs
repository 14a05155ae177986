//! The reason of a refused change.

use super::Node;
use crate::platform::Platform;
use control::config::Name;
use control::meant;

/// One line with the remedy.
pub(crate) type Refusal = String;

pub(super) fn refusal(error: impl ToString) -> Refusal {
    error.to_string()
}

impl<P: Platform> Node<P> {
    /// The refusal of a change or question about a volume that there is not.
    pub(crate) fn no_volume(&self, name: &str) -> Refusal {
        let (volumes, waiting) = (self.volumes.borrow(), self.waiting.borrow());
        let meant = meant(name, volumes.keys().chain(waiting.keys()).map(Name::as_str));
        format!("no volume is named {name}{meant}; see `hotset volume list`")
    }
}
