//! The bounds of a server.

use crate::protocol::session::PAYLOAD_BYTES_MAX;
use crate::tls::TLS_NARROW_BYTES;
use block::{IoError, IoErrorKind, IoResult, Nanos, PAGE_BYTES};

/// The bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections at one time; one more is closed when its handshake ends. Half of
    /// them are set aside, an equal part for each listener.
    pub connections_max: u32,
    /// Handshakes at one time; one more ends the oldest. As many as connections, for all
    /// may come back at once.
    pub handshakes_max: u32,
    /// Requests of one connection that are not answered; more wait unread.
    pub requests_max: u32,
    /// Memory for all connections, in bytes: [`ServerLimits::reserved_bytes`], and the memory lent to
    /// busy ones. Half of the pool at the most.
    pub memory_bytes_max: usize,
    /// The longest payload of one request, in bytes.
    pub payload_bytes_max: u32,
    /// Time from accepting a connection to the end of its handshake.
    pub handshake_timeout: Nanos,
    /// A peer that makes no progress inside a request or in taking its replies
    /// is closed after this time and before twice of it.
    pub stall_timeout: Nanos,
}

/// Guaranteed memory of a connection: its buffers, and a small request at a time.
pub(super) const GUARANTEED_BYTES: usize = 256 << 10;

/// Connections at one time by default: the same as QEMU's server. nbdkit and nbd-server have no
/// limit of their own.
pub const CONNECTIONS_MAX: u32 = 100;

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            connections_max: CONNECTIONS_MAX,
            handshakes_max: CONNECTIONS_MAX,
            requests_max: 128,
            memory_bytes_max: 64 << 20,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            handshake_timeout: Nanos::from_secs(10),
            stall_timeout: Nanos::from_secs(30),
        }
    }
}

/// Bytes asked for in one receive of a handshake.
pub(super) const HANDSHAKE_INBOX_BYTES: usize = PAGE_BYTES;

/// The memory of a handshake: the received bytes, the bytes to send, and TLS.
const HANDSHAKE_BYTES: usize = HANDSHAKE_INBOX_BYTES + PAGE_BYTES + TLS_NARROW_BYTES;

/// The most connections, with as many handshakes, that so much memory is enough for.
pub const fn connections_for(memory_bytes: u64) -> u32 {
    let most = memory_bytes / (GUARANTEED_BYTES + HANDSHAKE_BYTES) as u64;
    if most > u32::MAX as u64 {
        u32::MAX
    } else {
        most as u32
    }
}

impl ServerLimits {
    /// Refuses limits that do not fit a pool of `pool_bytes`, or each other, naming the remedy.
    pub fn check(&self, pool_bytes: usize) -> IoResult {
        let wrong = |what: String| Err(IoError::new(IoErrorKind::Invalid, what));
        if self.connections_max == 0 || self.handshakes_max == 0 || self.requests_max == 0 {
            return wrong("an NBD server needs a connection, a handshake and a request".into());
        }
        if self.memory_bytes_max > pool_bytes / 2 {
            return wrong(format!(
                "NBD connections may use {} bytes, which is over half of the buffer memory of {pool_bytes} bytes",
                self.memory_bytes_max
            ));
        }
        if self.reserved_bytes() > self.memory_bytes_max {
            return wrong(format!(
                "{} NBD connections need {} bytes of buffer memory, {} KiB each and {} KiB for each of {} \
                 handshakes, and may use {}",
                self.connections_max,
                self.reserved_bytes(),
                GUARANTEED_BYTES >> 10,
                HANDSHAKE_BYTES >> 10,
                self.handshakes_max,
                self.memory_bytes_max
            ));
        }
        if !(64 << 10..=PAYLOAD_BYTES_MAX).contains(&self.payload_bytes_max) {
            return wrong("the NBD payload limit must be from 64 KiB to 32 MiB".into());
        }
        Ok(())
    }

    /// Memory that connections and handshakes have whatever the use by others, in bytes.
    pub fn reserved_bytes(&self) -> usize {
        self.connections_max as usize * GUARANTEED_BYTES
            + self.handshakes_max as usize * HANDSHAKE_BYTES
    }

    /// The rest, which is lent out.
    pub(super) fn lent_bytes(&self) -> usize {
        self.memory_bytes_max - self.reserved_bytes()
    }
}
