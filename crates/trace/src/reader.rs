//! A streaming reader of any format, plain or compressed by zstd or gzip.

use crate::format::{Line, SNIFFED_BYTES, binary, blkparse, oracle_general, validate};
use crate::{Error, Format, Record};
use block::Nanos;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Longest line accepted, so that a file without newlines cannot fill memory.
const LINE_BYTES_MAX: u64 = 1 << 16;
const BUFFER_BYTES: usize = 1 << 16;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What to do with input that makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strictness {
    /// The first such line is an error that ends the reading.
    #[default]
    Strict,
    /// Such lines are left out and counted.
    Lenient,
}

/// What was left out by [`Strictness::Lenient`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Skipped {
    /// Lines or records that could not be understood.
    pub malformed: u64,
    /// Requests with an earlier time than one before them.
    pub out_of_order: u64,
    /// Requests that end beyond the device.
    pub beyond_end: u64,
    /// The end of the file was damaged or cut off.
    pub truncated: bool,
}

/// Bytes of a trace.
pub type Input = Box<dyn BufRead + Send>;

/// Records of a format that is decoded elsewhere.
pub trait Records: Send {
    /// The next; `None` at the end. `Err` is a clause, and the end.
    fn next(&mut self) -> Result<Option<Record>, String>;
}

enum Decoder {
    Text {
        input: Input,
        parse: fn(&str) -> Result<Line, String>,
    },
    Binary {
        input: Input,
        last: binary::Last,
    },
    OracleGeneral(Input),
    Elsewhere(Box<dyn Records>),
}

/// Streams the records of one trace.
pub struct Reader {
    path: PathBuf,
    decoder: Decoder,
    format: Format,
    strictness: Strictness,
    skipped: Skipped,
    line: u64,
    latest: Nanos,
    text: Vec<u8>,
    end_bytes: u64,
    flushes: bool,
    ended: bool,
}

/// What one step of a decoder yields.
enum Step {
    Record(Record),
    Nothing,
    Malformed(String),
    /// Cannot go on: an I/O error or a broken stream.
    Broken(String),
    End,
}

impl Reader {
    /// Opens `path`, guessing the format if `format` is `None`.
    pub fn open(
        path: &Path,
        format: Option<Format>,
        strictness: Strictness,
    ) -> Result<Reader, Error> {
        let fail = |e: io::Error| Error::new(path, None, e.to_string());
        let file = File::open(path).map_err(fail)?;
        // Without a header, only its name distinguishes it from noise.
        let headless = Format::from_path(path).filter(|named| *named == Format::OracleGeneral);
        Reader::new(path, file, format.or(headless), strictness)
    }

    /// Reads from `input`; `path` is for error messages only.
    pub fn new(
        path: &Path,
        input: impl Read + Send + 'static,
        format: Option<Format>,
        strictness: Strictness,
    ) -> Result<Reader, Error> {
        let fail = |e: io::Error| Error::new(path, None, e.to_string());
        let (start, mut input) = plain(input).map_err(fail)?;
        let format = match format.or_else(|| Format::sniff(&start)) {
            Some(format) => format,
            None if start.is_empty() => Format::Csv,
            None => {
                let names: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
                let names = names.join(", ");
                let what = format!("the format is not recognised; name one of: {names}");
                return Err(Error::new(path, Some(1), what));
            }
        };
        let decoder = match (format, format.line_parser()) {
            (Format::Blkparse, _) => Decoder::Text {
                input,
                parse: blkparse::parser(&start),
            },
            (_, Some(parse)) => Decoder::Text { input, parse },
            (Format::Binary, _) => {
                let mut magic = [0; binary::MAGIC.len()];
                if input.read_exact(&mut magic).is_err() || magic != binary::MAGIC {
                    return Err(Error::new(path, None, "not a hotset binary trace"));
                }
                let plain = zstd::Decoder::with_buffer(input).map_err(fail)?;
                Decoder::Binary {
                    input: Box::new(BufReader::with_capacity(BUFFER_BYTES, plain)),
                    last: binary::Last::default(),
                }
            }
            (Format::Parquet, _) => {
                let what = "Parquet is not read here; convert it: `hotset-lab trace convert FILE FILE.hottrace`";
                return Err(Error::new(path, None, what));
            }
            _ => Decoder::OracleGeneral(input),
        };
        Ok(Reader::with(path, decoder, format, strictness))
    }

    /// Reads what is decoded elsewhere, which is of `format`.
    pub fn elsewhere(
        path: &Path,
        records: Box<dyn Records>,
        format: Format,
        strictness: Strictness,
    ) -> Reader {
        Reader::with(path, Decoder::Elsewhere(records), format, strictness)
    }

    fn with(path: &Path, decoder: Decoder, format: Format, strictness: Strictness) -> Reader {
        Reader {
            path: path.to_path_buf(),
            decoder,
            format,
            strictness,
            skipped: Skipped::default(),
            line: 0,
            latest: Nanos::ZERO,
            text: Vec::new(),
            end_bytes: u64::MAX,
            flushes: false,
            ended: false,
        }
    }

