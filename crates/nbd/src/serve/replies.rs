//! Answers to the peer, queued or being sent.
//!
//! Invariant: nothing comes between the frames of an answer that is undivided.

use crate::outbox::Frame;
use block::Signal;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Answers that are not sent.
#[derive(Default)]
pub(super) struct UnsentReplies {
    frames: RefCell<VecDeque<Frame>>,
    /// Frames of the answer that nothing may come between.
    undivided: RefCell<VecDeque<Frame>>,
    is_undivided: Cell<bool>,
    /// Frames ever queued in `frames` and ever sent from it.
    queued_total: Cell<u64>,
    sent_total: Cell<u64>,
    /// Notified of frames to send, or of a reason to stop.
    pub(super) unsent: Signal,
    /// Notified when a send or an undivided answer has ended.
    pub(super) sent: Signal,
}

impl UnsentReplies {
    /// Counts a frame that is queued to be sent.
    #[inline]
    pub(super) fn count(&self) {
        self.queued_total.set(self.queued_total.get() + 1);
    }

    /// Queues a frame, alone or of the undivided answer.
    #[inline]
    pub(super) fn queue(&self, frame: Frame, undivided: bool) {
        let frames = match undivided {
            true => &self.undivided,
            false => &self.frames,
        };
        frames.borrow_mut().push_back(frame);
        self.unsent.notify();
    }

    /// Frames that may be sent now.
    pub(super) fn ready(&self) -> Option<&RefCell<VecDeque<Frame>>> {
        let frames = match self.is_undivided.get() {
            true => &self.undivided,
            false => &self.frames,
        };
        (!frames.borrow().is_empty()).then_some(frames)
    }

    /// Waits until the undivided frames have been sent.
    pub(super) async fn undivided_gone(&self, is_sending: &Cell<bool>) {
        let gone = || self.undivided.borrow().is_empty() && !is_sending.get();
        self.sent.until_some(|| gone().then_some(())).await;
    }

    /// Waits for the right to send an answer that nothing may come between.
    pub(super) async fn begin_undivided(&self) {
        let free = || (!self.is_undivided.get()).then_some(());
        self.sent.until_some(free).await;
        self.is_undivided.set(true);
    }

    /// Gives that right back.
    pub(super) fn end_undivided(&self) {
        self.is_undivided.set(false);
        self.sent.notify();
        self.unsent.notify();
    }

    /// Waits until every answer queued before now has been sent, or `is_over`.
    pub(super) async fn all_sent(&self, is_over: impl Fn() -> bool) {
        let queued = self.queued_total.get();
        let ready = || self.sent_total.get() >= queued || is_over();
        self.sent.until_some(|| ready().then_some(())).await;
    }

    /// Counts so many sent frames.
    pub(super) fn has_sent(&self, frames: u32) {
        if !self.is_undivided.get() {
            self.sent_total
                .set(self.sent_total.get() + u64::from(frames));
        }
    }

    /// Takes every frame that is not in a send.
    pub(super) fn drop_all(&self, mut each: impl FnMut(Frame)) {
        for frames in [&self.frames, &self.undivided] {
            frames.borrow_mut().drain(..).for_each(&mut each);
        }
    }
}
