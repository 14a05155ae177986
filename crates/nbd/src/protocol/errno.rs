//! The error values a reply may carry ("Error values"), and their kinds.

use block::IoErrorKind;

/// An error value of the protocol; success is 0 and has no variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: a write to a read-only export.
    Perm = 1,
    /// The device failed.
    Io = 5,
    /// The server is short of memory.
    NoMem = 12,
    /// The request makes no sense.
    Inval = 22,
    /// No space, or a write past the end.
    NoSpc = 28,
    /// Too large to answer in one piece.
    Overflow = 75,
    /// Not offered.
    NotSup = 95,
    /// The server is ending.
    Shutdown = 108,
}

impl Errno {
    /// The value on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The error for a non-zero value on the wire.
    ///
    /// A value the protocol does not define reads as [`Errno::Inval`], as
    /// clients commonly treat it.
    pub const fn from_code(code: u32) -> Errno {
        match code {
            1 => Errno::Perm,
            5 => Errno::Io,
            12 => Errno::NoMem,
            28 => Errno::NoSpc,
            75 => Errno::Overflow,
            95 => Errno::NotSup,
            108 => Errno::Shutdown,
            _ => Errno::Inval,
        }
    }

    /// The error value that this server sends for a kind.
    pub const fn from_kind(kind: IoErrorKind) -> Errno {
        match kind {
            IoErrorKind::Invalid => Errno::Inval,
            IoErrorKind::NoSpace => Errno::NoSpc,
            IoErrorKind::ReadOnly | IoErrorKind::Denied => Errno::Perm,
            IoErrorKind::Unsupported => Errno::NotSup,
            _ => Errno::Io,
        }
    }

    /// The kind that a caller of the client gets.
    pub const fn kind(self) -> IoErrorKind {
        match self {
            Errno::Perm => IoErrorKind::ReadOnly,
            Errno::Io => IoErrorKind::Media,
            Errno::NoMem => IoErrorKind::Other,
            Errno::Inval | Errno::Overflow => IoErrorKind::Invalid,
            Errno::NoSpc => IoErrorKind::NoSpace,
            Errno::NotSup => IoErrorKind::Unsupported,
            Errno::Shutdown => IoErrorKind::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Error values" lists exactly these.
    #[test]
    fn codes_are_those_of_the_specification() {
        for code in [1, 5, 12, 22, 28, 75, 95, 108] {
            assert_eq!(Errno::from_code(code).code(), code);
        }
        assert_eq!(Errno::from_code(7), Errno::Inval);
    }

    #[test]
    fn a_refusal_by_kind_survives_the_wire() {
        for kind in [
            IoErrorKind::Invalid,
            IoErrorKind::NoSpace,
            IoErrorKind::ReadOnly,
            IoErrorKind::Unsupported,
            IoErrorKind::Media,
        ] {
            let code = Errno::from_kind(kind).code();
            assert_eq!(Errno::from_code(code).kind(), kind);
        }
    }
}
