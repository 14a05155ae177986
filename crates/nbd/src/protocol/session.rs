//! The outcome of the handshake, and the requests that it admits.

use super::errno::Errno;
use super::request::WireRequest;
use super::wire::{cmd, cmd_flag, flag};
use block::Fua;

/// The largest payload this crate sends or accepts, in bytes.
///
/// Clients assume 32 MiB when no block size is negotiated ("Block size constraints").
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The outcome of a handshake; both sides hold the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NbdSession {
    /// Size of the export in bytes.
    pub size_bytes: u64,
    /// Transmission flags, see [`super::wire::flag`].
    pub flags: u16,
    /// Reads are answered by structured replies.
    pub structured: bool,
    /// The id under which `base:allocation` was selected.
    pub allocation: Option<u32>,
    /// Offsets and lengths are multiples of this power of two.
    pub block_bytes_min: u32,
    /// The block size for speed.
    pub block_bytes_preferred: u32,
    /// The longest payload of one request.
    pub payload_bytes_max: u32,
}

/// A request that makes sense in its session.
///
/// The range of each lies inside the export and is not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are offset and length in bytes")]
pub enum SessionCommand {
    /// Read; the length is within the payload limit. With `df`, "don't
    /// fragment": in one content chunk or not at all.
    Read { offset: u64, len: u32, df: bool },
    /// Write the payload that follows; its length is within the limit.
    Write { offset: u64, len: u32, fua: Fua },
    /// Write zeroes; `keep_space` asks that the blocks stay allocated.
    Zero {
        offset: u64,
        len: u32,
        fua: Fua,
        keep_space: bool,
    },
    /// The content is no longer needed.
    Trim { offset: u64, len: u32, fua: Fua },
    /// Make every acknowledged write durable.
    Flush,
    /// The range will be read soon.
    Cache { offset: u64, len: u32 },
    /// Report the allocated parts, in one extent if `one`.
    BlockStatus { offset: u64, len: u32, one: bool },
    /// Finish the requests in flight and close; has no reply.
    Disconnect,
}

/// Reason for the refusal of a request. The payload of a refused write still follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestRefusal {
    /// The error to answer with.
    pub errno: Errno,
    /// A line for people, at most 255 bytes.
    pub why: &'static str,
}

const fn no(errno: Errno, why: &'static str) -> RequestRefusal {
    RequestRefusal { errno, why }
}

impl NbdSession {
    fn has(&self, bits: u16) -> bool {
        self.flags & bits == bits
    }

    /// The command in a request, or the error for its client.
    #[inline]
    pub fn admit(&self, request: &WireRequest) -> Result<SessionCommand, RequestRefusal> {
        let &WireRequest {
            flags,
            cmd,
            offset,
            len,
            ..
        } = request;
        // The two that a hit path serves, in their plain form, come first.
        if cmd == cmd::READ && flags & !cmd_flag::FUA == 0 && self.in_range(offset, len, true) {
            let df = false;
            return Ok(SessionCommand::Read { offset, len, df });
        }
        if cmd == cmd::WRITE
            && flags & !cmd_flag::FUA == 0
            && !self.has(flag::READ_ONLY)
            && self.in_range(offset, len, true)
        {
            let fua = fua(flags);
            return Ok(SessionCommand::Write { offset, len, fua });
        }
        self.admit_rest(request)
    }

    fn in_range(&self, offset: u64, len: u32, payload: bool) -> bool {
        let aligned = (offset | u64::from(len)) & u64::from(self.block_bytes_min - 1) == 0;
        let fits = offset <= self.size_bytes && u64::from(len) <= self.size_bytes - offset;
        aligned && fits && len > 0 && (!payload || len <= self.payload_bytes_max)
    }

