//! Alibaba Cloud block traces (Li et al., "An in-depth analysis of cloud block
//! storage workloads in large-scale production", IISWC 2020):
//! `device_id,opcode,offset,length,timestamp` in bytes and microseconds.

use super::{TextLine, fields, length, number, op};
use crate::TraceRecord;
use block::Nanos;

pub(crate) const HEADER_START: &str = "device_id,";

pub(crate) fn parse(line: &str) -> Result<TextLine, String> {
    if line.starts_with(HEADER_START) {
        return Ok(TextLine::Other);
    }
    let [device, opcode, offset, len, time] = fields(line)?;
    let time_us: u64 = number(time, "timestamp")?;
    Ok(TextLine::Record(TraceRecord {
        time: Nanos::from_micros(time_us),
        op: op(opcode)?,
        offset_bytes: number(offset, "offset")?,
        len_bytes: length(number(len, "length")?)?,
        volume: number(device, "device_id")?,
        forced: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_published_line() {
        let Ok(TextLine::Record(record)) = parse("419,W,8792731648,16384,1577808144360767") else {
            panic!("not parsed");
        };
        assert_eq!((record.volume, record.len_bytes), (419, 16_384));
        assert!(parse("419,W,8792731648,16384,x").is_err());
    }
}
