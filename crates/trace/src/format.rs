//! The formats by name, and how one is recognised.

pub(crate) mod alibaba;
pub mod binary;
pub(crate) mod blkparse;
pub(crate) mod csv;
pub(crate) mod msr;
pub(crate) mod oracle_general;
pub(crate) mod parquet;
pub(crate) mod spc;
pub(crate) mod systor17;
pub(crate) mod tencent;

use crate::{Op, Record};
use block::Nanos;

/// What one line of a text format is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A request.
    Record(Record),
    /// A header, a comment, or an event of no interest here.
    Other,
}

/// A parser of one line; the error is a clause without the line's place.
pub(crate) type LineParser = fn(&str) -> Result<Line, String>;

/// A trace format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// hotset's text form: `ts_us,op,offset_bytes,len_bytes,volume`.
    Csv,
    /// hotset's compressed binary form.
    Binary,
    /// Apache Parquet with hotset's columns.
    Parquet,
    /// The default text output of blkparse(1); queue events.
    Blkparse,
    /// MSR Cambridge (SNIA IOTTA): seven comma-separated columns.
    Msr,
    /// Storage Performance Council: `ASU,LBA,size,opcode,seconds`.
    Spc,
    /// Systor '17 (SNIA IOTTA): `Timestamp,Response,IOType,LUN,Offset,Size`.
    Systor17,
    /// Alibaba block traces: `device,opcode,offset,length,timestamp_us`.
    Alibaba,
    /// Tencent block traces: `seconds,offset,size,type,volume` in sectors.
    Tencent,
    /// libCacheSim's oracleGeneral: 24-byte binary records.
    OracleGeneral,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 10] = [
        Format::Csv,
        Format::Binary,
        Format::Parquet,
        Format::Blkparse,
        Format::Msr,
        Format::Spc,
        Format::Systor17,
        Format::Alibaba,
        Format::Tencent,
        Format::OracleGeneral,
    ];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Binary => "binary",
            Format::Parquet => "parquet",
            Format::Blkparse => "blkparse",
            Format::Msr => "msr",
            Format::Spc => "spc",
            Format::Systor17 => "systor17",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::OracleGeneral => "oracle-general",
        }
    }

    /// The format called `name`.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|f| f.name() == name)
    }

    /// The format that a file's name tells, whatever it is compressed with.
    pub fn from_path(path: &std::path::Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?;
        let name = [".zst", ".gz"]
            .iter()
            .fold(name, |name, end| name.trim_end_matches(end));
        match name.rsplit_once('.')?.1 {
            "csv" => Some(Format::Csv),
            "hottrace" => Some(Format::Binary),
            "parquet" => Some(Format::Parquet),
            "oracleGeneral" => Some(Format::OracleGeneral),
            _ => None,
        }
    }

    /// The format that the first bytes of a file look like, decompressed. The
    /// headerless binary oracleGeneral is never guessed.
    pub fn sniff(start: &[u8]) -> Option<Format> {
        if start.starts_with(&binary::MAGIC) {
            return Some(Format::Binary);
        }
        if start.starts_with(&parquet::MAGIC) {
            return Some(Format::Parquet);
        }
        let text = &start[..start.len().min(4096)];
        let first = text.split(|b| *b == b'\n').find(|l| !l.is_empty())?;
        let first = std::str::from_utf8(first).ok()?.trim_end();
        if first == csv::HEADER {
            return Some(Format::Csv);
        }
        if first.starts_with(systor17::HEADER_START) {
            return Some(Format::Systor17);
        }
        // Every text format refuses the first line of every other.
        let texts = [
            Format::Msr,
            Format::Systor17,
            Format::Alibaba,
            Format::Tencent,
            Format::Spc,
            Format::Blkparse,
            Format::Csv,
        ];
        texts.into_iter().find(|f| {
            let parser = f.line_parser().expect("a text format");
            matches!(parser(first), Ok(Line::Record(_)))
        })
    }

    /// The parser of a text format.
    pub(crate) fn line_parser(self) -> Option<LineParser> {
        Some(match self {
            Format::Csv => csv::parse,
            Format::Blkparse => blkparse::parse,
            Format::Msr => msr::parse,
            Format::Spc => spc::parse,
            Format::Systor17 => systor17::parse,
            Format::Alibaba => alibaba::parse,
            Format::Tencent => tencent::parse,
            Format::Binary | Format::Parquet | Format::OracleGeneral => return None,
        })
    }
}

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
pub(crate) fn op(field: &str) -> Result<Op, String> {
    match field {
        "R" | "r" | "Read" | "read" | "READ" => Ok(Op::Read),
        "W" | "w" | "Write" | "write" | "WRITE" => Ok(Op::Write),
        _ => Err(format!("neither a read nor a write: {field:?}")),
    }
}

/// Sectors as bytes.
pub(crate) fn sectors(field: &str, column: &str) -> Result<u64, String> {
    let sectors: u64 = number(field, column)?;
    sectors
        .checked_mul(block::SECTOR_BYTES)
        .ok_or_else(|| format!("{column} is beyond 2^64 bytes: {field}"))
}

/// A length that fits a record, or an error.
pub(crate) fn length(bytes: u64) -> Result<u32, String> {
    u32::try_from(bytes).map_err(|_| format!("a request of {bytes} bytes is too long"))
}

/// Refuses what no reader may yield.
pub(crate) fn validate(record: &Record) -> Result<(), String> {
    if record.len_bytes == 0 {
        return Err("a request of zero bytes".into());
    }
    match record.offset_bytes.checked_add(u64::from(record.len_bytes)) {
        Some(_) => Ok(()),
        None => Err(format!(
            "a request at {} ends beyond 2^64 bytes",
            record.offset_bytes
        )),
    }
}

/// A volume name that is not a number, as one: FNV-1a folded to 32 bits.
pub(crate) fn volume_of_name(parts: &[&str]) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in parts.iter().flat_map(|p| p.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash ^ (hash >> 32)) as u32
}
