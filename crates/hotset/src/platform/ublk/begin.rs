//! Processes of their own for a device: its start, its queues, and the search for partitions.
//!
//! While a device is started, the kernel (before Linux 7) reads its partition table, and holds the
//! device until its server has answered. If the daemon were that server, and were killed then, the
//! daemon could not end: the thread that asked for the start waits in the kernel for an answer of
//! its own process, which keeps every socket and lock. So a process that has nothing else starts
//! the device, and ends. That process answers from the first and last bytes of the volume, which it
//! was given, and answers all else with an error. The device waits for a server then, as that of a
//! killed daemon, and the daemon recovers the device. If some of the table lies elsewhere, the
//! table is read again when the daemon answers; the process that waits for that holds nothing
//! either.
//!
//! Linux before 6.15 goes down if a recovery begins while some queues are ready and others are not.
//! A daemon that is killed while its shards begin to serve leaves its queues like that. So a process
//! readies all of them, and ends.

use super::devices;
use crate::CommandFailure;
use block::{
    Answer, Boundary, Buf, Device, Extent, Gate, IoError, IoErrorKind, IoResult, Port as _,
    Request, Tag,
};
use std::cell::Cell;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command as Process, Output, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};
use ublk::uapi::block_device;
use ublk::{DeviceInfo, RELEASE_MAX, UblkCommand, UblkControl};
use uring::{Options, Uring};

/// This program, though its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// The hidden commands of those processes.
pub const BEGIN: &str = "ublk-begin";
/// See [`BEGIN`].
pub const SCAN: &str = "ublk-scan";
/// See [`BEGIN`].
pub const READY: &str = "ublk-ready";
/// Enough for a server that has no data.
const POOL_BYTES: usize = 1 << 20;
/// `BLKRRPART` of `linux/fs.h`.
const READ_PARTITIONS: libc::c_ulong = 0x125f;

/// The bytes of either end of a volume that are given to the process.
const EDGE_BYTES: u64 = 64 << 10;
/// The exit status of a process that was asked for other bytes.
const ASKED_FOR_MORE: i32 = 9;
/// The exit status if the device is not released.
const NOT_RELEASED: i32 = 10;
/// Pause before another look whether a device is released.
const RELEASE_PAUSE: Duration = Duration::from_millis(5);

/// The first and last bytes of a volume, as far as readable now.
#[derive(Default)]
pub struct Edges(Vec<(u64, Vec<u8>)>);

impl Edges {
    /// Reads the edges of a volume.
    pub async fn read<D: Device>(gate: &Gate<D>) -> Edges {
        let len = EDGE_BYTES.min(gate.bytes());
        let mut edges = Vec::new();
        for at in [0, gate.bytes() - len] {
            if let Ok(bytes) = gate.read(at, len as usize).await {
                edges.push((at, bytes.to_vec()));
            }
        }
        Edges(edges)
    }

    /// Encodes each edge with its place and its length before the bytes.
    fn encode(&self) -> Vec<u8> {
        let edges = self.0.iter().map(|(at, bytes)| {
            let head = [*at, bytes.len() as u64].map(u64::to_le_bytes);
            [head.as_flattened(), bytes].concat()
        });
        edges.collect::<Vec<_>>().concat()
    }

    fn decode(mut from: &[u8]) -> Option<Edges> {
        let mut edges = Vec::new();
        while !from.is_empty() {
            let (at, rest) = from.split_first_chunk()?;
            let (len, rest) = rest.split_first_chunk()?;
            let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
            let (bytes, rest) = rest.split_at_checked(len)?;
            edges.push((u64::from_le_bytes(*at), bytes.to_vec()));
            from = rest;
        }
        Some(Edges(edges))
    }

    /// The bytes of `extent`, if one edge has all of these.
    fn get(&self, extent: Extent) -> Option<&[u8]> {
        self.0.iter().find_map(|(at, bytes)| {
            let skip = extent.start.byte().checked_sub(*at)?;
            let rest = bytes.get(usize::try_from(skip).ok()?..)?;
            rest.get(..usize::try_from(extent.len.bytes()).ok()?)
        })
    }
}

/// Starts a device of a volume with these edges, by a process. Returns the driver's answer: true if
/// the table is to be read again.
pub fn begun(id: u32, edges: &Edges) -> io::Result<Result<bool, i32>> {
    let mut process = process(BEGIN, id);
    let mut begun = process
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut into) = begun.stdin.take() {
        // A process that has ended reports the cause.
        let _ = into.write_all(&edges.encode());
    }
    let ended = begun.wait_with_output()?;
    match ended.status.code() {
        Some(0) => return Ok(Ok(false)),
        Some(ASKED_FOR_MORE) => return Ok(Ok(true)),
        _ => {}
    }
    let said = String::from_utf8_lossy(&ended.stdout);
    let number = said.trim().parse();
    number
        .map(Err)
        .map_err(|_| failed("its starter failed", &ended))
}

fn failed(what: &str, ended: &Output) -> io::Error {
    let said = String::from_utf8_lossy(&ended.stderr);
    io::Error::other(format!("{what} ({}): {}", ended.status, said.trim()))
}

/// Readies the queues of a device, by a process. Returns the driver's answer.
pub fn readied(id: u32) -> io::Result<Result<Vec<u8>, i32>> {
    let ended = process(READY, id).output()?;
    match ended.status.code() {
        Some(0) => Ok(Ok(Vec::new())),
        Some(NOT_RELEASED) => Ok(Err(libc::EBUSY)),
        _ => Err(failed("the process for its queues failed", &ended)),
    }
}

/// Has a process read the partition table of a device.
pub fn scan_apart(id: u32) {
    // A device that is in use as a whole has no partitions, and is refused.
    let _ = process(SCAN, id).stdout(Stdio::null()).status();
}

