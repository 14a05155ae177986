//! The stream operations of a raw driver; part of the driver suite.

use super::check;
use super::flow::{cut, flow_byte, nowhere};
use super::join::{join, join_all};
use super::probe::Probe;
use super::rng::{SuiteRng, mix};
use crate::{
    Address, Buf, Driver, DriverOp, IoErrorKind, IoResult, Nanos, Payload, SharedBuf, TargetId,
};
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes sent each way in the long exchange.
const LONG: u64 = 512 << 10;

pub(super) async fn all<D: Driver>(
    probe: &Rc<Probe<D>>,
    listener: TargetId,
    address: Address,
    seed: u64,
) {
    let pipes = Pipes {
        probe: probe.clone(),
        listener,
        address,
        seed,
        rng: RefCell::new(SuiteRng::new(seed ^ 0x5eed)),
    };
    pipes.long_exchange().await;
    pipes.end_of_stream().await;
    pipes.closed_here().await;
    pipes.closed_there().await;
    pipes.refused().await;
    pipes.closed_listener().await;
}

struct Pipes<D> {
    probe: Rc<Probe<D>>,
    listener: TargetId,
    address: Address,
    seed: u64,
    rng: RefCell<SuiteRng>,
}

impl<D: Driver> Pipes<D> {
    /// Both ends of a new connection.
    async fn connected(&self) -> (TargetId, TargetId) {
        let accept = self.probe.submit(self.listener, DriverOp::Accept);
        let connect = DriverOp::Connect(self.address.clone());
        let connect = self.probe.submit(TargetId::NONE, connect);
        let ((accepted, _), (connected, _)) = join(accept, connect).await;
        let ends = (
            self.target("accept", accepted),
            self.target("connect", connected),
        );
        check!(
            self.probe.case,
            ends.0 != ends.1,
            "both ends are {:?}",
            ends.0
        );
        ends
    }

    fn target(&self, what: &str, result: IoResult<u64>) -> TargetId {
        let id = match result {
            Ok(id) => id,
            Err(error) => self.probe.case.fail(format_args!("{what} fails: {error}")),
        };
        let target = u32::try_from(id).map(TargetId);
        let Ok(target) = target else {
            let case = &self.probe.case;
            case.fail(format_args!("{what} gives {id}, which is no target"));
        };
        let geometry = self.probe.with(|d| d.geometry(target));
        check!(
            self.probe.case,
            geometry.is_none() && target != TargetId::NONE,
            "{what} gives {target:?} with {geometry:?}"
        );
        target
    }

    /// Two connections, both ways at once, sent in odd parts, received in odd
    /// pieces: every byte arrives, in order.
    async fn long_exchange(&self) {
        self.probe.case.enter("a long exchange");
        // One after the other: the order of accepts and connections is unspecified.
        let (a, b) = (self.connected().await, self.connected().await);
        let flows = [(a.0, a.1), (a.1, a.0), (b.0, b.1), (b.1, b.0)];
        let work = flows.into_iter().zip(0..).map(|((from, to), i)| {
            let id = mix(self.seed ^ i);
            join(self.send_flow(from, id, LONG), self.recv_flow(to, id, LONG))
        });
        join_all(work.collect::<Vec<_>>()).await;
        for end in [a.0, a.1, b.0, b.1] {
            self.probe.with(|d| d.close(end));
        }
    }

    async fn send_flow(&self, target: TargetId, id: u64, len: u64) {
        let mut sent = 0;
        while sent < len {
            let bytes = (1 + self.below(64 << 10)).min(len - sent);
            let mut buf = self.buf(bytes as usize);
            for (at, byte) in (sent..).zip(buf.iter_mut()) {
                *byte = flow_byte(id, at);
            }
            let count = self.below(12);
            let cuts: Vec<_> = (0..count)
                .map(|_| self.below(bytes / 3 + 2) as usize)
                .collect();
            let result = self.send(target, cut(buf.share(), cuts)).await;
            check!(
                self.probe.case,
                matches!(result, Ok(0)),
                "a send ends with {result:?}, not with 0"
            );
            sent += bytes;
        }
    }

    async fn recv_flow(&self, target: TargetId, id: u64, len: u64) {
        let mut at = 0;
        while at < len {
            let want = (1 + self.below(40 << 10)).min(len - at) as usize;
            let (buf, result) = self.recv(target, want).await;
            let got = match result {
                Ok(got) => got,
                Err(error) => self
                    .probe
                    .case
                    .fail(format_args!("after {at} bytes a recv fails: {error}")),
            };
            check!(
                self.probe.case,
                (1..=want as u64).contains(&got),
                "after {at} of {len} bytes a recv of {want} gives {got}"
            );
            for (i, &byte) in (at..at + got).zip(buf.iter()) {
                check!(
                    self.probe.case,
                    byte == flow_byte(id, i),
                    "byte {i} of the stream is not what was sent"
                );
            }
            at += got;
        }
    }

