//! What is wrong with a configuration: where, what, and the remedy.

use std::fmt;

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// The line of the text it is on, from 1.
    pub line: u32,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl Problem {
    /// A problem on `line`.
    pub fn new(line: u32, what: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem {
            line,
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.line, self.what, self.remedy)
    }
}
