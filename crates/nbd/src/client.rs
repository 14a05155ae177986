//! A client: another server's export as a [`Device`].
//!
//! Invariants:
//!   - a request is answered once, even if its connection is lost: the request is then
//!     sent again on the next connection, and every request may be carried out
//!     twice with the same effect;
//!   - a flush succeeds only if every write acknowledged before it was
//!     acknowledged by the same connection: a restarted server may have
//!     forgotten the others, so the first flush after a loss fails;
//!   - a flush succeeds only after the answers to all changes that no caller waits
//!     for any more: no such change can undo a later one;
//!   - no request goes by a later connection before its export was recognised (`Options`): the
//!     server may be back with another disk.
//!
//! Not here: a server that still carries out a request of a lost connection can undo a
//! later write to the same place. NBD has no way to prevent that. A caller for which that
//! is wrong has its durable writes fail instead (`Options`).

mod dial;
mod link;
mod negotiate;
mod options;
mod slots;

pub use options::{Options, Recognise, Recognised};

use crate::protocol::session::NbdSession;
use crate::protocol::wire::{cmd, cmd_flag, flag, state};
use block::{
    BoxDevice, Buf, Connector, Content, Device, Env, Extent, Fua, Geometry, IoError, IoErrorKind,
    IoResult, Lba, SECTOR_BYTES, Sectors, SharedBuf,
};
use link::{ClientLink, Look};
use slots::{RequestFailure, SlotRequest};
use std::rc::Rc;

/// An export of another server.
pub struct Client {
    link: Rc<ClientLink>,
    geometry: Geometry,
    /// True for the client that recognises the export of a new connection; other requests wait.
    recognises: bool,
}

/// State of a client's export; clones are of the same client.
#[derive(Clone)]
pub struct ExportStanding(Rc<ClientLink>);

impl ExportStanding {
    /// Reason for which the last server's export is another than at the opening.
    pub fn other(&self) -> Option<String> {
        self.0.other.borrow().clone()
    }

    /// Size of the export in bytes, if larger than when the client was opened.
    pub fn grown(&self) -> Option<u64> {
        let now = self.0.session.get().size_bytes;
        (now > self.0.first.size_bytes).then_some(now)
    }

    /// Count of lost connections with changes that no flush had covered: a restarted server may
    /// have forgotten them.
    pub fn losses(&self) -> u64 {
        self.0.losses.get()
    }

    /// Reason for which requests wait or fail; `None` while the export answers.
    pub fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }
}

/// A long zero or trim is asked for in pieces of this many bytes.
const RANGE_BYTES_MAX: u64 = 32 << 20;
/// A block status is asked for at most this many bytes.
const STATUS_BYTES_MAX: u64 = 1 << 30;

impl Client {
    /// Connects; fails at once if the server cannot be reached or refuses.
    pub async fn connect<C: Connector>(
        env: Env,
        connector: C,
        options: Options,
    ) -> IoResult<Client> {
        let name = options.name();
        let look = look(&name, options.recognise.clone());
        let opening = ClientLink::open(env, connector, options, look);
        let (link, session) = opening.await.map_err(|e| e.on(name.clone()))?;
        let geometry = geometry(&name, &session).inspect_err(|_| link.close())?;
        Ok(Client {
            link,
            geometry,
            recognises: false,
        })
    }

    /// State of the export.
    pub fn standing(&self) -> ExportStanding {
        ExportStanding(self.link.clone())
    }

    fn session(&self) -> NbdSession {
        self.link.session.get()
    }

    /// Asks until there is an answer, or reason to give up.
    async fn ask(&self, mut ask: SlotRequest) -> (Option<Buf>, Vec<(u32, u32)>, IoResult) {
        let attempts = match self.recognises {
            true => 1,
            false => self.link.options.attempts_max,
        };
        for _ in 0..attempts {
            let answer = self.link.ask(ask, self.recognises).await;
            match answer.outcome {
                Ok(()) => return (answer.ask.buf, answer.extents, Ok(())),
                Err(RequestFailure::Reported(error)) => {
                    let error = error.on(self.geometry.name.to_string());
                    return (answer.ask.buf, answer.extents, Err(error));
                }
                Err(RequestFailure::Lost) => ask = answer.ask,
            }
            if ask.once {
                let what = "the connection was lost during a durable write, which may still \
                            be carried out and is not asked again; see to the NBD server";
                let error =
                    IoError::new(IoErrorKind::Gone, what).on(self.geometry.name.to_string());
                return (ask.buf, Vec::new(), Err(error));
            }
        }
        let what = format!(
            "the connection was lost {attempts} times during one request; see to the NBD server, \
             or to the network"
        );
        let error = IoError::new(IoErrorKind::Gone, what).on(self.geometry.name.to_string());
        (ask.buf, Vec::new(), Err(error))
    }

    /// A command without data.
    async fn command(&self, cmd: u16, flags: u16, offset: u64, len: u32) -> IoResult {
        self.ask(SlotRequest::new(cmd, flags, offset, len)).await.2
    }