    #[cold]
    fn admit_rest(&self, request: &WireRequest) -> Result<SessionCommand, RequestRefusal> {
        let &WireRequest {
            flags,
            cmd,
            offset,
            len,
            ..
        } = request;
        let fua = fua(flags);
        if cmd == cmd::DISC {
            return Ok(SessionCommand::Disconnect);
        }
        if flags & !self.flags_of(cmd) != 0 {
            return Err(no(
                Errno::Inval,
                "a command flag is unknown or does not fit the command",
            ));
        }
        if cmd == cmd::FLUSH {
            if offset != 0 || len != 0 {
                return Err(no(Errno::Inval, "flush takes no offset and no length"));
            }
            return Ok(SessionCommand::Flush);
        }
        let writes = matches!(cmd, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES);
        if writes && self.has(flag::READ_ONLY) {
            return Err(no(Errno::Perm, "the export is read-only"));
        }
        if cmd > cmd::BLOCK_STATUS {
            return Err(no(Errno::Inval, "unknown command"));
        }
        if cmd == cmd::TRIM && !self.has(flag::SEND_TRIM) {
            return Err(no(Errno::NotSup, "the export does not offer trim"));
        }
        if cmd == cmd::BLOCK_STATUS && self.allocation.is_none() {
            return Err(no(Errno::Inval, "no metadata context was selected"));
        }
        if cmd == cmd::WRITE_ZEROES && flags & cmd_flag::FAST_ZERO != 0 {
            return Err(no(
                Errno::NotSup,
                "writing zeroes may be as slow as writing",
            ));
        }
        self.check_range(cmd, offset, len)?;
        Ok(match cmd {
            cmd::READ => SessionCommand::Read {
                offset,
                len,
                df: flags & cmd_flag::DF != 0,
            },
            cmd::WRITE => SessionCommand::Write { offset, len, fua },
            cmd::TRIM => SessionCommand::Trim { offset, len, fua },
            cmd::WRITE_ZEROES => SessionCommand::Zero {
                offset,
                len,
                fua,
                keep_space: flags & cmd_flag::NO_HOLE != 0,
            },
            cmd::CACHE => SessionCommand::Cache { offset, len },
            _ => SessionCommand::BlockStatus {
                offset,
                len,
                one: flags & cmd_flag::REQ_ONE != 0,
            },
        })
    }

    /// The command flags that `cmd` may have.
    fn flags_of(&self, cmd: u16) -> u16 {
        let own = match cmd {
            cmd::READ if self.has(flag::SEND_DF) => cmd_flag::DF,
            cmd::WRITE_ZEROES => cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO,
            cmd::BLOCK_STATUS => cmd_flag::REQ_ONE,
            _ => 0,
        };
        // FUA is accepted on every command ("Command flags").
        cmd_flag::FUA | own
    }

    fn check_range(&self, cmd: u16, offset: u64, len: u32) -> Result<(), RequestRefusal> {
        if len == 0 {
            return Err(no(Errno::Inval, "the length is zero"));
        }
        if (offset | u64::from(len)) & u64::from(self.block_bytes_min - 1) != 0 {
            return Err(no(
                Errno::Inval,
                "offset or length is no multiple of the minimum block size",
            ));
        }
        if offset > self.size_bytes || u64::from(len) > self.size_bytes - offset {
            // "Error values": ENOSPC for writes past the end.
            let errno = match cmd {
                cmd::WRITE | cmd::WRITE_ZEROES => Errno::NoSpc,
                _ => Errno::Inval,
            };
            return Err(no(errno, "the range ends past the end of the export"));
        }
        if matches!(cmd, cmd::READ | cmd::WRITE) && len > self.payload_bytes_max {
            return Err(no(
                Errno::Inval,
                "the payload is longer than the maximum block size",
            ));
        }
        Ok(())
    }
}

fn fua(flags: u16) -> Fua {
    if flags & cmd_flag::FUA != 0 {
        Fua::Yes
    } else {
        Fua::No
    }
}

