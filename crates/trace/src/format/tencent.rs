//! Tencent cloud block storage traces (Zhang et al., "OSCA: an online-model
//! based cache allocation scheme in cloud block storage systems", ATC 2020):
//! `timestamp,offset,size,type,volume`; seconds, 512-byte sectors, 0 for a read
//! and 1 for a write.

use super::{TextLine, fields, length, number, sectors};
use crate::{RecordOp, TraceRecord};
use block::Nanos;

pub(crate) fn parse(line: &str) -> Result<TextLine, String> {
    let [time, offset, size, kind, volume] = fields(line)?;
    let time_s: u64 = number(time, "timestamp")?;
    let op = match kind {
        "0" => RecordOp::Read,
        "1" => RecordOp::Write,
        _ => return Err(format!("type is neither 0 nor 1: {kind:?}")),
    };
    Ok(TextLine::Record(TraceRecord {
        time: Nanos(time_s.saturating_mul(1_000_000_000)),
        op,
        offset_bytes: sectors(offset, "offset")?,
        len_bytes: length(sectors(size, "size")?)?,
        volume: number(volume, "volume")?,
        forced: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_published_line() {
        let Ok(TextLine::Record(record)) = parse("1538323200,12910952,128,0,1063") else {
            panic!("not parsed");
        };
        assert_eq!(record.offset_bytes, 12_910_952 * 512);
        assert_eq!((record.len_bytes, record.op), (65_536, RecordOp::Read));
        assert!(parse("1538323200,12910952,128,2,1063").is_err());
    }
}
