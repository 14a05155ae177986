//! Traces as arguments of commands: their format, and the treatment of bad input.

use crate::CommandFailure;
use clap::Args;
use control::config::ByteCount;
use std::io::{Read, Write};
use std::path::Path;
use trace::{DeviceFilter, Error, Format, Skipped, Strictness, TraceReader, Writer};

type Bytewise = Box<dyn Write + Send>;

/// Opens a trace, of the given format if there is one.
pub type ReadTrace =
    fn(&Path, Box<dyn Read + Send>, Option<Format>, Strictness) -> Result<TraceReader, Error>;

/// The formats that a program reads and writes.
#[derive(Clone, Copy)]
pub struct Formats {
    /// As [`TraceReader::open`].
    pub open: fn(&Path, Option<Format>, Strictness) -> Result<TraceReader, Error>,
    /// As [`TraceReader::new`].
    pub read: ReadTrace,
    /// As [`Writer::new`].
    pub write: fn(&Path, Bytewise, Format) -> Result<Writer<Bytewise>, Error>,
    /// The formats that can be written.
    pub writable: &'static [Format],
}

/// The formats of `trace`.
pub const OWN: Formats = Formats {
    open: TraceReader::open,
    read: TraceReader::new,
    write: Writer::new,
    writable: &[Format::Binary, Format::Csv, Format::OracleGeneral],
};

/// Reads a speed: the rate of replay as a multiple of the recorded rate.
pub fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (1e-3..=1e6).contains(&speed) => Ok(speed),
        _ => Err("choose from 0.001 to 1000000".into()),
    }
}

/// The format of traces, and the treatment of bad input.
#[derive(Args)]
pub struct InputOptions {
    /// The traces' format; recognised by their first line unless given
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,
    /// Leave out and count malformed input, instead of ending with an error
    #[arg(long)]
    pub lenient: bool,
}

/// The format called `text`.
pub fn format(text: &str) -> Result<Format, String> {
    Format::from_name(text).ok_or_else(|| format!("choose from {}", Format::names()))
}

impl InputOptions {
    /// The treatment of bad input.
    pub fn strictness(&self) -> Strictness {
        if self.lenient {
            Strictness::Lenient
        } else {
            Strictness::Strict
        }
    }

    /// Opens the trace at `path`, which is of one of `formats`; `-` is standard input.
    pub fn open(&self, formats: &Formats, path: &Path) -> Result<TraceReader, CommandFailure> {
        let reader = if path == Path::new("-") {
            let (path, input) = (Path::new("standard input"), Box::new(std::io::stdin()));
            (formats.read)(path, input, self.format, self.strictness())
        } else {
            (formats.open)(path, self.format, self.strictness())
        };
        reader.map_err(CommandFailure::runtime)
    }

    /// Reports on standard error the input of `path` that was left out, if any.
    pub fn report(&self, path: &Path, skipped: &Skipped) {
        if *skipped == Skipped::default() {
            return;
        }
        let end = if skipped.truncated {
            "; its end is damaged or cut off"
        } else {
            ""
        };
        eprintln!(
            "hotset: {}: left out {} malformed, {} out of order and {} beyond the device{end}",
            path.display(),
            skipped.malformed,
            skipped.out_of_order,
            skipped.beyond_end
        );
    }
}

/// Input with requests to a device.
#[derive(Args)]
pub struct OnDevice {
    /// The format, and the treatment of bad input.
    #[command(flatten)]
    pub input: InputOptions,
    /// Take requests that end beyond this size, such as 1TiB, for bad input
    #[arg(long, value_name = "SIZE", value_parser = ByteCount::parse)]
    device_size: Option<ByteCount>,
    /// The device of the requests to take from a capture of blktrace, such as 8,0; may be repeated,
    /// or `all`. Needed where there are several
    #[arg(long, value_name = "MAJOR,MINOR", value_parser = device)]
    device: Vec<DeviceOption>,
}

/// A Linux device by its number, or all.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DeviceOption {
    All,
    Number(u32),
}

fn device(text: &str) -> Result<DeviceOption, String> {
    if text == "all" {
        return Ok(DeviceOption::All);
    }
    let numbers = text.split_once([',', ':']).and_then(|(major, minor)| {
        let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
        (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
    });
    let error = "give the major and the minor number as blkparse prints them, such as 8,0, or all";
    numbers
        .map(DeviceOption::Number)
        .ok_or_else(|| error.into())
}

impl OnDevice {
    /// Opens the trace at `path`, which is of one of `formats`; `-` is standard input.
    pub fn open(&self, formats: &Formats, path: &Path) -> Result<TraceReader, CommandFailure> {
        let reader = self.input.open(formats, path)?;
        let numbers = self.device.iter().map(|device| match device {
            DeviceOption::All => None,
            DeviceOption::Number(number) => Some(*number),
        });
        let reader = reader.with_devices(match numbers.collect::<Option<Vec<u32>>>() {
            None => DeviceFilter::All,
            Some(numbers) if numbers.is_empty() => DeviceFilter::Sole,
            Some(numbers) => DeviceFilter::Only(numbers),
        });
        Ok(match self.device_size {
            None => reader,
            Some(ByteCount(end)) => reader.with_end(end),
        })
    }
}
