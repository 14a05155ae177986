//! Sizes of pools on the command line of tools that know a trace.

use control::config::Bytes;
use std::str::FromStr;

/// The granularity in which shares are meant.
const BLOCK_BYTES: f64 = 4096.0;

/// A size relative to a trace, or absolute.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Size {
    /// A share of the trace's unique 4 KiB blocks, below 1.
    Share(f64),
    /// Bytes.
    Bytes(u64),
}

impl Size {
    /// As [`tracesim::Source::pool_lines`] takes it: below 1 a share, from
    /// 1 on 4 KiB blocks.
    pub fn blocks(self) -> f64 {
        match self {
            Size::Share(share) => share,
            Size::Bytes(bytes) => bytes as f64 / BLOCK_BYTES,
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        if let Ok(number) = text.parse::<f64>() {
            return match number {
                _ if number > 0.0 && number < 1.0 => Ok(Size::Share(number)),
                _ => Err("give a share between 0 and 1, or bytes such as 16GiB".into()),
            };
        }
        let bytes = Bytes::parse(text)?.0;
        if bytes < BLOCK_BYTES as u64 {
            return Err("a pool holds at least one block of 4 KiB".into());
        }
        Ok(Size::Bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_bytes_are_distinguished() {
        assert_eq!("0.01".parse(), Ok(Size::Share(0.01)));
        assert_eq!("16GiB".parse(), Ok(Size::Bytes(16 << 30)));
        assert_eq!("8KiB".parse::<Size>().unwrap().blocks(), 2.0);
        for bad in ["0", "1", "-0.5", "1000", "nan", "inf", "4KiBB", "1KiB", ""] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
