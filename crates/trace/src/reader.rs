//! A streaming reader of any format, plain or compressed by zstd or gzip, alone or in a tar
//! archive.

use crate::archive::{self, Archive};
use crate::compressed::{BUFFER_BYTES, Input, buffered, decompressed, peek};
use crate::format::{FormatForm, LineParser, RecordParser, TextLine, binary, blktrace, validate};
use crate::{Error, Format, TraceRecord};
use block::Nanos;
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Add;
use std::path::{Path, PathBuf};

/// Longest line accepted, so that a file without newlines cannot fill memory.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// Treatment of input that makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strictness {
    /// The first such line is an error that ends the reading.
    #[default]
    Strict,
    /// Such lines are left out and counted.
    Lenient,
}

/// Counts of input left out by [`Strictness::Lenient`].
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

impl Add for Skipped {
    type Output = Skipped;

    fn add(self, other: Skipped) -> Skipped {
        Skipped {
            malformed: self.malformed + other.malformed,
            out_of_order: self.out_of_order + other.out_of_order,
            beyond_end: self.beyond_end + other.beyond_end,
            truncated: self.truncated || other.truncated,
        }
    }
}

/// Records of a format that is decoded elsewhere.
pub trait DecodedRecords: Send {
    /// The next; `None` at the end. `Err` is a clause, and the end.
    fn next(&mut self) -> Result<Option<TraceRecord>, String>;

    /// Counts of input left out so far.
    fn skipped(&self) -> Skipped {
        Skipped::default()
    }
}

/// Linux devices with requests to be taken, of formats that name devices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DeviceFilter {
    /// Those of one; requests of a second are an error.
    #[default]
    Sole,
    /// Those of all, each a volume.
    All,
    /// Those of these numbers, as [`TraceRecord::volume`] has them.
    Only(Vec<u32>),
}

/// Steps in which an error looks for further devices to name.
const DEVICES_LOOKED_FOR: usize = 100_000;

enum RecordDecoder {
    Lines {
        input: Input,
        parse: LineParser,
    },
    Records {
        input: Input,
        raw: Vec<u8>,
        parse: RecordParser,
    },
    Blktrace {
        input: Input,
        events: blktrace::BlktraceEvents,
    },
    Binary {
        input: Input,
        last: binary::LastRecord,
    },
    Elsewhere(Box<dyn DecodedRecords>),
}

/// Streams the records of one trace.
pub struct TraceReader {
    path: PathBuf,
    decoder: RecordDecoder,
    format: Format,
    strictness: Strictness,
    skipped: Skipped,
    line: u64,
    latest: Nanos,
    text: Vec<u8>,
    end_bytes: u64,
    flushes: bool,
    devices: DeviceFilter,
    sole: Option<u32>,
    ended: bool,
}

/// Result of one step of a decoder.
enum DecoderStep {
    Record(TraceRecord),
    Nothing,
    Malformed(String),
    /// An I/O error or a broken stream: the end.
    Broken(String),
    End,
}

impl TraceReader {
    /// Reads from `input`; `path` is for error messages, and for the formats that only a name
    /// distinguishes.
    pub fn new(
        path: &Path,
        input: impl Read + Send + 'static,
        format: Option<Format>,
        strictness: Strictness,
    ) -> Result<TraceReader, Error> {
        let fail = |e: io::Error| Error::new(path, None, e.to_string());
        let (start, mut input) = plain(input, format).map_err(fail)?;
        let format = match format {
            Some(format) => format,
            None => {
                Format::recognise(path, &start).map_err(|what| Error::new(path, Some(1), what))?
            }
        };
        let decoder = match format.form() {
            FormatForm::Lines(parser) => RecordDecoder::Lines {
                input,
                parse: parser(&start),
            },
            FormatForm::Records(bytes, parse, _) => RecordDecoder::Records {
                input,
                raw: vec![0; bytes],
                parse,
            },
            FormatForm::Blktrace => RecordDecoder::Blktrace {
                input,
                events: blktrace::BlktraceEvents::of(&start),
            },
            FormatForm::Binary => {
                let mut magic = [0; binary::MAGIC.len()];
                if input.read_exact(&mut magic).is_err() || magic != binary::MAGIC {
                    return Err(Error::new(path, None, "not a hotset binary trace"));
                }
                let plain = zstd::Decoder::with_buffer(input).map_err(fail)?;
                RecordDecoder::Binary {
                    input: Box::new(BufReader::with_capacity(BUFFER_BYTES, plain)),
                    last: binary::LastRecord::default(),
                }
            }
            FormatForm::Parquet => {
                let what = "Parquet is not read here; convert it: `hotset-lab trace convert FILE FILE.hottrace`";
                return Err(Error::new(path, None, what));
            }
        };
        Ok(TraceReader::with(path, decoder, format, strictness))
    }

