//! Alibaba Cloud block traces (Li et al., "An in-depth analysis of cloud block
//! storage workloads in large-scale production", IISWC 2020):
//! `device_id,opcode,offset,length,timestamp` in bytes and microseconds.

use super::{Line, fields, length, number, op};
use crate::Record;
use block::Nanos;

/// A billion seconds after 1970.
const DATED: Nanos = Nanos::from_secs(1_000_000_000);

pub(crate) fn parse(line: &str) -> Result<Line, String> {
    if line.starts_with("device_id,") {
        return Ok(Line::Other);
    }
    let [device, opcode, offset, len, time] = fields(line)?;
    let time_us: u64 = number(time, "timestamp")?;
    Ok(Line::Record(Record {
        time: Nanos::from_micros(time_us),
        op: op(opcode)?,
        offset_bytes: number(offset, "offset")?,
        len_bytes: length(number(len, "length")?)?,
        volume: number(device, "device_id")?,
        forced: false,
    }))
}

/// The same of a line with a time after 2001, as published ones have: without one it may be
/// hotset's own text form, whose columns are others.
pub(crate) fn parse_dated(line: &str) -> Result<Line, String> {
    match parse(line)? {
        Line::Record(record) if record.time < DATED => Err("timestamp is no date".into()),
        line => Ok(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_published_line() {
        let Ok(Line::Record(record)) = parse("419,W,8792731648,16384,1577808144360767") else {
            panic!("not parsed");
        };
        assert_eq!((record.volume, record.len_bytes), (419, 16_384));
        assert!(parse("419,W,8792731648,16384,x").is_err());
    }
}
