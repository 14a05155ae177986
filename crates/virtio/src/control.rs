//! The thread of one disk: takes a monitor's connection and its messages.
//!
//! Messages carry descriptors, which a `Stream` cannot, and `vhost` waits for the socket that it
//! reads: hence a thread, which touches no data. A guest's kicks go to the shards.

#[cfg(test)]
mod tests;

use crate::channel::{MonitorChannel, is_whole};
use crate::device::DiskParts;
use crate::handler::MonitorHandler;
use crate::kicks::{self, Kicks, Sender};
use crate::log::GuestTopic;
use crate::port::VirtioPort;
use crate::ring::VirtRing;
use crate::shape::{Bells, GuestDiskCounters, GuestDiskShape, Log, RING_MAX};
use block::{IoError, IoErrorKind, IoResult};
use std::fs::File;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vhost::vhost_user::{BackendReqHandler, Error};

/// Time limit for the rest of a message, and for room for an answer. Both are short, and a longer
/// wait would only delay the next monitor.
const MESSAGE_MAX: Duration = Duration::from_secs(2);
/// Interval of checks in that time.
const LOOK: Duration = Duration::from_millis(5);
/// Interval of checks for a summary of suppressed log lines.
const SUM_UP: Duration = Duration::from_secs(1);

/// A socket at which a disk is offered, until dropped.
pub struct GuestListener {
    path: PathBuf,
    disk: Arc<DiskParts>,
    shared: Arc<ListenerShared>,
}

struct ListenerShared {
    /// Event that ends the thread.
    stop: File,
    connection: Mutex<Option<Arc<UnixStream>>>,
}

/// The part of a disk that one shard serves: ring r is of part r modulo the parts.
pub struct GuestPart {
    /// Requests of the rings of this part.
    pub port: VirtioPort,
    /// Events of the rings of this part, for the server of `port`.
    pub kicks: Kicks,
}

impl GuestListener {
    /// Offers a disk of this shape at the unix socket `path`: to one monitor at a time, and to the
    /// next when that one is gone. Returns the `parts` parts of the disk too, at least one.
    ///
    /// `bells` signal the monitors.
    pub fn begin(
        path: &Path,
        shape: &GuestDiskShape,
        parts: usize,
        bells: Bells,
        log: &Log,
    ) -> IoResult<(GuestListener, Vec<GuestPart>)> {
        let named = |error: IoError| error.on(path.display().to_string());
        let socket = bind(path).map_err(named)?;
        let failed = |what: &'static str| {
            move |cause: io::Error| named(IoError::new(IoErrorKind::Other, what).because(cause))
        };
        let stop = event().map_err(failed("no descriptor for its events; raise ulimit -n"))?;
        let shared = Arc::new(ListenerShared {
            stop,
            connection: Mutex::default(),
        });
        let disk = Arc::new(DiskParts::new(parts, shape, log));
        let (sender, kicks) = kicks::channels(&disk);
        let thread = Thread {
            disk: disk.clone(),
            socket,
            shared: shared.clone(),
            kicks: sender,
            bells,
        };
        let spawned = std::thread::Builder::new()
            .name("vhost-user".into())
            .spawn(move || thread.run());
        spawned.map_err(failed("no thread for it; raise ulimit -u"))?;
        let parts = disk.all().zip(kicks).map(|(part, kicks)| GuestPart {
            port: VirtioPort::new(part.clone()),
            kicks,
        });
        let (parts, path) = (parts.collect(), path.to_owned());
        Ok((GuestListener { path, disk, shared }, parts))
    }

    /// Returns the counters of all parts.
    pub fn counters(&self) -> GuestDiskCounters {
        self.disk.counters()
    }
}

