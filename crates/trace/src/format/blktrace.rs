//! The kernel's `struct blk_io_trace`, in either byte order, as blktrace(8) writes it for each
//! processor and `blkparse -d` for all: 48 bytes, then further data of the event, which are passed
//! over. The choice of events is that of [`blkparse`].

use super::SNIFFED_BYTES;
use super::blkparse::{self, BlkparseAction, BlkparseEvent};
use crate::TraceRecord;
use block::{Nanos, SECTOR_BYTES};
use std::io::{self, Read};

/// The first bytes of an event: `ae t`, version 7.
pub(crate) const LITTLE: [u8; 4] = 0x6561_7407u32.to_le_bytes();
/// The same of a machine with the other byte order.
pub(crate) const BIG: [u8; 4] = 0x6561_7407u32.to_be_bytes();

const HEAD_BYTES: usize = 48;

/// Bits of the upper half of an action.
const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
/// A command other than a read or a write, as SCSI has them.
const COMMAND: u32 = 1 << 9;
/// A message, not an event of a request.
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;
const FUA: u32 = 1 << 15;

/// Requests of a capture, from events of one kind.
pub(crate) struct BlktraceEvents {
    wanted: BlkparseAction,
}

impl BlktraceEvents {
    /// The requests of a file that begins with `start`, by the events in `start`.
    pub(crate) fn of(start: &[u8]) -> BlktraceEvents {
        let mut start = &start[..start.len().min(SNIFFED_BYTES)];
        let events = std::iter::from_fn(|| next(&mut start).ok().flatten());
        BlktraceEvents {
            wanted: blkparse::wanted(events.flatten()),
        }
    }

