//! Listening sockets that the service manager made and passes to the daemon: sd_listen_fds(3).
//!
//! Invariants:
//!     the socket goes on to listen when the daemon ends, so that clients wait for the next
//!     a listener that was closed accepts nothing more
//!
//! The second is why an accept is a wait for the socket or for the listener's end, whichever comes
//! first: closing the socket in the usual way would close it for the service manager too.

use block::Address;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The descriptors that are passed begin here.
const FIRST: RawFd = 3;

/// A socket that was passed.
pub(crate) struct PassedListener {
    socket: OwnedFd,
    /// An eventfd that is raised at the end.
    end: OwnedFd,
}

impl PassedListener {
    /// The listener of `socket`, and the descriptor that is readable once a client has connected or
    /// the listener has ended.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<(PassedListener, OwnedFd)> {
        // SAFETY: no pointers are involved.
        let end = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: as above.
        let either = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // Another process may have taken the client by the time of the accept.
        // SAFETY: as above.
        done(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
        for fd in [&socket, &end] {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: 0,
            };
            let (epoll, fd) = (either.as_raw_fd(), fd.as_raw_fd());
            // SAFETY: `event` is readable during the call.
            done(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) })?;
        }
        Ok((PassedListener { socket, end }, either))
    }

    /// Accepts a client, if one has connected.
    pub(crate) fn accept(&self) -> io::Result<OwnedFd> {
        let none = std::ptr::null_mut();
        let fd = self.socket.as_raw_fd();
        // SAFETY: the client's address is not asked for.
        owned(unsafe { libc::accept4(fd, none, none.cast(), libc::SOCK_CLOEXEC) })
    }

    /// Has all waits end.
    pub(crate) fn end(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is readable for its length. A counter that is full is raised already.
        unsafe { libc::write(self.end.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

fn done(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the kernel made this descriptor for this call.
    done(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The socket for `address` that was passed to this process, by a descriptor of its own.
pub(crate) fn passed(address: &Address) -> Option<OwnedFd> {
    let number = |name| std::env::var(name).ok()?.parse::<i32>().ok();
    let is_ours = number("LISTEN_PID")? == std::process::id() as i32;
    let count = number("LISTEN_FDS")?.max(0);
    is_ours.then(|| among(FIRST..FIRST.saturating_add(count), address))?
}

fn among(mut passed: Range<RawFd>, address: &Address) -> Option<OwnedFd> {
    passed.find_map(|fd| {
        // Programs that the daemon runs do not get it.
        // SAFETY: no pointers are involved.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        // SAFETY: it was passed, and stays open for the life of the process.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let is_it = listens_at(fd, address).unwrap_or(false);
        is_it.then(|| fd.try_clone_to_owned().ok()).flatten()
    })
}

fn listens_at(fd: BorrowedFd<'_>, address: &Address) -> io::Result<bool> {
    let fd = fd.try_clone_to_owned()?;
    Ok(match address {
        Address::Unix(path) => {
            UnixListener::from(fd).local_addr()?.as_pathname() == Some(Path::new(&**path))
        }
        Address::Tcp(host) => {
            let at = TcpListener::from(fd).local_addr()?;
            host.to_socket_addrs()?.any(|wanted| wanted == at)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_is_found_by_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd");
        let (unix, tcp) = (
            UnixListener::bind(&path).unwrap(),
            TcpListener::bind("127.0.0.1:0").unwrap(),
        );
        let port = tcp.local_addr().unwrap().to_string();
        let addresses = [
            (
                Address::Unix(path.display().to_string().into()),
                unix.as_raw_fd(),
            ),
            (Address::Tcp(port.into()), tcp.as_raw_fd()),
        ];
        for (address, fd) in &addresses {
            assert!(among(*fd..*fd + 1, address).is_some(), "{address:?}");
            let other = Address::Unix("/run/other".into());
            assert!(among(*fd..*fd + 1, &other).is_none());
        }
        assert!(among(unix.as_raw_fd()..unix.as_raw_fd() + 1, &addresses[1].0).is_none());
    }

    #[test]
    fn an_ended_listener_leaves_the_socket_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd");
        let made = UnixListener::bind(&path).unwrap();
        let listener = || PassedListener::new(made.try_clone().unwrap().into()).unwrap();
        let (first, either) = listener();
        let nobody = first.accept().unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock);
        first.end();
        let mut poll = libc::pollfd {
            fd: either.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` is one entry, writable.
        assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 0) }, 1);
        drop(first);
        let _client = UnixStream::connect(&path).unwrap();
        assert!(listener().0.accept().is_ok());
    }
}
