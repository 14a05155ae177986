//! The situations that a case can meet.

use crate::campaign::CaseReport;
use crate::classes::classes;

classes! {
    Kill, "a server was killed, and another one began";
    Stop, "a server stopped in order, and another one began";
    Held, "requests that a server had in hand were given to the next";
    Failed, "a request failed, for the disk did";
    Full, "all tags held a request";
}

/// The situations of a case.
pub type Report = CaseReport<Class>;
