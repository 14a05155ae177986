//! Receives in large pieces, so that one receive may bring many messages.

use block::{Buf, IoError, IoErrorKind, IoResult, Pool, Stream};

/// Bytes asked for in one receive, where many messages come.
pub(crate) const INBOX_BYTES: usize = 64 << 10;

/// Bytes received and not yet used.
pub(crate) struct ReceivedBytes {
    /// Taken while a receive is in flight.
    buf: Option<Buf>,
    pool: Pool,
    /// Bytes asked for in one receive.
    bytes: usize,
    start: usize,
    end: usize,
}

impl ReceivedBytes {
    /// An empty inbox for receives of `bytes`.
    pub(crate) async fn new(pool: &Pool, bytes: usize) -> ReceivedBytes {
        ReceivedBytes {
            buf: Some(pool.take(bytes)),
            pool: pool.clone(),
            bytes,
            start: 0,
            end: 0,
        }
    }

    /// Receives [`INBOX_BYTES`] at a time from now on.
    pub(crate) async fn widen(&mut self) {
        let mut buf = self.pool.take(INBOX_BYTES);
        let left = self.bytes().len();
        buf[..left].copy_from_slice(self.bytes());
        (self.start, self.end) = (0, left);
        (self.buf, self.bytes) = (Some(buf), INBOX_BYTES);
    }

    /// The unused bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.buf {
            Some(buf) => &buf[self.start..self.end],
            None => &[],
        }
    }

    /// Marks the first `n` bytes as used.
    pub(crate) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.end - self.start);
        self.start += n;
    }

    /// Runs `parse` on the unused bytes and marks the parsed ones as used.
    pub(crate) fn parse<T>(&mut self, parse: impl FnOnce(&mut &[u8]) -> T) -> T {
        let mut rest = self.bytes();
        let before = rest.len();
        let value = parse(&mut rest);
        let used = before - rest.len();
        self.consume(used);
        value
    }

    /// Moves up to `to.len()` unused bytes into `to`; returns their number.
    pub(crate) fn copy_to(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.end - self.start);
        to[..n].copy_from_slice(&self.bytes()[..n]);
        self.consume(n);
        n
    }

    /// Receives more, once all bytes are used. False at the end of the stream.
    ///
    /// If this future is dropped, the bytes of that receive are lost.
    pub(crate) async fn fill(&mut self, stream: &impl Stream) -> IoResult<bool> {
        debug_assert!(self.bytes().is_empty());
        let buf = match self.buf.take() {
            Some(buf) => buf,
            None => self.pool.take(self.bytes),
        };
        (self.start, self.end) = (0, 0);
        let (buf, result) = stream.recv(buf).await;
        self.buf = Some(buf);
        self.end = result?;
        Ok(self.end > 0)
    }

    /// Receives exactly `buf`, first from the unused bytes and then straight
    /// from the stream into place.
    pub(crate) async fn fill_exact(
        &mut self,
        stream: &impl Stream,
        mut buf: Buf,
        mut progress: impl FnMut(),
    ) -> IoResult<Buf> {
        let mut done = self.copy_to(&mut buf);
        while done < buf.len() {
            let (head, tail) = match done {
                0 => (None, buf),
                _ => {
                    let (head, tail) = buf.split_at(done);
                    (Some(head), tail)
                }
            };
            let (tail, result) = stream.recv(tail).await;
            buf = match head {
                None => tail,
                Some(head) => Buf::rejoin(head, tail).expect("split above"),
            };
            let n = result?;
            if n == 0 {
                return Err(IoError::new(
                    IoErrorKind::Stream,
                    "the stream ended inside a message",
                ));
            }
            done += n;
            progress();
        }
        Ok(buf)
    }
}
