//! The same rates with the floor of a request, which is an estimate, fitted to one of them.
//!
//! One request follows the other, so that each takes so much less. On flash drives that is
//! exact; the disks are then asked at another turn of theirs, which is as good as any.

use super::PROCESSOR;
use crate::verdict::Values;
use block::Nanos;

/// The server's processor for a request, fitted to the rate of one flash drive: see
/// `figures/redskin.toml`.
const FITTED: Nanos = Nanos::from_micros(95);
/// Of what the tables hold, what is worked out for it.
const OF_FLASH_BY_THE_HOUR: &str = "hour.x25-e";

/// Adds what the tables would hold with it, as `floor.` and the figure's name.
pub fn with_lower_floor(values: &mut Values) {
    let less_ms = (PROCESSOR.0 - FITTED.0) as f64 / 1e6;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redskin::{Drive, SHORT, Scale, run_list};

    /// What is worked out is what a server of that floor does.
    #[test]
    fn what_is_worked_out_is_what_is_simulated() {
        for (drive, within) in [(Drive::X25M, 1e-6), (Drive::X25E, 1e-6), (Drive::Hdd, 0.01)] {
            let tps = |processor| {
                let scale = Scale {
                    processor,
                    ..Scale::QUICK
                };
                run_list(1, scale, drive, SHORT).unwrap().0.tps
            };
            let mut values = Values::from([("a.tps".to_owned(), tps(PROCESSOR))]);
            with_lower_floor(&mut values);
            let ratio = values["floor.a.tps"] / tps(FITTED);
            assert!((ratio - 1.0).abs() < within, "{drive:?}: {ratio}");
            assert!((values["a.tps"] / tps(FITTED) - 1.0).abs() > within);
        }
    }
}