/// The payload that follows a request on the wire, in bytes.
#[inline]
pub fn payload_bytes(request: &WireRequest) -> u32 {
    if request.cmd == cmd::WRITE {
        request.len
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::export::tests::info;
    use proptest::prelude::*;

    const SIZE: u64 = 1 << 30;

    fn session() -> NbdSession {
        NbdSession {
            size_bytes: SIZE,
            flags: info("", SIZE).transmission_flags(true),
            structured: true,
            allocation: Some(1),
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
        }
    }

    fn request(cmd: u16, flags: u16, offset: u64, len: u32) -> WireRequest {
        WireRequest {
            flags,
            cmd,
            cookie: 7,
            offset,
            len,
        }
    }

    fn errno(session: &NbdSession, r: WireRequest) -> Errno {
        session.admit(&r).unwrap_err().errno
    }

    #[test]
    fn admits_each_command() {
        let s = session();
        let (offset, len) = (512, 1024);
        let of = |cmd, flags| s.admit(&request(cmd, flags, offset, len)).unwrap();
        for (flags, df) in [(0, false), (cmd_flag::DF | cmd_flag::FUA, true)] {
            assert_eq!(
                of(cmd::READ, flags),
                SessionCommand::Read { offset, len, df }
            );
        }
        for (flags, fua) in [(0, Fua::No), (cmd_flag::FUA, Fua::Yes)] {
            assert_eq!(
                of(cmd::WRITE, flags),
                SessionCommand::Write { offset, len, fua }
            );
            assert_eq!(
                of(cmd::TRIM, flags),
                SessionCommand::Trim { offset, len, fua }
            );
            let keep_space = true;
            assert_eq!(
                of(cmd::WRITE_ZEROES, flags | cmd_flag::NO_HOLE),
                SessionCommand::Zero {
                    offset,
                    len,
                    fua,
                    keep_space
                }
            );
        }
        assert_eq!(of(cmd::CACHE, 0), SessionCommand::Cache { offset, len });
        let one = true;
        assert_eq!(
            of(cmd::BLOCK_STATUS, cmd_flag::REQ_ONE),
            SessionCommand::BlockStatus { offset, len, one }
        );
        assert_eq!(
            s.admit(&request(cmd::FLUSH, 0, 0, 0)),
            Ok(SessionCommand::Flush)
        );
        assert_eq!(
            s.admit(&request(cmd::DISC, 0, 0, 0)),
            Ok(SessionCommand::Disconnect)
        );
    }

    /// "Error values": which error answers which mistake.
    #[test]
    fn refuses_with_the_error_of_the_specification() {
        let s = session();
        let end = |cmd| request(cmd, 0, SIZE - 512, 1024);
        assert_eq!(errno(&s, end(cmd::WRITE)), Errno::NoSpc);
        assert_eq!(errno(&s, end(cmd::WRITE_ZEROES)), Errno::NoSpc);
        assert_eq!(errno(&s, end(cmd::READ)), Errno::Inval);
        assert_eq!(errno(&s, end(cmd::TRIM)), Errno::Inval);
        assert_eq!(errno(&s, end(cmd::BLOCK_STATUS)), Errno::Inval);
        assert_eq!(errno(&s, request(99, 0, 0, 512)), Errno::Inval);
        assert_eq!(errno(&s, request(cmd::READ, 1 << 9, 0, 512)), Errno::Inval);
        assert_eq!(
            errno(&s, request(cmd::WRITE, cmd_flag::DF, 0, 512)),
            Errno::Inval
        );
        assert_eq!(errno(&s, request(cmd::READ, 0, 1, 512)), Errno::Inval);
        assert_eq!(errno(&s, request(cmd::READ, 0, 0, 0)), Errno::Inval);
        assert_eq!(errno(&s, request(cmd::FLUSH, 0, 0, 512)), Errno::Inval);
        assert_eq!(
            errno(&s, request(cmd::WRITE_ZEROES, cmd_flag::FAST_ZERO, 0, 512)),
            Errno::NotSup
        );
        let long = request(cmd::READ, 0, 0, PAYLOAD_BYTES_MAX + 512);
        assert_eq!(errno(&s, long), Errno::Inval);
        let no_context = NbdSession {
            allocation: None,
            ..s
        };
        assert_eq!(
            errno(&no_context, request(cmd::BLOCK_STATUS, 0, 0, 512)),
            Errno::Inval
        );
        let read_only = NbdSession {
            flags: s.flags | flag::READ_ONLY,
            ..s
        };
        for cmd in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
            assert_eq!(errno(&read_only, request(cmd, 0, 0, 512)), Errno::Perm);
        }
        let simple = NbdSession {
            flags: s.flags & !flag::SEND_DF,
            ..s
        };
        assert_eq!(
            errno(&simple, request(cmd::READ, cmd_flag::DF, 0, 512)),
            Errno::Inval
        );
    }

    proptest! {
        /// Any admitted request lies inside the export, whatever the peer asks.
        #[test]
        fn nothing_outside_the_export_is_admitted(cmd in 0u16..10, flags in 0u16..64, offset: u64, len: u32, near in any::<bool>()) {
            let s = session();
            let offset = if near { SIZE.wrapping_add(offset % 8192).wrapping_sub(4096) } else { offset };
            let len = if near { len % 8192 } else { len };
            let range = match s.admit(&request(cmd, flags, offset, len)) {
                Ok(SessionCommand::Read { offset, len, .. } | SessionCommand::Write { offset, len, .. }) => {
                    prop_assert!(len <= PAYLOAD_BYTES_MAX);
                    Some((offset, len))
                }
                Ok(SessionCommand::Zero { offset, len, .. }
                    | SessionCommand::Trim { offset, len, .. }
                    | SessionCommand::Cache { offset, len }
                    | SessionCommand::BlockStatus { offset, len, .. }) => Some((offset, len)),
                Ok(SessionCommand::Flush | SessionCommand::Disconnect) => None,
                Err(refusal) => {
                    prop_assert!(refusal.why.len() <= 255);
                    None
                }
            };
            if let Some((offset, len)) = range {
                prop_assert!(len > 0);
                prop_assert!(offset.checked_add(u64::from(len)).is_some_and(|end| end <= SIZE));
                prop_assert_eq!((offset | u64::from(len)) % 512, 0);
            }
        }
    }
}
