//! An NBD server with one export, a device of the daemon: the server forgets unflushed writes, is
//! late, and serves foreign data in place of its own.
//!
//! Invariants:
//!     flushed and forced writes are in its file
//!     requests of an ended connection are not carried out
//!
//! Not here: rules for single requests (`devil`); more than the handshake of old clients.

use crate::devil::{Devil, DevilVerb};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const GREETING: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const UNSUPPORTED: u32 = 0x8000_0001;
/// Transmission flags: flags are sent; flush, force unit access and zeroes are supported.
const FEATURES: u16 = 1 | 4 | 8 | 64;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const FUA: u16 = 1;
const SECTOR: usize = 512;
/// Longest write that can be forgotten.
const CACHED_MAX: usize = 1 << 20;
/// Interval of checks for clients.
const LOOK: Duration = Duration::from_millis(5);

struct ExportState {
    listens: bool,
    over: bool,
    /// Number that is raised whenever connections are ended.
    incarnation: u64,
    /// File with foreign data, which is served in place of the export's own.
    other: Option<File>,
    /// Sectors that were written and not flushed.
    cache: BTreeMap<u64, [u8; SECTOR]>,
    clients: Vec<UnixStream>,
}

struct ExportServer {
    name: String,
    socket: PathBuf,
    file: File,
    devil: Devil,
    state: Mutex<ExportState>,
}

/// A server, until dropped.
pub struct StormExport {
    server: Arc<ExportServer>,
    accepting: Option<JoinHandle<()>>,
}

impl StormExport {
    /// Serves the file `name` of the folder `back`, by the rules of `devil`.
    pub fn new(name: &str, back: &Path, socket: PathBuf, devil: &Devil) -> io::Result<StormExport> {
        let path = back.join(name);
        let server = Arc::new(ExportServer {
            name: name.to_owned(),
            socket,
            file: File::options().read(true).write(true).open(path)?,
            devil: devil.clone(),
            state: Mutex::new(ExportState {
                listens: true,
                over: false,
                incarnation: 0,
                other: None,
                cache: BTreeMap::new(),
                clients: Vec::new(),
            }),
        });
        let accepting = thread::spawn({
            let server = server.clone();
            move || server.accept()
        });
        Ok(StormExport {
            server,
            accepting: Some(accepting),
        })
    }

    /// Name of the export.
    pub fn name(&self) -> &str {
        &self.server.name
    }

    /// Ends all connections, and refuses new ones until [`StormExport::begin`].
    pub fn end(&self) {
        let mut state = self.server.state();
        state.listens = false;
        state.disconnect();
    }

    /// Accepts connections again.
    pub fn begin(&self) {
        self.server.state().listens = true;
    }

    /// Loses unflushed writes. Returns true if there were any.
    pub fn forget(&self) -> bool {
        !std::mem::take(&mut self.server.state().cache).is_empty()
    }

    /// Serves a foreign file in place of its own; `None` serves its own again.
    pub fn swap(&self, other: Option<&Path>) -> io::Result<()> {
        let open = |path: &Path| File::options().read(true).write(true).open(path);
        let other = other.map(open).transpose()?;
        let mut state = self.server.state();
        state.other = other;
        state.disconnect();
        Ok(())
    }

    /// Writes all data of its clients to its file.
    pub fn flush(&self) -> io::Result<()> {
        self.server.flush(&mut self.server.state())
    }
}

impl Drop for StormExport {
    fn drop(&mut self) {
        let mut state = self.server.state();
        state.over = true;
        state.disconnect();
        drop(state);
        if let Some(accepting) = self.accepting.take() {
            // A panic has been printed.
            let _ = accepting.join();
        }
    }
}

