//! How commands read traces: their format and what becomes of bad input.

use crate::Failure;
use clap::Args;
use control::config::Bytes;
use std::path::Path;
use trace::{Format, Reader, Skipped, Strictness};

#[derive(Args)]
pub struct Input {
    /// The traces' format; recognised by their first line unless given
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,
    /// Leave out and count what makes no sense, instead of ending with an error
    #[arg(long)]
    pub lenient: bool,
}

/// The format called `text`.
pub fn format(text: &str) -> Result<Format, String> {
    Format::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        format!("choose from {}", names.join(", "))
    })
}

impl Input {
    /// What to do with bad input.
    pub fn strictness(&self) -> Strictness {
        if self.lenient {
            Strictness::Lenient
        } else {
            Strictness::Strict
        }
    }

    /// Opens the trace at `path`; `-` is standard input.
    pub fn open(&self, path: &Path) -> Result<Reader, Failure> {
        let reader = if path == Path::new("-") {
            let path = Path::new("standard input");
            Reader::new(path, std::io::stdin(), self.format, self.strictness())
        } else {
            Reader::open(path, self.format, self.strictness())
        };
        reader.map_err(Failure::runtime)
    }

    /// Reports on standard error what was left out of `path`, if anything.
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

/// Input whose requests lie on a device.
#[derive(Args)]
pub struct OnDevice {
    #[command(flatten)]
    pub input: Input,
    /// Take requests that end beyond this size, such as 1TiB, for bad input
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse)]
    device_size: Option<Bytes>,
}

impl OnDevice {
    /// Opens the trace at `path`; `-` is standard input.
    pub fn open(&self, path: &Path) -> Result<Reader, Failure> {
        let reader = self.input.open(path)?;
        Ok(match self.device_size {
            None => reader,
            Some(Bytes(end)) => reader.with_end(end),
        })
    }
}
