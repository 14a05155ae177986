//! Published replacement policies, for the trace simulator and for measurements: the
//! rivals of `auto`. They run by the same trait as the engine's own, and over the same
//! lists.
//!
//! Every policy here and in `policy` runs one suite (`tests/conformance.rs`). A new
//! policy is one file that implements [`policy::Policy`] (or, if made of linked lists,
//! [`policy::lines::ListPolicy`]) and one line in [`registry`].

mod arc;
pub mod belady;
mod clock;
mod clock2q_plus;
mod dense;
mod lirs;
pub mod registry;
mod s3fifo;
mod sieve;
mod sketch;
#[cfg(test)]
mod tests;
mod tinylfu;
mod twoq;

pub use dense::DenseIndex;
