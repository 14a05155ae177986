//! Gathers many small messages and their payloads into one send.
//!
//! Headers are written into one page for each send; payloads are sent from their own
//! buffers. Messages allocate nothing.

use block::{Buf, PAGE_BYTES, Pool, SharedBuf};
use std::collections::VecDeque;

/// The longest header.
pub(crate) const HEAD_BYTES_MAX: usize = 28;
/// Messages that fit one send: their headers fill a page.
const FRAMES_MAX: usize = PAGE_BYTES / HEAD_BYTES_MAX;

/// One message: a header, then perhaps a payload.
pub(crate) struct Frame {
    head: [u8; HEAD_BYTES_MAX],
    head_len: u8,
    /// True of the last message of its request.
    pub(crate) last: bool,
    /// Memory to give back after the send, in bytes.
    pub(crate) charge: u32,
    pub(crate) body: Option<SharedBuf>,
}

impl Frame {
    /// The last message of its request.
    pub(crate) fn new<const N: usize>(head: [u8; N], body: Option<SharedBuf>) -> Frame {
        const { assert!(N <= HEAD_BYTES_MAX) };
        let mut frame = Frame {
            head: [0; HEAD_BYTES_MAX],
            head_len: N as u8,
            last: true,
            charge: 0,
            body,
        };
        frame.head[..N].copy_from_slice(&head);
        frame
    }
}

/// Account of a send, besides its bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct SendLoad {
    /// Requests answered or made by the send.
    pub(crate) requests: u32,
    /// Memory to give back after the send, in bytes.
    pub(crate) charge: u32,
    /// Messages of the send.
    pub(crate) frames: u32,
}

/// Builds sends, one after the other.
pub(crate) struct Outbox {
    pool: Pool,
    /// The page that the last send's headers were written to.
    page: Option<SharedBuf>,
}

impl Outbox {
    pub(crate) fn new(pool: &Pool) -> Outbox {
        Outbox {
            pool: pool.clone(),
            page: None,
        }
    }

    async fn page(&mut self) -> Buf {
        // The last send has dropped its views of the page.
        match self.page.take().map(SharedBuf::unshare) {
            Some(Ok(page)) => page,
            _ => self.pool.take(PAGE_BYTES),
        }
    }

    /// Moves frames into the parts of one send. The parts of the send before
    /// have been dropped.
    pub(crate) async fn gather(
        &mut self,
        frames: &std::cell::RefCell<VecDeque<Frame>>,
        parts: &mut Vec<SharedBuf>,
    ) -> SendLoad {
        let mut page = self.page().await;
        let mut frames = frames.borrow_mut();
        let n = frames.len().min(FRAMES_MAX);
        let mut at = 0;
        for frame in frames.iter().take(n) {
            let head = &frame.head[..usize::from(frame.head_len)];
            page[at..at + head.len()].copy_from_slice(head);
            at += head.len();
        }
        let page = page.share();
        let mut load = SendLoad::default();
        let (mut from, mut to) = (0, 0);
        for frame in frames.drain(..n) {
            to += usize::from(frame.head_len);
            load.requests += u32::from(frame.last);
            load.charge += frame.charge;
            load.frames += 1;
            if let Some(body) = frame.body {
                if from < to {
                    parts.push(page.slice(from..to));
                }
                parts.push(body);
                from = to;
            }
        }
        if from < to {
            parts.push(page.slice(from..to));
        }
        self.page = Some(page);
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("would wait"),
        }
    }

    #[test]
    fn heads_without_payload_travel_together() {
        let pool = Pool::new(4 << 20);
        let mut outbox = Outbox::new(&pool);
        let mut body = pool.try_get(512).unwrap();
        body.fill(9);
        let mut framed = Frame::new([3; 28], Some(body.share()));
        framed.charge = 4096;
        framed.last = false;
        let frames = [
            Frame::new([1; 16], None),
            Frame::new([2; 20], None),
            framed,
            Frame::new([4; 16], None),
        ];
        let frames = RefCell::new(VecDeque::from(frames));
        let mut parts = Vec::new();
        let load = now(outbox.gather(&frames, &mut parts));
        let (requests, charge, frames_sent) = (3, 4096, 4);
        let want = SendLoad {
            requests,
            charge,
            frames: frames_sent,
        };
        assert_eq!(load, want);
        let lens: Vec<usize> = parts.iter().map(|p| p.len()).collect();
        assert_eq!(lens, [64, 512, 16]);
        let first: Vec<u8> = [&[1; 16][..], &[2; 20], &[3; 28]].concat();
        assert_eq!(&parts[0][..], first);
        parts.clear();
        let free = pool.free_bytes();
        frames.borrow_mut().push_back(Frame::new([5; 16], None));
        now(outbox.gather(&frames, &mut parts));
        assert_eq!(pool.free_bytes(), free, "the page is used again");
    }

    #[test]
    fn one_send_takes_no_more_than_a_page_of_heads() {
        let pool = Pool::new(4 << 20);
        let frames = (0..1000).map(|_| Frame::new([0; 28], None)).collect();
        let frames = RefCell::new(frames);
        let mut parts = Vec::new();
        let load = now(Outbox::new(&pool).gather(&frames, &mut parts));
        assert_eq!(load.requests as usize, FRAMES_MAX);
        assert_eq!(frames.borrow().len(), 1000 - FRAMES_MAX);
    }
}
