//! The situations of a case of write-back.

use crate::campaign::CaseReport;
use crate::classes::Situation;
use writelog::{Cleaning, LogStage};

/// The situation that a cut landed in, or an event of a case beside cuts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Landing {
    /// This stage was under way.
    Amid(LogStage),
    /// The daemon was opening its log.
    Opening,
    /// A write was torn on a device of the pool.
    Torn,
    /// A device of the pool was unplugged under the daemon.
    Unplugged,
    /// A daemon started without a device of the pool.
    Missing,
    /// The origin alone was judged after a replay of the journal.
    Replayed,
}

impl Landing {
    /// All situations that a log of that order may meet.
    pub fn all(cleaning: Cleaning) -> impl Iterator<Item = Landing> {
        let stages = LogStage::of(cleaning).iter().copied().map(Landing::Amid);
        let others = [
            Landing::Opening,
            Landing::Torn,
            Landing::Unplugged,
            Landing::Missing,
        ];
        let replayed = (cleaning == Cleaning::Journaled).then_some(Landing::Replayed);
        stages.chain(others).chain(replayed)
    }
}

impl Situation for Landing {}

/// The situations of a case.
pub type Report = CaseReport<Landing>;
