//! Cost of a hit from the client's bytes to the reply's: 4 KiB reads of resident blocks over NBD,
//! on a stream and a driver that complete at once.
//!
//! Everything that the process runs is counted: parsing, the limits of the connection, the gate,
//! the engine, the meter on the pool device, the executor, and the reply's header. This client
//! counts too, with a few instructions a request. Left out is the executor's part in receiving and
//! sending.

use super::nop::{Nop, drive, drive_two, instructions, instructions_where};
use super::{BenchRow, Goal, alone, hits};
use block::{Boundary, Buf, Env, Gate, IoResult, Nanos, Pool, SharedBuf, Stream, TargetId};
use cache::Counter;
use filter::Metered;
use futures_channel::oneshot;
use nbd::protocol::request::WireRequest;
use nbd::protocol::wire::{CHUNK_BYTES, IHAVEOPT, REQUEST_BYTES, cmd, handshake_flag, option};
use nbd::serve::{ExportOptions, NbdServer, ServerLimits};
use shard::{GateAsker, GateTable, Local, LocatingGate, RemoteGate, lane};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::task::{Poll, Waker};

const READ_BYTES: usize = 4096;
/// A structured reply of one chunk: its header, an offset, the data.
const REPLY_BYTES: usize = CHUNK_BYTES + 8 + READ_BYTES;

/// A client at a constant depth: as many requests as were answered come next.
struct HitsClient {
    /// The bytes of the client's handshake, until received.
    hello: Cell<Option<Vec<u8>>>,
    /// Requests that the server may receive now.
    due: Cell<u64>,
    /// Requests that are not made yet, and replies that are not sent yet.
    left: Cell<u64>,
    unanswered: Cell<u64>,
    receiving: Cell<Option<Waker>>,
    /// Source of the server's buffers, until the buffer of the handshake is back.
    pool: Cell<Option<Pool>>,
    /// The server's part of the handshake. No driver here writes to a read buffer, so a buffer with
    /// any other content than zeroes must not come back: its checksum would be wrong.
    heard: RefCell<Vec<SharedBuf>>,
    done: RefCell<Option<oneshot::Sender<()>>>,
}

/// The options of a client that wants structured replies and the export "".
fn hello() -> Vec<u8> {
    let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    let mut wire = u32::from(flags).to_be_bytes().to_vec();
    for choice in [option::STRUCTURED_REPLY, option::EXPORT_NAME] {
        wire.extend(IHAVEOPT.to_be_bytes());
        wire.extend(choice.to_be_bytes());
        wire.extend(0u32.to_be_bytes());
    }
    wire
}

impl HitsClient {
    fn new(requests: u64, depth: u64, pool: Pool, done: oneshot::Sender<()>) -> HitsClient {
        HitsClient {
            hello: Cell::new(Some(hello())),
            due: Cell::new(depth),
            left: Cell::new(requests),
            unanswered: Cell::new(requests),
            receiving: Cell::new(None),
            pool: Cell::new(Some(pool)),
            heard: RefCell::default(),
            done: RefCell::new(Some(done)),
        }
    }

    /// Writes the requests that are due to `wire`; returns the number of bytes.
    fn ask(&self, wire: &mut [u8]) -> usize {
        let room = (wire.len() / REQUEST_BYTES) as u64;
        let n = self.due.get().min(self.left.get()).min(room);
        for (i, place) in (0..n).zip(wire.chunks_exact_mut(REQUEST_BYTES)) {
            let number = self.left.get() - i;
            let request = WireRequest {
                flags: 0,
                cmd: cmd::READ,
                cookie: number,
                offset: hits::place(number).byte(),
                len: READ_BYTES as u32,
            };
            place.copy_from_slice(&request.encode());
        }
        self.due.set(self.due.get() - n);
        self.left.set(self.left.get() - n);
        n as usize * REQUEST_BYTES
    }
}

impl Stream for HitsClient {
    async fn recv(&self, mut buf: Buf) -> (Buf, IoResult<usize>) {
        if let Some(hello) = self.hello.take() {
            buf[..hello.len()].copy_from_slice(&hello);
            return (buf, Ok(hello.len()));
        }
        // The buffer of the handshake is the next that a read would get.
        if let Some(pool) = self.pool.take() {
            pool.take(READ_BYTES).fill(0);
        }
        let n = poll_fn(|cx| match self.ask(&mut buf) {
            0 => {
                self.receiving.set(Some(cx.waker().clone()));
                Poll::Pending
            }
            n => Poll::Ready(n),
        })
        .await;
        (buf, Ok(n))
    }

