//! Stream operations: the steps that each asks of the kernel.
//!
//! Invariants:
//!     a send ends when every byte is sent or the stream has failed
//!     an operation holds its socket, so that its descriptor stays its own

use crate::errno;
use crate::op::OpStep;
use crate::resolve::Resolved;
use crate::socket::{RawAddress, RingSocket, describe};
use crate::targets::{RingTarget, RingTargets};
use block::{Address, Buf, DriverOp, IoError, IoErrorKind, IoResult, Payload, SharedBuf};
use io_uring::{opcode, squeue, types};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// The most parts that one `sendmsg` takes (`UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;
/// The bytes of an event's count.
const COUNT_BYTES: usize = 8;

/// A stream operation in progress.
pub(crate) enum StreamOp {
    Accept(Arc<RingSocket>),
    Connect(Box<ConnectOp>),
    Recv(Arc<RingSocket>, Buf),
    Send(Arc<RingSocket>, SocketSend),
}

pub(crate) struct SocketSend {
    parts: Vec<SharedBuf>,
    sent: usize,
    message: SendMessage,
}

/// The kernel's view of a send, at a fixed place in memory.
pub(crate) struct SendMessage(Box<SendGather>);

struct SendGather {
    header: libc::msghdr,
    vectors: Vec<libc::iovec>,
}

impl SendMessage {
    fn new() -> SendMessage {
        SendMessage(Box::new(SendGather {
            // SAFETY: all zeroes is a valid `msghdr`.
            header: unsafe { std::mem::zeroed() },
            vectors: Vec::new(),
        }))
    }

    /// Points at the rest of `parts` after `skip` bytes.
    fn gather(&mut self, parts: &[SharedBuf], mut skip: usize) -> *const libc::msghdr {
        let SendGather { header, vectors } = &mut *self.0;
        vectors.clear();
        for part in parts {
            let rest = &part[skip.min(part.len())..];
            skip -= part.len() - rest.len();
            if !rest.is_empty() && vectors.len() < PARTS_MAX {
                vectors.push(libc::iovec {
                    iov_base: rest.as_ptr().cast_mut().cast(),
                    iov_len: rest.len(),
                });
            }
        }
        header.msg_iov = vectors.as_mut_ptr();
        header.msg_iovlen = vectors.len() as _;
        &raw const *header
    }
}

pub(crate) struct ConnectOp {
    name: String,
    is_tcp: bool,
    /// Addresses not tried yet, last first.
    left: Vec<SocketAddr>,
    attempt: Option<(RawAddress, OwnedFd)>,
}

impl ConnectOp {
    /// Begins a connection; returns the host to look up first, if `address` is not a number.
    pub(crate) fn new(address: &Address) -> IoResult<(ConnectOp, Option<String>)> {
        let mut connect = ConnectOp {
            name: describe(address),
            is_tcp: matches!(address, Address::Tcp(_)),
            left: Vec::new(),
            attempt: None,
        };
        match address {
            Address::Unix(path) => connect.attempt(RawAddress::unix(path)?)?,
            Address::Tcp(host) => match host.parse() {
                Ok(at) => connect.attempt(RawAddress::tcp(at))?,
                Err(_) => return Ok((connect, Some(host.to_string()))),
            },
        }
        Ok((connect, None))
    }

    /// Continues once the host's addresses are known.
    pub(crate) fn resolved(&mut self, resolved: Resolved) -> IoResult {
        self.left = resolved.map_err(|cause| {
            let what = "the host's address is unknown; check its name and port";
            IoError::new(IoErrorKind::Stream, what)
                .on(self.name.clone())
                .because(cause)
        })?;
        self.left.reverse();
        self.next(libc::EADDRNOTAVAIL)
    }

    /// Tries the next address, or fails for the reason of the last attempt.
    fn next(&mut self, number: i32) -> IoResult {
        match self.left.pop() {
            Some(at) => self.attempt(RawAddress::tcp(at)),
            None => Err(broken(&self.name, number, "cannot connect")),
        }
    }

