//! The other side of a block device: requests of a kernel, or a guest, to a device served here.

use crate::buf::{Buf, SharedBuf};
use crate::error::IoResult;
use crate::units::{Extent, Fua};
use std::rc::Rc;

/// Number of one of the places in which a port holds a request, from zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tag(pub u16);

/// A client's request. Not checked against any device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// The bytes of the extent.
    Read(Extent),
    /// New bytes for the extent, which [`Port::take`] brings.
    Write(Extent, Fua),
    /// The extent is to read as zeroes.
    Zero(Extent),
    /// The bytes of the extent are not needed.
    Discard(Extent),
    /// Every write answered before is to be durable.
    Flush,
}

impl Request {
    /// The bytes that move from or to the client.
    pub fn bytes(&self) -> usize {
        match self {
            Request::Read(extent) | Request::Write(extent, _) => extent.len.bytes() as usize,
            Request::Zero(_) | Request::Discard(_) | Request::Flush => 0,
        }
    }

    /// True if `answer` answers this request; `taken` is true if its bytes were taken. A read that
    /// was carried out needs all of its bytes, and a write needs its bytes taken.
    pub fn is_answered_by(&self, answer: &Answer, taken: bool) -> bool {
        match (self, answer) {
            (Request::Read(_), Ok(data)) => {
                data.as_ref().map_or(0, |data| data.len()) == self.bytes()
            }
            (Request::Write(..), _) => taken,
            _ => true,
        }
    }
}

/// The answer to a request: its success, and all the bytes of a read that succeeded.
pub type Answer = IoResult<Option<SharedBuf>>;

/// The requests of a block device that is served here.
///
/// A tag holds one request at a time, from the `next` that returned the request to the `next` that
/// answers it. A client that waits for one answer may get it in any order with others. If the
/// server of a request ends without an answer, the next server gets the request again. So a request
/// may be carried out twice, and never by two servers at one time.
///
/// A future does nothing until polled. Dropping `next` loses the request that it would have
/// returned, for as long as this server lives.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait Port: 'static {
    /// The number of tags.
    fn tags(&self) -> u16;

    /// Answers the request of `tag`, if there is one, and waits for the next.
    ///
    /// `Gone`: the port has ended, and so has every request of it. `Invalid`, and nothing changes:
    /// an answer to nothing, none to a request, one to a read without its bytes, or one to a write
    /// that was not taken.
    async fn next(&self, tag: Tag, answer: Option<Answer>) -> IoResult<Request>;

    /// As [`Port::next`], without a task: `taker` gets the outcome, at the soonest within this call.
    /// `Err`: not by this port, and here is the answer.
    fn begin_next(
        &self,
        tag: Tag,
        answer: Option<Answer>,
        taker: Rc<dyn RequestTaker>,
    ) -> Result<(), Option<Answer>> {
        let _ = (tag, taker);
        Err(answer)
    }

    /// Fills `buf` with the bytes of the write that `tag` holds, all of them. `Gone` and
    /// `Invalid` as above.
    async fn take(&self, tag: Tag, buf: Buf) -> (Buf, IoResult);

    /// Ends this server. Its requests wait for the next.
    fn close(&self);
}

/// Takes the outcomes of waits for requests, while the shard takes in completions.
pub trait RequestTaker {
    /// Takes the next request of `tag`, or the error of [`Port::next`].
    fn take_next(self: Rc<Self>, tag: Tag, next: IoResult<Request>);
}
