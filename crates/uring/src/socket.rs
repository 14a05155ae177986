//! Sockets before their first operation, and events in their place: addresses, listening,
//! closing.

use crate::bell::Bell;
use crate::errno;
use crate::passed::{PassedListener, passed};
use block::{Address, IoError, IoErrorKind, IoResult, Peer};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Each send is a whole message, so that Nagle's algorithm is off. A peer that has vanished is
/// noticed within a minute. On an idle stream by probes: the first after half a minute, then five
/// seconds apart, six at most. On a busy stream by unacknowledged bytes.
const TCP_OPTIONS: [(libc::c_int, libc::c_int, libc::c_int); 6] = [
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 30),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 6),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 60_000),
];

/// A stream or a listener. Its descriptor closes when the last operation on the socket has ended.
pub(crate) struct RingSocket {
    fd: OwnedFd,
    is_tcp: bool,
    /// An eventfd: a receive returns its count, of 8 bytes.
    is_event: bool,
    closed: AtomicBool,
    /// The file of a unix listener, removed when the listener closes.
    path: Option<PathBuf>,
    /// The service manager's socket, of which the descriptor awaits clients.
    passed: Option<PassedListener>,
}

impl RingSocket {
    pub(crate) fn stream(fd: OwnedFd, is_tcp: bool) -> RingSocket {
        let socket = RingSocket {
            fd,
            is_tcp,
            is_event: false,
            closed: AtomicBool::new(false),
            path: None,
            passed: None,
        };
        if is_tcp {
            for (level, option, value) in TCP_OPTIONS {
                socket.set(level, option, value);
            }
        }
        socket
    }

    /// An eventfd, which others raise.
    pub(crate) fn event(fd: OwnedFd) -> RingSocket {
        let mut socket = RingSocket::stream(fd, false);
        socket.is_event = true;
        socket
    }

