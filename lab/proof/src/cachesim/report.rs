//! The events of a run.

use crate::campaign::CaseReport;
use crate::classes::classes;
use cache::{Counter, CounterSnapshot};

classes! {
    Promotion, "a pool device was lost with a promotion to it in flight";
    Eviction, "a pool device was lost right after a line had made room for another";
    ModeSwitch, "a mode was switched as a device with operations in flight was lost";
    PoolRemoval, "a device was lost while it was being removed with operations in flight";
    PoolLost, "every pool device was lost";
    PromotionOvertaken, "a write overlapped a promotion or the origin read before it";
    UpdateInVain, "the origin failed a write that the pool took";
    HitTorn, "a block was rewritten under a hit";
    HitLate, "a pool device took too long for a hit";
    HitFailed, "a pool device failed a hit";
    Corruption, "a checksum did not match";
    FillFailed, "a pool device failed a write";
    FillLate, "a pool device took too long for a write";
    Ejection, "a device was ejected";
    Return, "a device that was late was taken back with its lines";
    LineReplaced, "a line made room for another";
    Join, "a miss joined another's origin read";
    JoinFailed, "a joined read had to be read again";
    Hung, "a pool device hung for ever under clients that filled their half of the memory";
    BitmapWritten, "a pool that remembers marked regions before they were written";
    MapWritten, "a pool that remembers wrote what it holds";
    Abandoned, "a client gave up on a write";
    HitLocated, "another shard read a hit from the pool device itself";
    HitKept, "another shard knew the place of such a hit from an earlier one";
    HitRefused, "such a hit had to be read again, since it was late, rewritten or damaged";
    OriginError, "the origin failed an operation";
}

impl Class {
    /// The counters of the engine that count the meetings of a class.
    fn counters(self) -> &'static [Counter] {
        match self {
            Class::PromotionOvertaken => {
                &[Counter::RejectedOverwritten, Counter::PoolWritesPoisoned]
            }
            Class::UpdateInVain => &[Counter::PoolWritesInVain],
            Class::HitLocated => &[Counter::HitsLocated],
            Class::HitKept => &[Counter::HitsKept],
            Class::HitRefused => &[Counter::HitsRefused],
            Class::HitTorn => &[Counter::HitsTorn],
            Class::HitLate => &[Counter::HitsLate],
            Class::HitFailed => &[Counter::HitsFailed],
            Class::Corruption => &[Counter::BlocksCorrupt],
            Class::FillFailed => &[Counter::PoolWritesFailed],
            Class::FillLate => &[Counter::PoolWritesLate],
            Class::Ejection => &[Counter::DevicesEjected],
            Class::Return => &[Counter::DevicesReturned],
            Class::LineReplaced => &[Counter::LinesEvicted],
            Class::Join => &[Counter::ReadsJoined],
            Class::JoinFailed => &[Counter::JoinsFailed],
            Class::OriginError => &[Counter::OriginReadErrors, Counter::OriginWriteErrors],
            Class::Promotion
            | Class::Eviction
            | Class::ModeSwitch
            | Class::PoolRemoval
            | Class::PoolLost
            | Class::Hung
            | Class::Abandoned => &[],
            Class::BitmapWritten => &[Counter::BitmapCommits],
            Class::MapWritten => &[Counter::MapCommits],
        }
    }
}

/// The situations of a run.
pub type Report = CaseReport<Class>;

impl Report {
    pub(crate) fn take_counters(&mut self, counters: &CounterSnapshot) {
        self.count("hits", counters.get(Counter::ReadsHit));
        for class in Class::ALL {
            let met = class.counters().iter().map(|c| counters.get(*c)).sum();
            self.meet_times(*class, met);
        }
    }
}
