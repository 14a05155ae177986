//! The formats by name, and how one is recognised.

pub(crate) mod alibaba;
pub mod binary;
pub(crate) mod blkparse;
pub(crate) mod csv;
mod line;
pub(crate) mod msr;
pub(crate) mod oracle_general;
pub(crate) mod spc;
pub(crate) mod systor17;
pub(crate) mod tencent;

pub(crate) use line::{
    Line, LineParser, SNIFFED_BYTES, fields, length, lines, number, op, seconds, sectors,
    volume_of_name,
};

use crate::{Op, Record};

/// The first bytes of an Apache Parquet file.
pub const PARQUET_MAGIC: [u8; 4] = *b"PAR1";

/// A trace format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// hotset's text form: `ts_us,op,offset_bytes,len_bytes,volume`.
    Csv,
    /// hotset's compressed binary form.
    Binary,
    /// Apache Parquet with hotset's columns; known by name here, read and written by
    /// `trace-formats`.
    Parquet,
    /// The default text output of blkparse(1); queue events, or what there is instead.
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

    /// The format by a file's name, whatever it is compressed with.
    pub fn from_path(path: &std::path::Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?;
        let name = [".zst", ".gz"]
            .iter()
            .fold(name, |name, end| name.trim_end_matches(end));
        // As it is published: `NAME.oracleGeneral.bin`, `NAME.oracleGeneral.sample10`.
        if name.split('.').skip(1).any(|part| part == "oracleGeneral") {
            return Some(Format::OracleGeneral);
        }
        match name.rsplit_once('.')?.1 {
            "csv" => Some(Format::Csv),
            "hottrace" => Some(Format::Binary),
            "parquet" => Some(Format::Parquet),
            _ => None,
        }
    }

    /// The format that the first bytes of a file look like, decompressed. The
    /// headerless binary oracleGeneral is never guessed.
    pub fn sniff(start: &[u8]) -> Option<Format> {
        if start.starts_with(&binary::MAGIC) {
            return Some(Format::Binary);
        }
        if start.starts_with(&PARQUET_MAGIC) {
            return Some(Format::Parquet);
        }
        let first = lines(start).next()?;
        if first == csv::HEADER {
            return Some(Format::Csv);
        }
        if first.starts_with(systor17::HEADER_START) {
            return Some(Format::Systor17);
        }
        // Every text format refuses the first request of every other.
        let texts = [
            Format::Msr,
            Format::Systor17,
            Format::Alibaba,
            Format::Tencent,
            Format::Spc,
            Format::Blkparse,
            Format::Csv,
        ];
        texts.into_iter().find(|format| {
            let parser = match format {
                Format::Blkparse => blkparse::parser(start),
                Format::Alibaba => alibaba::parse_dated,
                format => format.line_parser().expect("a text format"),
            };
            let mut parsed = lines(start).map(parser);
            matches!(parsed.find(|line| *line != Ok(Line::Other)), Some(Ok(_)))
        })
    }

    /// The parser of a text format.
    pub(crate) fn line_parser(self) -> Option<LineParser> {
        Some(match self {
            Format::Csv => csv::parse,
            Format::Blkparse => blkparse::parse_queued,
            Format::Msr => msr::parse,
            Format::Spc => spc::parse,
            Format::Systor17 => systor17::parse,
            Format::Alibaba => alibaba::parse,
            Format::Tencent => tencent::parse,
            Format::Binary | Format::Parquet | Format::OracleGeneral => return None,
        })
    }
}

/// Refuses what no reader may yield.
pub(crate) fn validate(record: &Record) -> Result<(), String> {
    if record.forced && record.op == Op::Read {
        return Err("a read that is forced".into());
    }
    if record.is_flush() && !record.forced {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn hotsets_own_text_without_its_header_is_not_taken_for_another() {
        for line in ["17,W,40960,4096,0\n", "1577808144360767,R,4096,512,7\n"] {
            assert_eq!(Format::sniff(line.as_bytes()), Some(Format::Csv), "{line}");
        }
        let alibaba = "419,W,8792731648,16384,1577808144360767\n";
        assert_eq!(Format::sniff(alibaba.as_bytes()), Some(Format::Alibaba));
    }

    #[test]
    fn a_line_that_is_cut_off_is_not_looked_at() {
        let line = "17,W,40960,4096,0\n";
        let many = line.repeat(SNIFFED_BYTES / line.len() + 1);
        assert_eq!(lines(many.as_bytes()).count(), SNIFFED_BYTES / line.len());
        assert_eq!(lines(&many.as_bytes()[..line.len() - 1]).count(), 1);
    }

    #[test]
    fn published_names_are_known() {
        for name in [
            "w.oracleGeneral",
            "w.oracleGeneral.bin.zst",
            "w.oracleGeneral.sample10.zst",
        ] {
            assert_eq!(
                Format::from_path(Path::new(name)),
                Some(Format::OracleGeneral),
                "{name}"
            );
        }
        assert_eq!(Format::from_path(Path::new("oracleGeneral.txt")), None);
    }
}