impl Drop for GuestListener {
    fn drop(&mut self) {
        self.disk.all().for_each(|part| part.close());
        let _ = (&self.shared.stop).write(&1u64.to_ne_bytes());
        let connection = self.shared.connection.lock();
        if let Some(connection) = &*connection.expect("no panic under this lock") {
            let _ = connection.shutdown(Shutdown::Both);
        }
        if is_socket(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn is_socket(path: &Path) -> bool {
    let file = std::fs::symlink_metadata(path);
    file.is_ok_and(|file| file.file_type().is_socket())
}

/// Listens at `path`. The file of a socket without a listening process is replaced, and no other.
fn bind(path: &Path) -> IoResult<UnixListener> {
    let mut bound = UnixListener::bind(path);
    if let Err(error) = &bound
        && error.kind() == io::ErrorKind::AddrInUse
    {
        if !is_socket(path) {
            let what = "a file that is no socket is in the way; remove it, or choose another path";
            return Err(IoError::new(IoErrorKind::Busy, what));
        }
        if UnixStream::connect(path).is_ok() {
            let what = "a process listens on this socket; stop it, or choose another path";
            return Err(IoError::new(IoErrorKind::Busy, what));
        }
        let _ = std::fs::remove_file(path);
        bound = UnixListener::bind(path);
    }
    bound.map_err(|cause| {
        let what = "cannot be listened on; see that its directory exists and may be written";
        IoError::new(IoErrorKind::Denied, what).because(cause)
    })
}

fn event() -> io::Result<File> {
    // SAFETY: no pointers are involved.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    match fd {
        0.. => {
            // SAFETY: just made, and without another owner.
            Ok(unsafe { File::from_raw_fd(fd) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

struct Thread {
    disk: Arc<DiskParts>,
    socket: UnixListener,
    shared: Arc<ListenerShared>,
    kicks: Sender,
    bells: Bells,
}

/// Waits until one of `fds` is ready, or for `time`. Returns the state of each.
fn wait(fds: &[RawFd], time: Option<Duration>) -> io::Result<Vec<bool>> {
    let time = time.map_or(-1, |time| time.as_millis() as libc::c_int);
    let poll = |fd: &RawFd| libc::pollfd {
        fd: *fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polled: Vec<_> = fds.iter().map(poll).collect();
    // SAFETY: so many entries are there.
    while unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, time) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(polled.iter().map(|entry| entry.revents != 0).collect())
}

/// Returns true if a message can be sent now without a wait for the peer.
fn has_room(socket: &UnixStream) -> bool {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: `poll` is one entry, writable; without a time it does not wait.
    unsafe { libc::poll(&raw mut poll, 1, 0) != 0 }
}

impl Thread {
    fn run(mut self) {
        let fds = [self.shared.stop.as_raw_fd(), self.socket.as_raw_fd()];
        while let Ok(ready) = wait(&fds, self.sum_up())
            && !ready[0]
        {
            if ready[1]
                && let Ok((connection, _)) = self.socket.accept()
            {
                self.serve(connection);
            }
        }
    }

    /// Logs a summary of suppressed lines. Returns the time until the next check.
    fn sum_up(&self) -> Option<Duration> {
        let parts = self.disk.all();
        let more = parts.filter(|part| part.lock().log.sum_up()).count();
        (more > 0).then_some(SUM_UP)
    }

    fn serve(&mut self, connection: UnixStream) {
        let Ok(socket) = connection.try_clone().map(Arc::new) else {
            return;
        };
        *self.connection() = Some(socket.clone());
        let name = {
            let mut device = self.disk.first().lock();
            device.counters.connections += 1;
            device.counters.connected = true;
            device.shape.name.clone()
        };
        let handler = Arc::new(Mutex::new(MonitorHandler::new(
            self.disk.clone(),
            self.kicks.clone(),
            self.bells.clone(),
        )));
        let mut messages = BackendReqHandler::from_stream(connection, handler);
        let ended = self.follow(&mut messages, &socket);
        drop(messages);
        *self.connection() = None;
        self.kicks.end();
        for part in self.disk.all() {
            let mut device = part.stop(|_| true);
            device.features = 0;
            if !device.is_closed() {
                let rings = device.rings.iter_mut();
                rings.for_each(|ring| *ring = VirtRing::new(RING_MAX));
            }
        }
        let mut device = self.disk.first().lock();
        device.counters.connected = false;
        if !device.is_closed() && !matches!(ended, Error::Disconnected | Error::SocketBroken(_)) {
            let line = format!("the virtual machine of volume {name} was cut off: {ended}");
            device.log.say(GuestTopic::CutOff, &line);
        }
    }

    /// Serves a connection to its end. Returns the reason of the end.
    fn follow(
        &self,
        messages: &mut BackendReqHandler<Mutex<MonitorHandler>>,
        socket: &UnixStream,
    ) -> Error {
        let fds = [
            self.shared.stop.as_raw_fd(),
            self.socket.as_raw_fd(),
            messages.as_raw_fd(),
        ];
        let mut channel = None;
        loop {
            let ready = match wait(&fds, self.sum_up()) {
                Ok(ready) => ready,
                Err(cause) => return Error::SocketError(cause),
            };
            if ready[0] {
                return Error::Disconnected;
            }
            if ready[2] {
                if !self.is_answerable(socket) {
                    return Error::PartialMessage;
                }
                channel = MonitorChannel::peek(socket.as_fd()).or(channel);
                if let Err(error) = messages.handle_request() {
                    return error;
                }
            }
            // Only without a message: a monitor that is gone may be back.
            if ready[1] && !ready[2] && self.socket.accept().is_ok() {
                let mut device = self.disk.first().lock();
                let name = &device.shape.name;
                let line = format!(
                    "volume {name} has a virtual machine; another that connected was turned away"
                );
                device.log.say(GuestTopic::TurnedAway, &line);
            }
            // The monitor has the size from the previous daemon, and does not read it again by
            // itself.
            if let Some(channel) = &mut channel
                && self.is_served()
            {
                channel.announce();
            }
        }
    }

    /// True if requests are taken from a ring.
    fn is_served(&self) -> bool {
        let mut parts = self.disk.all();
        parts.any(|part| part.lock().rings.iter().any(VirtRing::is_served))
    }

    /// Returns true once the next message is complete and its answer has room; false after the time
    /// limit. The reader of the message waits for neither.
    fn is_answerable(&self, socket: &UnixStream) -> bool {
        let begun = Instant::now();
        while !is_whole(socket.as_fd()) || !has_room(socket) {
            let stop = [self.shared.stop.as_raw_fd()];
            let stops = wait(&stop, Some(LOOK)).is_ok_and(|ready| ready[0]);
            if stops || begun.elapsed() > MESSAGE_MAX {
                return false;
            }
        }
        true
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, Option<Arc<UnixStream>>> {
        let connection = self.shared.connection.lock();
        connection.expect("no panic under this lock")
    }
}
