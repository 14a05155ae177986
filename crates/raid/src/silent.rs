//! Members that do not answer and that the array cannot do without.
//!
//! Requests wait for such a member as long as its device does: an error would be worse. An
//! administrator, who can do something about it, and a start get the error instead.
//!
//! Invariant: work for an administrator or a start has not ended
//!     ⟹ no member has been waited for longer than it may take

use crate::core::Core;
use crate::member::Member;
use block::{IoError, IoResult, Kind, Nanos};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// How often it is looked whether an array is at rest.
const RELEASED_PAUSE: Nanos = Nanos::from_millis(1);

impl Core {
    /// The array goes on waiting for `member`, which has not answered in time.
    pub fn waits_for(&self, member: &Member) {
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

    /// Why whoever can do something about it should not wait: a member is silent that the
    /// array cannot do without.
    fn silent(&self) -> Option<IoError> {
        let live = self.live();
        let (role, member) = live.iter().find(|(_, m)| m.overdue.get() > 0)?;
        let what = format!(
            "member {role}, {}, does not answer, and the array cannot do without it; bring it \
             back, and try again",
            member.name
        );
        Some(self.error(Kind::Timeout, what))
    }

    /// Waits until nobody but the caller is at work on the array, whose last handle it has,
    /// and thus on its members. One of them that does not answer is given up.
    pub async fn released(self: &Rc<Core>) {
        while Rc::strong_count(self) > 1 {
            if self.silent().is_some() {
                self.abandon("it was given up");
            }
            self.env.timer.sleep(RELEASED_PAUSE).await;
        }
    }

    /// `work`, which can be given up at any step, unless it would wait for a member that
    /// does not answer.
    pub async fn until_silent<T>(&self, work: impl Future<Output = IoResult<T>>) -> IoResult<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(result) = work.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            if let Some(error) = self.silent() {
                return Poll::Ready(Err(error));
            }
            self.watching.register(cx.waker());
            Poll::Pending
        })
        .await
    }
}
