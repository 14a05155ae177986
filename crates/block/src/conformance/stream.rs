//! The contract of every [`Connector`], [`Listener`] and [`Stream`].

use super::flow::{cut, flow_byte, nowhere};
use super::join::{abandon, join, join_all};
use super::rng::{SuiteRng, mix};
use super::{SuiteCase, check};
use crate::{Address, Connector, Env, IoErrorKind, IoResult, Listener, Nanos, Stream};
use std::cell::RefCell;

/// Bytes sent each way in the long exchange.
const LONG: u64 = 512 << 10;
/// The time in which a buffer of an abandoned receive must come home.
const SETTLE: Nanos = Nanos::from_secs(10);
/// The limit of a case, far over the time that any needs.
const TIMEOUT: Nanos = Nanos::from_secs(60);

/// Runs the suite; panics with the seed at the first breach.
///
/// `address` is where `connector` reaches `listener`, which is closed in the end.
pub async fn stream<C, L>(connector: &C, listener: &L, address: Address, env: &Env, seed: u64)
where
    C: Connector,
    L: Listener,
{
    let suite = StreamSuite {
        connector,
        listener,
        address,
        env,
        free: env.pool.free_bytes(),
        seed,
        case: SuiteCase::new("stream", seed),
        rng: RefCell::new(SuiteRng::new(seed)),
    };
    suite.in_time(suite.long_exchange()).await;
    suite.in_time(suite.end_of_stream()).await;
    suite.in_time(suite.closed_here()).await;
    suite.in_time(suite.dropped_handle()).await;
    suite.in_time(suite.closed_there()).await;
    suite.in_time(suite.peer_closed()).await;
    suite.in_time(suite.abandoned_recv()).await;
    suite.in_time(suite.refused()).await;
    suite.in_time(suite.closed_listener()).await;
}

struct StreamSuite<'a, C, L> {
    connector: &'a C,
    listener: &'a L,
    address: Address,
    env: &'a Env,
    free: usize,
    seed: u64,
    case: SuiteCase,
    rng: RefCell<SuiteRng>,
}

