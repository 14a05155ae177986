//! The log of a server's requests, as the kernel writes it back: no client waits for the log, but
//! its requests compete with reads.
//!
//! Lines gather in pages in memory. With each commit of the file system's journal (ext3 with
//! ordered data), the pages go to the volume, then the journal's record, then its end.

use crate::host::PageCacheHost;
use crate::site::PAGE_BYTES;
use block::{Env, IoResult, Nanos, SharedBuf};
use futures_util::future::try_join_all;
use std::cell::Cell;

/// Interval of the journal's commits: ext3's default.
const PERIOD: Nanos = Nanos::from_secs(5);
/// The largest request of the writer: 512 KiB, as in 2.6 kernels.
const REQUEST_BYTES: u64 = 512 << 10;
/// A line with its agent and referrer.
const LINE_BYTES: u64 = 200;
/// Pages of a journal's record: a descriptor and the log's inode.
const RECORD_BYTES: u64 = 2 * PAGE_BYTES;
/// The journal's own size; after so many pages the journal begins again.
const JOURNAL_PAGES: u64 = 32_768;

/// A log that is written behind the reads.
pub struct AccessLog {
    /// The page at which its journal begins; the log follows.
    at: u64,
    lines: Cell<u64>,
}

impl AccessLog {
    /// Creates an empty log with its journal at this page.
    pub fn new(at: u64) -> AccessLog {
        AccessLog {
            at,
            lines: Cell::new(0),
        }
    }

    /// A request is logged.
    pub fn line(&self) {
        self.lines.set(self.lines.get() + 1);
    }

    /// Writes back new lines, for ever; an error ends the loop.
    pub async fn write_back(&self, env: &Env, host: &PageCacheHost) -> IoResult {
        let zeroes = {
            let mut zeroes = env.pool.take(REQUEST_BYTES as usize);
            zeroes.fill(0);
            zeroes.share()
        };
        let content = |bytes: u64| -> SharedBuf { zeroes.slice(0..bytes as usize) };
        let log = self.at + JOURNAL_PAGES;
        let (mut written, mut committed) = (0, 0);
        loop {
            env.timer.sleep(PERIOD).await;
            let end = self.lines.get() * LINE_BYTES;
            if end == written {
                continue;
            }
            // The last page is written again with the lines added since.
            let first = written / PAGE_BYTES;
            let pages = end.div_ceil(PAGE_BYTES) - first;
            let most = REQUEST_BYTES / PAGE_BYTES;
            let requests = (0..pages.div_ceil(most)).map(|n| {
                let bytes = (pages - n * most).min(most) * PAGE_BYTES;
                host.write_back(log + first + n * most, content(bytes))
            });
            try_join_all(requests).await?;
            written = end;
            for bytes in [RECORD_BYTES, PAGE_BYTES] {
                let at = self.at + committed % (JOURNAL_PAGES - 2);
                host.write_back(at, content(bytes)).await?;
                committed += bytes / PAGE_BYTES;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::on_disk;
    use futures_util::future::{Either, select};
    use std::pin::pin;

    const WRITE: Nanos = Nanos::from_millis(4);

    /// A reader that asks as fast as answers come loses the time of the writer's requests.
    #[test]
    fn who_reads_waits_for_the_log_on_a_queue_of_one() {
        let read = |logged: bool| {
            on_disk(WRITE, async move |gate, env| {
                let host =
                    PageCacheHost::new(gate, 1_000).scheduled(crate::turnstile::QueueOrder::Fifo);
                let log = AccessLog::new(10_000);
                let reads = async {
                    for page in 0..5_000 {
                        host.read(page * 2 % 9_000 + page / 4_500, 1).await.unwrap();
                        if logged {
                            log.line();
                        }
                    }
                    env.timer.now()
                };
                match select(pin!(reads), pin!(log.write_back(&env, &host))).await {
                    Either::Left((ended, _)) => ended,
                    Either::Right((ended, _)) => panic!("it ended: {ended:?}"),
                }
            })
        };
        let (with, without) = (read(true), read(false));
        // Twenty seconds have four commits, of three requests each; the last may not have ended.
        let lost = (with - without).0 as f64 / WRITE.0 as f64;
        assert!((9.0..=12.5).contains(&lost), "{lost}");
    }
}
