//! Execution of requests, and their answers.

use super::admission::Release;
use super::link::ServerLink;
use super::server::{Export, NbdServer};
use super::workers::{WorkerJob, WriteParts};
use crate::outbox::{Frame, SendLoad};
use crate::protocol::errno::Errno;
use crate::protocol::reply;
use crate::protocol::session::{NbdSession, SessionCommand};
use crate::protocol::wire::{chunk, state};
use block::{
    AskedRead, BUF_BYTES_MAX, Boundary, Content, Extent, Fua, IoError, IoErrorKind, IoResult,
    PAGE_BYTES, Pool, ReadTaker, SharedBuf,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A long zero or trim goes to the device in pieces of this many bytes.
const RANGE_BYTES_MAX: u64 = 64 << 20;
/// A block status is looked up in pieces of this many bytes.
const STATUS_BYTES_MAX: u64 = 16 << 20;
/// Extents of one block status reply; the client asks again for the rest.
const EXTENTS_MAX: usize = 1024;

/// Memory that a buffer of `len` bytes takes.
pub(super) fn rounded(len: u32) -> u32 {
    len.next_power_of_two().max(PAGE_BYTES as u32)
}

/// Memory that reading or merging `len` bytes at `offset` takes at the most.
pub(super) fn charge(offset: u64, len: u32) -> u32 {
    let page = PAGE_BYTES as u64;
    let end = (offset + u64::from(len)).next_multiple_of(page);
    rounded((end - offset / page * page) as u32)
}

/// The requests of one connection, received and not answered.
pub(super) struct ConnectionRequests<G: Boundary> {
    pub(super) server: Rc<NbdServer<G>>,
    pub(super) link: Rc<ServerLink>,
    pub(super) export: Rc<Export<G>>,
    pub(super) session: NbdSession,
}

impl<G: Boundary> ReadTaker for ConnectionRequests<G> {
    #[inline]
    fn take_read(self: Rc<Self>, read: &AskedRead, result: IoResult<SharedBuf>) {
        match result {
            Ok(data) => self.answer_read(read.ticket, read.offset, read.charge, data),
            Err(error) => self.fail(read.ticket, read.charge, &error),
        }
    }
}

impl<G: Boundary> ConnectionRequests<G> {
    /// Hands a job to a worker.
    pub(super) fn dispatch(self: Rc<Self>, job: WorkerJob) {
        if let Some(number) = self.link.dispatch(job) {
            let spawn = self.server.env.spawn.clone();
            spawn.spawn(async move {
                while let Some(job) = self.link.next_job(number).await {
                    self.perform(job).await;
                }
            });
        }
    }

    async fn perform(&self, job: WorkerJob) {
        let (cookie, charge, piece) = (job.cookie, job.charge, job.piece);
        let result = match job.command {
            SessionCommand::Read { offset, len, .. } if len <= piece => {
                match self.export.gate.read(offset, len as usize).await {
                    Ok(data) => return self.answer_read(cookie, offset, charge, data),
                    Err(error) => Err(error),
                }
            }
            SessionCommand::Read { df: true, .. } => {
                self.link.discharge(charge);
                let why = "too long for one chunk";
                return self.refuse(cookie, Errno::Overflow, why);
            }
            SessionCommand::Read { offset, len, .. } => {
                let all = pieces(offset, len, piece);
                self.export.gate.announce(offset, len.into()).await;
                return self.long_read(cookie, charge, offset, len, all).await;
            }
            SessionCommand::Write { offset, fua, .. } => {
                let payload = job.payload.expect("a write has its payload");
                let n = payload.len() as u64;
                let result = self.export.gate.write(offset, payload, fua).await;
                self.link.client.acknowledged();
                if let Some(parts) = job.parts {
                    return self.part_written(cookie, charge, &parts, n, result).await;
                }
                result.map(|()| {
                    self.server.count(|s| {
                        s.writes.add(1);
                        s.written_bytes.add(n);
                    });
                })
            }
            SessionCommand::Flush => {
                let result = self.flush().await;
                result.map(|()| self.server.count(|s| s.flushes.add(1)))
            }
            SessionCommand::BlockStatus { offset, len, one } => {
                match self.block_status(cookie, offset, len, one).await {
                    Ok(()) => return self.server.count(|s| s.others.add(1)),
                    Err(error) => Err(error),
                }
            }
            command => {
                let result = self.range(command, piece).await;
                if !matches!(command, SessionCommand::Cache { .. }) {
                    self.link.client.acknowledged();
                }
                result.map(|()| self.server.count(|s| s.others.add(1)))
            }
        };
        match result {
            Ok(()) => self.link.answer(success(cookie, charge)),
            Err(error) => self.fail(cookie, charge, &error),
        }
    }

    #[inline]
    fn answer_read(&self, cookie: u64, offset: u64, charge: u32, data: SharedBuf) {
        let n = data.len() as u32;
        self.server.count(|s| {
            s.reads.add(1);
            s.read_bytes.add(u64::from(n));
        });
        let mut frame = if self.session.structured {
            Frame::new(reply::data_head(chunk::DONE, cookie, offset, n), Some(data))
        } else {
            Frame::new(reply::simple(0, cookie), Some(data))
        };
        frame.charge = charge;
        self.link.answer(frame);
    }

    /// A read that is longer than a piece: one piece in memory at a time.
    async fn long_read(
        &self,
        cookie: u64,
        charge: u32,
        offset: u64,
        len: u32,
        pieces: impl Iterator<Item = (u64, u32)>,
    ) {
        let end = offset + u64::from(len);
        let read = match self.session.structured {
            true => self.long_structured_read(cookie, charge, end, pieces).await,
            false => self.long_simple_read(cookie, charge, end, pieces).await,
        };
        if read {
            self.server.count(|s| {
                s.reads.add(1);
                s.read_bytes.add(u64::from(len));
            });
        }
    }

    /// Reads in structured pieces; true on success.
    async fn long_structured_read(
        &self,
        cookie: u64,
        charge: u32,
        end: u64,
        pieces: impl Iterator<Item = (u64, u32)>,
    ) -> bool {
        for (at, n) in pieces {
            let data = match self.export.gate.read(at, n as usize).await {
                Ok(data) => data,
                Err(error) => {
                    self.fail(cookie, charge, &error);
                    return false;
                }
            };
            let done = at + u64::from(n) == end;
            let flags = if done { chunk::DONE } else { 0 };
            let mut frame = Frame::new(reply::data_head(flags, cookie, at, n), Some(data));
            frame.last = done;
            frame.charge = if done { charge } else { 0 };
            self.link.answer(frame);
            if !done {
                self.link.all_sent().await;
            }
        }
        true
    }

    /// The header of a simple reply promises success for the whole read. Nothing may come between
    /// its pieces, and a later failure ends the connection (`NBD_CMD_READ`, "Simple replies").
    async fn long_simple_read(
        &self,
        cookie: u64,
        charge: u32,
        end: u64,
        pieces: impl Iterator<Item = (u64, u32)>,
    ) -> bool {
        let mut begun = false;
        for (at, n) in pieces {
            let data = match self.export.gate.read(at, n as usize).await {
                Ok(data) => data,
                Err(error) if !begun => {
                    self.fail(cookie, charge, &error);
                    return false;
                }
                Err(_) => {
                    self.link.replies.end_undivided();
                    self.link.kill("a read failed after its reply was begun");
                    let (requests, frames) = (1, 0);
                    self.link.release(SendLoad {
                        requests,
                        charge,
                        frames,
                    });
                    return false;
                }
            };
            let mut frame = if begun {
                Frame::new([], Some(data))
            } else {
                self.link.replies.begin_undivided().await;
                Frame::new(reply::simple(0, cookie), Some(data))
            };
            begun = true;
            frame.last = at + u64::from(n) == end;
            frame.charge = if frame.last { charge } else { 0 };
            self.link.answer_undivided(frame).await;
        }
        self.link.replies.end_undivided();
        true
    }

    async fn part_written(
        &self,
        cookie: u64,
        charge: u32,
        parts: &WriteParts,
        bytes: u64,
        result: IoResult,
    ) {
        self.server.count(|s| s.written_bytes.add(bytes));
        self.link.discharge(charge);
        if let Err(error) = result {
            parts.error.borrow_mut().get_or_insert(error);
        }
        parts.left.set(parts.left.get() - bytes as u32);
        if parts.left.get() > 0 {
            return;
        }
        match parts.error.take() {
            Some(error) => self.fail(cookie, 0, &error),
            None => {
                self.server.count(|s| s.writes.add(1));
                self.link.answer(success(cookie, 0));
            }
        }
    }

    /// Commands on ranges that may be longer than memory.
    async fn range(&self, command: SessionCommand, piece: u32) -> IoResult {
        match command {
            SessionCommand::Zero {
                offset,
                len,
                fua,
                keep_space,
            } => {
                if keep_space {
                    return self.write_zeroes(offset, len, fua, piece).await;
                }
                for (at, n) in chunks(offset, len, RANGE_BYTES_MAX) {
                    self.export.gate.zero(at, n).await?;
                }
                self.flush_if(fua).await
            }
            SessionCommand::Trim { offset, len, fua } => {
                for (at, n) in chunks(offset, len, RANGE_BYTES_MAX) {
                    match self.export.gate.discard(at, n).await {
                        // A trim is a hint; a device may not care.
                        Err(error) if error.kind() == IoErrorKind::Unsupported => break,
                        result => result?,
                    }
                }
                self.flush_if(fua).await
            }
            SessionCommand::Cache { offset, len } => {
                for (at, n) in pieces(offset, len, piece) {
                    self.export.gate.read(at, n as usize).await?;
                }
                Ok(())
            }
            other => unreachable!("{other:?} has no range"),
        }
    }

    /// Writes zeroes where a hole must not appear.
    async fn write_zeroes(&self, offset: u64, len: u32, fua: Fua, piece: u32) -> IoResult {
        let piece = u64::from(piece) / 4;
        let mut zeroes = self.server.env.pool.take(piece as usize);
        zeroes.fill(0);
        let zeroes = zeroes.share();
        for (at, n) in chunks(offset, len, piece) {
            self.export
                .gate
                .write(at, zeroes.slice(0..n as usize), fua)
                .await?;
        }
        Ok(())
    }

    async fn flush(&self) -> IoResult {
        let flush = self.export.gate.flush();
        let flushes = &self.export.flushes;
        flushes.flush(&self.link.client, flush).await
    }

    async fn flush_if(&self, fua: Fua) -> IoResult {
        match fua {
            Fua::Yes => self.flush().await,
            Fua::No => Ok(()),
        }
    }

    async fn block_status(&self, cookie: u64, offset: u64, len: u32, one: bool) -> IoResult {
        let mut extents = Vec::new();
        let mut runs = Vec::new();
        let want = if one { 1 } else { EXTENTS_MAX };
        for (at, n) in chunks(offset, len, STATUS_BYTES_MAX) {
            runs.clear();
            self.export.gate.extents(at, n, &mut runs).await?;
            append(&mut extents, at, at + n, &runs);
            if extents.len() > want {
                break;
            }
        }
        extents.truncate(want);
        if extents.is_empty() {
            return Err(IoError::new(
                IoErrorKind::Other,
                "the device reports no extents",
            ));
        }
        let context = self.session.allocation.expect("admitted only with it");
        let mut wire = Vec::new();
        reply::put_block_status(&mut wire, cookie, context, &extents);
        self.link.answer(body(&self.server.env.pool, &wire));
        Ok(())
    }

    fn fail(&self, cookie: u64, charge: u32, error: &IoError) {
        self.link.discharge(charge);
        let errno = Errno::from_kind(error.kind());
        self.refuse(cookie, errno, &error.to_string());
    }

    fn refuse(&self, cookie: u64, errno: Errno, why: &str) {
        self.server.count(|s| s.errors.add(1));
        let pool = &self.server.env.pool;
        let frame = self::error(pool, &self.session, cookie, errno, why);
        self.link.answer(frame);
    }
}

impl WriteParts {
    /// The parts of a write of `bytes`.
    pub(super) fn new(bytes: u32) -> WriteParts {
        WriteParts {
            left: Cell::new(bytes),
            error: RefCell::default(),
        }
    }

    /// Gives up so many bytes that will never arrive.
    pub(super) fn abandon(&self, link: &ServerLink, bytes: u32) {
        self.left.set(self.left.get() - bytes);
        if self.left.get() > 0 {
            let gone = IoError::new(IoErrorKind::Stream, "the stream ended inside a write");
            self.error.borrow_mut().get_or_insert(gone);
        } else {
            link.release(SendLoad {
                requests: 1,
                ..SendLoad::default()
            });
        }
    }
}

/// A success without data.
fn success(cookie: u64, charge: u32) -> Frame {
    let mut frame = Frame::new(reply::simple(0, cookie), None);
    frame.charge = charge;
    frame
}

/// The answer to a request that failed.
pub(super) fn error(
    pool: &Pool,
    session: &NbdSession,
    cookie: u64,
    errno: Errno,
    message: &str,
) -> Frame {
    if !session.structured {
        return Frame::new(reply::simple(errno.code(), cookie), None);
    }
    let mut wire = Vec::new();
    reply::put_error(&mut wire, cookie, errno, message);
    body(pool, &wire)
}

/// A frame of bytes built elsewhere; at most `BUF_BYTES_MAX` of them.
fn body(pool: &Pool, wire: &[u8]) -> Frame {
    assert!(wire.len() <= BUF_BYTES_MAX);
    let mut buf = pool.take(wire.len());
    buf.copy_from_slice(wire);
    Frame::new([], Some(buf.share()))
}

fn pieces(offset: u64, len: u32, piece: u32) -> impl Iterator<Item = (u64, u32)> {
    chunks(offset, len, piece.into()).map(|(at, n)| (at, n as u32))
}

/// `len` bytes from `offset` in pieces of `max` bytes.
fn chunks(offset: u64, len: u32, max: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + u64::from(len);
    (offset..end)
        .step_by(max as usize)
        .map(move |at| (at, max.min(end - at)))
}

/// Appends the `runs` of the bytes `from..to`, joining equal neighbours.
fn append(extents: &mut Vec<(u32, u32)>, from: u64, to: u64, runs: &[(Extent, Content)]) {
    for (extent, content) in runs {
        let start = extent.start.byte().max(from);
        let end = extent.end().byte().min(to);
        if start >= end {
            continue;
        }
        let len = (end - start) as u32;
        let flags = match content {
            Content::Data => 0,
            Content::Hole => state::HOLE | state::ZERO,
            Content::Zero => state::ZERO,
        };
        match extents.last_mut() {
            Some(last) if last.1 == flags => last.0 += len,
            _ => extents.push((len, flags)),
        }
    }
}
