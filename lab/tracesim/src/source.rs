//! A trace as accesses to densely numbered lines.

use baselines::belady::NEVER;
use block::Nanos;
use policy::{LineParts, PolicyOp, PolicyRequest};
use rustc_hash::FxHashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trace::{Format, Info, Skipped, Strictness, TraceRecord};

/// Bytes up to which a trace is kept in memory between cells: some ten million
/// requests.
pub const KEPT_BYTES_MAX: usize = 256 << 20;

/// Accesses in a chunk, about.
const CHUNK_ACCESSES: usize = 1 << 20;

/// The granularity in which sizes and footprints are stated.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// The size of a pool.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum PoolSize {
    /// A share of the trace's unique 4 KiB blocks.
    Share(f64),
    /// Bytes.
    Bytes(u64),
}

impl PoolSize {
    /// The size in 4 KiB blocks.
    pub(crate) fn blocks(self, info: &Info) -> f64 {
        match self {
            PoolSize::Share(share) => share * info.unique_blocks() as f64,
            PoolSize::Bytes(bytes) => bytes as f64 / BLOCK_BYTES as f64,
        }
    }

    /// The share as given, or the share of so many `blocks`.
    pub(crate) fn share(self, blocks: u64, info: &Info) -> f64 {
        match self {
            PoolSize::Share(share) => share,
            PoolSize::Bytes(_) => blocks as f64 / info.unique_blocks().max(1) as f64,
        }
    }
}

/// Requests, and the lines each of them touches, in order.
#[derive(Clone, Debug, Default)]
pub struct RequestChunk {
    /// The requests.
    pub requests: Vec<ChunkRequest>,
    /// The dense numbers of the lines that the requests touch.
    pub lines: Vec<u32>,
}

impl RequestChunk {
    fn bytes(&self) -> usize {
        self.requests.capacity() * size_of::<ChunkRequest>()
            + self.lines.capacity() * size_of::<u32>()
    }
}

/// One request of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct ChunkRequest {
    /// Time of the request.
    pub time: Nanos,
    /// The policy's view of the request.
    pub request: PolicyRequest,
    /// Number of the chunk's lines that the request touches.
    pub lines: u32,
    /// Offset of the request in the first of its lines.
    pub head_bytes: u32,
}

/// Reason for which a trace cannot be simulated.
#[derive(Debug)]
pub enum SourceError {
    /// The trace cannot be read.
    Trace(trace::Error),
    /// The trace touches more lines than a slot number can count.
    TooManyLines(PathBuf),
    /// The offline optimum was asked for over more than 2^32 accesses.
    TooLongForOptimum(PathBuf),
    /// The trace holds no request.
    Empty(PathBuf),
}

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SourceError::Trace(e) => e.fmt(f),
            SourceError::TooManyLines(path) => {
                write!(
                    f,
                    "{}: more than 2^32 lines; use longer lines",
                    path.display()
                )
            }
            SourceError::TooLongForOptimum(path) => write!(
                f,
                "{}: too long for the offline optimum; leave out that policy",
                path.display()
            ),
            SourceError::Empty(path) => write!(f, "{}: no requests", path.display()),
        }
    }
}

impl std::error::Error for SourceError {}

impl From<trace::Error> for SourceError {
    fn from(e: trace::Error) -> SourceError {
        SourceError::Trace(e)
    }
}

/// A trace, read once to number its lines.
pub struct TraceSource {
    path: PathBuf,
    format: Format,
    strictness: Strictness,
    line_bytes: u64,
    numbers: FxHashMap<(u32, u64), u32>,
    info: Info,
    accesses: u64,
    skipped: Skipped,
    kept: Option<Vec<RequestChunk>>,
}

impl TraceSource {
    /// Reads the trace at `path` in lines of `line_bytes`.
    pub fn open(
        path: &Path,
        format: Option<Format>,
        strictness: Strictness,
        line_bytes: u64,
    ) -> Result<TraceSource, SourceError> {
        TraceSource::open_keeping(path, format, strictness, line_bytes, KEPT_BYTES_MAX)
    }

    fn open_keeping(
        path: &Path,
        format: Option<Format>,
        strictness: Strictness,
        line_bytes: u64,
        kept_bytes_max: usize,
    ) -> Result<TraceSource, SourceError> {
        let mut reader = trace_formats::open(path, format, strictness)?;
        let mut source = TraceSource {
            path: path.to_path_buf(),
            format: reader.format(),
            strictness,
            line_bytes,
            numbers: FxHashMap::default(),
            info: Info::default(),
            accesses: 0,
            skipped: Skipped::default(),
            kept: Some(Vec::new()),
        };
        let mut builder = Builder::new(line_bytes);
        let mut room = kept_bytes_max;
        for record in reader.by_ref() {
            let record = record?;
            source.info.add(&record);
            let numbers = &mut source.numbers;
            builder.add(&record, |key| {
                let next = u32::try_from(numbers.len()).ok()?;
                Some(*numbers.entry(key).or_insert(next))
            });
            if numbers.len() >= u32::MAX as usize {
                return Err(SourceError::TooManyLines(path.to_path_buf()));
            }
            if builder.chunk.lines.len() >= CHUNK_ACCESSES {
                source.keep(builder.take(), &mut room);
            }
        }
        source.keep(builder.take(), &mut room);
        source.skipped = reader.skipped();
        if source.accesses == 0 {
            return Err(SourceError::Empty(path.to_path_buf()));
        }
        Ok(source)
    }

