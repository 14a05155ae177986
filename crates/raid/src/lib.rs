//! Arrays: several devices as one, behind the contract of a device, so that arrays nest.
//!
//! `levels` maps sectors to members. `superblock` holds a member's view of the array, and
//! `membership` reads superblocks and finds the current members. `assemble` assembles an array and
//! `start` starts it, with a replay of its journals. `members` holds the present members, and makes
//! changes of them durable. `core` reads, and writes copies; `parity` writes stripes. `bitmap` and
//! `journal` prevent harm by a loss of power; `maintenance` repairs its remains, fills members,
//! exchanges them and scrubs.
//!
//! Not here, on purpose: opening devices, asking people, clocks and random sources. Identities are
//! arguments.

mod array;
mod assemble;
mod bitmap;
mod core;
mod create;
mod journal;
mod levels;
mod maintenance;
mod member;
mod members;
mod membership;
mod parity;
mod progress;
mod runs;
mod start;
mod stripe;
mod superblock;

pub use array::{Array, ArrayCondition, MemberReport};
pub use assemble::{ArrayStart, assemble};
pub use create::{ArrayPlan, check_form, create, raw};
pub use layout::array::MEMBERS_MAX;
pub use layout::{BLOCK_BYTES, Uuid};
pub use levels::{
    ArrayShape, LEGS_MAX, Leg, LegPiece, Level, ParityStripe, Redundancy, order, warnings,
};
pub use maintenance::ScrubReport;
pub use member::{Losses, MemberCandidate, MemberCounts};
pub use members::{ArrayEvent, Options};
pub use membership::examine;
pub use progress::MaintenanceProgress;
pub use stripe::xor;
pub use superblock::{
    ArraySuperblock, BAD_MAX, Gap, MemberEntry, MemberState, NAME_BYTES_MAX, Position, ROLE_SPARE,
    Scrubbed,
};
