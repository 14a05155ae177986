//! What `hotset-lab sim` is asked for.

use super::engine::Engine;
use super::size::Size;
use baselines::registry::POLICIES;
use clap::{ArgGroup, Args};
use command::traces::Input;
use control::config::Bytes;
use std::path::PathBuf;
use tracesim::BELADY;

/// Lines as the engine may have them, in bytes.
const LINE_BYTES: std::ops::RangeInclusive<u64> =
    cache::LINE_BYTES_MIN as u64..=cache::LINE_BYTES_MAX as u64;

#[derive(Args)]
#[command(group(ArgGroup::new("output").args(["json", "csv"])))]
pub struct Sim {
    /// Traces of any format; docs/commands/trace.md lists them
    #[arg(required = true, value_name = "TRACE")]
    pub(super) traces: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) input: Input,
    /// Policies: names of docs/policies.md, belady (the offline optimum), or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "auto,lru",
          value_parser = policy_name)]
    pub(super) policy: Vec<String>,
    /// Pool sizes: below 1 a share of the trace's unique 4 KiB blocks, or bytes such as 16GiB
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "0.001,0.01,0.03,0.1,0.3"
    )]
    pub(super) size: Vec<Size>,
    /// Lengths of a line: 4096 to 1048576 bytes, or such as 64KiB; 4096 unless given, with
    /// --engine 64KiB
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = line_bytes)]
    pub(super) line: Option<Vec<u64>>,
    #[command(flatten)]
    pub(super) engine: Engine,
    /// Cells that run at once; one for each processor unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) threads: Option<u32>,
    /// Print one JSON array
    #[arg(long)]
    pub(super) json: bool,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "engine")]
    pub(super) csv: bool,
    /// Draw the miss ratios
    #[arg(long, value_name = "FILE.svg", conflicts_with = "engine")]
    pub(super) chart: Option<PathBuf>,
}

fn policy_name(text: &str) -> Result<String, String> {
    let known = POLICIES.contains(&text);
    if known || text == BELADY || text == "all" {
        return Ok(text.to_owned());
    }
    Err(format!(
        "choose from {}, {BELADY} and all",
        POLICIES.join(", ")
    ))
}

fn line_bytes(text: &str) -> Result<u64, String> {
    let bytes = match text.parse() {
        Ok(bytes) => bytes,
        Err(_) => Bytes::parse(text)?.0,
    };
    if LINE_BYTES.contains(&bytes) && bytes.is_power_of_two() {
        Ok(bytes)
    } else {
        Err(format!(
            "choose a power of two from {} to {} bytes",
            LINE_BYTES.start(),
            LINE_BYTES.end()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_powers_of_two_in_the_engines_range() {
        assert_eq!(line_bytes("4096"), Ok(4096));
        assert_eq!(line_bytes("64KiB"), Ok(65536));
        for bad in ["0", "2048", "12288", "2MiB", "x"] {
            assert!(line_bytes(bad).is_err(), "{bad}");
        }
    }
}
