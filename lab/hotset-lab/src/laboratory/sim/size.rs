//! Sizes of pools on the command line of tools that know a trace.

use control::config::ByteCount;
use std::str::FromStr;
use tracesim::PoolSize;

pub const BLOCK_BYTES: u64 = 4096;
/// Default factor of a range.
const FACTOR: f64 = 2.0;
/// Most sizes of a range.
const SIZES_MAX: usize = 1000;

/// One size, or those of a range.
#[derive(Clone, PartialEq, Debug)]
pub struct Sizes(pub Vec<PoolSize>);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let Some((from, to)) = text.split_once("..") else {
            return one(text).map(|size| Sizes(vec![size]));
        };
        let (to, factor) = match to.split_once('*') {
            None => (to, FACTOR),
            Some((to, factor)) => (to, factor.parse().unwrap_or(f64::NAN)),
        };
        let sizes = match (one(from)?, one(to)?) {
            (PoolSize::Share(from), PoolSize::Share(to)) => {
                range(from, to, factor, PoolSize::Share)
            }
            (PoolSize::Bytes(from), PoolSize::Bytes(to)) => {
                let bytes = |bytes: f64| PoolSize::Bytes(bytes.round() as u64);
                range(from as f64, to as f64, factor, bytes)
            }
            _ => return Err("a range is of shares, or of bytes".into()),
        };
        sizes.map(Sizes).ok_or_else(|| {
            format!(
                "give a range such as 1GiB..64GiB*2: a rising one, a factor above 1, and at most \
                 {SIZES_MAX} sizes"
            )
        })
    }
}

/// The sizes of a range: from `from` on by `factor`, and `to`.
fn range(from: f64, to: f64, factor: f64, size: impl Fn(f64) -> PoolSize) -> Option<Vec<PoolSize>> {
    if from > to || factor.is_nan() || factor <= 1.0 {
        return None;
    }
    let rising = std::iter::successors(Some(from), |size| Some(size * factor));
    let below = rising.take_while(|size| *size < to * 0.999_999);
    let mut sizes: Vec<PoolSize> = below.take(SIZES_MAX).map(&size).collect();
    sizes.push(size(to));
    (sizes.len() <= SIZES_MAX).then_some(sizes)
}

fn one(text: &str) -> Result<PoolSize, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok().map(|n| n / 100.0),
        None => text.parse().ok(),
    };
    match share {
        Some(share) if share > 0.0 && share < 1.0 => return Ok(PoolSize::Share(share)),
        Some(1.0) if text.ends_with('%') => return Ok(PoolSize::Share(1.0)),
        Some(_) => {
            return Err(
                "give a share between 0 and 1, per cent such as 10%, or bytes such as 16GiB".into(),
            );
        }
        None => {}
    }
    let bytes = ByteCount::parse(text)?.0;
    if bytes < BLOCK_BYTES {
        return Err("a pool holds at least one block of 4 KiB".into());
    }
    Ok(PoolSize::Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<PoolSize> {
        text.parse::<Sizes>().unwrap().0
    }

    #[test]
    fn shares_and_bytes_are_distinguished() {
        assert_eq!(sizes("0.01"), [PoolSize::Share(0.01)]);
        assert_eq!(sizes("25%"), [PoolSize::Share(0.25)]);
        assert_eq!(sizes("100%"), [PoolSize::Share(1.0)]);
        assert_eq!(sizes("16GiB"), [PoolSize::Bytes(16 << 30)]);
        let bad = [
            "0", "1", "-0.5", "1000", "nan", "inf", "4KiBB", "1KiB", "", "0%", "101%", "%",
        ];
        for bad in bad {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_rise_by_a_factor_and_have_their_end() {
        let gib = |n: u64| PoolSize::Bytes(n << 30);
        assert_eq!(sizes("1GiB..8GiB"), [1, 2, 4, 8].map(gib));
        assert_eq!(sizes("1GiB..8GiB*4"), [1, 4, 8].map(gib));
        assert_eq!(sizes("2GiB..2GiB"), [gib(2)]);
        assert_eq!(sizes("10%..0.4*2"), [0.1, 0.2, 0.4].map(PoolSize::Share));
        for bad in [
            "8GiB..1GiB",
            "1GiB..2GiB*1",
            "1GiB..2GiB*x",
            "1%..1GiB",
            "1GiB..",
            "1MiB..1TiB*1.001",
        ] {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
    }
}