    /// Bytes sent before a close arrive, then the end.
    async fn end_of_stream(&self) {
        self.probe.case.enter("end of stream");
        let (here, there) = self.connected().await;
        let result = self.send(here, Vec::new()).await;
        check!(
            self.probe.case,
            matches!(result, Ok(0)),
            "a send of nothing ends with {result:?}"
        );
        self.send_flow(here, self.seed, 10_000).await;
        self.probe.with(|d| d.close(here));
        self.recv_flow(there, self.seed, 10_000).await;
        for _ in 0..2 {
            let (_, result) = self.recv(there, 100).await;
            check!(
                self.probe.case,
                matches!(result, Ok(0)),
                "a recv after the peer closed ends with {result:?}, not with 0"
            );
        }
        self.probe.with(|d| d.close(there));
    }

    /// A close ends operations that wait on this side, and later ones.
    async fn closed_here(&self) {
        self.probe.case.enter("closed on this side");
        let (here, there) = self.connected().await;
        let waiting = self.probe.submit(here, DriverOp::Recv(self.buf(100)));
        self.probe
            .sleep_until(self.probe.now() + Nanos::from_millis(1))
            .await;
        self.probe.with(|d| d.close(here));
        let (result, _) = waiting.await;
        self.expect_ended("a recv in flight at the close", result);
        let (_, result) = self.recv(here, 100).await;
        self.expect_ended("a recv after the close", result);
        let result = self.send(here, vec![self.buf(100).share()]).await;
        check!(
            self.probe.case,
            result.is_err(),
            "a send after the close succeeds"
        );
        self.probe.with(|d| d.close(there));
    }

    fn expect_ended(&self, what: &str, result: IoResult<u64>) {
        let ended = match &result {
            Ok(bytes) => *bytes == 0,
            Err(error) => error.kind() == IoErrorKind::Stream,
        };
        check!(self.probe.case, ended, "{what} ends with {result:?}");
    }

    /// Sends to a peer that has closed fail in the end, and so does a recv.
    async fn closed_there(&self) {
        self.probe.case.enter("closed by the peer");
        let (here, there) = self.connected().await;
        self.probe.with(|d| d.close(there));
        for tries in 0.. {
            let result = self.send(here, vec![self.buf(64 << 10).share()]).await;
            if let Err(error) = result {
                check!(
                    self.probe.case,
                    error.kind() == IoErrorKind::Stream,
                    "a send to a closed peer fails with {:?} ({error})",
                    error.kind()
                );
                break;
            }
            check!(
                self.probe.case,
                tries < 1000,
                "{tries} sends to a closed peer succeed"
            );
            self.probe
                .sleep_until(self.probe.now() + Nanos::from_millis(1))
                .await;
        }
        let (_, result) = self.recv(here, 100).await;
        self.expect_ended("a recv from a closed peer", result);
        self.probe.with(|d| d.close(here));
    }

    async fn refused(&self) {
        self.probe.case.enter("connecting to nobody");
        let connect = DriverOp::Connect(nowhere(&self.address));
        let (result, _) = self.probe.submit(TargetId::NONE, connect).await;
        check!(self.probe.case, result.is_err(), "it succeeds");
    }

    async fn closed_listener(&self) {
        self.probe.case.enter("a closed listener");
        let waiting = self.probe.submit(self.listener, DriverOp::Accept);
        self.probe
            .sleep_until(self.probe.now() + Nanos::from_millis(1))
            .await;
        self.probe.with(|d| d.close(self.listener));
        let (result, _) = waiting.await;
        check!(
            self.probe.case,
            result.is_err(),
            "an accept in flight succeeds"
        );
        let (result, _) = self.probe.submit(self.listener, DriverOp::Accept).await;
        check!(self.probe.case, result.is_err(), "a later accept succeeds");
    }

    async fn send(&self, target: TargetId, parts: Vec<SharedBuf>) -> IoResult<u64> {
        self.probe.submit(target, DriverOp::Send(parts)).await.0
    }

    async fn recv(&self, target: TargetId, bytes: usize) -> (Buf, IoResult<u64>) {
        let op = DriverOp::Recv(self.buf(bytes));
        match self.probe.submit(target, op).await {
            (result, Payload::Buf(buf)) => (buf, result),
            _ => unreachable!("the probe checks payloads"),
        }
    }

    fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    fn buf(&self, bytes: usize) -> Buf {
        let buf = self.probe.with(|d| d.pool().try_get(bytes));
        buf.expect("the suite keeps within half of a pool of 4 MiB")
    }
}
