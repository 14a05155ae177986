//! The formats in one table, and how one is recognised: by its opening bytes, by the requests
//! that its first bytes hold, or, without either, by the file's name.

pub(crate) mod alibaba;
pub mod binary;
pub(crate) mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod csv;
mod fio;
mod fiu;
mod line;
pub(crate) mod msr;
pub(crate) mod oracle_general;
pub(crate) mod spc;
pub(crate) mod systor17;
pub(crate) mod tencent;
mod vscsi;

pub(crate) use line::{
    LineParser, SNIFFED_BYTES, TextLine, fields, length, lines, number, op, seconds, sector_bytes,
    sectors, volume_of_name,
};

use crate::{RecordOp, TraceRecord};
use oracle_general::Objects;
use std::path::Path;

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
    /// The default text output of blkparse(1): queue events, or other events if there are none.
    Blkparse,
    /// The structures of the kernel's blktrace, as blktrace(8) and `blkparse -d` write them.
    Blktrace,
    /// fio's log of requests, versions 2 and 3.
    FioIolog,
    /// CloudPhysics vscsi, records of 32 bytes.
    Vscsi1,
    /// CloudPhysics vscsi, records of 40 bytes.
    Vscsi2,
    /// Florida International University (SyLab): nine columns with a hash.
    Fiu,
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
    /// libCacheSim's oracleGeneral: 24-byte binary records; an object is a block of 4 KiB.
    OracleGeneral,
    /// The same of a disk: an object is a sector of 512 bytes, where a request begins.
    OracleGeneralSectors,
}

/// The structure of a format.
#[derive(Clone, Copy)]
pub(crate) enum FormatForm {
    /// One a line; the parser by the first bytes.
    Lines(fn(&[u8]) -> LineParser),
    /// Records of so many bytes, their parser, and a test for such records.
    Records(usize, RecordParser, fn(&[u8]) -> bool),
    /// [`blktrace`].
    Blktrace,
    /// [`binary`].
    Binary,
    /// Not here.
    Parquet,
}

/// A parser of one record of the length that a format has.
pub(crate) type RecordParser = fn(&[u8]) -> Result<TextLine, String>;

struct FormatRow {
    format: Format,
    name: &'static str,
    /// Bytes with which only this format begins.
    openings: &'static [&'static [u8]],
    form: FormatForm,
}

const fn row(
    format: Format,
    name: &'static str,
    openings: &'static [&'static [u8]],
    form: FormatForm,
) -> FormatRow {
    FormatRow {
        format,
        name,
        openings,
        form,
    }
}

/// Every format, in the order of [`Format`].
#[rustfmt::skip]
const TABLE: [FormatRow; 16] = [
    row(Format::Csv, "csv", &[csv::HEADER.as_bytes()], FormatForm::Lines(|_| csv::parse)),
    row(Format::Binary, "binary", &[&binary::MAGIC], FormatForm::Binary),
    row(Format::Parquet, "parquet", &[&PARQUET_MAGIC], FormatForm::Parquet),
    row(Format::Blkparse, "blkparse", &[], FormatForm::Lines(blkparse::parser)),
    row(Format::Blktrace, "blktrace", &[&blktrace::LITTLE, &blktrace::BIG], FormatForm::Blktrace),
    row(Format::FioIolog, "fio-iolog", &[fio::VERSION_2, fio::VERSION_3], FormatForm::Lines(|_| fio::parse)),
    row(Format::Vscsi1, "vscsi1", &[], FormatForm::Records(vscsi::BYTES_1, vscsi::parse_1, vscsi::is_1)),
    row(Format::Vscsi2, "vscsi2", &[], FormatForm::Records(vscsi::BYTES_2, vscsi::parse_2, vscsi::is_2)),
    row(Format::Fiu, "fiu", &[], FormatForm::Lines(|_| fiu::parse)),
    row(Format::Msr, "msr", &[], FormatForm::Lines(|_| msr::parse)),
    row(Format::Spc, "spc", &[], FormatForm::Lines(|_| spc::parse)),
    row(Format::Systor17, "systor17", &[systor17::HEADER_START.as_bytes()], FormatForm::Lines(|_| systor17::parse)),
    row(Format::Alibaba, "alibaba", &[alibaba::HEADER_START.as_bytes()], FormatForm::Lines(|_| alibaba::parse)),
    row(Format::Tencent, "tencent", &[], FormatForm::Lines(|_| tencent::parse)),
    row(Format::OracleGeneral, "oracle-general", &[],
        FormatForm::Records(oracle_general::RECORD_BYTES, oracle_general::parse_blocks, |_| false)),
    row(Format::OracleGeneralSectors, "oracle-general-sectors", &[],
        FormatForm::Records(oracle_general::RECORD_BYTES, oracle_general::parse_sectors, |_| false)),
];

