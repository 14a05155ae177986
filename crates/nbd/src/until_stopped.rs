//! Work that ends early when another future ends.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The value of `work`, or `None` if `stop` ends first; `work` is then dropped.
pub(crate) async fn until_stopped<T>(
    stop: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut stop, mut work) = (pin!(stop), pin!(work));
    poll_fn(|cx| {
        if let Poll::Ready(value) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        stop.as_mut().poll(cx).map(|()| None)
    })
    .await
}
