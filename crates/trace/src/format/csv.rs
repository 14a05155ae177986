//! hotset's text form, one request a line under this header:
//! `ts_us,op,offset_bytes,len_bytes,volume`. The operation `F` is a forced write, and of no
//! bytes a flush.

use super::{TextLine, fields, number, op};
use crate::{RecordOp, TraceRecord};
use block::Nanos;

pub(crate) const HEADER: &str = "ts_us,op,offset_bytes,len_bytes,volume";

pub(crate) fn parse(line: &str) -> Result<TextLine, String> {
    if line == HEADER {
        return Ok(TextLine::Other);
    }
    let [ts, kind, offset, len, volume] = fields(line)?;
    let ts_us: u64 = number(ts, "ts_us")?;
    let forced = kind == "F";
    Ok(TextLine::Record(TraceRecord {
        time: Nanos::from_micros(ts_us),
        op: if forced { RecordOp::Write } else { op(kind)? },
        offset_bytes: number(offset, "offset_bytes")?,
        len_bytes: number(len, "len_bytes")?,
        volume: number(volume, "volume")?,
        forced,
    }))
}

pub(crate) fn print(record: &TraceRecord) -> String {
    let op = match record.op {
        RecordOp::Read => 'R',
        RecordOp::Write if record.forced => 'F',
        RecordOp::Write => 'W',
    };
    format!(
        "{},{op},{},{},{}",
        record.time.as_micros(),
        record.offset_bytes,
        record.len_bytes,
        record.volume
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_parses() {
        for line in [
            "0,R,0,512,0",
            "17,W,8796093022208,4294967295,7",
            "17,F,4096,512,7",
            "18,F,0,0,7",
        ] {
            let Ok(TextLine::Record(record)) = parse(line) else {
                panic!("{line} not parsed");
            };
            assert_eq!(print(&record), line);
        }
    }

    #[test]
    fn names_the_column_at_fault() {
        assert!(parse("0,R,x,1,0").unwrap_err().contains("offset_bytes"));
        assert!(parse("0,X,0,1,0").unwrap_err().contains("neither"));
        assert!(parse("0,R,0,1").unwrap_err().contains("4 columns"));
        assert!(parse("0,R,0,1,0,9").unwrap_err().contains("6 columns"));
        assert!(parse("-1,R,0,1,0").unwrap_err().contains("ts_us"));
    }
}
