//! The situations that lives of a write-back volume can meet.

use crate::campaign::CaseReport;
use crate::classes::classes;

classes! {
    Stop, "a node stopped in order, and another one started";
    Kill, "a node was killed, and another one started";
    Cut, "the power went";
    Replayed, "the origin alone was judged after a replay of the journal";
    Away, "a device of the log was unplugged under load, and back at the next start";
    Back, "a device of the log was unplugged under load, and took part again in the same life";
    MetadataFails, "the n-th metadata write of a device of the log failed";
    WitnessFails, "the n-th write of the file beside the log failed";
    Paused, "the process was paused for longer than a device may take";
    Mode, "the log was given up, or begun, under load";
    OnlyZeroes, "a life ended whose last dirty data were zeroes and discards alone";
    Noise, "a block of a pair of superblocks was noise";
    NoWitness, "the file beside the log was lost";
    Beside, "a block of one copy was damaged, the other whole";
    Rot, "a sector of a copy had other bytes";
    Unreadable, "a block of a copy could not be read";
    Sole, "a copy was damaged, the other away";
    BesideBlank, "a copy was damaged, the other blank";
    BesideStale, "a copy was damaged, the other overtaken";
    DamageRefused, "a log of which the only copy was damaged was refused";
    DamageServed, "one was served all the same, each block right or its read an error";
    Looked, "dirty data were counted without a daemon";
    Image, "a device of the log was restored from an image";
    OtherOrigin, "the origin came back as another disk while data were dirty";
    OtherOriginClean, "it did while nothing was dirty";
    GivenUp, "a log was given up, and another begun";
    OldLog, "both devices of a log that was given up came back";
    OldCopy, "one of them did";
}

/// The situations of a case.
pub type Report = CaseReport<Class>;
