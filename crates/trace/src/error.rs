//! Failures of reading or writing a trace.

use block::plain;
use std::fmt;
use std::path::{Path, PathBuf};

/// A failure, with the file and, where there is one, the line or record.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    /// Counted from one; lines of a text format, records of a binary one.
    line: Option<u64>,
    what: String,
}

impl Error {
    /// A failure; `what` is a clause.
    pub fn new(path: &Path, line: Option<u64>, what: impl Into<String>) -> Error {
        Error {
            path: path.to_path_buf(),
            line,
            what: plain(what.into()),
        }
    }

    /// The line (or binary record) at fault, counted from one.
    pub fn line(&self) -> Option<u64> {
        self.line
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for Error {}
