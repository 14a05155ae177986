//! The events of a run.

use crate::campaign::CaseReport;
use crate::classes::classes;

classes! {
    Loss, "a member was unplugged under load";
    Return, "a lost member returned and got what it had missed";
    Spare, "a spare took a lost member's place";
    LossInRebuild, "a member that was being filled was lost";
    LatentError, "sectors that could not be read were written again";
    Cut, "the power was lost";
    CutInWrite, "the power was lost with writes in flight";
    CutInPartialWrite, "the power was lost with writes of parts of RAID 5 stripes in flight";
    CutInRebuild, "the power was lost while a member was filled";
    CutInResync, "the power was lost while copies were brought into agreement";
    CutDegraded, "the power was lost with a member missing";
    CutInStart, "the power was lost before the array had started";
    CutTwice, "the power was lost twice, with little in between";
    CutAndLoss, "a member did not come back after a loss of power";
    CutInLoss, "the power was lost just after a member, or while it refused writes";
    CutAndBack, "a lost member was back with the power";
    Replay, "stripes were done again from a journal";
    Unreadable, "data that was being written when power and a member were lost is reported lost";
    Refused, "a member refused writes under load";
    RefusedDegraded, "a member refused writes while another was missing";
    RefusedInFill, "a member that was being filled refused writes";
    RefusedInStart, "a member refused writes while the array started";
    RefusedLost, "what a missing member held is reported lost, for another refused a write";
    Scrub, "a scrub at the end found no difference";
    CleanStart, "an array that ended in order had nothing to bring into agreement at its start";
    MetadataError, "metadata could not be read, once";
    MetadataLost, "metadata could not be read until it was written";
    Rot, "a bit of metadata flipped between two lives";
    RotBesideStale, "a bit of the newest superblock flipped while a stale member was back";
    HungAtStart, "a member did not answer while the array started";
    Hung, "a member did not answer for a while";
    HungForGood, "a member did not answer and was left behind";
    LateWrite, "a member was given back while a write to it, given up, had still to land";
    SlowDevice, "a member answered slowly";
    UnresponsiveNeeded, "somebody was notified of a member that did not answer and could not be done without";
    Discard, "sectors were discarded";
    DiscardRefused, "a member refused a discard";
    ReplaceSound, "a sound member was replaced";
    ReplaceLost, "a lost member was replaced";
    ReturnInSpare, "a lost member was given back while a spare took its place";
    Forced, "a stale leg was started by force";
    ForcedCut, "the power was lost while a stale leg was started by force";
    StaleRefused, "a stale leg alone was refused";
    SplitBrain, "legs that diverged were refused";
    Chosen, "one of two histories was chosen, and the other overwritten";
    OtherBlocks, "a member came back with larger logical blocks";
    Shrunk, "a member came back smaller";
    SeveralLost, "several members were lost at a time, and the others continued";
    SeveralStopped, "more members were lost than the array can do without, and came back";
    Nested, "an array of arrays was assembled";
    NestedLoss, "an array within an array lost a disk that it can do without";
    NestedDown, "an array within an array lost too much, and came back";
    Spoiled, "sectors could not be read after a loss of power";
    MemoryFull, "clients waited for memory, holding all that they may";
    IdleCut, "the power was lost after hours without a write";
    Forgot, "a server was restarted, and forgot what no flush had covered";
    ForgotRead, "a member was left behind at a read for what it may have forgotten";
    ReturnImage, "a lost member returned as an older image of itself";
    ReturnBlank, "a lost member returned blank";
    ReturnCopy, "a lost member returned as a copy of another, and was refused";
    StartImage, "an older image of a member was there when the array started";
    Paused, "the process was paused for longer than a member may take";
    RefusedSuperblock, "a member refused a superblock";
    RefusedMap, "a member refused the write-intent map";
    RefusedRecord, "a member refused a record of its journal";
    Noise, "a member's first sectors were noise, both superblocks among them";
    NoiseOneCopy, "one superblock of a member was noise";
    RotBesideAway, "a bit of the newest superblock flipped while another member was away";
    RotBesideBlank, "a bit of the newest superblock flipped while another member was back blank";
}

/// The situations of a run.
pub type Report = CaseReport<Class>;