fn process(command: &str, id: u32) -> Process {
    let mut process = Process::new(PROGRAM);
    process.arg(command).arg(id.to_string());
    process.stdin(Stdio::null()).stderr(Stdio::piped());
    process
}

/// Has signals for the end of a service not end this process early.
fn outlast_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: no handler is named.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn device(id: u32) -> Result<DeviceInfo, CommandFailure> {
    let all = devices::all().map_err(CommandFailure::runtime)?;
    let info = all.into_iter().find(|info| info.id == id);
    info.ok_or_else(|| CommandFailure::Runtime(format!("there is no device {id} of ublk")))
}

/// The process that readies the queues of a device.
pub fn ready(id: u32) -> Result<(), CommandFailure> {
    outlast_signals();
    let (info, until) = (
        device(id)?,
        Instant::now() + Duration::from_nanos(RELEASE_MAX.0),
    );
    loop {
        match uring::ublk_ready(&info) {
            // At once, and the queues with it.
            Ok(()) => std::process::exit(0),
            Err(error) if error.kind() != IoErrorKind::Busy => {
                return Err(CommandFailure::runtime(error));
            }
            Err(_) if Instant::now() > until => std::process::exit(NOT_RELEASED),
            Err(_) => std::thread::sleep(RELEASE_PAUSE),
        }
    }
}

/// The process that starts a device.
pub fn begin(id: u32) -> Result<(), CommandFailure> {
    outlast_signals();
    let mut edges = Vec::new();
    io::stdin()
        .read_to_end(&mut edges)
        .map_err(CommandFailure::runtime)?;
    let edges = Edges::decode(&edges).unwrap_or_default();
    let info = device(id)?;
    let mut host = Uring::new(Options {
        pool_bytes: POOL_BYTES,
        ..Options::default()
    })
    .map_err(CommandFailure::runtime)?;
    let inner = host.clone();
    let ended = shard::run_alone(&mut host, move |local| async move {
        let starter = Rc::new(Starter {
            edges,
            asked_for_more: Cell::new(false),
            has_started: Cell::new(false),
        });
        match starter.start(&inner, &local, info).await {
            // At once, so that later requests wait for the daemon.
            Ok(Ok(_)) => {
                let more = starter.asked_for_more.get();
                std::process::exit(if more { ASKED_FOR_MORE } else { 0 })
            }
            Ok(Err(number)) => {
                // A daemon that has ended reads nothing.
                let _ = command::print_line(number);
                std::process::exit(1)
            }
            Err(error) => error.to_string(),
        }
    });
    Err(CommandFailure::Runtime(
        ended.unwrap_or_else(|e| e.to_string()),
    ))
}

type Local = shard::Local<uring::UringDriver>;

struct Starter {
    edges: Edges,
    asked_for_more: Cell<bool>,
    has_started: Cell<bool>,
}

impl Starter {
    async fn start(
        self: &Rc<Self>,
        host: &Uring,
        local: &Local,
        info: DeviceInfo,
    ) -> IoResult<Result<Vec<u8>, i32>> {
        let port = Rc::new(local.port(host.open_ports(&info, 1)?[0])?);
        for tag in (0..port.tags()).map(Tag) {
            let (port, starter, pool) = (port.clone(), self.clone(), local.env().pool);
            local.env().spawn.spawn(async move {
                let mut answer = None;
                while let Ok(request) = port.next(tag, answer.take()).await
                    && let Request::Read(extent) = request
                    && !starter.has_started.get()
                {
                    let buf = pool.get(request.bytes()).await;
                    answer = Some(starter.answer(extent, buf));
                }
                // Other requests wait for the daemon.
            });
        }
        let mut ask = UblkControl::of(UblkCommand::Start, info.id);
        ask.data = std::process::id().into();
        let answer = host.ublk_control_aside(ask).await;
        self.has_started.set(true);
        answer
    }

    fn answer(&self, extent: Extent, mut buf: Buf) -> Answer {
        let Some(bytes) = self.edges.get(extent) else {
            self.asked_for_more.set(true);
            let what = "the device is being started";
            return Err(IoError::new(IoErrorKind::Other, what));
        };
        buf.copy_from_slice(bytes);
        Ok(Some(buf.share()))
    }
}

/// The process that searches a device for partitions.
pub fn scan(id: u32) -> Result<(), CommandFailure> {
    let path = format!("/dev/{}", block_device(id));
    let device = fs::File::open(&path);
    let device = device.map_err(|cause| CommandFailure::of(&path, cause))?;
    // SAFETY: no pointers are involved.
    match unsafe { libc::ioctl(device.as_raw_fd(), READ_PARTITIONS as _) } {
        0 => Ok(()),
        _ => Err(CommandFailure::of(&path, io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Lba, Sectors};

    #[test]
    fn edges_arrive_as_they_are_and_nothing_else_is_read_of_them() {
        let edges = Edges(vec![(0, vec![1; 1024]), (1 << 20, vec![2; 512])]);
        let edges = Edges::decode(&edges.encode()).unwrap();
        let get = |start, len| edges.get(Extent::new(Lba(start), Sectors(len)));
        assert_eq!(get(0, 2), Some(&[1; 1024][..]));
        assert_eq!(get(1, 1), Some(&[1; 512][..]));
        assert_eq!(get(2048, 1), Some(&[2; 512][..]));
        for (start, len) in [(1, 2), (2, 1), (2047, 1), (2048, 2), (u64::MAX >> 9, 1)] {
            assert_eq!(get(start, len), None, "{start}+{len}");
        }
        assert!(Edges::decode(&[]).unwrap().0.is_empty());
        assert!(Edges::decode(&edges.encode()[..1000]).is_none());
    }
}
