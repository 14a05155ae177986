//! Whether an origin still is what it was when hotset last had it.
//!
//! Nothing is written to an origin but its own data, so it carries no mark of
//! ours. Instead a [`Record`] is kept elsewhere: who the device is, how large it
//! is, and hashes of a few places. *Sentinels* are sectors that the owner of
//! the data rewrites whenever it changes anything (superblocks, heads of logs);
//! *samples* are spread over the device by a seed. A [`Survey`] reads them
//! again, and [`judge`] compares.
//!
//! ```text
//! open:   survey ─> judge(record) ─> same | changed | unknown
//! write:  Watch::begin_write ─> the record must be durable first, if it grew
//! flush:  Watch::begin_flush, end_flush ─> older values are allowed no more
//! ```
//!
//! Invariants:
//!     same ⟹ the identity proves it, or places do that no other device has by chance
//!     a watched place may hold x, by a write of hotset ⟹ the durable record allows x there
//!
//! Not here: where a record is kept, and what becomes of the cached lines.

mod formats;
mod guard;
mod record;
mod survey;
mod verdict;
mod watch;

pub use formats::{HEAD_BYTES, Log, PARTITION_BYTES, Recognised, What, recognise, recognise_at};
pub use guard::{Guarded, Keep, Recogniser};
pub use layout::Identity;
pub use record::{Allowed, NotARecord, RECORD_BYTES_MAX, Record, VALUES_MAX, Watched};
pub use survey::{SAMPLES, Survey, again, take, take_with};
pub use verdict::{Reason, Verdict, judge, judge_but_for};
pub use watch::{FlushMark, Left, Unsettled, Watch, WriteMark};