impl<C: Connector, L: Listener> StreamSuite<'_, C, L> {
    async fn in_time(&self, case: impl Future<Output = ()>) {
        let ended = self.env.timer.timeout(TIMEOUT, case).await;
        check!(self.case, ended.is_some(), "it never ends");
    }

    /// The two ends of a new connection: accepted, connected.
    async fn connected(&self) -> (L::Stream, C::Stream) {
        let connect = self.connector.connect(self.address.clone());
        match join(self.listener.accept(), connect).await {
            (Ok(accepted), Ok(connected)) => (accepted, connected),
            (Err(error), _) => self.case.fail(format_args!("accept fails: {error}")),
            (_, Err(error)) => self.case.fail(format_args!("connect fails: {error}")),
        }
    }

    /// Two connections, both ways at once: every byte arrives, in order.
    async fn long_exchange(&self) {
        self.case.enter("a long exchange");
        // One after the other: the order of accepts and connections is unspecified.
        let (a, b) = (self.connected().await, self.connected().await);
        let both_ways = async |pair: &(L::Stream, C::Stream), id: u64| {
            let (there, back) = (mix(self.seed ^ id), mix(self.seed ^ (id + 1)));
            let to = join(
                self.send_flow(&pair.0, there, LONG),
                self.recv_flow(&pair.1, there, LONG),
            );
            let fro = join(
                self.send_flow(&pair.1, back, LONG),
                self.recv_flow(&pair.0, back, LONG),
            );
            join(to, fro).await;
        };
        join_all([both_ways(&a, 0), both_ways(&b, 2)]).await;
    }

    async fn send_flow(&self, stream: &impl Stream, id: u64, len: u64) {
        let mut sent = 0;
        while sent < len {
            let bytes = (1 + self.below(64 << 10)).min(len - sent);
            let mut buf = self.env.pool.get(bytes as usize).await;
            for (at, byte) in (sent..).zip(buf.iter_mut()) {
                *byte = flow_byte(id, at);
            }
            let count = self.below(12);
            let cuts: Vec<_> = (0..count)
                .map(|_| self.below(bytes / 3 + 2) as usize)
                .collect();
            let (parts, result) = stream.send(cut(buf.share(), cuts)).await;
            check!(self.case, parts.is_empty(), "a send returns its parts");
            if let Err(error) = result {
                self.case
                    .fail(format_args!("after {sent} bytes a send fails: {error}"));
            }
            sent += bytes;
        }
    }

    async fn recv_flow(&self, stream: &impl Stream, id: u64, len: u64) {
        let mut at = 0;
        while at < len {
            let want = (1 + self.below(40 << 10)).min(len - at) as usize;
            let buf = self.env.pool.get(want).await;
            let given = (buf.as_ptr(), buf.len());
            let (buf, result) = stream.recv(buf).await;
            check!(
                self.case,
                (buf.as_ptr(), buf.len()) == given,
                "a recv returns another buffer"
            );
            let got = match result {
                Ok(got) => got,
                Err(error) => self
                    .case
                    .fail(format_args!("after {at} bytes a recv fails: {error}")),
            };
            check!(
                self.case,
                (1..=want).contains(&got),
                "after {at} of {len} bytes a recv of {want} gives {got}"
            );
            for (i, &byte) in (at..).zip(&buf[..got]) {
                check!(
                    self.case,
                    byte == flow_byte(id, i),
                    "byte {i} of the stream is not what was sent"
                );
            }
            at += got as u64;
        }
    }

    /// Bytes sent before a close arrive, then the end.
    async fn end_of_stream(&self) {
        self.case.enter("end of stream");
        let (here, there) = self.connected().await;
        let (_, result) = here.send(Vec::new()).await;
        self.expect_ok("a send of nothing", result);
        self.send_flow(&here, self.seed, 10_000).await;
        here.close();
        self.recv_flow(&there, self.seed, 10_000).await;
        for _ in 0..2 {
            let result = self.recv(&there).await;
            check!(
                self.case,
                matches!(result, Ok(0)),
                "a recv after the peer closed ends with {result:?}, not with 0"
            );
        }
    }

    /// A close ends operations that wait on this side, and later ones.
    async fn closed_here(&self) {
        self.case.enter("closed on this side");
        let (here, there) = self.connected().await;
        let close = async {
            self.env.timer.sleep(Nanos::from_millis(1)).await;
            here.close();
        };
        let (result, ()) = join(self.recv(&here), close).await;
        self.expect_ended("a recv in flight at the close", result);
        let result = self.recv(&here).await;
        self.expect_ended("a recv after the close", result);
        drop(there);
        // A driver may give the closed end's number to the next stream.
        let (next, peer) = self.connected().await;
        let data = self.env.pool.get(100).await.share();
        let (_, result) = here.send(vec![data]).await;
        check!(
            self.case,
            result.is_err(),
            "a send after the close succeeds"
        );
        here.close();
        join(
            self.send_flow(&next, self.seed, 1000),
            self.recv_flow(&peer, self.seed, 1000),
        )
        .await;
    }

    /// Dropping the last handle of one end is a close.
    async fn dropped_handle(&self) {
        self.case.enter("a dropped handle");
        let (here, there) = self.connected().await;
        self.send_flow(&here, self.seed, 1000).await;
        drop(here);
        self.recv_flow(&there, self.seed, 1000).await;
        self.expect_ended("a recv", self.recv(&there).await);
    }

    /// Sends to a peer that has closed fail in the end, and so does a recv.
    async fn closed_there(&self) {
        self.case.enter("closed by the peer");
        let (here, there) = self.connected().await;
        there.close();
        for tries in 0.. {
            let data = self.env.pool.get(64 << 10).await.share();
            let (_, result) = here.send(vec![data]).await;
            if let Err(error) = result {
                check!(
                    self.case,
                    error.kind() == IoErrorKind::Stream,
                    "a send to a closed peer fails with {:?} ({error})",
                    error.kind()
                );
                break;
            }
            check!(
                self.case,
                tries < 1000,
                "{tries} sends to a closed peer succeed"
            );
            self.env.timer.sleep(Nanos::from_millis(1)).await;
        }
        self.expect_ended("a recv from a closed peer", self.recv(&here).await);
    }

    /// Bytes sent by the peer before its close do not hide the close.
    async fn peer_closed(&self) {
        self.case.enter("the peer's close, with bytes to receive");
        let (here, there) = self.connected().await;
        self.send_flow(&there, self.seed, 1000).await;
        check!(
            self.case,
            !here.peer_closed(),
            "an open peer is taken for closed"
        );
        there.close();
        let deadline = self.env.timer.now() + SETTLE;
        while !here.peer_closed() {
            let now = self.env.timer.now();
            check!(self.case, now < deadline, "a closed peer is taken for open");
            self.env.timer.sleep(Nanos::from_micros(200)).await;
        }
        self.recv_flow(&here, self.seed, 1000).await;
        check!(self.case, here.peer_closed(), "it is open again");
    }

    /// A dropped receive gives its buffer back once the stream ends.
    async fn abandoned_recv(&self) {
        self.case.enter("an abandoned recv");
        let (here, there) = self.connected().await;
        abandon(here.recv(self.env.pool.get(4096).await)).await;
        drop((here, there));
        let deadline = self.env.timer.now() + SETTLE;
        while self.env.pool.free_bytes() < self.free {
            let missing = self.free - self.env.pool.free_bytes();
            check!(
                self.case,
                self.env.timer.now() < deadline,
                "{missing} bytes of buffers never came back to the pool"
            );
            self.env.timer.sleep(Nanos::from_micros(200)).await;
        }
    }

    async fn refused(&self) {
        self.case.enter("connecting to nobody");
        let result = self.connector.connect(nowhere(&self.address)).await;
        check!(self.case, result.is_err(), "it succeeds");
    }

    async fn closed_listener(&self) {
        self.case.enter("a closed listener");
        let close = async {
            self.env.timer.sleep(Nanos::from_millis(1)).await;
            self.listener.close();
        };
        let (result, ()) = join(self.listener.accept(), close).await;
        check!(self.case, result.is_err(), "an accept in flight succeeds");
        let result = self.listener.accept().await;
        check!(self.case, result.is_err(), "a later accept succeeds");
    }

    async fn recv(&self, stream: &impl Stream) -> IoResult<usize> {
        stream.recv(self.env.pool.get(100).await).await.1
    }

    fn expect_ok(&self, what: &str, result: IoResult) {
        if let Err(error) = result {
            self.case.fail(format_args!("{what} fails: {error}"));
        }
    }

    fn expect_ended(&self, what: &str, result: IoResult<usize>) {
        let ended = match &result {
            Ok(bytes) => *bytes == 0,
            Err(error) => error.kind() == IoErrorKind::Stream,
        };
        check!(self.case, ended, "{what} ends with {result:?}");
    }

    fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }
}
