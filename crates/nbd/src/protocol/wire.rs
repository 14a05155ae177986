//! The numbers of the protocol ("Values"), and reading integers off the wire.

/// First magic of every server ("Newstyle negotiation").
pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second magic of a newstyle server, and the magic of every option.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Second magic of an oldstyle server, which is not spoken here.
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// Magic of a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Magic of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Magic of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Magic of a structured reply chunk.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// The longest string the protocol allows, in bytes ("Conventions").
pub const STRING_BYTES_MAX: usize = 4096;
/// Zeroes after the answer to EXPORT_NAME, unless negotiated away.
pub const EXPORT_NAME_PADDING: usize = 124;
/// Bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply without its payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a structured reply chunk without its payload.
pub const CHUNK_BYTES: usize = 20;

/// Handshake flags, 16 bits from the server and 32 from the client.
pub mod handshake_flag {
    /// Fixed newstyle negotiation.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The padding after EXPORT_NAME may be left out.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags of an export.
pub mod flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA command flag is supported.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The medium prefers sequential access.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM is supported.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES and its NO_HOLE flag are supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The DF command flag is supported; only with structured replies.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers writes answered on every connection.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is supported.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The FAST_ZERO command flag is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options a client sends ("Option types").
pub mod option {
    /// Choose an export and begin transmission, without a way to refuse.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Continue under TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Choose an export and begin transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of reply to an option ("Option reply types").
pub mod rep {
    /// Accepted; the final reply.
    pub const ACK: u32 = 1;
    /// Describes an export.
    pub const SERVER: u32 = 2;
    /// One piece of information about an export.
    pub const INFO: u32 = 3;
    /// Describes a metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = ERROR_BIT + 1;
    /// The option is known and forbidden.
    pub const ERR_POLICY: u32 = ERROR_BIT + 2;
    /// The option's data makes no sense.
    pub const ERR_INVALID: u32 = ERROR_BIT + 3;
    /// TLS must come first.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT + 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT + 6;
    /// The server is ending.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT + 7;
    /// The client must ask for the block size.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT + 8;
    /// The option is longer than the server accepts.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT + 9;
}

/// Kinds of information in a reply to INFO or GO.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// A description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Request types.
pub mod cmd {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// Disconnect.
    pub const DISC: u16 = 2;
    /// Make acknowledged writes durable.
    pub const FLUSH: u16 = 3;
    /// The content is no longer needed.
    pub const TRIM: u16 = 4;
    /// The content will be read soon.
    pub const CACHE: u16 = 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Report the allocated parts.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Command flags.
pub mod cmd_flag {
    /// Durable when acknowledged.
    pub const FUA: u16 = 1 << 0;
    /// WRITE_ZEROES must keep the space allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// READ must be answered with one content chunk at most.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS must be answered with one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES must fail rather than be as slow as a write.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply chunks.
pub mod chunk {
    /// Flag: the last chunk of its reply.
    pub const DONE: u16 = 1 << 0;
    /// A chunk with only its flag.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of one metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// Set in every error type.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// An error of the whole request.
    pub const ERROR: u16 = ERROR_BIT + 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}

/// The one metadata context spoken here.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Flags of an extent in [`BASE_ALLOCATION`].
pub mod state {
    /// Not allocated.
    pub const HOLE: u32 = 1 << 0;
    /// Reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// Takes integers and strings off the front of a message.
///
/// `None` everywhere means that the message is too short.
pub struct WireCursor<'a>(pub &'a [u8]);

impl<'a> WireCursor<'a> {
    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string preceded by its length in 32 bits.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()?;
        self.bytes(usize::try_from(n).ok()?)
    }
}
