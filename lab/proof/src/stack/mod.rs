//! The real stack under crashes: PostgreSQL on ext4 on a volume of the real daemon. Its origin is
//! an NBD server that records every write and flush.
//!
//! The record is cut at every flush and at random points between. Each cut becomes an image of a
//! disk after a loss of power: all flushed writes, and of the rest any part, torn by sectors. Each
//! image must pass `e2fsck`, the database must recover, and every row with an acknowledged commit
//! must be there.
//!
//! In another form ([`kills`]) the origin is a file, and the daemon is killed in rounds under the
//! database, which must recover through the next daemon. Or all but the origin of a write-back
//! volume is destroyed, and the database must recover on the origin alone.
//!
//! In a third form ([`pgbench`]) nothing fails, and pgbench measures the gain of write-back.
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

pub use database::{DatabaseServer, PgbenchFigures, initialize};
pub use host::{database_obstacle, obstacle};
pub use kills::{KillRequest, StackKills, kills};
pub use pgbench::{BenchRequest, StackBench, TPCB, pgbench};
pub use run::{Stack, StackRequest, run};
