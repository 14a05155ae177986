//! The description of an export in the handshake.

use super::wire::{STRING_BYTES_MAX, flag};
use std::fmt;

/// One export as a client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// The name; empty for the default export.
    name: Box<str>,
    /// A line for people.
    description: Box<str>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Abilities of the export.
    pub features: ExportFeatures,
    /// Block sizes.
    pub block: BlockSizes,
}

/// Abilities of an export, beyond reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportFeatures {
    /// Writes are refused.
    pub read_only: bool,
    /// The medium prefers sequential access.
    pub rotational: bool,
    /// TRIM has an effect.
    pub trim: bool,
    /// A flush covers every connection.
    pub multi_conn: bool,
}

/// Block sizes in bytes ("Block size constraints").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizes {
    /// Every offset and length is a multiple of this power of two.
    pub min: u32,
    /// The minimum that is offered to clients, at least `min`. Partition tables and file systems on
    /// a disk with larger blocks count in these.
    pub min_offered: u32,
    /// The block size for speed.
    pub preferred: u32,
    /// The longest payload of one request.
    pub payload_max: u32,
}

/// Reason for which a string cannot be sent over the protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadString {
    what: &'static str,
    why: String,
}

impl fmt::Display for BadString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "export {} {}", self.what, self.why)
    }
}

impl std::error::Error for BadString {}

fn checked(what: &'static str, s: &str) -> Result<Box<str>, BadString> {
    let why = if s.len() > STRING_BYTES_MAX {
        format!("has {} bytes; NBD allows {STRING_BYTES_MAX}", s.len())
    } else if s.contains('\0') {
        "holds a NUL character".into()
    } else {
        return Ok(s.into());
    };
    Err(BadString { what, why })
}

impl ExportInfo {
    /// An export; refuses strings that NBD cannot carry.
    pub fn new(
        name: &str,
        description: &str,
        size_bytes: u64,
        features: ExportFeatures,
        block: BlockSizes,
    ) -> Result<ExportInfo, BadString> {
        Ok(ExportInfo {
            name: checked("name", name)?,
            description: checked("description", description)?,
            size_bytes,
            features,
            block,
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The description.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The flags sent at the end of the handshake ("Transmission flags").
    pub fn transmission_flags(&self, structured: bool) -> u16 {
        let ExportFeatures {
            read_only,
            rotational,
            trim,
            multi_conn,
        } = self.features;
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_CACHE;
        let mut set = |on, bits| flags |= if on { bits } else { 0 };
        set(read_only, flag::READ_ONLY);
        set(rotational, flag::ROTATIONAL);
        set(!read_only && trim, flag::SEND_TRIM);
        set(!read_only, flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO);
        set(structured, flag::SEND_DF);
        set(multi_conn, flag::CAN_MULTI_CONN);
        flags
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn info(name: &str, size_bytes: u64) -> ExportInfo {
        let features = ExportFeatures {
            read_only: false,
            rotational: false,
            trim: true,
            multi_conn: true,
        };
        let block = BlockSizes {
            min: 1,
            min_offered: 1,
            preferred: 4096,
            payload_max: 32 << 20,
        };
        ExportInfo::new(name, "", size_bytes, features, block).unwrap()
    }

    #[test]
    fn strings_nbd_cannot_carry_are_refused() {
        let e = info("a", 1);
        let long = "x".repeat(4097);
        let bad = ExportInfo::new(&long, "", 1, e.features, e.block).unwrap_err();
        assert_eq!(
            bad.to_string(),
            "export name has 4097 bytes; NBD allows 4096"
        );
        assert!(ExportInfo::new("a", "b\0", 1, e.features, e.block).is_err());
        assert!(ExportInfo::new(&long[1..], "", 1, e.features, e.block).is_ok());
    }

    #[test]
    fn a_read_only_export_offers_nothing_that_writes() {
        let mut e = info("a", 1);
        e.features.read_only = true;
        let flags = e.transmission_flags(false);
        assert_ne!(flags & flag::READ_ONLY, 0);
        assert_eq!(
            flags & (flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO),
            0
        );
    }

    #[test]
    fn df_is_offered_only_with_structured_replies() {
        let e = info("a", 1);
        assert_eq!(e.transmission_flags(false) & flag::SEND_DF, 0);
        assert_ne!(e.transmission_flags(true) & flag::SEND_DF, 0);
    }
}