impl Format {
    /// Every format.
    pub const ALL: [Format; TABLE.len()] = {
        let mut all = [Format::Csv; TABLE.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = TABLE[at].format;
            at += 1;
        }
        all
    };

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        TABLE[self as usize].name
    }

    /// The format called `name`.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|f| f.name() == name)
    }

    /// The names of all, for a message.
    pub fn names() -> String {
        TABLE.map(|row| row.name).join(", ")
    }

    /// The format by a file's name, whatever its compression.
    pub fn from_path(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?;
        let name = [".zst", ".gz"]
            .iter()
            .fold(name, |name, end| name.trim_end_matches(end));
        // The published names: `NAME.oracleGeneral.bin`, `NAME.oracleGeneral.sample10`.
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

    /// The format of the file `path` that begins with `start`, decompressed. `Err` is a clause.
    pub fn recognise(path: &Path, start: &[u8]) -> Result<Format, String> {
        // Without a header, only the name distinguishes the format from noise.
        if Format::from_path(path) == Some(Format::OracleGeneral) {
            return by_objects(start);
        }
        match Format::sniff(start)[..] {
            [format] => Ok(format),
            [] if start.is_empty() => Ok(Format::Csv),
            [] => Err(format!(
                "the format is not recognised; name one of: {}",
                Format::names()
            )),
            [first, second, ..] => Err(format!(
                "the lines fit {0} and {1} alike; add --format {0} or --format {1}",
                first.name(),
                second.name()
            )),
        }
    }

    /// The formats that the first bytes of a file, decompressed, may be of; several if several fit
    /// alike. The headerless oracleGeneral is never guessed.
    pub fn sniff(start: &[u8]) -> Vec<Format> {
        let opens = |row: &&FormatRow| row.openings.iter().any(|bytes| start.starts_with(bytes));
        if let Some(row) = TABLE.iter().find(opens) {
            return vec![row.format];
        }
        let fits = |row: &&FormatRow| match row.form {
            FormatForm::Lines(parser) => {
                let mut parsed = lines(start).map(parser(start));
                matches!(
                    parsed.find(|line| *line != Ok(TextLine::Other)),
                    Some(Ok(_))
                )
            }
            FormatForm::Records(bytes, _, looks) => start.len() >= 2 * bytes && looks(start),
            FormatForm::Blktrace | FormatForm::Binary | FormatForm::Parquet => false,
        };
        let fitting = TABLE.iter().filter(fits).map(|row| row.format).collect();
        by_time(start, fitting)
    }

    pub(crate) fn form(self) -> FormatForm {
        TABLE[self as usize].form
    }

    /// True of a format of text lines.
    pub(crate) fn is_text(self) -> bool {
        matches!(self.form(), FormatForm::Lines(_))
    }

    /// True if the format's volumes are numbers of Linux devices.
    pub(crate) fn has_devices(self) -> bool {
        matches!(self, Format::Blkparse | Format::Blktrace)
    }
}

