//! fio's log of requests (`write_iolog`), under `fio version 2 iolog` or `fio version 3 iolog`:
//! `FILE ACTION OFFSET LENGTH`, in version 3 behind a time in microseconds. Version 2 has no
//! times. A file is a volume; `sync` and `datasync` are flushes. Trims, waits, and operations on
//! files as such are passed over.

use super::{TextLine, length, number, volume_of_name};
use crate::{RecordOp, TraceRecord};
use block::Nanos;

pub(crate) const VERSION_2: &[u8] = b"fio version 2 iolog";
pub(crate) const VERSION_3: &[u8] = b"fio version 3 iolog";

pub(crate) fn parse(line: &str) -> Result<TextLine, String> {
    if [VERSION_2, VERSION_3].contains(&line.as_bytes()) {
        return Ok(TextLine::Other);
    }
    let words: Vec<&str> = line.split_ascii_whitespace().take(6).collect();
    let (time, file, action, place) = match words[..] {
        [file, action, offset, len] => ("0", file, action, Some((offset, len))),
        [time, file, action, offset, len] => (time, file, action, Some((offset, len))),
        [file, action] => ("0", file, action, None),
        [time, file, action] => (time, file, action, None),
        _ => return Err("no `[TIME] FILE ACTION [OFFSET LENGTH]`".into()),
    };
    let (time, volume) = (
        Nanos::from_micros(number(time, "time")?),
        volume_of_name(&[file]),
    );
    let op = match action {
        "read" => RecordOp::Read,
        "write" => RecordOp::Write,
        "sync" | "datasync" => return Ok(TextLine::Record(TraceRecord::flush(time, volume))),
        "add" | "open" | "close" | "unlink" | "wait" | "trim" | "sync_file_range" => {
            return Ok(TextLine::Other);
        }
        _ => return Err(format!("no action of fio: {action:?}")),
    };
    let (offset, len) = place.ok_or("no columns offset and length")?;
    Ok(TextLine::Record(TraceRecord {
        time,
        op,
        offset_bytes: number(offset, "offset")?,
        len_bytes: length(number(len, "length")?)?,
        volume,
        forced: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    const THREE: &str = "fio version 3 iolog\n25 /tmp/f add\n128 /tmp/f open\n\
        131 /tmp/f read 61440 4096\n237 /tmp/f write 774144 8192\n240 /tmp/f datasync 0 0\n\
        241 /tmp/f trim 0 4096\n33183 /tmp/f close\n";
    const TWO: &str = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb read 0 4096\n\
        /dev/sdb wait 1000 0\n/dev/sdb write 4096 512\n/dev/sdb close\n";

    fn records(text: &str) -> Vec<TraceRecord> {
        let parsed = text.lines().map(|line| parse(line).unwrap());
        let records = parsed.filter_map(|line| match line {
            TextLine::Record(record) => Some(record),
            TextLine::Other => None,
        });
        records.collect()
    }

    #[test]
    fn both_versions_are_read() {
        for text in [TWO, THREE] {
            assert_eq!(Format::sniff(text.as_bytes()), [Format::FioIolog]);
        }
        let three = records(THREE);
        let places: Vec<_> = three
            .iter()
            .map(|r| (r.offset_bytes, r.len_bytes))
            .collect();
        assert_eq!(places, [(61_440, 4096), (774_144, 8192), (0, 0)]);
        assert_eq!(
            (three[0].time, three[2].time),
            (Nanos(131_000), Nanos(240_000))
        );
        let two = records(TWO);
        assert_eq!((two.len(), two[1].op), (2, RecordOp::Write));
        assert_eq!(two[1].volume, volume_of_name(&["/dev/sdb"]));
        for bad in ["f read 0", "x f read 0 1", "f grow 0 1", "1 f read", ""] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