    /// Takes requests that end beyond `end_bytes` for bad input.
    pub fn with_end(mut self, end_bytes: u64) -> Reader {
        self.end_bytes = end_bytes;
        self
    }

    /// Yields flushes too, which are left out otherwise.
    pub fn with_flushes(mut self) -> Reader {
        self.flushes = true;
        self
    }

    /// The format being read.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What was left out so far.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    fn step(&mut self) -> Step {
        self.line += 1;
        match &mut self.decoder {
            Decoder::Text { input, parse } => {
                self.text.clear();
                let mut limited = input.by_ref().take(LINE_BYTES_MAX);
                match limited.read_until(b'\n', &mut self.text) {
                    Err(e) => return Step::Broken(e.to_string()),
                    Ok(0) => return Step::End,
                    Ok(n) if n as u64 == LINE_BYTES_MAX => {
                        return Step::Broken(format!("a line longer than {LINE_BYTES_MAX} bytes"));
                    }
                    Ok(_) => {}
                }
                let Ok(text) = std::str::from_utf8(&self.text) else {
                    return Step::Malformed("not text".into());
                };
                match text.trim_end() {
                    "" => Step::Nothing,
                    text if text.starts_with('#') => Step::Nothing,
                    text => match parse(text) {
                        Ok(Line::Record(record)) => Step::Record(record),
                        Ok(Line::Other) => Step::Nothing,
                        Err(what) => Step::Malformed(what),
                    },
                }
            }
            Decoder::Binary { input, last } => match binary::decode(last, input) {
                Ok(Some(record)) => Step::Record(record),
                Ok(None) => Step::End,
                Err(e) => Step::Broken(e.to_string()),
            },
            Decoder::Elsewhere(records) => match records.next() {
                Ok(Some(record)) => Step::Record(record),
                Ok(None) => Step::End,
                Err(what) => Step::Broken(what),
            },
            Decoder::OracleGeneral(input) => {
                let mut raw = [0; oracle_general::RECORD_BYTES];
                let mut filled = 0;
                while filled < raw.len() {
                    match input.read(&mut raw[filled..]) {
                        Ok(0) if filled == 0 => return Step::End,
                        Ok(0) => return Step::Broken("the last record is cut off".into()),
                        Ok(n) => filled += n,
                        Err(e) => return Step::Broken(e.to_string()),
                    }
                }
                match oracle_general::parse(&raw) {
                    Ok(record) => Step::Record(record),
                    Err(what) => Step::Malformed(what),
                }
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Result<Record, Error>> {
        while !self.ended {
            let lenient = self.strictness == Strictness::Lenient;
            let what = match self.step() {
                Step::Nothing => continue,
                Step::End => break,
                Step::Record(record) => match validate(&record) {
                    Err(what) => {
                        self.skipped.malformed += 1;
                        what
                    }
                    Ok(()) if record.end_bytes() > self.end_bytes => {
                        self.skipped.beyond_end += 1;
                        format!(
                            "a request that ends at {}, beyond the device of {} bytes",
                            record.end_bytes(),
                            self.end_bytes
                        )
                    }
                    Ok(()) if record.time < self.latest => {
                        self.skipped.out_of_order += 1;
                        format!(
                            "time runs back from {} ns to {} ns",
                            self.latest.0, record.time.0
                        )
                    }
                    Ok(()) => {
                        self.latest = record.time;
                        if record.is_flush() && !self.flushes {
                            continue;
                        }
                        return Some(Ok(record));
                    }
                },
                Step::Malformed(what) => {
                    self.skipped.malformed += 1;
                    what
                }
                Step::Broken(what) => {
                    self.ended = true;
                    self.skipped.truncated = true;
                    what
                }
            };
            if !lenient {
                self.ended = true;
                return Some(Err(Error::new(&self.path, Some(self.line), what)));
            }
        }
        self.ended = true;
        None
    }
}

/// What `input` is, decompressed: its first bytes, and a reader that still yields them.
pub fn plain(input: impl Read + Send + 'static) -> io::Result<(Vec<u8>, Input)> {
    let (start, input) = peek(input)?;
    let input: Input = Box::new(BufReader::with_capacity(BUFFER_BYTES, input));
    let plain: Box<dyn Read + Send> = if start.starts_with(&ZSTD_MAGIC) {
        Box::new(zstd::Decoder::with_buffer(input)?)
    } else if start.starts_with(&GZIP_MAGIC) {
        Box::new(flate2::bufread::MultiGzDecoder::new(input))
    } else {
        return Ok((start, input));
    };
    let (start, plain) = peek(plain)?;
    let plain = BufReader::with_capacity(BUFFER_BYTES, plain);
    Ok((start, Box::new(plain)))
}

/// The first bytes of `input`, and a reader that still yields them.
fn peek<R: Read>(mut input: R) -> io::Result<(Vec<u8>, impl Read + use<R>)> {
    let mut start = Vec::new();
    input
        .by_ref()
        .take(SNIFFED_BYTES as u64)
        .read_to_end(&mut start)?;
    Ok((start.clone(), io::Cursor::new(start).chain(input)))
}