    fn keep(&mut self, mut chunk: RequestChunk, room: &mut usize) {
        self.accesses += chunk.lines.len() as u64;
        chunk.requests.shrink_to_fit();
        chunk.lines.shrink_to_fit();
        match (&mut self.kept, room.checked_sub(chunk.bytes())) {
            (Some(kept), Some(left)) => {
                kept.push(chunk);
                *room = left;
            }
            _ => self.kept = None,
        }
    }

    /// The trace's name in rows.
    pub fn name(&self) -> String {
        trace_name(&self.path)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The length of a line.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Distinct lines.
    pub fn unique_lines(&self) -> u32 {
        self.numbers.len() as u32
    }

    /// Accesses to lines.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// The trace in numbers.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Counts of input left out by lenient reading.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// The lines that a pool of `size` holds, at least one.
    pub fn pool_lines(&self, size: PoolSize) -> u32 {
        let blocks = size.blocks(&self.info);
        let lines = blocks * BLOCK_BYTES as f64 / self.line_bytes as f64;
        (lines.round() as u32).max(1)
    }

    /// The index, for each access, of the next access to the same line. Takes four bytes an access.
    pub(crate) fn next_use(&self) -> Result<Arc<Vec<u32>>, SourceError> {
        if self.accesses >= u64::from(NEVER) {
            return Err(SourceError::TooLongForOptimum(self.path.clone()));
        }
        let mut next = vec![NEVER; self.accesses as usize];
        let mut last = vec![NEVER; self.numbers.len()];
        let mut at = 0u32;
        self.for_each_chunk(|chunk| {
            for line in &chunk.lines {
                let earlier = std::mem::replace(&mut last[*line as usize], at);
                if earlier != NEVER {
                    next[earlier as usize] = at;
                }
                at += 1;
            }
        })?;
        Ok(Arc::new(next))
    }

    /// Calls `each` with every chunk in order.
    pub fn for_each_chunk(&self, mut each: impl FnMut(&RequestChunk)) -> Result<(), SourceError> {
        if let Some(kept) = &self.kept {
            kept.iter().for_each(each);
            return Ok(());
        }
        let reader = trace_formats::open(&self.path, Some(self.format), self.strictness)?;
        let mut builder = Builder::new(self.line_bytes);
        for record in reader {
            builder.add(&record?, |key| self.numbers.get(&key).copied());
            if builder.chunk.lines.len() >= CHUNK_ACCESSES {
                each(&builder.take());
            }
        }
        each(&builder.take());
        Ok(())
    }
}

/// The name, in rows, of the trace at `path`: the file's name without directory and endings.
pub fn trace_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_string()
}

/// Collects records into a chunk.
struct Builder {
    line_bytes: u64,
    chunk: RequestChunk,
}

impl Builder {
    fn new(line_bytes: u64) -> Builder {
        Builder {
            line_bytes,
            chunk: RequestChunk::default(),
        }
    }

    fn take(&mut self) -> RequestChunk {
        std::mem::take(&mut self.chunk)
    }

    fn add(&mut self, record: &TraceRecord, mut number: impl FnMut((u32, u64)) -> Option<u32>) {
        let before = self.chunk.lines.len();
        let lines = record.blocks(self.line_bytes);
        self.chunk
            .lines
            .extend(lines.filter_map(|line| number((record.volume, line))));
        self.chunk.requests.push(ChunkRequest {
            time: record.time,
            request: PolicyRequest {
                op: match record.op {
                    trace::RecordOp::Read => PolicyOp::Read,
                    trace::RecordOp::Write => PolicyOp::Write,
                },
                len_bytes: record.len_bytes,
                // The simulator's lines are there as a whole or not at all.
                parts: LineParts::WHOLE,
            },
            lines: (self.chunk.lines.len() - before) as u32,
            head_bytes: (record.offset_bytes % self.line_bytes) as u32,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Writer;

    #[test]
    fn a_trace_too_long_to_be_kept_is_read_again() {
        let path = std::env::temp_dir().join(format!("source-{}.hottrace", std::process::id()));
        let file = std::fs::File::create(&path).expect("a writable directory");
        let mut writer = Writer::new(&path, file, Format::Binary).expect("a writable form");
        for i in 0..3000u64 {
            let record = TraceRecord {
                time: Nanos(i),
                offset_bytes: i * 7919 % 500 * 4096,
                len_bytes: 8192,
                ..TraceRecord::default()
            };
            writer.write(&record).expect("room");
        }
        writer.finish().expect("room");
        let read = |kept_bytes_max| {
            let strict = Strictness::Strict;
            let source = TraceSource::open_keeping(&path, None, strict, 4096, kept_bytes_max);
            let source = source.expect("a sound trace");
            let mut lines = Vec::new();
            let walk = source.for_each_chunk(|chunk| lines.extend_from_slice(&chunk.lines));
            walk.expect("a sound trace");
            (source.kept.is_some(), lines)
        };
        let (kept, again) = (read(KEPT_BYTES_MAX), read(1000));
        assert!(kept.0 && !again.0);
        assert_eq!((kept.1.len(), &kept.1), (6000, &again.1));
        std::fs::remove_file(&path).expect("it was made above");
    }
}
