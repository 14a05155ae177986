//! Arrays: several devices as one, behind the contract of a device, so that arrays nest.
//!
//! `levels` maps sectors to members. `superblock` holds a member's view of the array, `examine`
//! reads superblocks, and `membership` finds the current members. `assemble` assembles an array and
//! `activate` starts it. `core` holds the present members, and `commit` makes changes of them
//! durable. `read` and `reconstruct` read, `change` and `parity` write. `bitmap` and `journal`
//! prevent harm by a loss of power; `found`, `replay`, `resync`, `maintenance` and `fill` repair
//! its remains; `replace` exchanges a sound member. `late` keeps operations that were given up and
//! may still land, `unresponsive` handles unresponsive members that the array needs.
//!
//! Not here, on purpose: opening devices, asking people, clocks and random sources. Identities are
//! arguments.

mod activate;
mod array;
mod assemble;
mod balance;
mod bitmap;
mod change;
mod claims;
mod commit;
mod core;
mod create;
mod events;
mod examine;
mod fill;
mod fitness;
mod found;
mod journal;
mod late;
mod levels;
mod lost;
mod maintenance;
mod member;
mod membership;
mod parity;
mod place;
mod read;
mod reconstruct;
mod replace;
mod replay;
mod rests;
mod resync;
mod runs;
mod scratch;
mod scrub;
mod superblock;
mod turn;
mod unresponsive;
mod update;
mod xor;

pub use array::{Array, ArrayCondition, MemberReport};
pub use assemble::{ArrayStart, assemble};
pub use core::Options;
pub use create::{ArrayPlan, check_form, create, raw};
pub use events::ArrayEvent;
pub use examine::examine;
pub use layout::array::MEMBERS_MAX;
pub use layout::{BLOCK_BYTES, Uuid};
pub use levels::{ArrayShape, LEGS_MAX, Leg, LegPiece, Level, ParityStripe, Redundancy};
pub use maintenance::MaintenanceProgress;
pub use member::{Losses, MemberCandidate, MemberCounts};
pub use place::{order, warnings};
pub use scrub::ScrubReport;
pub use superblock::{
    ArraySuperblock, BAD_MAX, Gap, MemberEntry, MemberState, NAME_BYTES_MAX, Position, ROLE_SPARE,
    Scrubbed,
};
pub use xor::xor;