/// The kind of oracleGeneral of a file that begins with `start`.
fn by_objects(start: &[u8]) -> Result<Format, String> {
    match oracle_general::objects(start) {
        Some(Objects::Blocks) => Ok(Format::OracleGeneral),
        Some(Objects::Sectors) => Ok(Format::OracleGeneralSectors),
        None => Err(format!(
            "objects of other sizes than whole sectors; add --format {} if an object is a block \
             of 4 KiB, or --format {} if it is a sector of 512 bytes",
            Format::OracleGeneral.name(),
            Format::OracleGeneralSectors.name()
        )),
    }
}

/// Keeps, of formats that the first line fits alike, those by which time runs on.
fn by_time(start: &[u8], fitting: Vec<Format>) -> Vec<Format> {
    if fitting.len() < 2 {
        return fitting;
    }
    let runs_on = |format: &Format| {
        let FormatForm::Lines(parser) = format.form() else {
            return false;
        };
        let times = lines(start)
            .map(parser(start))
            .filter_map(|line| match line {
                Ok(TextLine::Record(record)) => Some(record.time),
                _ => None,
            });
        let times: Vec<_> = times.collect();
        times.is_sorted() && times.first() < times.last()
    };
    let running: Vec<Format> = fitting.iter().copied().filter(runs_on).collect();
    if running.is_empty() { fitting } else { running }
}

/// Refuses a record that no reader may yield.
pub(crate) fn validate(record: &TraceRecord) -> Result<(), String> {
    if record.forced && record.op == RecordOp::Read {
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

    fn sniffed(text: &str) -> Vec<Format> {
        Format::sniff(text.as_bytes())
    }

    #[test]
    fn the_table_is_in_the_order_of_the_formats() {
        for (at, format) in Format::ALL.into_iter().enumerate() {
            assert_eq!(format as usize, at, "{format:?}");
            assert_eq!(Format::from_name(format.name()), Some(format));
        }
    }

    #[test]
    fn hotsets_own_text_without_its_header_is_not_taken_for_another() {
        let own = "17,W,40960,4096,0\n1577808144360767,R,4096,512,0\n";
        assert_eq!(sniffed(own), [Format::Csv]);
        let dated = "419,W,8792731648,16384,1577808144360767\n";
        assert_eq!(sniffed(dated), [Format::Alibaba]);
        let damaged = "17,W,40960,4096,0\nx\n18,R,4096,512,0\n";
        assert_eq!(sniffed(damaged), [Format::Csv]);
        let undated = "419,W,8192,4096,17\n12,R,8192,4096,17\n419,R,8192,4096,900\n";
        assert_eq!(sniffed(undated), [Format::Alibaba]);
        let both = [Format::Csv, Format::Alibaba];
        assert_eq!(sniffed("17,W,40960,4096,5\n"), both);
        assert_eq!(sniffed("17,W,40960,4096,5\n18,W,40960,4096,6\n"), both);
        let refused = Format::recognise(Path::new("t"), b"17,W,40960,4096,5\n").unwrap_err();
        assert!(
            refused.contains("--format csv or --format alibaba"),
            "{refused}"
        );
    }

    #[test]
    fn oracle_general_is_known_by_its_name_and_its_sizes() {
        let of = |name: &str, size: u32| {
            let mut record = [0; 24];
            record[12..16].copy_from_slice(&size.to_le_bytes());
            Format::recognise(Path::new(name), &record)
        };
        assert_eq!(of("w.oracleGeneral", 4096), Ok(Format::OracleGeneral));
        let sectors = of("w.oracleGeneral.bin.zst", 512);
        assert_eq!(sectors, Ok(Format::OracleGeneralSectors));
        let neither = of("w.oracleGeneral", 700).unwrap_err();
        assert!(
            neither.contains("--format oracle-general-sectors"),
            "{neither}"
        );
        assert!(of("w.bin", 4096).is_err());
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