    fn attempt(&mut self, address: RawAddress) -> IoResult {
        let socket = address
            .socket()
            .map_err(|cause| errno::error(cause, "cannot make a socket").on(self.name.clone()))?;
        self.attempt = Some((address, socket));
        Ok(())
    }
}

impl StreamOp {
    /// Begins an operation on a stream or listener.
    pub(crate) fn begin(
        target: RingTarget,
        op: DriverOp,
        spare: &mut Vec<SendMessage>,
    ) -> Result<StreamOp, (IoError, Payload)> {
        let invalid = |op: DriverOp, what: &'static str| {
            Err((IoError::new(IoErrorKind::Invalid, what), op.into_payload()))
        };
        let (socket, is_listener) = match target {
            RingTarget::Stream(socket) => (socket, false),
            RingTarget::Listener(socket) => (socket, true),
            RingTarget::Disk(_) => return invalid(op, "a stream operation on a disk"),
            RingTarget::Port(_) => return invalid(op, "a stream operation on a port"),
        };
        if socket.is_closed() {
            return Err((closed(), op.into_payload()));
        }
        match op {
            DriverOp::Accept if is_listener => Ok(StreamOp::Accept(socket)),
            DriverOp::Recv(buf) if !is_listener => {
                if buf.len() < if socket.is_event() { COUNT_BYTES } else { 1 } {
                    return invalid(DriverOp::Recv(buf), "a receive into too small a buffer");
                }
                Ok(StreamOp::Recv(socket, buf))
            }
            op @ DriverOp::Send(_) if socket.is_event() => invalid(op, "an event is received from"),
            DriverOp::Send(parts) if !is_listener => {
                let message = spare.pop().unwrap_or_else(SendMessage::new);
                let sending = SocketSend {
                    parts,
                    sent: 0,
                    message,
                };
                Ok(StreamOp::Send(socket, sending))
            }
            op if is_listener => invalid(op, "not an operation of a listener"),
            op => invalid(op, "not an operation of a stream"),
        }
    }

    /// The next request to the kernel.
    pub(crate) fn entry(&mut self) -> squeue::Entry {
        match self {
            StreamOp::Accept(socket) if socket.passed().is_some() => {
                opcode::PollAdd::new(types::Fd(socket.fd()), libc::POLLIN as u32).build()
            }
            StreamOp::Accept(socket) => {
                let fd = types::Fd(socket.fd());
                opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            StreamOp::Connect(connect) => {
                let (address, fd) = connect.attempt.as_ref().expect("an address is chosen");
                let fd = types::Fd(fd.as_raw_fd());
                opcode::Connect::new(fd, address.as_ptr(), address.len()).build()
            }
            StreamOp::Recv(event, _) if event.is_event() => {
                opcode::PollAdd::new(types::Fd(event.fd()), libc::POLLIN as u32).build()
            }
            StreamOp::Recv(socket, buf) => {
                let fd = types::Fd(socket.fd());
                opcode::Recv::new(fd, buf.as_mut_ptr(), buf.len() as u32).build()
            }
            StreamOp::Send(socket, sending) => {
                let header = sending.message.gather(&sending.parts, sending.sent);
                // Has the kernel continue a short send by itself.
                let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
                opcode::SendMsg::new(types::Fd(socket.fd()), header)
                    .flags(flags as u32)
                    .build()
            }
        }
    }

    /// Takes the kernel's answer: a count or descriptor, or a negative error
    /// number.
    pub(crate) fn advance(&mut self, targets: &RingTargets, result: i32) -> OpStep {
        if errno::is_transient(-result) {
            return OpStep::Again;
        }
        match self {
            StreamOp::Accept(listener) => accepted(listener, targets, result),
            StreamOp::Connect(connect) => match result {
                0.. => {
                    let (_, fd) = connect.attempt.take().expect("it has connected");
                    OpStep::Done(add_stream(targets, fd, connect.is_tcp))
                }
                _ => match connect.next(-result) {
                    Ok(()) => OpStep::Again,
                    Err(error) => OpStep::Done(Err(error)),
                },
            },
            StreamOp::Recv(event, _) if event.is_closed() && event.is_event() => {
                OpStep::Done(Ok(0))
            }
            StreamOp::Recv(event, buf) if result >= 0 && event.is_event() => {
                let count = buf.first_chunk_mut().expect("checked as it began");
                match event.take_count(count) {
                    Ok(()) => OpStep::Done(Ok(COUNT_BYTES as u64)),
                    // Another receiver has taken the count.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => OpStep::Again,
                    Err(error) => {
                        let number = error.raw_os_error().unwrap_or(libc::EINVAL);
                        OpStep::Done(Err(broken("event", number, "receive failed")))
                    }
                }
            }
            StreamOp::Recv(..) => match result {
                0.. => OpStep::Done(Ok(result as u64)),
                _ => OpStep::Done(Err(broken("stream", -result, "receive failed"))),
            },
            StreamOp::Send(_, sending) => match result {
                0.. => {
                    sending.sent += result as usize;
                    let bytes: usize = sending.parts.iter().map(|part| part.len()).sum();
                    if sending.sent == bytes {
                        OpStep::Done(Ok(0))
                    } else {
                        OpStep::Again
                    }
                }
                _ => OpStep::Done(Err(broken("stream", -result, "send failed"))),
            },
        }
    }

    /// True if the operation waits for a host's addresses, and not for the kernel.
    pub(crate) fn is_resolving(&self) -> bool {
        matches!(self, StreamOp::Connect(connect) if connect.attempt.is_none())
    }

    /// True if success makes a target that the caller must close.
    pub(crate) fn opens(&self) -> bool {
        matches!(self, StreamOp::Accept(_) | StreamOp::Connect(_))
    }

    /// The payload returned to the submitter.
    pub(crate) fn into_payload(self, spare: &mut Vec<SendMessage>) -> Payload {
        match self {
            StreamOp::Recv(_, buf) => Payload::Buf(buf),
            StreamOp::Send(_, mut sending) => {
                sending.parts.clear();
                spare.push(sending.message);
                Payload::Parts(sending.parts)
            }
            StreamOp::Accept(_) | StreamOp::Connect(_) => Payload::None,
        }
    }
}

