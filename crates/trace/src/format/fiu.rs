//! Block traces of Florida International University (Koller and Rangaswami, "I/O Deduplication",
//! FAST 2010), as published by SNIA IOTTA: `ns pid process lba size op major minor hash`. Sectors
//! of 512 bytes; the hash of the content is not kept. A process may have blanks in its name.

use super::{TextLine, length, number, op, sectors};
use crate::TraceRecord;
use block::Nanos;

/// Hexadecimal digits of an MD5.
const HASH_DIGITS: usize = 32;

pub(crate) fn parse(line: &str) -> Result<TextLine, String> {
    let mut words = line.split_ascii_whitespace();
    let mut front = || words.next().ok_or("fewer than nine columns");
    let (time, pid) = (front()?, front()?);
    number::<u32>(pid, "pid")?;
    let mut back = || words.next_back().ok_or("fewer than nine columns");
    let hash = back()?;
    if hash.len() != HASH_DIGITS || !hash.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err("the last column is no MD5".into());
    }
    let (minor, major, kind, size, lba) = (back()?, back()?, back()?, back()?, back()?);
    words.next().ok_or("fewer than nine columns")?;
    let (major, minor): (u32, u32) = (number(major, "major")?, number(minor, "minor")?);
    Ok(TextLine::Record(TraceRecord {
        time: Nanos(number(time, "time")?),
        op: op(kind)?,
        offset_bytes: sectors(lba, "lba")?,
        len_bytes: length(sectors(size, "size")?)?,
        volume: major << 20 | minor,
        forced: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, RecordOp};

    #[test]
    fn parses_a_published_line() {
        let line = "89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523";
        assert_eq!(Format::sniff(line.as_bytes()), [Format::Fiu]);
        let Ok(TextLine::Record(record)) = parse(line) else {
            panic!("not parsed");
        };
        assert_eq!(record.time, Nanos(89_968_195_792_462));
        assert_eq!((record.op, record.len_bytes), (RecordOp::Read, 4096));
        assert_eq!(record.offset_bytes, 283_193_184 * 512);
        assert_eq!(record.volume, 6 << 20);
        assert_eq!(parse(&line.replace("gzip", "kjournald 0")), parse(line));
        assert!(parse(&line.replace("56f1", "")).is_err());
        assert!(parse("1 2 8 8 R 6 0 56f11b711d91a065a2b6458eca924523").is_err());
    }
}
