//! The reason of a refused change.

/// One line with the remedy.
pub(crate) type Refusal = String;

pub(super) fn refusal(error: impl ToString) -> Refusal {
    error.to_string()
}
