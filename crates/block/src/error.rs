//! The one error type: a kind to match on, a context to print, a source.
//!
//! Boxed, so that `IoResult` is one pointer on the path where nothing fails.

use crate::plain;
use crate::units::Extent;
use std::borrow::Cow;
use std::fmt;

/// The kind of an error, for code to match on.
///
/// Each kind says whether the bytes of a failed *write* may have changed; a
/// failed read never changes anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// The caller's fault: misaligned, out of range, too large. Nothing changed.
    Invalid,
    /// The medium cannot read or write these sectors. Bytes may have changed.
    Media,
    /// Stored bytes do not match their checksum. Nothing changed.
    Corrupt,
    /// The device is lost: unplugged, ejected, its link is down. May have changed.
    Gone,
    /// No answer within the time allowed; the operation may still land.
    Timeout,
    /// No space left behind a thin or sparse device. Bytes may have changed.
    NoSpace,
    /// Writes are refused. Nothing changed.
    ReadOnly,
    /// The operating system refuses access. Nothing changed.
    Denied,
    /// In use by another user. Nothing changed.
    Busy,
    /// Another host has reserved the device against this one. Bytes may have changed.
    Reserved,
    /// Not offered by this device. Nothing changed.
    Unsupported,
    /// The peer closed or broke the stream, or spoke nonsense. May have changed.
    Stream,
    /// Any other failure. Bytes may have changed.
    Other,
}

impl IoErrorKind {
    /// True if a write that failed so may have changed bytes of its extent.
    pub const fn data_may_have_changed(self) -> bool {
        match self {
            IoErrorKind::Invalid
            | IoErrorKind::Corrupt
            | IoErrorKind::ReadOnly
            | IoErrorKind::Denied
            | IoErrorKind::Busy
            | IoErrorKind::Unsupported => false,
            IoErrorKind::Media
            | IoErrorKind::Gone
            | IoErrorKind::Timeout
            | IoErrorKind::NoSpace
            | IoErrorKind::Reserved
            | IoErrorKind::Stream
            | IoErrorKind::Other => true,
        }
    }

    /// True if a device of a log that cannot be opened or read for this counts as absent. A device
    /// in use is waited for: the other copy may be older.
    pub const fn is_absence(self) -> bool {
        !matches!(self, IoErrorKind::Busy)
    }
}

/// The kind of a failure, its place and its source.
#[derive(Debug)]
pub struct IoError(Box<ErrorParts>);

#[derive(Debug)]
struct ErrorParts {
    kind: IoErrorKind,
    what: Cow<'static, str>,
    device: Option<Cow<'static, str>>,
    extent: Option<Extent>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of an operation that returns nothing but its success.
pub type IoResult<T = ()> = Result<T, IoError>;

impl IoError {
    /// An error of `kind`, described by a clause such as "read past the end".
    pub fn new(kind: IoErrorKind, what: impl Into<Cow<'static, str>>) -> IoError {
        IoError(Box::new(ErrorParts {
            kind,
            what: what.into(),
            device: None,
            extent: None,
            source: None,
        }))
    }

    /// Names the device of the error; the innermost name is kept.
    pub fn on(mut self, device: impl Into<Cow<'static, str>>) -> IoError {
        self.0.device.get_or_insert_with(|| device.into());
        self
    }

    /// Names the sectors concerned; the innermost are kept.
    pub fn at(mut self, extent: Extent) -> IoError {
        self.0.extent.get_or_insert(extent);
        self
    }

    /// Attaches the source.
    pub fn because(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> IoError {
        self.0.source = Some(source.into());
        self
    }

    /// The kind to match on.
    pub fn kind(&self) -> IoErrorKind {
        self.0.kind
    }

    /// The sectors concerned, where known.
    pub fn extent(&self) -> Option<Extent> {
        self.0.extent
    }

    /// The device concerned, where known.
    pub fn device(&self) -> Option<&str> {
        self.0.device.as_deref()
    }

    /// A copy with the same kind and text, for a second waiter on one operation.
    pub fn duplicate(&self) -> IoError {
        IoError(Box::new(ErrorParts {
            kind: self.0.kind,
            what: self.0.what.clone(),
            device: self.0.device.clone(),
            extent: self.0.extent,
            source: self.0.source.as_ref().map(|s| s.to_string().into()),
        }))
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(device) = &self.0.device {
            write!(f, "{device}: ")?;
        }
        write!(f, "{}", self.0.what)?;
        if let Some(extent) = self.0.extent {
            write!(f, " ({extent:?})")?;
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {}", plain(source))?;
        }
        Ok(())
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Lba, Sectors};

    #[test]
    fn prints_device_place_and_cause() {
        let e = IoError::new(IoErrorKind::Media, "unreadable")
            .at(Extent::new(Lba(8), Sectors(1)))
            .on("disk-a")
            .on("pool")
            .because("errno 5");
        assert_eq!(e.to_string(), "disk-a: unreadable (sectors 8+1): errno 5");
        assert_eq!(e.duplicate().to_string(), e.to_string());
        assert!(e.kind().data_may_have_changed());
    }

    #[test]
    fn a_result_is_one_pointer() {
        assert_eq!(size_of::<IoResult>(), size_of::<usize>());
    }
}
