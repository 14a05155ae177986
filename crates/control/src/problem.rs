//! Problems of a configuration: place, cause and remedy.

use crate::plain;
use std::fmt;

/// One problem of a configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConfigurationProblem {
    /// Line of the text, from 1.
    pub line: u32,
    /// Description of the problem.
    pub what: String,
    /// Remedy of the problem.
    pub remedy: String,
}

impl ConfigurationProblem {
    /// A problem on `line`.
    pub fn new(
        line: u32,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigurationProblem {
        ConfigurationProblem {
            line,
            what: plain(what.into()),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for ConfigurationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.line, self.what, self.remedy)
    }
}
