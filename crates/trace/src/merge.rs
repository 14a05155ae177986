//! The traces of an archive as one, by time: its members are the volumes of one machine.
//!
//! Invariant: records of equal time come in the order of their members.
//!
//! Not here: archives of many members, which are hours of one trace and read one after another; and
//! those that do not come from a file, which can be read once only.

use crate::archive::{self, ArchiveMember};
use crate::compressed::decompressed;
use crate::{
    DecodedRecords, DeviceFilter, Error, Format, Skipped, Strictness, TraceReader, TraceRecord,
};
use block::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Members that are merged, each by a reader of its own that goes through the archive.
const MERGED_MAX: usize = 64;

impl TraceReader {
    /// Opens `path`, guessing the format if `format` is `None`. The traces of an archive are merged
    /// by time.
    pub fn open(
        path: &Path,
        format: Option<Format>,
        strictness: Strictness,
    ) -> Result<TraceReader, Error> {
        if let Some(merged) = TraceReader::merged(path, format, strictness)? {
            return Ok(merged);
        }
        let fail = |e: io::Error| Error::new(path, None, e.to_string());
        let file = File::open(path).map_err(fail)?;
        TraceReader::new(path, file, format, strictness)
    }

    /// Opens the traces of the archive `path`, merged by time. `None` for any other file, and for
    /// an archive that is read from its start to its end.
    pub fn merged(
        path: &Path,
        format: Option<Format>,
        strictness: Strictness,
    ) -> Result<Option<TraceReader>, Error> {
        let fail = |e: io::Error| Error::new(path, None, e.to_string());
        let file = File::open(path).map_err(fail)?;
        if !file.metadata().map_err(fail)?.is_file() {
            return Ok(None);
        }
        let (start, input) = decompressed(file).map_err(fail)?;
        if !archive::begins(&start) {
            return Ok(None);
        }
        let members = archive::members(input, format).map_err(fail)?;
        let is_plain = || members.iter().all(|member| !member.is_compressed);
        if members.len() > MERGED_MAX || (members.len() < 2 && is_plain()) {
            return Ok(None);
        }
        let traces = members.iter().map(|member| open(path, member, strictness));
        let merged = MergedTraces::new(traces.collect::<Result<_, Error>>()?)?;
        let format = members[0].format;
        let merged = TraceReader::elsewhere(path, Box::new(merged), format, strictness);
        Ok(Some(merged))
    }
}

/// Opens one member of the archive `path`.
fn open(path: &Path, member: &ArchiveMember, strictness: Strictness) -> Result<TraceReader, Error> {
    let fail = |e: io::Error| Error::new(path, None, e.to_string());
    let file = File::open(path).map_err(fail)?;
    let (_, mut input) = decompressed(file).map_err(fail)?;
    io::copy(&mut input.by_ref().take(member.from), &mut io::sink()).map_err(fail)?;
    let bytes = input.take(member.bytes);
    let reader = TraceReader::new(&member.path, bytes, Some(member.format), strictness)?;
    Ok(reader.with_devices(DeviceFilter::All).with_flushes())
}

struct MergedTraces {
    traces: Vec<TraceReader>,
    /// The next record of each, until its end, by time.
    next: BinaryHeap<Reverse<(Nanos, usize)>>,
    records: Vec<Option<TraceRecord>>,
}

impl MergedTraces {
    fn new(traces: Vec<TraceReader>) -> Result<MergedTraces, Error> {
        let mut merged = MergedTraces {
            records: vec![None; traces.len()],
            next: BinaryHeap::new(),
            traces,
        };
        for at in 0..merged.traces.len() {
            merged.advance(at)?;
        }
        Ok(merged)
    }

    /// Reads the next record of the trace `at`.
    fn advance(&mut self, at: usize) -> Result<(), Error> {
        self.records[at] = self.traces[at].next().transpose()?;
        let time = self.records[at].map(|record| Reverse((record.time, at)));
        self.next.extend(time);
        Ok(())
    }
}

impl DecodedRecords for MergedTraces {
    fn next(&mut self) -> Result<Option<TraceRecord>, String> {
        let Some(Reverse((_, at))) = self.next.pop() else {
            return Ok(None);
        };
        let record = self.records[at].take();
        self.advance(at).map_err(|e| e.to_string())?;
        Ok(record)
    }

    fn skipped(&self) -> Skipped {
        let skipped = self.traces.iter().map(TraceReader::skipped);
        skipped.fold(Skipped::default(), |sum, more| sum + more)
    }
}