impl ExportState {
    fn disconnect(&mut self) {
        self.incarnation += 1;
        for client in self.clients.drain(..) {
            // The client may be gone.
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

/// A request without its data.
struct ExportRequest {
    flags: u16,
    verb: u16,
    handle: [u8; 8],
    offset: u64,
    length: usize,
}

impl ExportServer {
    fn state(&self) -> MutexGuard<'_, ExportState> {
        self.state.lock().expect("no panic under this lock")
    }

    fn accept(self: Arc<ExportServer>) {
        let mut listener: Option<UnixListener> = None;
        loop {
            let (listens, over) = {
                let state = self.state();
                (state.listens, state.over)
            };
            if over {
                return;
            }
            match (&listener, listens) {
                (None, true) => listener = self.listen(),
                (Some(_), false) => {
                    listener = None;
                    // A socket without a listener refuses connections as well.
                    let _ = fs::remove_file(&self.socket);
                }
                _ => {}
            }
            let Some(Ok((stream, _))) = listener.as_ref().map(UnixListener::accept) else {
                thread::sleep(LOOK);
                continue;
            };
            let mut state = self.state();
            let incarnation = state.incarnation;
            state.clients.extend(stream.try_clone());
            drop(state);
            let server = self.clone();
            // The thread ends with its connection.
            thread::spawn(move || drop(server.serve(stream, incarnation)));
        }
    }

    fn listen(&self) -> Option<UnixListener> {
        let _ = fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket).ok()?;
        listener.set_nonblocking(true).ok()?;
        Some(listener)
    }

    fn serve(self: Arc<ExportServer>, mut stream: UnixStream, incarnation: u64) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        if !self.greet(&mut stream)? {
            return Ok(());
        }
        let out = Arc::new(Mutex::new(stream.try_clone()?));
        loop {
            let mut head = [0; 28];
            stream.read_exact(&mut head)?;
            if head[..4] != REQUEST_MAGIC.to_be_bytes() {
                return Err(io::Error::other("no request"));
            }
            let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            let asked = ExportRequest {
                flags: short(4),
                verb: short(6),
                handle: head[8..16].try_into().expect("eight bytes"),
                offset: u64::from_be_bytes(head[16..24].try_into().expect("eight bytes")),
                length: u32::from_be_bytes(head[24..].try_into().expect("four bytes")) as usize,
            };
            let (verb, mut bytes) = match asked.verb {
                0 => (DevilVerb::Read, Vec::new()),
                1 => (DevilVerb::Write, vec![0; asked.length]),
                2 => return Ok(()),
                3 => (DevilVerb::Flush, Vec::new()),
                _ => (DevilVerb::Write, Vec::new()),
            };
            stream.read_exact(&mut bytes)?;
            let (server, out) = (self.clone(), out.clone());
            let name = self.name.clone();
            self.devil.run(Path::new(&name), verb, move |judged| {
                let done = judged.map_err(|error| error.code());
                server.answer(&asked, done.map(|()| bytes), incarnation, &out);
            });
        }
    }

    /// Negotiates with a client. Returns true if requests follow.
    fn greet(&self, stream: &mut UnixStream) -> io::Result<bool> {
        let mut hello = GREETING.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend(3u16.to_be_bytes());
        stream.write_all(&hello)?;
        let mut flags = [0; 4];
        stream.read_exact(&mut flags)?;
        loop {
            let mut head = [0; 16];
            stream.read_exact(&mut head)?;
            let number = |at: usize| head[at..at + 4].try_into().map(u32::from_be_bytes);
            let option = number(8).expect("four bytes");
            let length = number(12).expect("four bytes") as usize;
            stream.read_exact(&mut vec![0; length])?;
            match option {
                EXPORT_NAME => {
                    let size = self.file.metadata()?.len();
                    let mut reply = size.to_be_bytes().to_vec();
                    reply.extend(FEATURES.to_be_bytes());
                    if flags[3] & 2 == 0 {
                        reply.extend([0; 124]);
                    }
                    stream.write_all(&reply)?;
                    return Ok(true);
                }
                ABORT => return Ok(false),
                _ => {
                    let mut reply = OPTION_REPLY.to_be_bytes().to_vec();
                    reply.extend(option.to_be_bytes());
                    reply.extend(UNSUPPORTED.to_be_bytes());
                    reply.extend(0u32.to_be_bytes());
                    stream.write_all(&reply)?;
                }
            }
        }
    }

