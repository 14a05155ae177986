//! Problems of a configuration: place, cause and remedy.

use crate::near::meant;
use crate::plain;
use std::fmt;

/// One problem of a configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConfigurationProblem {
    /// Line of the text, from 1.
    pub line: u32,
    /// Description of the problem.
    pub what: String,
    /// A question for the name that was meant, or empty. The question depends on other names.
    question: String,
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
            question: String::new(),
            remedy: remedy.into(),
        }
    }

    /// The problem that `by` names a section of `kind` that is not among `names`.
    pub(crate) fn absent<'a>(
        line: u32,
        by: &str,
        (kind, name): (&str, &str),
        names: impl IntoIterator<Item = &'a str>,
    ) -> ConfigurationProblem {
        let what = format!("{by} names a {kind} {name} that does not exist");
        let remedy = format!("add a [[{kind}]] of that name, or correct the name");
        ConfigurationProblem {
            question: meant(name, names),
            ..ConfigurationProblem::new(line, what, remedy)
        }
    }

    /// The problem and its remedy, without the line.
    pub fn text(&self) -> String {
        format!("{}{}; {}", self.what, self.question, self.remedy)
    }
}

impl fmt::Display for ConfigurationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.text())
    }
}
