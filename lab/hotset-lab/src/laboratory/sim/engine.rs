//! `hotset-lab sim --engine`: the engine itself on drive models.

use cache::CacheMode;
use clap::Args;
use control::config::ByteCount;
use drives::catalogue::Drive;

#[derive(Args)]
pub struct Engine {
    /// Run the engine itself on drive models: lines valid block by block, write modes, sequential
    /// bypass, warm-up, latencies
    #[arg(long)]
    pub engine: bool,
    /// The drives of the volumes, as `model` of the configuration names them
    #[arg(long, value_name = "MODEL", default_value = "ST3500320AS", value_parser = drive,
          requires = "engine")]
    pub(super) origin: Drive,
    /// The drives of the pool
    #[arg(long, value_name = "MODEL", default_value = "Nytro 400", value_parser = drive,
          requires = "engine")]
    pub(super) ssd: Drive,
    /// The volumes' use of the pool: write-through, write-around, pass-through
    #[arg(long, value_name = "MODE", value_delimiter = ',', default_value = "write-through",
          value_parser = mode, requires = "engine")]
    pub(super) mode: Vec<CacheMode>,
    /// Bytes after which a sequential stream is not promoted, or off
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = cutoff,
          requires = "engine")]
    pub(super) sequential: Cutoff,
    /// Bytes a second that may be promoted; no limit unless given
    #[arg(long, value_name = "SIZE", value_parser = ByteCount::parse, requires = "engine")]
    pub(super) fill_rate: Option<ByteCount>,
    /// Send the requests so many times as fast as recorded
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = command::traces::speed,
          requires = "engine", conflicts_with = "depth")]
    pub(super) speed: f64,
    /// Send each request when another has ended, so many at a time; 1 if the trace has no times
    #[arg(long, value_name = "N", requires = "engine",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) depth: Option<u32>,
    /// The share of the requests that only warms the pool and is not counted
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share,
          requires = "engine")]
    pub(super) skip: f64,
}

/// The engine's cutoff of sequential streams.
#[derive(Clone, Copy)]
pub(super) struct Cutoff(pub(super) Option<u64>);

fn drive(text: &str) -> Result<Drive, String> {
    Drive::named(text).map_err(|error| error.to_string())
}

fn mode(text: &str) -> Result<CacheMode, String> {
    CacheMode::from_name(text).ok_or_else(|| {
        format!(
            "choose from {}",
            CacheMode::ALL.map(CacheMode::name).join(", ")
        )
    })
}

fn cutoff(text: &str) -> Result<Cutoff, String> {
    match text {
        "off" => Ok(Cutoff(None)),
        _ => Ok(Cutoff(Some(ByteCount::parse(text)?.0))),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("give a share from 0 to below 1".into()),
    }
}