/// The end of an accept with the kernel's answer: a client's descriptor, or of a socket that was
/// passed the news of a client.
fn accepted(listener: &RingSocket, targets: &RingTargets, result: i32) -> OpStep {
    let client = match (result, listener.passed()) {
        (0.., None) => {
            // SAFETY: the kernel made this descriptor for this accept.
            Ok(unsafe { OwnedFd::from_raw_fd(result) })
        }
        (0.., Some(passed)) if !listener.is_closed() => passed.accept(),
        _ => Err(io::Error::from_raw_os_error(result.saturating_neg())),
    };
    let error = match client {
        Ok(client) => return OpStep::Done(add_stream(targets, client, listener.is_tcp())),
        Err(_) if listener.is_closed() => return OpStep::Done(Err(closed())),
        Err(error) => error,
    };
    match error.raw_os_error().unwrap_or(libc::EINVAL) {
        // The client has gone, or another process has it.
        libc::ECONNABORTED | libc::EAGAIN => OpStep::Again,
        number => OpStep::Done(Err(broken("listener", number, "cannot accept"))),
    }
}

fn add_stream(targets: &RingTargets, fd: OwnedFd, is_tcp: bool) -> IoResult<u64> {
    let target = RingTarget::Stream(Arc::new(RingSocket::stream(fd, is_tcp)));
    match targets.insert(target) {
        Some(id) => Ok(id.0.into()),
        None => Err(IoError::new(
            IoErrorKind::Other,
            "a million streams are open; close some",
        )),
    }
}

fn closed() -> IoError {
    IoError::new(IoErrorKind::Stream, "closed here")
}

fn broken(name: &str, number: i32, what: &'static str) -> IoError {
    let what = match number {
        libc::EMFILE | libc::ENFILE => {
            "no descriptor is left for a connection; raise the limit of open files (ulimit -n)"
        }
        _ => what,
    };
    IoError::new(errno::stream_kind(number), what)
        .on(name.to_owned())
        .because(errno::source(number))
}