    /// Sets an option; a refusal costs latency, or notice of a peer that vanished.
    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
        // SAFETY: `value` is readable for its size.
        unsafe {
            libc::setsockopt(
                self.fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn is_tcp(&self) -> bool {
        self.is_tcp
    }

    pub(crate) fn is_event(&self) -> bool {
        self.is_event
    }

    pub(crate) fn passed(&self) -> Option<&PassedListener> {
        self.passed.as_ref()
    }

    /// Takes an event's count, without waiting for one.
    pub(crate) fn take_count(&self, into: &mut [u8; 8]) -> io::Result<()> {
        let vector = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        // SAFETY: the vector is one of 8 bytes, which are writable.
        match unsafe { libc::preadv2(self.fd(), &raw const vector, 1, -1, libc::RWF_NOWAIT) } {
            8 => Ok(()),
            0.. => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// The process at the other end of a unix socket.
    pub(crate) fn peer(&self) -> Option<Peer> {
        let is_unix = !self.is_tcp && !self.is_event;
        let peer = is_unix.then(|| peer(self.fd()).ok())??;
        Some(Peer {
            user: peer.uid,
            process: peer.pid,
        })
    }

    /// True if the peer has ended its side, or the connection has broken.
    pub(crate) fn peer_closed(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        };
        // SAFETY: `poll` is one entry, writable; with a time of zero the call does not wait.
        let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
        let over = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        found == 1 && poll.revents & over != 0
    }

    /// Ends both directions; waiting operations complete on every shard.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        if let Some(passed) = &self.passed {
            return passed.end();
        }
        if self.is_event
            && let Ok(mut bell) = Bell::new(&self.fd)
        {
            bell.raise();
        }
        // SAFETY: no pointers are involved. A peer gone first is no error here.
        unsafe { libc::shutdown(self.fd(), libc::SHUT_RDWR) };
        if let Some(path) = &self.path {
            // A file removed by another process is just as good.
            let _ = std::fs::remove_file(path);
        }
    }

    #[cfg(test)]
    pub(crate) fn pair_for_test() -> (RingSocket, RingSocket) {
        let (a, b) = UnixStream::pair().unwrap();
        (
            RingSocket::stream(a.into(), false),
            RingSocket::stream(b.into(), false),
        )
    }
}

impl Drop for RingSocket {
    fn drop(&mut self) {
        if !self.is_closed() {
            self.close();
        }
    }
}

/// Listens on `address`, by the service manager's socket if that made one. Returns where, for port 0
/// becomes a number.
pub(crate) fn listen(address: &Address) -> IoResult<(RingSocket, Address)> {
    if let Some(socket) = passed(address) {
        let made = PassedListener::new(socket);
        let (passed, either) = made.map_err(|cause| {
            errno::error(cause, "the socket that was passed cannot be used").on(describe(address))
        })?;
        let is_tcp = matches!(address, Address::Tcp(_));
        let mut socket = RingSocket::stream(either, false);
        (socket.is_tcp, socket.passed) = (is_tcp, Some(passed));
        return Ok((socket, address.clone()));
    }
    let (fd, path, bound) = match address {
        Address::Unix(path) => {
            let listener = bind_unix(Path::new(&**path))?;
            (
                listener.into(),
                Some(path.to_string().into()),
                address.clone(),
            )
        }
        Address::Tcp(host) => {
            let listener = TcpListener::bind(&**host)
                .map_err(|cause| errno::error(cause, "cannot listen").on(describe(address)))?;
            let at = listener.local_addr().map_err(|cause| {
                errno::error(cause, "cannot determine the port listened on").on(describe(address))
            })?;
            (listener.into(), None, Address::Tcp(at.to_string().into()))
        }
    };
    let socket = RingSocket {
        fd,
        is_event: false,
        is_tcp: path.is_none(),
        closed: AtomicBool::new(false),
        path,
        passed: None,
    };
    Ok((socket, bound))
}

/// Binds, replacing a socket file that no process listens on any more.
fn bind_unix(path: &Path) -> IoResult<UnixListener> {
    let name = format!("unix:{}", path.display());
    let refuse = |cause: io::Error| {
        let what = match cause.raw_os_error() {
            Some(libc::EADDRINUSE) => {
                "a file or a live listener is in the way; stop it or choose another path"
            }
            _ if path.as_os_str().len() >= SUN_PATH_BYTES => {
                "a unix socket path is at most 107 bytes; choose a shorter one"
            }
            _ => "cannot listen",
        };
        errno::error(cause, what).on(name.clone())
    };
    match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
            std::fs::remove_file(path).map_err(refuse)?;
            UnixListener::bind(path).map_err(refuse)
        }
        bound => bound.map_err(refuse),
    }
}

const SUN_PATH_BYTES: usize = 108;

fn is_stale(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && match UnixStream::connect(path) {
            Ok(stream) => is_abandoned(&stream),
            Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        }
}

/// Tests for another process that listens on the unix socket at `path`.
pub fn is_listened(path: &Path) -> bool {
    let address = Address::Unix(path.display().to_string().into());
    passed(&address).is_none()
        && UnixStream::connect(path).is_ok_and(|stream| !is_abandoned(&stream))
}

/// True if the process that listened at the other end has ended. The kernel keeps the socket of
/// that process until all I/O of its ring has ended, which is long with a slow disk.
fn is_abandoned(stream: &UnixStream) -> bool {
    // A process of another name space has number 0 here, and may live.
    peer(stream.as_raw_fd()).is_ok_and(|peer| {
        // SAFETY: no pointers are involved, and signal 0 is none.
        peer.pid > 0
            && unsafe { libc::kill(peer.pid, 0) } == -1
            && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    })
}

