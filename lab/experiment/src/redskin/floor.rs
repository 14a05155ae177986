//! The same rates with the floor of a request, which is an estimate, fitted to one of them.
//!
//! One request follows the other, so that each takes so much less. On flash drives that is
//! exact; the disks are then asked at another turn of theirs, which is as good as any.

use crate::verdict::Values;
use block::Nanos;

/// The server's processor for a request, fitted to the rate of one flash drive: see
/// `figures/redskin.toml`.
pub const FITTED: Nanos = Nanos::from_micros(95);
/// The list and drive with times to the first byte for the lower floor.
const OF_FLASH_BY_THE_HOUR: &str = "hour.x25-e";

/// Adds the values of the tables with the fitted floor in place of `processor`, as `floor.` and the
/// figure's name.
pub fn with_lower_floor(values: &mut Values, processor: Nanos) {
    let less_ms = (processor.0 - FITTED.0) as f64 / 1e6;
    let lower = |(name, value): (&String, &f64)| {
        let (_, measure) = name.rsplit_once('.')?;
        let ours = match measure {
            "tps" => 1e3 / (1e3 / value - less_ms),
            "mttfb" if name.starts_with(OF_FLASH_BY_THE_HOUR) => value - less_ms,
            _ => return None,
        };
        Some((format!("floor.{name}"), ours))
    };
    let added: Vec<_> = values.iter().filter_map(lower).collect();
    values.extend(added);
}