    /// A change to `extent` that the server may take long over, in pieces.
    async fn command_pieces(&self, cmd: u16, extent: Extent) -> IoResult {
        let end = extent.end().byte();
        let mut at = extent.start.byte();
        while at < end {
            let n = RANGE_BYTES_MAX.min(end - at);
            self.command(cmd, 0, at, n as u32).await?;
            at += n;
        }
        Ok(())
    }

    fn has(&self, bit: u16) -> bool {
        self.session().flags & bit != 0
    }

    fn check_writable(&self) -> IoResult {
        if self.has(flag::READ_ONLY) {
            let what = "the NBD export is read-only; let its server take writes, or give the device \
                        `read_only = true`";
            return Err(self.geometry.error(IoErrorKind::ReadOnly, what));
        }
        Ok(())
    }

    /// Bytes of one transfer; the rest of a longer one follows.
    fn piece(&self, len: usize) -> usize {
        len.min(self.session().payload_bytes_max as usize)
    }

    async fn read_piece(&self, offset: u64, buf: Buf) -> (Buf, IoResult) {
        let len = buf.len();
        let mut ask = SlotRequest::new(cmd::READ, 0, offset, len as u32);
        ask.buf = Some(buf);
        let (buf, _, result) = self.ask(ask).await;
        (buf.expect("a read keeps its buffer"), result)
    }

    async fn write_pieces(&self, offset: u64, data: SharedBuf, fua: Fua) -> IoResult {
        // Without FUA on the server's side, a flush does the same.
        let flags = match fua {
            Fua::Yes if self.has(flag::SEND_FUA) => cmd_flag::FUA,
            _ => 0,
        };
        let mut at = 0;
        while at < data.len() {
            let n = self.piece(data.len() - at);
            let mut ask = SlotRequest::new(cmd::WRITE, flags, offset + at as u64, n as u32);
            ask.payload = Some(data.slice(at..at + n));
            ask.once = fua == Fua::Yes && !self.link.options.repeat_durable_writes;
            self.ask(ask).await.2?;
            at += n;
        }
        if fua == Fua::Yes && flags == 0 {
            self.flush().await?;
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.recognises {
            self.link.close();
        }
    }
}

/// The check of a new connection: runs `recognise` on the export behind the link.
fn look(name: &str, recognise: Option<Recognise>) -> Option<Look> {
    let (name, recognise) = (name.to_owned(), recognise?);
    Some(Rc::new(move |link: Rc<ClientLink>| {
        let (name, recognise) = (name.clone(), recognise.clone());
        Box::pin(async move {
            let geometry = geometry(&name, &link.first)?;
            let client = Client {
                link,
                geometry,
                recognises: true,
            };
            recognise(BoxDevice::new(client)).await
        })
    }))
}

/// The shape of an export; `Err(Unsupported)` if no device has it.
fn geometry(name: &str, session: &NbdSession) -> IoResult<Geometry> {
    let odd = |what: String| Err(IoError::new(IoErrorKind::Unsupported, what).on(name.to_owned()));
    let Some(sectors) = Sectors::from_bytes(session.size_bytes) else {
        return odd(format!(
            "a size of {} bytes, which is no multiple of 512; give the export another size",
            session.size_bytes
        ));
    };
    let block = match session.block_bytes_min {
        0..=512 => Sectors(1),
        513..=4096 => Sectors(8),
        min => return odd(format!("a block of {min} bytes; up to 4096 is supported")),
    };
    if !sectors.0.is_multiple_of(block.0) {
        return odd(format!(
            "a size of {} bytes, which is no multiple of its block of 4096; give the export another \
             size",
            sectors.bytes()
        ));
    }
    let mut geometry = Geometry::new(name, sectors, block);
    geometry.native = block;
    let preferred = u64::from(session.block_bytes_preferred).clamp(4096, 1 << 20);
    geometry.optimal = Sectors(preferred / SECTOR_BYTES);
    geometry.volatile = session.flags & flag::SEND_FLUSH != 0;
    geometry.rotational = session.flags & flag::ROTATIONAL != 0;
    Ok(geometry)
}

impl Device for Client {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        if let Err(error) = self.geometry.transfer(at, buf.len()) {
            return (buf, Err(error));
        }
        let mut rest = buf;
        let mut done: Option<Buf> = None;
        loop {
            let start = done.as_ref().map_or(0, |d| d.len());
            let piece = self.piece(rest.len());
            let tail = if piece < rest.len() {
                let (head, tail) = rest.split_at(piece);
                rest = head;
                Some(tail)
            } else {
                None
            };
            let (head, result) = self.read_piece(at.byte() + start as u64, rest).await;
            let all = match done.take() {
                None => head,
                Some(done) => Buf::rejoin(done, head).expect("split above"),
            };
            match (tail, result) {
                (Some(tail), Ok(())) => (done, rest) = (Some(all), tail),
                (None, result) => return (all, result),
                (Some(tail), error) => {
                    return (Buf::rejoin(all, tail).expect("split above"), error);
                }
            }
        }
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.geometry.transfer(at, data.len())?;
        self.check_writable()?;
        self.write_pieces(at.byte(), data, fua).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.geometry.check(extent)?;
        self.check_writable()?;
        if self.has(flag::SEND_WRITE_ZEROES) {
            return self.command_pieces(cmd::WRITE_ZEROES, extent).await;
        }
        let bytes = extent.len.bytes().min(64 << 10);
        let mut zeroes = self.link.env.pool.take(bytes as usize);
        zeroes.fill(0);
        let zeroes = zeroes.share();
        let mut at = extent.start.byte();
        while at < extent.end().byte() {
            let n = bytes.min(extent.end().byte() - at);
            let data = zeroes.slice(0..n as usize);
            self.write_pieces(at, data, Fua::No).await?;
            at += n;
        }
        Ok(())
    }