/// The process at the other end of a unix socket, when it connected or listened.
fn peer(fd: RawFd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut bytes = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: `peer` is writable, of the length in `bytes`.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    match result {
        0 => Ok(peer),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn describe(address: &Address) -> String {
    match address {
        Address::Unix(path) => format!("unix:{path}"),
        Address::Tcp(host) => format!("tcp:{host}"),
    }
}

/// A socket address in the kernel's form, at a fixed place in memory.
pub(crate) struct RawAddress {
    storage: Box<libc::sockaddr_storage>,
    len: libc::socklen_t,
}

impl RawAddress {
    pub(crate) fn unix(path: &str) -> IoResult<RawAddress> {
        let bytes = path.as_bytes();
        if bytes.is_empty() || bytes.len() >= SUN_PATH_BYTES || bytes.contains(&0) {
            let what = "a unix socket path has 1 to 107 bytes and no zero byte";
            return Err(IoError::new(IoErrorKind::Invalid, what).on(format!("unix:{path}")));
        }
        Ok(RawAddress::of(|storage| {
            // SAFETY: a `sockaddr_storage` is large and aligned enough for any address.
            let address = unsafe { &mut *(&raw mut *storage).cast::<libc::sockaddr_un>() };
            address.sun_family = libc::AF_UNIX as libc::sa_family_t;
            for (to, from) in address.sun_path.iter_mut().zip(bytes) {
                *to = *from as libc::c_char;
            }
            size_of::<libc::sockaddr_un>()
        }))
    }

    pub(crate) fn tcp(at: SocketAddr) -> RawAddress {
        RawAddress::of(|storage| match at {
            SocketAddr::V4(at) => {
                // SAFETY: as above.
                let address = unsafe { &mut *(&raw mut *storage).cast::<libc::sockaddr_in>() };
                address.sin_family = libc::AF_INET as libc::sa_family_t;
                address.sin_port = at.port().to_be();
                address.sin_addr.s_addr = u32::from_ne_bytes(at.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(at) => {
                // SAFETY: as above.
                let address = unsafe { &mut *(&raw mut *storage).cast::<libc::sockaddr_in6>() };
                address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                address.sin6_port = at.port().to_be();
                address.sin6_flowinfo = at.flowinfo();
                address.sin6_addr.s6_addr = at.ip().octets();
                address.sin6_scope_id = at.scope_id();
                size_of::<libc::sockaddr_in6>()
            }
        })
    }

    fn of(fill: impl FnOnce(&mut libc::sockaddr_storage) -> usize) -> RawAddress {
        // SAFETY: all zeroes is a valid `sockaddr_storage`.
        let mut storage: Box<libc::sockaddr_storage> = Box::new(unsafe { std::mem::zeroed() });
        let len = fill(&mut storage) as libc::socklen_t;
        RawAddress { storage, len }
    }

    /// An unconnected socket of this address's family.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::socket(self.storage.ss_family.into(), kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just created, without another owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const *self.storage).cast()
    }

    pub(crate) fn len(&self) -> libc::socklen_t {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_tcp_stream_notices_a_peer_that_vanishes_in_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = RingSocket::stream(listener.accept().unwrap().0.into(), true);
        for (level, option, wanted) in TCP_OPTIONS {
            let mut value: libc::c_int = -1;
            let mut bytes = size_of_val(&value) as libc::socklen_t;
            // SAFETY: `value` is writable, of the length in `bytes`.
            let got = unsafe {
                let value = (&raw mut value).cast();
                libc::getsockopt(stream.fd(), level, option, value, &raw mut bytes)
            };
            assert_eq!((got, value), (0, wanted), "option {option} of {level}");
        }
        let of = |name| TCP_OPTIONS.iter().find(|o| o.1 == name).unwrap().2;
        let probed = of(libc::TCP_KEEPCNT) * of(libc::TCP_KEEPINTVL);
        assert_eq!(of(libc::SO_KEEPALIVE), 1);
        assert!(of(libc::TCP_KEEPIDLE) + probed <= 60);
        assert!(!stream.peer_closed());
        // Not `drop`: a process that another test is starting may hold a copy.
        peer.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(stream.peer_closed());
    }

    #[test]
    fn a_socket_whose_process_has_ended_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let held = UnixListener::bind(&path).unwrap();
        assert!(is_listened(&path));
        assert!(bind_unix(&path).is_err());
        // Another process listens on the socket too, and ends. The socket stays open here, as the
        // kernel keeps the socket of a ring.
        let fd = held.as_raw_fd();
        let mut command = Command::new("true");
        // SAFETY: one system call, without pointers.
        unsafe {
            command.pre_exec(move || match libc::listen(fd, 8) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
        };
        assert!(command.status().unwrap().success());
        assert!(UnixStream::connect(&path).is_ok());
        assert!(!is_listened(&path));
        let mine = bind_unix(&path).unwrap();
        assert!(is_listened(&path));
        drop((mine, held));
    }
}
