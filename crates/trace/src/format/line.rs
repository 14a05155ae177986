//! The common part of the text formats: lines and their fields.

use crate::{RecordOp, TraceRecord};
use block::Nanos;

/// Bytes by which a format is recognised, at most.
pub(crate) const SNIFFED_BYTES: usize = 64 << 10;

/// The content of one line of a text format.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TextLine {
    /// A request.
    Record(TraceRecord),
    /// A header, a comment, or an event of no interest here.
    Other,
}

/// A parser of one line; the error is a clause without the line's place.
pub(crate) type LineParser = fn(&str) -> Result<TextLine, String>;

/// The fields of a comma-separated line, exactly `N` of them.
pub(crate) fn fields<const N: usize>(line: &str) -> Result<[&str; N], String> {
    let mut out = [""; N];
    let mut split = line.split(',');
    for (i, field) in out.iter_mut().enumerate() {
        *field = split
            .next()
            .ok_or_else(|| format!("{i} columns where {N} are expected"))?
            .trim();
    }
    match split.next() {
        None => Ok(out),
        Some(_) => Err(format!(
            "{} columns where {N} are expected",
            N + 1 + split.count()
        )),
    }
}

/// A number, or an error that names the column.
pub(crate) fn number<T: std::str::FromStr>(field: &str, column: &str) -> Result<T, String> {
    field
        .parse()
        .map_err(|_| format!("{column} is not a number in range: {field:?}"))
}

/// A decimal number of seconds as a time, to the nanosecond.
pub(crate) fn seconds(field: &str, column: &str) -> Result<Nanos, String> {
    let bad = || format!("{column} is not a time in seconds: {field:?}");
    let (whole, fraction) = field.split_once('.').unwrap_or((field, ""));
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let mut nanos = 0u64;
    for i in 0..9 {
        let digit = fraction.as_bytes().get(i).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return Err(bad());
        }
        nanos = nanos * 10 + u64::from(digit - b'0');
    }
    let whole = whole.checked_mul(1_000_000_000).ok_or_else(bad)?;
    whole.checked_add(nanos).map(Nanos).ok_or_else(bad)
}

/// `R` or `W` in any case, or the words.
pub(crate) fn op(field: &str) -> Result<RecordOp, String> {
    match field {
        "R" | "r" | "Read" | "read" | "READ" => Ok(RecordOp::Read),
        "W" | "w" | "Write" | "write" | "WRITE" => Ok(RecordOp::Write),
        _ => Err(format!("neither a read nor a write: {field:?}")),
    }
}

/// Sectors as bytes.
pub(crate) fn sectors(field: &str, column: &str) -> Result<u64, String> {
    sector_bytes(number(field, column)?, column)
}

/// The same of a number.
pub(crate) fn sector_bytes(sectors: u64, column: &str) -> Result<u64, String> {
    sectors
        .checked_mul(block::SECTOR_BYTES)
        .ok_or_else(|| format!("{column} is beyond 2^64 bytes: {sectors}"))
}

/// A length that fits a record, or an error.
pub(crate) fn length(bytes: u64) -> Result<u32, String> {
    u32::try_from(bytes).map_err(|_| format!("a request of {bytes} bytes is too long"))
}

/// A volume name that is not a number, as one: FNV-1a folded to 32 bits.
pub(crate) fn volume_of_name(parts: &[&str]) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in parts.iter().flat_map(|p| p.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash ^ (hash >> 32)) as u32
}

/// The whole lines of the first bytes of a text; none after one that is no text.
pub(crate) fn lines(start: &[u8]) -> impl Iterator<Item = &str> {
    let start = &start[..start.len().min(SNIFFED_BYTES)];
    let end = match start.iter().rposition(|byte| *byte == b'\n') {
        Some(end) if start.len() == SNIFFED_BYTES => end,
        _ => start.len(),
    };
    let lines = start[..end].split(|byte| *byte == b'\n');
    let text = lines.map_while(|line| Some(std::str::from_utf8(line).ok()?.trim_end()));
    text.filter(|line| !line.is_empty())
}
