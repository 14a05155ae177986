//! MSR Cambridge (Narayanan, Donnelly and Rowstron, FAST 2008), as published
//! by SNIA IOTTA: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//! Timestamps count 100 ns; offset and size are bytes. Host and disk number
//! together become the volume.

use super::{TextLine, fields, length, number, op, volume_of_name};
use crate::TraceRecord;
use block::Nanos;

pub(crate) fn parse(line: &str) -> Result<TextLine, String> {
    let [time, host, disk, kind, offset, size, _response] = fields(line)?;
    let ticks: u64 = number(time, "Timestamp")?;
    // Nanoseconds since 1601 do not fit 64 bits, so the epoch is moved.
    let nanos = ticks
        .checked_sub(FILETIME_2007)
        .and_then(|ticks| ticks.checked_mul(NANOS_PER_TICK))
        .ok_or_else(|| format!("Timestamp is no Windows file time since 2007: {ticks}"))?;
    Ok(TextLine::Record(TraceRecord {
        time: Nanos(nanos),
        op: op(kind)?,
        offset_bytes: number(offset, "Offset")?,
        len_bytes: length(number(size, "Size")?)?,
        volume: volume_of_name(&[host, disk]),
        forced: false,
    }))
}

/// 2007-01-01 in Windows file time: before the traces were taken.
const FILETIME_2007: u64 = 128_120_832_000_000_000;
const NANOS_PER_TICK: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordOp;

    #[test]
    fn parses_a_published_line() {
        let line = "128166372003061629,usr,0,Read,7014609920,24576,41286";
        let Ok(TextLine::Record(record)) = parse(line) else {
            panic!("not parsed");
        };
        assert_eq!(record.op, RecordOp::Read);
        assert_eq!(
            (record.offset_bytes, record.len_bytes),
            (7_014_609_920, 24_576)
        );
        assert_eq!(record.volume, volume_of_name(&["usr", "0"]));
        assert!(parse("1,usr,0,Read,5,24576").is_err());
    }
}
