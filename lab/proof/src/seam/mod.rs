//! The proof of the seam: one program, run on every driver from one source.
//!
//! A minimal block server on a stream, in front of a two-leg mirror, in front of two disks, over
//! two shards; clients that overlap, force, flush and abandon; a device lost midway; power cuts.
//! [`oracle`] judges every byte read and shares no code with the layers under test. [`Sabotage`]
//! takes out one flush, one lock or one error check, which the campaign must notice.

pub mod campaign;
mod client;
mod mirror;
pub mod oracle;
pub mod program;
mod server;
mod wire;

/// One thing done wrong on purpose, to show that the oracle notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sabotage {
    /// Nothing is wrong.
    #[default]
    None,
    /// The mirror's flush leaves its second leg out.
    SkipFlush,
    /// Requests go past the range lock.
    SkipLock,
    /// The mirror takes a leg's failed write for a success.
    IgnoreError,
}