    async fn flush(&self) -> IoResult {
        self.link.abandoned_ended().await;
        if !self.has(flag::SEND_FLUSH) {
            return Ok(());
        }
        let covered = self
            .link
            .begin_flush()
            .map_err(|e| e.on(self.geometry.name.to_string()))?;
        self.command(cmd::FLUSH, 0, 0, 0).await?;
        self.link
            .end_flush(covered)
            .map_err(|e| e.on(self.geometry.name.to_string()))
    }

    /// Does nothing without TRIM on the server's side.
    async fn discard(&self, extent: Extent) -> IoResult {
        self.geometry.check(extent)?;
        self.check_writable()?;
        if !self.has(flag::SEND_TRIM) {
            return Ok(());
        }
        self.command_pieces(cmd::TRIM, extent).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.geometry.check(extent)?;
        if self.session().allocation.is_none() {
            out.push((extent, Content::Data));
            return Ok(());
        }
        let mut at = extent.start;
        while at < extent.end() {
            let left = (extent.end() - at).bytes();
            let len = left.min(STATUS_BYTES_MAX) as u32;
            let (_, reported, result) = self
                .ask(SlotRequest::new(cmd::BLOCK_STATUS, 0, at.byte(), len))
                .await;
            result?;
            at = runs(at, extent.end(), &reported, out);
        }
        Ok(())
    }
}

/// Appends the runs of whole sectors that a server reported from `at`; returns the begin of the
/// next. A sector that is reported in parts counts as data.
fn runs(at: Lba, end: Lba, reported: &[(u32, u32)], out: &mut Vec<(Extent, Content)>) -> Lba {
    let mut next = at;
    let before = out.len();
    let mut push = |to: Lba, content| {
        let to = to.min(end);
        if to <= next {
            return;
        }
        let run = Extent::new(next, to - next);
        match out[before..].last_mut() {
            Some((last, same)) if *same == content => {
                last.len += run.len;
            }
            _ => out.push((run, content)),
        }
        next = to;
    };
    let mut byte = at.byte();
    for (len, flags) in reported {
        let from = Lba(byte.div_ceil(SECTOR_BYTES));
        byte += u64::from(*len);
        let to = Lba(byte / SECTOR_BYTES);
        let content = match flags & (state::HOLE | state::ZERO) {
            state::ZERO => Content::Zero,
            both if both == state::HOLE | state::ZERO => Content::Hole,
            _ => Content::Data,
        };
        push(from, Content::Data);
        push(to, content);
    }
    // Every report reaches at least one sector further, so that this ends.
    push(Lba(byte.div_ceil(SECTOR_BYTES)), Content::Data);
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(at: u64, end: u64, reported: &[(u32, u32)]) -> (u64, Vec<(u64, u64, Content)>) {
        let mut out = Vec::new();
        let next = runs(Lba(at), Lba(end), reported, &mut out);
        let runs = out.iter().map(|(e, c)| (e.start.0, e.len.0, *c));
        (next.0, runs.collect())
    }

    #[test]
    fn runs_are_whole_sectors() {
        use Content::*;
        assert_eq!(
            reported(8, 16, &[(2048, 3), (1024, 0), (1024, 2)]),
            (16, vec![(8, 4, Hole), (12, 2, Data), (14, 2, Zero)])
        );
        // A sector that is half hole counts as data.
        assert_eq!(
            reported(0, 4, &[(768, 3), (1280, 3)]),
            (4, vec![(0, 1, Hole), (1, 1, Data), (2, 2, Hole)])
        );
        // Less than a sector still moves on; more than asked is cut off.
        assert_eq!(reported(0, 4, &[(100, 3)]), (1, vec![(0, 1, Data)]));
        assert_eq!(reported(0, 4, &[(1 << 20, 3)]), (4, vec![(0, 4, Hole)]));
        // Earlier entries of the caller's list stay.
        let had = (Extent::new(Lba(0), Sectors(4)), Data);
        let mut out = vec![had];
        runs(Lba(4), Lba(8), &[(2048, 0)], &mut out);
        assert_eq!(out, [had, (Extent::new(Lba(4), Sectors(4)), Data)]);
    }
}
