//! A number of a device's description: its value, its basis and its source.

use block::{IoError, IoErrorKind, IoResult};
use std::fmt;
use std::ops::RangeInclusive;

/// The basis of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Basis {
    /// Printed by the maker.
    Datasheet,
    /// Judged from similar devices, from reviews or from other figures.
    Estimate,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Basis::Datasheet => "datasheet",
            Basis::Estimate => "estimate",
        })
    }
}

/// A number with its basis and its source. The unit is in the field's name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// The basis of the number.
    pub basis: Basis,
    /// The source of the number.
    pub source: &'static str,
}

impl Figure {
    /// A number the maker prints.
    pub const fn datasheet(value: f64, source: &'static str) -> Figure {
        Figure {
            value,
            basis: Basis::Datasheet,
            source,
        }
    }

    /// An estimated number.
    pub const fn estimate(value: f64, source: &'static str) -> Figure {
        Figure {
            value,
            basis: Basis::Estimate,
            source,
        }
    }

    /// The value as the capacity of `device` in sectors.
    pub(super) fn capacity(self, device: &'static str) -> IoResult<u64> {
        let remedy = "give the capacity in 512-byte sectors";
        let sectors = self.within(device, "sectors", 2048.0..=1e12, remedy)?;
        Ok(sectors as u64)
    }

    /// The value, or an error with the name, the value, the allowed range and the remedy, if the
    /// value lies outside `allowed` or is no number.
    pub(super) fn within(
        self,
        device: &'static str,
        name: &str,
        allowed: RangeInclusive<f64>,
        remedy: &str,
    ) -> IoResult<f64> {
        if allowed.contains(&self.value) {
            return Ok(self.value);
        }
        let (value, least, most) = (self.value, allowed.start(), allowed.end());
        Err(IoError::new(
            IoErrorKind::Invalid,
            format!("parameter {name} = {value} is outside {least}..={most}; {remedy}"),
        )
        .on(device))
    }
}
