//! Unresponsive members that the array needs.
//!
//! Requests wait for such a member as long as its device does: an error would be worse. An
//! administrator can repair the member, and gets the error instead, as does a start.
//!
//! Invariant: work for an administrator or a start has not ended
//!     ⟹ no member has been waited for beyond its time limit

use crate::core::ArrayCore;
use crate::member::ArrayMember;
use block::{IoError, IoErrorKind, IoResult, Nanos};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Interval of looking for an idle array.
const RELEASED_PAUSE: Nanos = Nanos::from_millis(1);

impl ArrayCore {
    /// Notes that the array goes on waiting for `member`, which has not answered in time.
    pub fn waits_for(&self, member: &ArrayMember) {
        let overdue = member.overdue.get() + 1;
        member.overdue.set(overdue);
        if overdue == 1 {
            let (array, name) = (&self.name, &member.name);
            self.log(format!(
                "{array}: {name} does not answer, and is waited for: no other member holds what \
                 it does"
            ));
        }
        self.watching.notify();
    }

    /// Returns the error for callers that should not wait: a member is unresponsive, and the array
    /// needs it.
    fn unresponsive(&self) -> Option<IoError> {
        let live = self.live();
        let (role, member) = live.iter().find(|(_, m)| m.overdue.get() > 0)?;
        let what = format!(
            "member {role}, {}, does not answer, and the array cannot do without it; bring it \
             back, and try again",
            member.name
        );
        Some(self.error(IoErrorKind::Timeout, what))
    }

    /// Waits until no task but the caller's uses the array, and thus its members. The caller has
    /// the last handle. An unresponsive member is given up.
    pub async fn released(self: &Rc<ArrayCore>) {
        while Rc::strong_count(self) > 1 {
            if self.unresponsive().is_some() {
                self.abandon("it was given up");
            }
            self.env.timer.sleep(RELEASED_PAUSE).await;
        }
    }

    /// Runs `work`, which can be given up at any step, unless it would wait for a member that does
    /// not answer.
    pub async fn until_unresponsive<T>(
        &self,
        work: impl Future<Output = IoResult<T>>,
    ) -> IoResult<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(result) = work.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            if let Some(error) = self.unresponsive() {
                return Poll::Ready(Err(error));
            }
            self.watching.register(cx.waker());
            Poll::Pending
        })
        .await
    }
}
