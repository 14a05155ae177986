//! A streaming writer of the formats that hotset exports.

use crate::format::{binary, csv, oracle_general};
use crate::{Error, Format, TraceRecord, ZSTD_LEVEL};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Encodes records in a format that is encoded elsewhere.
pub trait RecordRows<W> {
    /// Appends one; `Err` is a clause.
    fn write(&mut self, record: &TraceRecord) -> Result<(), String>;
    /// Completes the trace; returns its output.
    fn finish(self: Box<Self>) -> Result<W, String>;
}

enum RecordEncoder<W: Write + Send> {
    Csv(W),
    Binary(zstd::Encoder<'static, W>, binary::LastRecord, Vec<u8>),
    OracleGeneral(W),
    Elsewhere(Box<dyn RecordRows<W> + Send>),
}

/// Writes records one by one; call [`Writer::finish`] at the end.
pub struct Writer<W: Write + Send> {
    path: PathBuf,
    encoder: RecordEncoder<W>,
}

impl<W: Write + Send> Writer<W> {
    /// Starts a trace of `format` on `output`; `path` is for error messages
    /// only. Fails for formats that are only imported.
    pub fn new(path: &Path, mut output: W, format: Format) -> Result<Writer<W>, Error> {
        let fail = |e: io::Error| Error::new(path, None, e.to_string());
        let encoder = match format {
            Format::Csv => {
                writeln!(output, "{}", csv::HEADER).map_err(fail)?;
                RecordEncoder::Csv(output)
            }
            Format::Binary => {
                output.write_all(&binary::MAGIC).map_err(fail)?;
                let zstd = zstd::Encoder::new(output, ZSTD_LEVEL).map_err(fail)?;
                RecordEncoder::Binary(zstd, binary::LastRecord::default(), Vec::new())
            }
            Format::OracleGeneral => RecordEncoder::OracleGeneral(output),
            other => {
                let what = format!(
                    "{} can be read but not written; write csv, binary or oracle-general",
                    other.name()
                );
                return Err(Error::new(path, None, what));
            }
        };
        Ok(Writer {
            path: path.to_path_buf(),
            encoder,
        })
    }

    /// Writes records encoded elsewhere; `path` is for error messages only.
    pub fn elsewhere(path: &Path, rows: Box<dyn RecordRows<W> + Send>) -> Writer<W> {
        Writer {
            path: path.to_path_buf(),
            encoder: RecordEncoder::Elsewhere(rows),
        }
    }

    /// Appends one request. Text forms keep whole microseconds; libCacheSim's has no flushes.
    pub fn write(&mut self, record: &TraceRecord) -> Result<(), Error> {
        let result = match &mut self.encoder {
            RecordEncoder::Csv(output) => writeln!(output, "{}", csv::print(record)),
            RecordEncoder::Binary(output, last, buffer) => {
                buffer.clear();
                binary::encode(last, record, buffer);
                output.write_all(buffer)
            }
            RecordEncoder::OracleGeneral(_) if record.is_flush() => Ok(()),
            RecordEncoder::OracleGeneral(output) => record
                .blocks(oracle_general::OBJECT_BYTES)
                .try_for_each(|block| output.write_all(&oracle_general::print(record.time, block))),
            RecordEncoder::Elsewhere(rows) => {
                let written = rows.write(record);
                return written.map_err(|what| Error::new(&self.path, None, what));
            }
        };
        result.map_err(|e| Error::new(&self.path, None, e.to_string()))
    }

    /// Completes the trace and returns the output, flushed.
    pub fn finish(self) -> Result<W, Error> {
        let path = self.path;
        let fail = |e: io::Error| Error::new(&path, None, e.to_string());
        let mut output = match self.encoder {
            RecordEncoder::Csv(output) | RecordEncoder::OracleGeneral(output) => output,
            RecordEncoder::Binary(output, ..) => output.finish().map_err(fail)?,
            RecordEncoder::Elsewhere(rows) => {
                let output = rows.finish();
                output.map_err(|what| Error::new(&path, None, what))?
            }
        };
        output.flush().map_err(fail)?;
        Ok(output)
    }
}
