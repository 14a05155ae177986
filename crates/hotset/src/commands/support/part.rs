//! A part of the archive, with the reason if it is missing.

use crate::CommandFailure;

/// A part of the archive.
pub struct SupportPart {
    /// Path within the archive.
    pub name: String,
    /// The place or the command that the text is from.
    pub from: String,
    /// The text; `Err` is the reason for its absence.
    pub text: Result<String, String>,
}

/// The reason of a failure.
pub fn reason(failure: CommandFailure) -> String {
    match failure {
        CommandFailure::Usage(why) | CommandFailure::Runtime(why) => why,
        CommandFailure::Answered(status) => format!("the command ended with status {status}"),
    }
}
