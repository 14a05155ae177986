//! Marks: once the last dirty record is durable, and no other follows, a note says so. So a copy
//! that is found alone, and lacks that record, shows the lack.
//!
//! Invariant: a record is dirty and durable for longer than [`REST`] ⟹ a later one says so, while
//! both copies are online and there is room

use super::WriteBackShared;
use block::{Device, Fua, Nanos};
use futures_util::future::select;
use std::pin::pin;

/// Time without a further record before a mark.
const REST: Nanos = Nanos::from_millis(10);

pub(super) async fn run<P: Device>(log: &WriteBackShared<P>) {
    let closing = || log.closing.get();
    loop {
        // A flush wakes only this task: the cleaner would begin before more writes have gathered.
        let changed = log.changed.until(|| closing() || log.may_mark());
        let flushed = log.flushed.until(|| log.may_mark());
        select(pin!(changed), pin!(flushed)).await;
        if closing() {
            break;
        }
        let last = log.state.borrow().next;
        let rest = log.env.timer.sleep(REST);
        select(pin!(rest), pin!(log.changed.until(closing))).await;
        if !closing() && log.may_mark() && log.state.borrow().next == last {
            let written_back_to = log.state.borrow().written_back_to;
            log.append_done(&[], written_back_to, Fua::No).await;
        }
    }
}

impl<P: Device> WriteBackShared<P> {
    fn may_mark(&self) -> bool {
        let state = self.state.borrow();
        state.durable_to.min(state.last_write_end) > state.marked_to
            && state.written_back_to < state.last_write_end
            && state.may_fill(1)
            && self.copies.are_both()
    }
}
