//! Arguments of `hotset-lab sim`.

use super::engine::Engine;
use super::shown;
use super::size::Sizes;
use baselines::registry::POLICIES;
use clap::{ArgGroup, Args};
use command::traces::InputOptions;
use control::config::ByteCount;
use std::path::PathBuf;
use tracesim::{BELADY, PoolSize};

/// Lines as the engine may have them, in bytes.
const LINE_BYTES: std::ops::RangeInclusive<u64> =
    cache::LINE_BYTES_MIN as u64..=cache::LINE_BYTES_MAX as u64;

#[derive(Args)]
#[command(group(ArgGroup::new("output").args(["json", "csv"])))]
pub struct SimCommand {
    /// Traces of any format; docs/commands/trace.md lists them
    #[arg(required = true, value_name = "TRACE")]
    pub(super) traces: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) input: InputOptions,
    /// Policies: names of docs/policies.md, belady (the offline optimum), or all; auto and lru
    /// unless given, with --mrc belady too, with --rank all
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = policy_name)]
    policy: Option<Vec<String>>,
    /// Pool sizes: bytes such as 16GiB, or shares of the trace's unique 4 KiB blocks such as 10% or
    /// 0.1; a range such as 1GiB..64GiB*2 goes on by a factor, 2 unless given
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    size: Option<Vec<Sizes>>,
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
    /// Print miss-ratio curves: a row a size, a column a policy; from 0.1% to 100% unless --size
    /// says otherwise
    #[arg(long, conflicts_with_all = ["engine", "csv"])]
    pub(super) mrc: bool,
    /// Rank the policies by their mean miss ratio, and compare them with lru and belady
    #[arg(long, conflicts_with_all = ["engine", "csv", "mrc"])]
    pub(super) rank: bool,
    /// Draw the miss ratios
    #[arg(long, value_name = "FILE.svg", conflicts_with = "engine")]
    pub(super) chart: Option<PathBuf>,
}

/// Sizes unless given.
const SIZES: &str = "0.1%,1%,3%,10%,30%";
/// The same of a curve.
const CURVE_SIZES: &str = "0.1%..100%*2";

impl SimCommand {
    /// The policies to run, each once.
    pub(super) fn policies(&self) -> Vec<String> {
        let mut names = match &self.policy {
            Some(names) => names.clone(),
            None if self.rank => vec!["all".to_owned()],
            None => vec!["auto".to_owned(), "lru".to_owned()],
        };
        if self.rank {
            names.push("lru".to_owned());
        }
        if self.rank || self.mrc && self.policy.is_none() {
            names.push(BELADY.to_owned());
        }
        shown::policies(&names)
    }

    /// The sizes to run.
    pub(super) fn sizes(&self) -> Vec<PoolSize> {
        let usual = || {
            let text = if self.mrc { CURVE_SIZES } else { SIZES };
            let sizes = text.split(',').map(|text| text.parse());
            sizes.collect::<Result<_, _>>().expect("sound sizes")
        };
        let sizes: Vec<Sizes> = self.size.clone().unwrap_or_else(usual);
        sizes.into_iter().flat_map(|Sizes(sizes)| sizes).collect()
    }
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
        Err(_) => ByteCount::parse(text)?.0,
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
