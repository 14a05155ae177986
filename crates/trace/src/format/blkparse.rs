//! The default text output of blkparse(1): queue events, or of a capture that has none at its
//! beginning those of issue, or else of completion:
//! `8,0 3 1 0.000000000 697 Q WS 223490 + 8 [kjournald]`. Sector numbers and
//! lengths count 512 bytes. `F` is a flush, and of what has data a forced write, whether it
//! comes before the data or after. Other events, discards and the closing summary are passed
//! over.

use super::{Line, LineParser, length, lines, seconds, sectors};
use crate::{Op, Record};

/// The parser for the events that a capture has, by its first bytes.
pub(crate) fn parser(start: &[u8]) -> LineParser {
    let parsers: [LineParser; 3] = [parse_queued, parse_issued, parse_completed];
    let takes =
        |parser: &LineParser| lines(start).any(|line| matches!(parser(line), Ok(Line::Record(_))));
    parsers.into_iter().find(takes).unwrap_or(parse_queued)
}

pub(crate) fn parse_queued(line: &str) -> Result<Line, String> {
    parse(line, "Q")
}

fn parse_issued(line: &str) -> Result<Line, String> {
    parse(line, "D")
}

fn parse_completed(line: &str) -> Result<Line, String> {
    parse(line, "C")
}

fn parse(line: &str, wanted: &str) -> Result<Line, String> {
    let mut words = line.split_ascii_whitespace();
    let Some((major, minor)) = words.next().and_then(|device| device.split_once(',')) else {
        return Ok(Line::Other);
    };
    let (Ok(major), Ok(minor)) = (major.parse::<u32>(), minor.parse::<u32>()) else {
        return Ok(Line::Other);
    };
    let mut next = |name: &str| words.next().ok_or_else(|| format!("no column {name}"));
    let (_cpu, _sequence) = (next("cpu")?, next("sequence")?);
    let time = seconds(next("time")?, "time")?;
    let (_pid, action, rwbs) = (next("pid")?, next("action")?, next("RWBS")?);
    let (volume, forced) = (major << 20 | minor, rwbs.contains('F'));
    let op = match (rwbs.contains('R'), rwbs.contains('W')) {
        _ if action != wanted || rwbs.contains('D') => return Ok(Line::Other),
        (true, false) => Op::Read,
        (false, true) => Op::Write,
        (false, false) if forced => return Ok(Line::Record(Record::flush(time, volume))),
        _ => return Ok(Line::Other),
    };
    let sector = next("sector")?;
    if words.next() != Some("+") {
        return Ok(match forced {
            true => Line::Record(Record::flush(time, volume)),
            false => Line::Other,
        });
    }
    let len = words.next().ok_or("no column length")?;
    Ok(Line::Record(Record {
        time,
        op,
        offset_bytes: sectors(sector, "sector")?,
        len_bytes: length(sectors(len, "length")?)?,
        volume,
        forced: forced && op == Op::Write,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn takes_queued_reads_and_writes() {
        let line = "  8,0    3        1     0.000000001   697  Q   W 223490 + 8 [kjournald]";
        let Ok(Line::Record(record)) = parse_queued(line) else {
            panic!("not parsed");
        };
        assert_eq!(
            (record.offset_bytes, record.len_bytes),
            (223_490 * 512, 4096)
        );
        assert_eq!((record.time.0, record.volume), (1, 8 << 20));
        let others = [
            "  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]",
            "CPU0 (sda):",
            " Reads Queued:           0,        0KiB",
            "  8,0    3       11     0.009507758     0  Q   D 223518 + 8 [swapper]",
        ];
        for line in others {
            assert_eq!(parse_queued(line), Ok(Line::Other), "{line}");
        }
        assert!(parse_queued("8,0 3 1 0.0 697 Q W x + 8 [a]").is_err());
    }

    #[test]
    fn takes_what_a_capture_has() {
        let line =
            |action: char, at: u32| format!("  8,0 0 {at} 0.{at:09} 7 {action} W {at} + 8 [fio]\n");
        let remapped = "  8,0 0 1 0.000000001 7 A WS 2048 + 8 <- (8,1) 0\n";
        for (actions, wanted) in [("QGDC", "Q"), ("DC", "D"), ("C", "C"), ("GQ", "Q")] {
            let text: String = actions.chars().map(|action| line(action, 9)).collect();
            let text = format!("{remapped}{text}");
            assert_eq!(
                Format::sniff(text.as_bytes()),
                Some(Format::Blkparse),
                "{text}"
            );
            let taken = lines(text.as_bytes()).filter_map(|line| {
                let parsed = parser(text.as_bytes())(line);
                matches!(parsed, Ok(Line::Record(_))).then(|| line.contains(&format!(" {wanted} ")))
            });
            assert_eq!(taken.collect::<Vec<_>>(), [true], "{text}");
        }
        assert_eq!(Format::sniff(remapped.as_bytes()), None);
    }

    #[test]
    fn takes_flushes_and_forced_writes() {
        let record = |line: &str| match parse_queued(line) {
            Ok(Line::Record(record)) => record,
            other => panic!("{line}: {other:?}"),
        };
        let flush = Record::flush(crate::Record::default().time, 8 << 20);
        for rwbs in ["FN", "FF", "FWS"] {
            let line = format!("8,0 3 2 0.0 697 Q {rwbs} [kjournald]");
            assert_eq!(record(&line), flush, "{rwbs}");
            assert_eq!(parse_queued(&line.replace(" Q ", " G ")), Ok(Line::Other));
        }
        for (rwbs, forced) in [("WS", false), ("WFS", true), ("FWFS", true), ("RF", false)] {
            let line = format!("8,0 3 2 0.0 697 Q {rwbs} 8 + 8 [kjournald]");
            assert_eq!(record(&line).forced, forced, "{rwbs}");
        }
    }
}
