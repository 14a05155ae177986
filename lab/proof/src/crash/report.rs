//! The situations of a case: those that cuts landed in, and events beside losses of power.

use crate::campaign::CaseReport;
use crate::classes::classes;

classes! {
    Promotion, "a cut when lines or updates were in flight to the pool";
    Eviction, "a cut when a line had just made room for one that was in flight";
    MapCommit, "a cut when changes of the map were in flight to a pool device";
    JournalWrap, "a cut when the log had come round to its start a few commits ago";
    Checkpoint, "a cut when a whole map had just been written to a pool device";
    BitmapCommit, "a cut when a bitmap was in flight to the pool";
    Table, "a cut when more rows of volumes than a superblock has room for were in flight to the pool";
    Ejection, "a cut when a pool device had just been ejected";
    Recovery, "a cut when the daemon was opening its pool";
    Standstill, "a cut when the back end had restored a volume, and nobody had invalidated it";
    LossReported, "a client's flush failed since the origin had lost writes";
    OriginAway, "an origin lost writes, and answered with errors for a while";
    OriginLate, "a failed write to an origin landed later";
    Snapshot, "the back end took a snapshot of a volume at a standstill";
    Rollback, "the back end put a snapshot back, and the volume was invalidated";
    Invalidation, "a volume was invalidated";
    Stop, "a daemon stopped in order, and another one started";
    StopAtStandstill, "it did so before a restored volume was invalidated";
    Renamed, "a volume had another name than in the life before";
    Moved, "a volume was in another pool than in the life before";
    Resized, "a volume had another size than in the life before";
    DiskBack, "a pool disk went back to what it was some lives ago";
    Hung, "a pool disk answered nothing any more";
    FlushIgnored, "a pool disk acknowledged what it did not make durable";
    PoolLate, "a failed write to a pool disk landed later";
}

/// The situations of a case.
pub type Report = CaseReport<Class>;
