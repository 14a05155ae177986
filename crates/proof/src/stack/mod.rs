//! The real stack under crashes: PostgreSQL on ext4 on a volume of the real
//! daemon, whose origin is an NBD server that records every write and flush.
//!
//! The record is cut at every flush and at random points between. What a disk
//! would hold after a loss of power there becomes an image: all that a flush
//! covered, and of the rest any part, torn by sectors. Each image must pass
//! `e2fsck`, the database must recover on it, and every row whose commit had been
//! acknowledged must be there.
//!
//! In another form ([`kills`]) the origin is a file, and the daemon is killed in
//! rounds under the database, which must recover through the next one. Or, of a
//! write-back volume, all but the origin is destroyed, on which alone it must recover.
//!
//! In a third ([`pgbench`]) nothing fails, and pgbench says what write-back is worth.
//!
//! Not here: the pool under losses of power (`crash`).

mod database;
mod destroyed;
mod host;
mod kills;
mod pgbench;
mod place;
mod record;
mod recorder;
mod run;

pub use host::obstacle;
pub use kills::{KillRequest, StackKills, kills};
pub use pgbench::{BenchRequest, StackBench, pgbench};
pub use run::{Request, Stack, run};
