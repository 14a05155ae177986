//! The default text output of blkparse(1): queue events, or of a capture that has none at its
//! beginning those of issue, or else of completion:
//! `8,0 3 1 0.000000000 697 Q WS 223490 + 8 [kjournald]`. Sector numbers and
//! lengths count 512 bytes. `F` is a flush; of an event with data `F` means a forced write, before
//! the data or after. Other events, discards and the closing summary are passed
//! over.

use super::{LineParser, TextLine, length, lines, seconds, sectors};
use crate::{RecordOp, TraceRecord};
use block::Nanos;

/// Kinds of event that can stand for a request, the best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlkparseAction {
    Queue,
    Issue,
    Complete,
}

/// An event of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlkparseEvent {
    pub(crate) action: BlkparseAction,
    pub(crate) time: Nanos,
    /// Linux's number of the device: the major number times 2^20, plus the minor.
    pub(crate) device: u32,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// A flush, or a write that is one.
    pub(crate) forced: bool,
    /// Offset and length in bytes.
    pub(crate) place: Option<(u64, u32)>,
}

impl BlkparseEvent {
    /// The request; `None` of a kind that is passed over.
    pub(crate) fn request(&self) -> Option<TraceRecord> {
        match self.place {
            Some((offset_bytes, len_bytes)) if self.reads != self.writes => Some(TraceRecord {
                time: self.time,
                op: if self.writes {
                    RecordOp::Write
                } else {
                    RecordOp::Read
                },
                offset_bytes,
                len_bytes,
                volume: self.device,
                forced: self.forced && self.writes,
            }),
            _ => self
                .forced
                .then(|| TraceRecord::flush(self.time, self.device)),
        }
    }
}

/// The kind of events by which to know the requests of a capture that begins with `events`.
pub(crate) fn wanted(events: impl Iterator<Item = BlkparseEvent>) -> BlkparseAction {
    let requests = events.filter(|event| event.request().is_some());
    let best = requests.min_by_key(|event| event.action as u8);
    best.map_or(BlkparseAction::Queue, |event| event.action)
}

/// The parser for the events that a capture has, by its first bytes.
pub(crate) fn parser(start: &[u8]) -> LineParser {
    match wanted(lines(start).filter_map(|line| event(line).ok().flatten())) {
        BlkparseAction::Queue => parse_queued,
        BlkparseAction::Issue => parse_issued,
        BlkparseAction::Complete => parse_completed,
    }
}

fn parse_queued(line: &str) -> Result<TextLine, String> {
    parse(line, BlkparseAction::Queue)
}

fn parse_issued(line: &str) -> Result<TextLine, String> {
    parse(line, BlkparseAction::Issue)
}

fn parse_completed(line: &str) -> Result<TextLine, String> {
    parse(line, BlkparseAction::Complete)
}

fn parse(line: &str, wanted: BlkparseAction) -> Result<TextLine, String> {
    let event = event(line)?.filter(|event| event.action == wanted);
    let request = event.and_then(|event| event.request());
    Ok(request.map_or(TextLine::Other, TextLine::Record))
}

/// The event of a line; `None` of one of no interest, or of none.
fn event(line: &str) -> Result<Option<BlkparseEvent>, String> {
    let mut words = line.split_ascii_whitespace();
    let Some((major, minor)) = words.next().and_then(|device| device.split_once(',')) else {
        return Ok(None);
    };
    let (Ok(major), Ok(minor)) = (major.parse::<u32>(), minor.parse::<u32>()) else {
        return Ok(None);
    };
    let mut next = |name: &str| words.next().ok_or_else(|| format!("no column {name}"));
    let (_cpu, _sequence) = (next("cpu")?, next("sequence")?);
    let time = seconds(next("time")?, "time")?;
    let (_pid, action, rwbs) = (next("pid")?, next("action")?, next("RWBS")?);
    let action = match action {
        "Q" => BlkparseAction::Queue,
        "D" => BlkparseAction::Issue,
        "C" => BlkparseAction::Complete,
        _ => return Ok(None),
    };
    if rwbs.contains('D') {
        return Ok(None);
    }
    let place = match (words.next(), words.next(), words.next()) {
        (Some(sector), Some("+"), Some(len)) => {
            Some((sectors(sector, "sector")?, length(sectors(len, "length")?)?))
        }
        _ => None,
    };
    Ok(Some(BlkparseEvent {
        action,
        time,
        device: major << 20 | minor,
        reads: rwbs.contains('R'),
        writes: rwbs.contains('W'),
        forced: rwbs.contains('F'),
        place: place.filter(|(_, len)| *len > 0),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn takes_queued_reads_and_writes() {
        let line = "  8,0    3        1     0.000000001   697  Q   W 223490 + 8 [kjournald]";
        let Ok(TextLine::Record(record)) = parse_queued(line) else {
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
            assert_eq!(parse_queued(line), Ok(TextLine::Other), "{line}");
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
            assert_eq!(Format::sniff(text.as_bytes()), [Format::Blkparse], "{text}");
            let taken = lines(text.as_bytes()).filter_map(|line| {
                let parsed = parser(text.as_bytes())(line);
                matches!(parsed, Ok(TextLine::Record(_)))
                    .then(|| line.contains(&format!(" {wanted} ")))
            });
            assert_eq!(taken.collect::<Vec<_>>(), [true], "{text}");
        }
        assert_eq!(Format::sniff(remapped.as_bytes()), []);
    }

    #[test]
    fn takes_flushes_and_forced_writes() {
        let record = |line: &str| match parse_queued(line) {
            Ok(TextLine::Record(record)) => record,
            other => panic!("{line}: {other:?}"),
        };
        let flush = TraceRecord::flush(crate::TraceRecord::default().time, 8 << 20);
        for rwbs in ["FN", "FF", "FWS"] {
            let line = format!("8,0 3 2 0.0 697 Q {rwbs} [kjournald]");
            assert_eq!(record(&line), flush, "{rwbs}");
            assert_eq!(
                parse_queued(&line.replace(" Q ", " G ")),
                Ok(TextLine::Other)
            );
        }
        for (rwbs, forced) in [("WS", false), ("WFS", true), ("FWFS", true), ("RF", false)] {
            let line = format!("8,0 3 2 0.0 697 Q {rwbs} 8 + 8 [kjournald]");
            assert_eq!(record(&line).forced, forced, "{rwbs}");
        }
    }
}
