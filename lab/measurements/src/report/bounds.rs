//! Printed values, with the side of a bound.

use super::short::short;
use experiment::figures::Bound;
use experiment::verdict::FigureRow;

/// The side of a printed bound.
pub(super) fn bound(row: &FigureRow) -> Option<Bound> {
    match row.accepted.map(|accepted| (accepted.least, accepted.most)) {
        Some((Some(_), None)) => Some(Bound::AtLeast),
        Some((None, Some(_))) => Some(Bound::AtMost),
        _ => None,
    }
}

/// The printed value, of a bound with its side.
pub(super) fn printed(row: &FigureRow) -> String {
    let value = short(row.published);
    match bound(row) {
        Some(Bound::AtLeast) => format!("at least {value}"),
        Some(Bound::AtMost) => format!("at most {value}"),
        None => value,
    }
}
