//! The operations, as faults choose among them and events name them.

use block::Op;

/// The kind of an operation, without its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Verb {
    /// `Op::Read`.
    Read,
    /// `Op::Write`.
    Write,
    /// `Op::Zero`.
    Zero,
    /// `Op::Flush`.
    Flush,
    /// `Op::Discard`.
    Discard,
    /// `Op::Accept`.
    Accept,
    /// `Op::Connect`.
    Connect,
    /// `Op::Recv`.
    Recv,
    /// `Op::Send`.
    Send,
    /// `Op::Next`.
    Next,
    /// `Op::Take`.
    Take,
}

impl Verb {
    /// The verb of `op`.
    #[inline]
    pub fn of(op: &Op) -> Verb {
        match op {
            Op::Read(..) => Verb::Read,
            Op::Write(..) => Verb::Write,
            Op::Zero(_) => Verb::Zero,
            Op::Flush => Verb::Flush,
            Op::Discard(_) => Verb::Discard,
            Op::Accept => Verb::Accept,
            Op::Connect(_) => Verb::Connect,
            Op::Recv(_) => Verb::Recv,
            Op::Send(_) => Verb::Send,
            Op::Next(..) => Verb::Next,
            Op::Take(..) => Verb::Take,
        }
    }
}
