//! Traces of every format: those of `trace`, and Apache Parquet.
//!
//! The daemon and its command line do without Parquet, which needs more code than all of the
//! formats of `trace`; `hotset-lab` reads, writes and converts it.

mod parquet;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use trace::{Error, Format, PARQUET_MAGIC, Strictness, TraceReader, Writer, plain};

/// The longest Parquet that is read from other than a file: all of it has to be in memory.
const PARQUET_BYTES_MAX: u64 = 1 << 30;

/// Opens a trace as [`TraceReader::open`] does.
pub fn open(
    path: &Path,
    format: Option<Format>,
    strictness: Strictness,
) -> Result<TraceReader, Error> {
    let fail = |error: io::Error| Error::new(path, None, error.to_string());
    let mut file = File::open(path).map_err(fail)?;
    if !file.metadata().map_err(fail)?.is_file() {
        return read(path, file, format, strictness);
    }
    let mut start = [0; PARQUET_MAGIC.len()];
    let is_parquet = file.read_exact(&mut start).is_ok() && start == PARQUET_MAGIC;
    if is_parquet && format.unwrap_or(Format::Parquet) == Format::Parquet {
        let rows = parquet::RowInput::open(file, strictness == Strictness::Lenient);
        return of_rows(path, rows, strictness);
    }
    if let Some(merged) = TraceReader::merged(path, format, strictness)? {
        return Ok(merged);
    }
    file.rewind().map_err(fail)?;
    read(path, file, format, strictness)
}

/// Reads a trace as [`TraceReader::new`] does.
pub fn read(
    path: &Path,
    input: impl Read + Send + 'static,
    format: Option<Format>,
    strictness: Strictness,
) -> Result<TraceReader, Error> {
    let fail = |error: io::Error| Error::new(path, None, error.to_string());
    let (start, mut input) = plain(input, format).map_err(fail)?;
    let format = match format {
        None if start.starts_with(&PARQUET_MAGIC) => Some(Format::Parquet),
        other => other,
    };
    if format != Some(Format::Parquet) {
        return TraceReader::new(path, input, format, strictness);
    }
    let mut bytes = Vec::new();
    let mut limited = input.by_ref().take(PARQUET_BYTES_MAX);
    if limited.read_to_end(&mut bytes).map_err(fail)? as u64 == PARQUET_BYTES_MAX {
        let what = "too long to be read as a stream: name the uncompressed file";
        return Err(Error::new(path, None, what));
    }
    let lenient = strictness == Strictness::Lenient;
    let rows = parquet::RowInput::open(bytes::Bytes::from(bytes), lenient);
    of_rows(path, rows, strictness)
}

fn of_rows(
    path: &Path,
    rows: Result<parquet::RowInput, String>,
    strictness: Strictness,
) -> Result<TraceReader, Error> {
    let rows = rows.map_err(|what| Error::new(path, None, what))?;
    Ok(TraceReader::elsewhere(
        path,
        Box::new(rows),
        Format::Parquet,
        strictness,
    ))
}

/// Writes a trace as [`Writer::new`] does.
pub fn write<W: Write + Send + 'static>(
    path: &Path,
    output: W,
    format: Format,
) -> Result<Writer<W>, Error> {
    if format != Format::Parquet {
        return Writer::new(path, output, format);
    }
    let rows = parquet::RowOutput::new(output);
    let rows = rows.map_err(|what| Error::new(path, None, what))?;
    Ok(Writer::elsewhere(path, Box::new(rows)))
}