    /// Reads records decoded elsewhere, of `format`.
    pub fn elsewhere(
        path: &Path,
        records: Box<dyn DecodedRecords>,
        format: Format,
        strictness: Strictness,
    ) -> TraceReader {
        TraceReader::with(path, RecordDecoder::Elsewhere(records), format, strictness)
    }

    fn with(
        path: &Path,
        decoder: RecordDecoder,
        format: Format,
        strictness: Strictness,
    ) -> TraceReader {
        TraceReader {
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
            devices: DeviceFilter::Sole,
            sole: None,
            ended: false,
        }
    }

    /// Takes requests that end beyond `end_bytes` for bad input.
    pub fn with_end(mut self, end_bytes: u64) -> TraceReader {
        self.end_bytes = end_bytes;
        self
    }

    /// Yields flushes too, which are left out otherwise.
    pub fn with_flushes(mut self) -> TraceReader {
        self.flushes = true;
        self
    }

    /// Takes the requests of `devices`, if the format names such.
    pub fn with_devices(mut self, devices: DeviceFilter) -> TraceReader {
        self.devices = devices;
        self
    }

    /// The format being read.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Counts of input left out so far.
    pub fn skipped(&self) -> Skipped {
        match &self.decoder {
            RecordDecoder::Elsewhere(records) => self.skipped + records.skipped(),
            _ => self.skipped,
        }
    }

    fn step(&mut self) -> DecoderStep {
        self.line += 1;
        match &mut self.decoder {
            RecordDecoder::Lines { input, parse } => line_step(input, &mut self.text, *parse),
            RecordDecoder::Records { input, raw, parse } => match blktrace::fill(input, raw) {
                Ok(false) => DecoderStep::End,
                Ok(true) => parsed(parse(raw)),
                Err(e) => DecoderStep::Broken(e.to_string()),
            },
            RecordDecoder::Blktrace { input, events } => decoded(events.next(input)),
            RecordDecoder::Binary { input, last } => decoded(binary::decode(last, input)),
            RecordDecoder::Elsewhere(records) => decoded(records.next()),
        }
    }

    /// True if the reader takes requests of the device `volume`; `Err` is a clause, and the end.
    fn takes(&mut self, volume: u32) -> Result<bool, String> {
        if !self.format.has_devices() {
            return Ok(true);
        }
        match &self.devices {
            DeviceFilter::All => Ok(true),
            DeviceFilter::Only(devices) => Ok(devices.contains(&volume)),
            DeviceFilter::Sole if *self.sole.get_or_insert(volume) == volume => Ok(true),
            DeviceFilter::Sole => Err(self.several(volume)),
        }
    }

    /// The message that there are requests of several devices, with their names.
    fn several(&mut self, second: u32) -> String {
        let mut devices = BTreeSet::from_iter(self.sole.into_iter().chain([second]));
        for _ in 0..DEVICES_LOOKED_FOR {
            match self.step() {
                DecoderStep::Record(record) => devices.extend([record.volume]),
                DecoderStep::Nothing | DecoderStep::Malformed(_) => {}
                DecoderStep::Broken(_) | DecoderStep::End => break,
            }
        }
        let names = devices
            .iter()
            .map(|n| format!("{},{}", n >> 20, n & 0xf_ffff));
        format!(
            "requests of several devices ({}), which may be the same requests on their way down; \
             `hotset trace import` takes those of one with --device MAJOR,MINOR, and of all with \
             --device all",
            names.collect::<Vec<_>>().join(" ")
        )
    }

    /// Counts a record that no reader may yield; `Err` is a clause.
    fn check(&mut self, record: &TraceRecord) -> Result<(), String> {
        if let Err(what) = validate(record) {
            self.skipped.malformed += 1;
            return Err(what);
        }
        if record.end_bytes() > self.end_bytes {
            self.skipped.beyond_end += 1;
            return Err(format!(
                "a request that ends at {}, beyond the device of {} bytes",
                record.end_bytes(),
                self.end_bytes
            ));
        }
        if record.time < self.latest {
            self.skipped.out_of_order += 1;
            return Err(format!(
                "time runs back from {} ns to {} ns{}",
                self.latest.0,
                record.time.0,
                self.remedy()
            ));
        }
        self.latest = record.time;
        Ok(())
    }

    /// The remedy for a trace with times that run back.
    fn remedy(&self) -> &'static str {
        match self.format {
            Format::Blktrace => "; sort the capture with `blkparse -i FILE -d SORTED`",
            _ => "",
        }
    }
}

