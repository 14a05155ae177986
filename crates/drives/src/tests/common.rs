//! Comparisons of a model's results with figures of a known basis.

use crate::Figure;

/// `Err` with the difference and the figure's source if `got` is further from
/// `expected` than the share `tolerance`.
pub fn near(what: &str, got: f64, expected: Figure, tolerance: f64) -> Result<(), String> {
    let error = got / expected.value - 1.0;
    if error.abs() <= tolerance {
        return Ok(());
    }
    Err(format!(
        "{what}: {got} is {:+.2} % off {} ({}: {})",
        error * 100.0,
        expected.value,
        expected.basis,
        expected.source
    ))
}

/// A figure the test computes from the device's own, some of them estimates.
pub fn derived(value: f64) -> Figure {
    Figure::estimate(value, "computed by the test from the device's figures")
}

/// A figure that the test sets to see its effect.
pub fn varied(value: f64) -> Figure {
    Figure::estimate(value, "varied by the test")
}
