//! Storage Performance Council trace format, revision 1.0.1, as used by the
//! UMass repository (Financial, WebSearch): `ASU,LBA,Size,Opcode,Timestamp`.
//! LBA counts 512-byte blocks, size bytes, the timestamp seconds. Optional
//! further columns are ignored.

use super::{TextLine, length, number, op, seconds, sectors};
use crate::TraceRecord;

pub(crate) fn parse(line: &str) -> Result<TextLine, String> {
    let mut columns = line.split(',').map(str::trim);
    let mut next = |name: &str| columns.next().ok_or_else(|| format!("no column {name}"));
    let (asu, lba, size) = (next("ASU")?, next("LBA")?, next("Size")?);
    let (opcode, time) = (next("Opcode")?, next("Timestamp")?);
    Ok(TextLine::Record(TraceRecord {
        time: seconds(time, "Timestamp")?,
        op: op(opcode)?,
        offset_bytes: sectors(lba, "LBA")?,
        len_bytes: length(number(size, "Size")?)?,
        volume: number(asu, "ASU")?,
        forced: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_published_line() {
        let Ok(TextLine::Record(record)) = parse("0,20941264,8192,W,0.551706") else {
            panic!("not parsed");
        };
        assert_eq!(record.offset_bytes, 20_941_264 * 512);
        assert_eq!(record.time.0, 551_706_000);
        assert!(
            parse("0,20941264,8192,W")
                .unwrap_err()
                .contains("Timestamp")
        );
        assert!(parse("0,36028797018963968,8,W,0").is_err());
    }
}
