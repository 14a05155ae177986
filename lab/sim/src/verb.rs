//! The operations, as faults choose among them and events name them.

use block::DriverOp;

/// The kind of an operation, without its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum SimVerb {
    /// `DriverOp::Read`.
    Read,
    /// `DriverOp::Write`.
    Write,
    /// `DriverOp::Zero`.
    Zero,
    /// `DriverOp::Flush`.
    Flush,
    /// `DriverOp::Discard`.
    Discard,
    /// `DriverOp::Accept`.
    Accept,
    /// `DriverOp::Connect`.
    Connect,
    /// `DriverOp::Recv`.
    Recv,
    /// `DriverOp::Send`.
    Send,
    /// `DriverOp::Next`.
    Next,
    /// `DriverOp::Take`.
    Take,
}

impl SimVerb {
    /// The verb of `op`.
    #[inline]
    pub fn of(op: &DriverOp) -> SimVerb {
        match op {
            DriverOp::Read(..) => SimVerb::Read,
            DriverOp::Write(..) => SimVerb::Write,
            DriverOp::Zero(_) => SimVerb::Zero,
            DriverOp::Flush => SimVerb::Flush,
            DriverOp::Discard(_) => SimVerb::Discard,
            DriverOp::Accept => SimVerb::Accept,
            DriverOp::Connect(_) => SimVerb::Connect,
            DriverOp::Recv(_) => SimVerb::Recv,
            DriverOp::Send(_) => SimVerb::Send,
            DriverOp::Next(..) => SimVerb::Next,
            DriverOp::Take(..) => SimVerb::Take,
        }
    }
}
