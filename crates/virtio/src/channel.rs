//! The channel from a disk to its monitor, for changes of the configuration.
//!
//! One of the monitor's messages carries the channel as a descriptor. `vhost` keeps that
//! descriptor, and cannot send this message. So the descriptor is duplicated before `vhost` reads
//! the monitor's message.

use rustix::io::ioctl_fionread;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Bytes before the body of a message: its kind, flags and the body's length.
const HEADER_BYTES: usize = 12;
/// Longest body; `vhost` refuses a longer one.
const BODY_BYTES_MAX: u32 = 4096;
/// `VHOST_USER_SET_BACKEND_REQ_FD`.
const SET_CHANNEL: [u8; 4] = 21_u32.to_ne_bytes();
/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`, version 1, without a body.
const CONFIG_CHANGE: [u8; HEADER_BYTES] = [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// Returns true if a read of the next message of `socket` does not wait: the message is complete,
/// or its peer is gone.
pub(crate) fn is_whole(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let mut header = [0; HEADER_BYTES];
    let mut room = RecvAncillaryBuffer::default();
    let got = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut header)],
        &mut room,
        flags,
    );
    let Ok(got) = got.map(|got| got.bytes) else {
        return false;
    };
    let body = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    let whole = HEADER_BYTES as u64 + u64::from(body.min(BODY_BYTES_MAX));
    got == 0 || got == HEADER_BYTES && ioctl_fionread(socket).is_ok_and(|there| there >= whole)
}

/// A monitor's channel, open for as long as its connection.
pub(crate) struct MonitorChannel {
    socket: OwnedFd,
    has_announced: bool,
}

impl MonitorChannel {
    /// Takes the channel from the next message of `socket`, if the message carries one. The message
    /// stays in the socket.
    pub(crate) fn peek(socket: BorrowedFd<'_>) -> Option<MonitorChannel> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut header = [0; HEADER_BYTES];
        let mut peek = |room: &mut RecvAncillaryBuffer<'_>| {
            let got = recvmsg(socket, &mut [IoSliceMut::new(&mut header)], room, flags);
            got.is_ok_and(|got| got.bytes == HEADER_BYTES) && header[..4] == SET_CHANNEL
        };
        // A peek without room for descriptors comes first, so that descriptors of other messages
        // are not duplicated.
        if !peek(&mut RecvAncillaryBuffer::default()) {
            return None;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut room = RecvAncillaryBuffer::new(&mut space);
        if !peek(&mut room) {
            return None;
        }
        let mut given = room.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Some(MonitorChannel {
            socket: given.next()?,
            has_announced: false,
        })
    }

    /// Makes the monitor read the configuration space again, once. A monitor that does not listen
    /// keeps the old configuration.
    pub(crate) fn announce(&mut self) {
        if !std::mem::replace(&mut self.has_announced, true) {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = send(&self.socket, &CONFIG_CHANGE, flags);
        }
    }
}
