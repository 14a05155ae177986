//! From any format of traces to one that can be written.

use crate::table::count;
use crate::traces::{Formats, OnDevice, format};
use crate::{CommandFailure, print_line};
use clap::Args;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use trace::{Format, TraceRecord, Writer};

/// zstd's default level.
const ZSTD_LEVEL: i32 = 3;

/// A trace, and the format to convert it to.
#[derive(Args)]
pub struct Convert {
    /// The trace; - for standard input
    from: PathBuf,
    /// The file to write; its ending names the format: .hottrace, .csv, .csv.zst, .oracleGeneral,
    /// or with hotset-lab .parquet
    to: PathBuf,
    #[command(flatten)]
    input: OnDevice,
    /// The form to write: binary, csv, oracle-general, or with hotset-lab parquet
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    to_format: Option<Format>,
    /// Replace the file if there is one
    #[arg(long)]
    force: bool,
}

/// Converts a trace.
pub fn run(convert: &Convert, formats: &Formats) -> Result<(), CommandFailure> {
    let format = output_format(&convert.to, convert.to_format, formats)?;
    let mut reader = convert.input.open(formats, &convert.from)?.with_flushes();
    let mut output = TraceOutput::create(&convert.to, format, convert.force, formats)?;
    let (mut requests, mut all) = (0u64, 0u64);
    for record in reader.by_ref() {
        let record = record.map_err(CommandFailure::runtime)?;
        output.write(&record)?;
        requests += u64::from(!record.is_flush());
        all += 1;
    }
    if all == 0 {
        return Err(CommandFailure::Runtime(format!(
            "{}: no requests of the format {}; name another with --format, or record some",
            convert.from.display(),
            reader.format().name()
        )));
    }
    output.finish()?;
    convert.input.input.report(&convert.from, &reader.skipped());
    print_line(format!(
        "{}: {}, {} to {}",
        convert.to.display(),
        count(requests as usize, "request"),
        reader.format().name(),
        format.name()
    ))
}

/// Returns the format to write to `path`: the one asked for, or that of the ending.
pub fn output_format(
    path: &Path,
    asked: Option<Format>,
    formats: &Formats,
) -> Result<Format, CommandFailure> {
    let writable = formats.writable;
    match asked.or_else(|| Format::from_path(path)) {
        Some(format) if writable.contains(&format) => Ok(format),
        Some(Format::Parquet) => Err(CommandFailure::Usage(
            "hotset: parquet is not written here; choose binary, csv or oracle-general, and convert \
             that with `hotset-lab trace convert`"
                .into(),
        )),
        Some(format) => {
            let names: Vec<&str> = writable.iter().map(|format| format.name()).collect();
            Err(CommandFailure::Usage(format!(
                "hotset: {} can be read but not written; choose one of {}",
                format.name(),
                names.join(", ")
            )))
        }
        None => Err(CommandFailure::Usage(format!(
            "hotset: the ending of {} names no format; end it in .hottrace, .csv, .csv.zst, \
             .oracleGeneral or .parquet, or add --to-format",
            path.display()
        ))),
    }
}

/// A trace that is written to a partial file, which replaces the file at the path once complete: a
/// failure leaves no partial file, and the file at the path as it was.
pub struct TraceOutput {
    writer: Option<Writer<Box<dyn Write + Send>>>,
    partial: PathBuf,
    path: PathBuf,
}

impl TraceOutput {
    /// Begins a trace in one of `formats`. Replaces a file at `path` only with `force`.
    pub fn create(
        path: &Path,
        format: Format,
        force: bool,
        formats: &Formats,
    ) -> Result<TraceOutput, CommandFailure> {
        let fail =
            |cause: io::Error| CommandFailure::Runtime(format!("{}: {cause}", path.display()));
        if path.exists() && !force {
            return Err(CommandFailure::Runtime(format!(
                "{} exists; choose another name, or add --force",
                path.display()
            )));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = PathBuf::from(partial);
        let file = BufWriter::new(File::create(&partial).map_err(fail)?);
        // Binary and Parquet are compressed in themselves.
        let plain = matches!(format, Format::Csv | Format::OracleGeneral);
        let file: Box<dyn Write + Send> = if plain && path.extension().is_some_and(|e| e == "zst") {
            let zstd = zstd::Encoder::new(file, ZSTD_LEVEL).map_err(fail)?;
            Box::new(zstd.auto_finish())
        } else {
            Box::new(file)
        };
        let mut output = TraceOutput {
            writer: None,
            partial,
            path: path.to_owned(),
        };
        output.writer = Some((formats.write)(path, file, format).map_err(CommandFailure::runtime)?);
        Ok(output)
    }

    /// Appends a request.
    pub fn write(&mut self, record: &TraceRecord) -> Result<(), CommandFailure> {
        let writer = self.writer.as_mut().expect("open until finished");
        writer.write(record).map_err(CommandFailure::runtime)
    }

    /// Completes the trace and moves it to its path.
    pub fn finish(mut self) -> Result<(), CommandFailure> {
        let writer = self.writer.take().expect("open until finished");
        drop(writer.finish().map_err(CommandFailure::runtime)?);
        fs::rename(&self.partial, &self.path)
            .map_err(|cause| CommandFailure::Runtime(format!("{}: {cause}", self.path.display())))
    }
}

impl Drop for TraceOutput {
    fn drop(&mut self) {
        drop(self.writer.take());
        // A finished trace has left this name.
        let _ = fs::remove_file(&self.partial);
    }
}
