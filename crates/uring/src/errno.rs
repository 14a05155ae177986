//! The meaning of failed system calls' numbers: one table.

use block::{IoError, IoErrorKind};
use std::borrow::Cow;
use std::io;

/// The kind of `errno`. Block layer statuses are those of `blk_errors` in
/// Linux `block/blk-core.c`.
pub(crate) fn kind(errno: i32) -> IoErrorKind {
    match errno {
        libc::EIO | libc::ENODATA | libc::EILSEQ | libc::EREMOTEIO | libc::EUCLEAN => {
            IoErrorKind::Media
        }
        libc::ENXIO | libc::ENODEV | libc::ENOLINK | libc::ESHUTDOWN | libc::ESTALE => {
            IoErrorKind::Gone
        }
        libc::ENOENT | libc::ENOTDIR => IoErrorKind::Gone,
        libc::ETIMEDOUT | libc::ETIME => IoErrorKind::Timeout,
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => IoErrorKind::NoSpace,
        libc::EROFS => IoErrorKind::ReadOnly,
        libc::EBADE => IoErrorKind::Reserved,
        libc::EACCES | libc::EPERM => IoErrorKind::Denied,
        libc::EBUSY | libc::ETXTBSY | libc::EADDRINUSE | libc::EAGAIN => IoErrorKind::Busy,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EAFNOSUPPORT => {
            IoErrorKind::Unsupported
        }
        libc::EINVAL | libc::EISDIR | libc::ENAMETOOLONG | libc::EADDRNOTAVAIL => {
            IoErrorKind::Invalid
        }
        libc::ECONNRESET | libc::EPIPE | libc::ECONNREFUSED | libc::ECONNABORTED => {
            IoErrorKind::Stream
        }
        libc::ENOTCONN | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN => {
            IoErrorKind::Stream
        }
        _ => IoErrorKind::Other,
    }
}

/// The number by which a client of the kernel gets an error of `kind`.
pub(crate) fn of_kind(kind: IoErrorKind) -> i32 {
    match kind {
        IoErrorKind::NoSpace => libc::ENOSPC,
        IoErrorKind::Timeout => libc::ETIMEDOUT,
        IoErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}

/// The kind of `errno` on a connected stream: an error that ends the stream is `Stream`.
pub(crate) fn stream_kind(errno: i32) -> IoErrorKind {
    match kind(errno) {
        kind @ (IoErrorKind::Denied | IoErrorKind::Unsupported | IoErrorKind::Other) => kind,
        _ => IoErrorKind::Stream,
    }
}

/// True if the same call is to be repeated.
pub(crate) fn is_transient(errno: i32) -> bool {
    matches!(errno, libc::EINTR | libc::EAGAIN)
}

/// The operating system's text for `errno`, as the source of an error.
pub(crate) fn source(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// The refusal of a call that no descriptor was left for, which passes; `None` if `cause` is
/// another.
pub fn without_descriptor(cause: &io::Error) -> Option<IoError> {
    let errno = cause.raw_os_error()?;
    let what = "no descriptor is left for it; raise the limit of open files (ulimit -n)";
    let none = matches!(errno, libc::EMFILE | libc::ENFILE);
    none.then(|| IoError::new(IoErrorKind::Busy, what).because(source(errno)))
}

/// An error from a failed system call, of the kind its number means.
pub(crate) fn error(cause: io::Error, what: impl Into<Cow<'static, str>>) -> IoError {
    if let Some(refused) = without_descriptor(&cause) {
        return refused;
    }
    let kind = cause.raw_os_error().map_or(IoErrorKind::Other, kind);
    IoError::new(kind, what).because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_change_nothing_and_losses_may() {
        for refused in [
            libc::EACCES,
            libc::EROFS,
            libc::EINVAL,
            libc::EOPNOTSUPP,
            libc::EBUSY,
        ] {
            assert!(!kind(refused).data_may_have_changed(), "{refused}");
        }
        for lost in [
            libc::EIO,
            libc::ENODEV,
            libc::ENOSPC,
            libc::EPIPE,
            libc::ENOMEM,
            libc::EBADE,
        ] {
            assert!(kind(lost).data_may_have_changed(), "{lost}");
        }
    }

    #[test]
    fn a_call_without_a_descriptor_names_the_limit() {
        for errno in [libc::EMFILE, libc::ENFILE] {
            let refused = without_descriptor(&source(errno)).unwrap();
            assert!(refused.to_string().contains("ulimit -n"), "{refused}");
            assert!(!refused.kind().data_may_have_changed());
        }
        assert!(without_descriptor(&source(libc::EIO)).is_none());
    }

    #[test]
    fn a_reservation_of_another_host_has_a_kind_of_its_own() {
        assert_eq!(kind(libc::EBADE), IoErrorKind::Reserved);
        assert_eq!(of_kind(IoErrorKind::Reserved), libc::EIO);
    }

    #[test]
    fn a_broken_stream_is_not_a_broken_disk() {
        assert_eq!(kind(libc::ETIMEDOUT), IoErrorKind::Timeout);
        assert_eq!(stream_kind(libc::ETIMEDOUT), IoErrorKind::Stream);
        assert_eq!(stream_kind(libc::EIO), IoErrorKind::Stream);
        assert_eq!(stream_kind(libc::ENOMEM), IoErrorKind::Other);
    }
}
