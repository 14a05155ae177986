//! Recognises an origin and detects changes by others since hotset last had it.
//!
//! Nothing is written to an origin but its own data, so an origin carries no mark of hotset.
//! Instead a [`OriginRecord`] is kept elsewhere: the identity of the device, its size, and hashes of a
//! few places. *Sentinels* are sectors that the data's owner rewrites at every change (superblocks,
//! heads of logs). *Samples* are spread over the device by a seed. A [`Survey`] reads these places
//! again, and [`judge`] compares the hashes.
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
//! Not here: the place of a record, and the treatment of the cached lines.

mod formats;
mod guard;
mod record;
mod survey;
#[cfg(test)]
mod tests;
mod verdict;
mod watch;

pub use formats::{
    CircularLog, HEAD_BYTES, PARTITION_BYTES, Recognised, What, recognise, recognise_at,
};
pub use guard::{Guarded, Keep, Recogniser};
pub use layout::DeviceIdentity;
pub use record::{Allowed, NotARecord, OriginRecord, RECORD_BYTES_MAX, VALUES_MAX, WatchedPlace};
pub use survey::{SAMPLES, Survey, again, take, take_with};
pub use verdict::{DoubtReason, OriginVerdict, judge, judge_but_for};
pub use watch::{FlushMark, Left, Unsettled, WriteMark, WriteWatch};
