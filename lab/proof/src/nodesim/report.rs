//! The situations that a case can meet.

use crate::campaign::CaseReport;
use crate::classes::classes;

classes! {
    Stop, "a node stopped in order, and another one started";
    Kill, "a node was killed, and another one started";
    Cut, "the power went";
    Mode, "a volume's mode was changed under load";
    Quiesce, "a volume was quiesced and resumed";
    Invalidate, "a volume was invalidated";
    VolumeRemoved, "a volume was removed under load";
    VolumeAdded, "a volume was added again";
    VolumeRefused, "a volume was refused that its origin could not serve";
    PoolDeviceAdded, "a device was added to the pool";
    PoolDeviceRemoved, "a device was removed from the pool";
    PoolDeviceLost, "a pool device was unplugged or became unresponsive";
    PoolDeviceEjected, "a pool device was ejected";
    OriginLost, "the disk of a plain volume was unplugged";
    OriginAnew, "it was back, and its volume added again";
    MemberLost, "a member of an array was unplugged";
    MemberUnresponsive, "a member of an array did not answer for a while";
    MemberBack, "a lost member was back";
    SeveralLost, "more members were away than their array can do without";
    MemberFailed, "a member was taken out by hand";
    MemberAdded, "a member was given by hand";
    Scrub, "an array was scrubbed under load";
    Reassembled, "an array that had lost too much was reassembled";
    Reloaded, "a changed configuration was run under load";
    NotReloaded, "a changed configuration could not be run, or not all of it";
    Waited, "a volume waited for its origin";
    ArrayInPool, "an array was a pool's device";
    Nested, "an array was made of arrays";
    Slow, "disks answered slowly now and then";
    Refused, "a change was refused";
    RefusedOpen, "a change was refused whose device had been opened for it";
    RefusedArray, "a volume was refused whose array had been assembled for it";
    RefusedInUse, "a device was asked for that is in use";
    Interrupted, "a device was unplugged while it was being put to use";
}

/// The situations of a case.
pub type Report = CaseReport<Class>;
