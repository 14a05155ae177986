//! Systor '17 (Lee et al., "Understanding storage traffic characteristics on
//! enterprise virtual desktop infrastructure"), as published by SNIA IOTTA:
//! `Timestamp,Response,IOType,LUN,Offset,Size` under such a header. Times are
//! seconds, offset and size bytes; the response time may be empty.

use super::{TextLine, fields, length, number, op, seconds};
use crate::TraceRecord;

pub(crate) const HEADER_START: &str = "Timestamp,Response,IOType";

pub(crate) fn parse(line: &str) -> Result<TextLine, String> {
    if line.starts_with(HEADER_START) {
        return Ok(TextLine::Other);
    }
    let [time, _response, kind, lun, offset, size] = fields(line)?;
    Ok(TextLine::Record(TraceRecord {
        time: seconds(time, "Timestamp")?,
        op: op(kind)?,
        offset_bytes: number(offset, "Offset")?,
        len_bytes: length(number(size, "Size")?)?,
        volume: number(lun, "LUN")?,
        forced: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_published_line() {
        let line = "1455592844.085322022,,W,1,1063763968,4096";
        let Ok(TextLine::Record(record)) = parse(line) else {
            panic!("not parsed");
        };
        assert_eq!(record.time.0, 1_455_592_844_085_322_022);
        assert_eq!(record.volume, 1);
        assert_eq!(
            parse("Timestamp,Response,IOType,LUN,Offset,Size"),
            Ok(TextLine::Other)
        );
    }
}
