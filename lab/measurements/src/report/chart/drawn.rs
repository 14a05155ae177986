//! Common parts of every drawing.

use std::error::Error;

/// A drawing, as markup.
pub(super) type Drawn = Result<String, Box<dyn Error>>;

/// Small, so that its text can still be read on a narrow screen.
pub(super) const SIZE: (u32, u32) = (480, 300);

pub(super) const TEXT: (&str, i32) = ("sans-serif", 14);
