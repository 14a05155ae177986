//! Arrays on disks in memory: how they are assembled, the contract of a device,
//! and what they bear to lose.

mod assembly;
mod bad_writes;
mod changed_disks;
mod common;
mod conformance;
mod decisions;
mod discards;
mod faulty;
mod forgetful;
mod gaps;
mod handling;
mod images;
mod journals;
mod late;
mod limits;
mod losses;
mod lost_sectors;
mod membership;
mod memory;
mod pace;
mod patched;
mod power;
mod redone;
mod refusals;
mod replaced;
mod scrubs;
mod silent;
mod sizes;
mod spares;
mod streams;
mod stripes;
mod unfinished;
mod zeroed;
