//! The settings of a cache, with the reason of each default.

use crate::lines::BLOCK_BYTES;
use block::{IoError, IoErrorKind, IoResult, Nanos};

/// The shape and the bounds of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a line, the unit of replacement: a power of two from 4 KiB to
    /// 1 MiB. 64 KiB keeps the memory for index and policy under a byte for
    /// each 512 bytes cached, and a promotion long enough to be cheap.
    pub line_bytes: u32,
    /// Most bytes in flight to the pool at once; they hold memory. At most an eighth of the shard's
    /// buffers is used in any case.
    pub fill_in_flight_bytes_max: u64,
    /// Bytes a second that may be promoted; `None` for no limit. A bound spares
    /// the pool's endurance when the working set does not fit.
    pub fill_bytes_per_s: Option<u64>,
    /// A hit that takes longer is served by the origin. 100 ms is past any
    /// pause of a healthy SSD and longer than a seek of a busy hard disk.
    pub hit_latency_max: Nanos,
    /// A stream that reads or writes on without a gap is not promoted beyond
    /// its first bytes; `None` promotes all. bcache's default: 4 MiB.
    pub sequential_bytes: Option<u64>,
    /// Period in which a pool that remembers brings its map up to date: a crash loses the
    /// admissions of one period.
    pub commit_period: Nanos,
    /// Number of periods without a write after which a marked region may be cleared. Ten seconds:
    /// long enough that a region in use is marked once.
    pub mark_idle_periods: u32,
    /// The lines that a discard of a client empties are discarded on their pool device too, and
    /// give up their slots. Off: discards would take time from the device's hits.
    pub trims_discarded: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            line_bytes: 64 << 10,
            fill_in_flight_bytes_max: 8 << 20,
            fill_bytes_per_s: None,
            hit_latency_max: Nanos::from_millis(100),
            sequential_bytes: Some(4 << 20),
            commit_period: Nanos::from_secs(1),
            mark_idle_periods: 10,
            trims_discarded: false,
        }
    }
}

/// Bounds of [`Config::line_bytes`].
pub const LINE_BYTES_MIN: u32 = BLOCK_BYTES as u32;
/// See [`LINE_BYTES_MIN`].
pub const LINE_BYTES_MAX: u32 = 1 << 20;

impl Config {
    /// Refuses a configuration that no cache can be built from, naming the remedy.
    pub fn check(&self) -> IoResult {
        let refuse = |what: String| Err(IoError::new(IoErrorKind::Invalid, what));
        if !self.line_bytes.is_power_of_two()
            || !(LINE_BYTES_MIN..=LINE_BYTES_MAX).contains(&self.line_bytes)
        {
            return refuse(format!(
                "a line of {} bytes: choose a power of two from {LINE_BYTES_MIN} to {LINE_BYTES_MAX}",
                self.line_bytes
            ));
        }
        if self.fill_in_flight_bytes_max < u64::from(self.line_bytes) {
            return refuse(format!(
                "{} bytes in flight to the pool: allow at least one line of {}",
                self.fill_in_flight_bytes_max, self.line_bytes
            ));
        }
        if self
            .fill_bytes_per_s
            .is_some_and(|rate| rate < u64::from(self.line_bytes))
        {
            return refuse(format!(
                "a promotion rate under one line of {} bytes a second: raise it, or use write-around or pass-through",
                self.line_bytes
            ));
        }
        if self.hit_latency_max < Nanos::from_millis(1) {
            return refuse(format!(
                "a hit limit of {}: allow at least 1 ms",
                self.hit_latency_max
            ));
        }
        if self.commit_period == Nanos::ZERO {
            return refuse("a commit period of zero: allow at least 1 ms".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused() {
        let good = Config::default();
        good.check().unwrap();
        let bad = [
            Config {
                line_bytes: 2048,
                ..good.clone()
            },
            Config {
                line_bytes: 12288,
                ..good.clone()
            },
            Config {
                line_bytes: 2 << 20,
                ..good.clone()
            },
            Config {
                fill_in_flight_bytes_max: 4096,
                ..good.clone()
            },
            Config {
                fill_bytes_per_s: Some(0),
                ..good.clone()
            },
            Config {
                hit_latency_max: Nanos::ZERO,
                ..good.clone()
            },
        ];
        for config in bad {
            assert_eq!(
                config.check().unwrap_err().kind(),
                IoErrorKind::Invalid,
                "{config:?}"
            );
        }
    }
}
