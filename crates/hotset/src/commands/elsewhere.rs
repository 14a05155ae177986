//! Commands that another program has, and options that have another name.

use crate::CommandFailure;
use clap::Args;

/// Refuses the former name of an option.
pub fn renamed(old: &str, new: &str) -> CommandFailure {
    CommandFailure::Usage(format!("hotset: {old} is {new} now"))
}

/// The arguments of a command that only `hotset-lab` has.
#[derive(Args)]
pub struct Elsewhere {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Elsewhere {
    /// The command is `typed` here and `known` there.
    pub fn refused(&self, typed: &str, known: &str) -> CommandFailure {
        let words = self.words.iter().map(|word| format!(" {word}"));
        let words: String = words.collect();
        CommandFailure::Usage(format!(
            "hotset: `{typed}` is in another program: run `{known}{words}`"
        ))
    }
}