    /// The next request; `Ok(None)` at a clean end.
    pub(crate) fn next(&self, from: &mut impl Read) -> io::Result<Option<TraceRecord>> {
        while let Some(event) = next(from)? {
            let wanted = event.filter(|event| event.action == self.wanted);
            if let Some(request) = wanted.and_then(|event| event.request()) {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }
}

/// The next event, or `None` in its place if the event is of no interest; `Ok(None)` at a clean
/// end.
fn next(from: &mut impl Read) -> io::Result<Option<Option<BlkparseEvent>>> {
    let mut raw = [0; HEAD_BYTES];
    if !fill(from, &mut raw)? {
        return Ok(None);
    }
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let little = match [raw[0], raw[1], raw[2], raw[3]] {
        LITTLE => true,
        BIG => false,
        _ => return Err(bad("no event of blktrace version 7 where one must begin")),
    };
    let number = |at: usize, bytes: usize| {
        let digits = raw[at..at + bytes].iter();
        let join = |sum: u64, digit: &u8| sum << 8 | u64::from(*digit);
        match little {
            true => digits.rev().fold(0, join),
            false => digits.fold(0, join),
        }
    };
    let carried = number(46, 2);
    if io::copy(&mut from.by_ref().take(carried), &mut io::sink())? < carried {
        return Err(bad("the file is cut off within an event"));
    }
    let action = number(28, 4) as u32;
    let (category, bytes) = (action >> 16, number(24, 4) as u32);
    let has = |bits: u32| category & bits != 0;
    let action = match action & 0xff {
        1 => BlkparseAction::Queue,
        7 => BlkparseAction::Issue,
        8 => BlkparseAction::Complete,
        _ => return Ok(Some(None)),
    };
    if has(NOTIFY | COMMAND | DISCARD) {
        return Ok(Some(None));
    }
    Ok(Some(Some(BlkparseEvent {
        action,
        time: Nanos(number(8, 8)),
        device: number(36, 4) as u32,
        reads: has(READ) && !has(WRITE),
        writes: has(WRITE),
        forced: has(FLUSH | FUA),
        // Beyond 2^64 bytes no reader yields the request.
        place: (bytes > 0).then(|| (number(16, 8).saturating_mul(SECTOR_BYTES), bytes)),
    })))
}

/// Fills `raw`; false at a clean end.
pub(crate) fn fill(from: &mut impl Read, raw: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < raw.len() {
        match from.read(&mut raw[filled..])? {
            0 if filled == 0 => return Ok(false),
            0 => {
                let what = "the last record is cut off";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            n => filled += n,
        }
    }
    Ok(true)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Format, RecordOp};

    /// One event in the byte order of `put`.
    fn event(
        big: bool,
        time: u64,
        sector: u64,
        bytes: u32,
        action: u32,
        carried: &[u8],
    ) -> Vec<u8> {
        let word = |n: u32| {
            if big {
                n.to_be_bytes()
            } else {
                n.to_le_bytes()
            }
        };
        let long = |n: u64| {
            if big {
                n.to_be_bytes()
            } else {
                n.to_le_bytes()
            }
        };
        let short = |n: u16| {
            if big {
                n.to_be_bytes()
            } else {
                n.to_le_bytes()
            }
        };
        [
            &word(0x6561_7407)[..],
            &word(1),
            &long(time),
            &long(sector),
            &word(bytes),
            &word(action),
            &word(700),
            &word(8 << 20),
            &word(0),
            &short(0),
            &short(carried.len() as u16),
            carried,
        ]
        .concat()
    }

    /// A capture as of fio on a partition, with the events of `kinds` of each request.
    pub(crate) fn capture(big: bool, kinds: &[u32]) -> Vec<u8> {
        let mut all = [
            event(big, 0, 0, 0, NOTIFY << 16, b"fio\0"),
            event(big, 0, 0, 0, NOTIFY << 16 | 1, &[0; 8]),
            event(big, 9, 2048, 4096, WRITE << 16 | 15, &[0; 16]),
        ]
        .concat();
        for kind in kinds {
            // Newer kernels mark an event that names a control group.
            let group = event(big, 10, 2048, 4096, WRITE << 16 | 1 << 8 | kind, &[0; 8]);
            let others = [
                event(big, 11, 4096, 8192, READ << 16 | kind, &[]),
                event(big, 12, 8192, 4096, (WRITE | FUA) << 16 | kind, &[]),
                event(big, 13, 8192, 65536, (WRITE | DISCARD) << 16 | kind, &[]),
                event(big, 14, 0, 0, (WRITE | FLUSH) << 16 | kind, &[]),
                event(big, 15, 0, 36, (READ | COMMAND) << 16 | kind, &[0; 6]),
            ];
            all.extend(group.into_iter().chain(others.concat()));
        }
        all
    }

    fn records(capture: &[u8]) -> Vec<TraceRecord> {
        let (events, mut rest) = (BlktraceEvents::of(capture), capture);
        std::iter::from_fn(|| events.next(&mut rest).unwrap()).collect()
    }

    #[test]
    fn requests_of_either_byte_order_are_read() {
        let place = |r: &TraceRecord| (r.op, r.offset_bytes, r.len_bytes, r.forced);
        let wanted = [
            (RecordOp::Write, 2048 * 512, 4096, false),
            (RecordOp::Read, 4096 * 512, 8192, false),
            (RecordOp::Write, 8192 * 512, 4096, true),
            (RecordOp::Write, 0, 0, true),
        ];
        for (big, kinds) in [(false, [1, 7, 8]), (true, [1, 7, 8]), (false, [8, 7, 7])] {
            let capture = capture(big, &kinds[..2]);
            assert_eq!(Format::sniff(&capture), [Format::Blktrace]);
            let records = records(&capture);
            let places: Vec<_> = records.iter().map(place).collect();
            assert_eq!(places, wanted, "{kinds:?}");
            assert!(records.iter().all(|record| record.volume == 8 << 20));
            assert_eq!(records[0].time, Nanos(10));
        }
        assert_eq!(records(&capture(true, &[8])).len(), 4);
    }

    #[test]
    fn damage_is_an_error() {
        let whole = capture(false, &[1]);
        for (cut, cause) in [(1, "cut off"), (10, "cut off")] {
            let (events, mut rest) = (BlktraceEvents::of(&whole), &whole[..whole.len() - cut]);
            let error = loop {
                if let Err(error) = events.next(&mut rest) {
                    break error;
                }
            };
            assert!(error.to_string().contains(cause), "{error}");
        }
        let mut damaged = whole.clone();
        damaged[52] = 0;
        let error = BlktraceEvents::of(&damaged)
            .next(&mut &damaged[..])
            .unwrap_err();
        assert!(error.to_string().contains("no event"), "{error}");
    }
}
