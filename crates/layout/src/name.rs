//! Names in superblocks, and the reasons for the absence of a superblock.

use crate::VERSION;
use crate::signature::Foreign;
use std::fmt;

/// The longest name of a pool, device, host or volume.
pub const NAME_BYTES_MAX: usize = 63;

pub(crate) type NameField = [u8; NAME_BYTES_MAX + 1];

/// Reason for the absence of a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SuperblockError {
    /// Zeroes only.
    Blank,
    /// The superblock of another version.
    Version(u32),
    /// A superblock, but damaged: how.
    Damaged(&'static str),
    /// Foreign content.
    Foreign(Foreign),
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SuperblockError::Blank => write!(f, "it is blank"),
            SuperblockError::Version(version) => {
                write!(
                    f,
                    "its format has version {version}, this is version {VERSION}"
                )
            }
            SuperblockError::Damaged(how) => write!(f, "its superblock is damaged: {how}"),
            SuperblockError::Foreign(what) => write!(f, "it holds {what}"),
        }
    }
}

/// The longest beginning of a name that a superblock holds.
pub fn fitting(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

pub(crate) fn name_field(name: &str) -> NameField {
    let name = fitting(name);
    let end = name.len();
    let mut field = [0; NAME_BYTES_MAX + 1];
    field[0] = end as u8;
    field[1..=end].copy_from_slice(name.as_bytes());
    field
}

pub(crate) fn name_of(field: &NameField) -> Result<String, SuperblockError> {
    let bytes = field.get(1..=usize::from(field[0]));
    let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.map(str::to_owned)
        .ok_or(SuperblockError::Damaged("a name is no text"))
}