fn line_step(input: &mut Input, text: &mut Vec<u8>, parse: LineParser) -> DecoderStep {
    text.clear();
    let mut limited = input.by_ref().take(LINE_BYTES_MAX);
    match limited.read_until(b'\n', text) {
        Err(e) => return DecoderStep::Broken(e.to_string()),
        Ok(0) => return DecoderStep::End,
        Ok(n) if n as u64 == LINE_BYTES_MAX => {
            return DecoderStep::Broken(format!("a line longer than {LINE_BYTES_MAX} bytes"));
        }
        Ok(_) => {}
    }
    let Ok(text) = std::str::from_utf8(text) else {
        return DecoderStep::Malformed("not text".into());
    };
    match text.trim_end() {
        "" => DecoderStep::Nothing,
        text if text.starts_with('#') => DecoderStep::Nothing,
        text => parsed(parse(text)),
    }
}

fn parsed(line: Result<TextLine, String>) -> DecoderStep {
    match line {
        Ok(TextLine::Record(record)) => DecoderStep::Record(record),
        Ok(TextLine::Other) => DecoderStep::Nothing,
        Err(what) => DecoderStep::Malformed(what),
    }
}

fn decoded<E: ToString>(record: Result<Option<TraceRecord>, E>) -> DecoderStep {
    match record {
        Ok(Some(record)) => DecoderStep::Record(record),
        Ok(None) => DecoderStep::End,
        Err(e) => DecoderStep::Broken(e.to_string()),
    }
}

impl Iterator for TraceReader {
    type Item = Result<TraceRecord, Error>;

    fn next(&mut self) -> Option<Result<TraceRecord, Error>> {
        while !self.ended {
            let line = self.line + 1;
            let what = match self.step() {
                DecoderStep::Nothing => continue,
                DecoderStep::End => break,
                DecoderStep::Record(record) => match self.takes(record.volume) {
                    Ok(false) => continue,
                    Err(what) => {
                        self.ended = true;
                        return Some(Err(Error::new(&self.path, Some(line), what)));
                    }
                    Ok(true) => match self.check(&record) {
                        Ok(()) if record.is_flush() && !self.flushes => continue,
                        Ok(()) => return Some(Ok(record)),
                        Err(what) => what,
                    },
                },
                DecoderStep::Malformed(what) => {
                    self.skipped.malformed += 1;
                    what
                }
                DecoderStep::Broken(what) => {
                    self.ended = true;
                    self.skipped.truncated = true;
                    what
                }
            };
            if self.strictness == Strictness::Strict {
                self.ended = true;
                return Some(Err(Error::new(&self.path, Some(line), what)));
            }
        }
        self.ended = true;
        None
    }
}

/// The bytes of `input`, decompressed: the first of them, and a reader that still yields these. Of
/// an archive, the bytes of its traces, which are of `format` if one is given.
pub fn plain(
    input: impl Read + Send + 'static,
    format: Option<Format>,
) -> io::Result<(Vec<u8>, Input)> {
    let (start, input) = decompressed(input)?;
    if !archive::begins(&start) {
        return Ok((start, input));
    }
    let (start, input) = peek(Archive::new(input, format))?;
    Ok((start, buffered(input)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blktrace::tests::capture;

    const SDA: &str = "  8,0  0 1 0.000000001 7 Q W 8 + 8 [fio]\n";
    const SDB: &str = "  8,16 0 2 0.000000002 7 Q W 16 + 8 [fio]\n";
    const DM: &str = "253,0  0 3 0.000000003 7 Q W 24 + 8 [fio]\n";

    fn read(text: &str, devices: DeviceFilter) -> Result<Vec<u64>, String> {
        let input = io::Cursor::new(text.as_bytes().to_vec());
        let reader = TraceReader::new(Path::new("t"), input, None, Strictness::Lenient);
        let records = reader.unwrap().with_devices(devices);
        let places = records.map(|r| r.map(|r| r.offset_bytes / 512));
        places
            .map(|place| place.map_err(|e| e.to_string()))
            .collect()
    }

    #[test]
    fn requests_of_several_devices_are_refused_until_one_is_named() {
        let text = [SDA, SDB, DM].concat();
        let refused = read(&text, DeviceFilter::Sole).unwrap_err();
        assert!(refused.starts_with("t:2: "), "{refused}");
        assert!(refused.contains("(8,0 8,16 253,0)"), "{refused}");
        assert_eq!(read(&text, DeviceFilter::All), Ok(vec![8, 16, 24]));
        let only = DeviceFilter::Only(vec![8 << 20 | 16, 253 << 20]);
        assert_eq!(read(&text, only), Ok(vec![16, 24]));
        assert_eq!(read(SDA, DeviceFilter::Sole), Ok(vec![8]));
        assert_eq!(read(SDA, DeviceFilter::Only(vec![1])), Ok(vec![]));
    }

    #[test]
    fn captures_whose_time_runs_back_are_to_be_sorted() {
        let twice = [capture(false, &[1]), capture(false, &[1])].concat();
        let reader = TraceReader::new(
            Path::new("t"),
            io::Cursor::new(twice),
            None,
            Strictness::Strict,
        );
        let error = reader.unwrap().find_map(Result::err).unwrap();
        assert!(error.to_string().contains("blkparse -i"), "{error}");
    }
}