    /// Carries out a request, unless its connection was ended.
    fn answer(
        &self,
        asked: &ExportRequest,
        bytes: Result<Vec<u8>, i32>,
        incarnation: u64,
        out: &Mutex<UnixStream>,
    ) {
        let mut state = self.state();
        if state.incarnation != incarnation {
            return;
        }
        let done = bytes.and_then(|bytes| {
            let done = self.carry_out(&mut state, asked, bytes);
            done.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
        });
        drop(state);
        let mut reply = REPLY_MAGIC.to_be_bytes().to_vec();
        let (number, bytes) = match done {
            Ok(bytes) => (0, bytes),
            Err(libc::EROFS) => (libc::EPERM, Vec::new()),
            Err(number) => (number, Vec::new()),
        };
        reply.extend((number as u32).to_be_bytes());
        reply.extend(asked.handle);
        reply.extend(bytes);
        let mut out = out.lock().expect("no panic under this lock");
        // The client may be gone.
        let _ = out.write_all(&reply);
    }

    /// Carries out a request, and returns the data for the answer.
    fn carry_out(
        &self,
        state: &mut ExportState,
        asked: &ExportRequest,
        bytes: Vec<u8>,
    ) -> io::Result<Vec<u8>> {
        let bytes = match asked.verb {
            0 => return self.read(state, asked),
            1 => bytes,
            3 => return self.flush(state).map(|()| Vec::new()),
            6 => vec![0; asked.length],
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        if self.devil.forgets(Path::new(&self.name)) {
            return Ok(Vec::new());
        }
        if let Some(other) = &state.other {
            other.write_all_at(&bytes, asked.offset)?;
            return Ok(Vec::new());
        }
        if !asked.offset.is_multiple_of(SECTOR as u64) || !bytes.len().is_multiple_of(SECTOR) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let first = asked.offset / SECTOR as u64;
        if bytes.len() > CACHED_MAX {
            // Too large for the cache; a server may write sooner than required.
            let end = first + (bytes.len() / SECTOR) as u64;
            state
                .cache
                .retain(|sector, _| !(first..end).contains(sector));
            self.file.write_all_at(&bytes, asked.offset)?;
            return Ok(Vec::new());
        }
        for (sector, chunk) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            let chunk = chunk.try_into().expect("a sector");
            state.cache.insert(sector, chunk);
        }
        if asked.flags & FUA != 0 {
            self.flush(state)?;
        }
        Ok(Vec::new())
    }

    fn read(&self, state: &ExportState, asked: &ExportRequest) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; asked.length];
        if let Some(other) = &state.other {
            other.read_exact_at(&mut bytes, asked.offset)?;
            return Ok(bytes);
        }
        self.file.read_exact_at(&mut bytes, asked.offset)?;
        let first = asked.offset / SECTOR as u64;
        let end = first + (asked.length / SECTOR) as u64;
        for (sector, held) in state.cache.range(first..end) {
            bytes[(sector - first) as usize * SECTOR..][..SECTOR].copy_from_slice(held);
        }
        Ok(bytes)
    }

    fn flush(&self, state: &mut ExportState) -> io::Result<()> {
        let (mut first, mut run) = (0, Vec::new());
        for (sector, held) in std::mem::take(&mut state.cache) {
            if sector != first + (run.len() / SECTOR) as u64 {
                self.file.write_all_at(&run, first * SECTOR as u64)?;
                (first, run) = (sector, Vec::new());
            }
            run.extend(held);
        }
        self.file.write_all_at(&run, first * SECTOR as u64)
    }
}