    async fn send(&self, mut parts: Vec<SharedBuf>) -> (Vec<SharedBuf>, IoResult) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes < REPLY_BYTES {
            self.heard.borrow_mut().append(&mut parts);
            return (parts, Ok(()));
        }
        parts.clear();
        assert_eq!(bytes % REPLY_BYTES, 0, "a reply is no success");
        let replies = (bytes / REPLY_BYTES) as u64;
        self.due.set(self.due.get() + replies);
        self.unanswered.set(self.unanswered.get() - replies);
        if self.unanswered.get() == 0
            && let Some(done) = self.done.take()
        {
            // The shard outlives its tasks.
            let _ = done.send(());
        }
        if let Some(waker) = self.receiving.take() {
            waker.wake();
        }
        (parts, Ok(()))
    }

    fn peer_closed(&self) -> bool {
        false
    }

    fn close(&self) {}
}

/// Serves 4 KiB `ops` times from the pool to a client at `depth`.
pub fn reads(ops: u64, depth: u64) {
    drive(move |local| async move {
        let env = local.env();
        let disk = local.disk(TargetId(0)).expect("nop is a disk");
        let leaf = Metered::meter(disk, env.timer.clone());
        let (cache, volume) = hits::warm(&local, leaf, hits::POLICIES[0]).await;
        let gate = LocatingGate::new(Gate::new(volume, env.clone()), &local);
        let server = serve(&env, gate);
        let (done, ended) = oneshot::channel();
        server.admit(HitsClient::new(ops, depth, env.pool.clone(), done));
        ended.await.expect("the connection lasts");
        let hits = cache.counters().get(Counter::ReadsHit);
        assert_eq!(hits, ops, "every read is a hit");
        server.shut_down(Nanos::ZERO).await;
    });
}

/// Serves as [`reads`] does, with the connection on another shard than the volume.
pub fn crossed(ops: u64, depth: u64) {
    let (end, lane) = lane();
    let (offer, offered) = oneshot::channel();
    let (done, ended) = oneshot::channel();
    let home = move |local: Local<Nop>| async move {
        let env = local.env();
        let disk = local.disk(TargetId(0)).expect("nop is a disk");
        let leaf = Metered::meter(disk, env.timer.clone());
        let (cache, volume) = hits::warm(&local, leaf, hits::POLICIES[0]).await;
        // The first buffer of the pool has another content than the disk, which writes none.
        env.pool.take(READ_BYTES).fill(0);
        let table = Rc::new(GateTable::default());
        let pass = table.add(Gate::new(volume, env.clone()));
        env.spawn.spawn(table.serve(lane, env.clone()));
        assert!(offer.send(pass).is_ok());
        ended.await.expect("the connection lasts");
        // The last hits are reported a while after their answers.
        while cache.counters().get(Counter::ReadsHit) < ops {
            env.timer.sleep(Nanos::from_millis(10)).await;
        }
        assert_eq!(cache.counters().get(Counter::ReadsHit), ops);
    };
    let further = move |local: Local<Nop>| async move {
        let env = local.env();
        let pass = offered.await.expect("the home shard lasts");
        let gate = RemoteGate::new(GateAsker::begin(end, &local), pass);
        let server = serve(&env, gate);
        server.admit(HitsClient::new(ops, depth, env.pool.clone(), done));
        std::future::pending().await
    };
    drive_two(home, further);
}

/// A server of one connection, with one export: behind `gate`.
fn serve<G: Boundary>(env: &Env, gate: G) -> Rc<NbdServer<G>> {
    let log = Rc::new(|line: &str| panic!("{line}"));
    let limits = ServerLimits {
        connections_max: 1,
        memory_bytes_max: env.pool.total_bytes() / 2,
        ..ServerLimits::default()
    };
    let server = NbdServer::new(env.clone(), limits, None, log).expect("sound");
    let added = server.add("", gate, &ExportOptions::default());
    added.expect("the first export");
    server
}

/// Instructions of a hit, its checksum apart; `hits` is the program of that name.
pub fn rows(program: &Path) -> io::Result<Vec<BenchRow>> {
    let checksum = instructions(program, &["checksum"])?;
    let mut rows = Vec::new();
    for depth in ["1", "32"] {
        let all = instructions(program, &["served", depth])?;
        rows.push(alone(
            format!("NBD server, depth {depth}: instructions of a 4 KiB hit without its checksum"),
            "instructions",
            Some(Goal::AtMost(1500.0)),
            &[all - checksum],
        ));
    }
    for depth in ["1", "32"] {
        let arguments = ["crossed", depth];
        let both = instructions(program, &arguments)? - checksum;
        let at_home = ["--toggle-collect=*home_turn*"];
        let home = instructions_where(&at_home, program, &arguments)? - checksum;
        for (whose, count) in [("home shard's", home), ("other shard's", both - home)] {
            let name = format!(
                "NBD server on another shard, depth {depth}: {whose} instructions of such a hit"
            );
            rows.push(alone(name, "instructions", None, &[count]));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_read_is_a_hit() {
        for depth in [1, 32] {
            super::reads(500, depth);
            super::crossed(500, depth);
        }
    }
}
