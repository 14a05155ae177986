//! Records of a segment for the cleaner, from either copy.

use super::WriteBackShared;
use super::state::CleanerCursor;
use block::{Buf, Device, IoError, IoErrorKind, IoResult, Nanos};
use layout::{BLOCK_BYTES, LOG_NUMBER, LogRecord, SEGMENT_BLOCKS};

/// Pause before memory is asked for again.
const NO_MEMORY: Nanos = Nanos::from_millis(1);

/// A record with changes.
pub(super) struct FoundChange {
    pub(super) record: LogRecord,
    /// Beginning of its data, in the area.
    pub(super) at: u32,
}

impl<P: Device> WriteBackShared<P> {
    /// Returns the records from `cursor` on that are in one segment and before `limit`, up to the
    /// first that `takes` refuses. Moves the cursor past them. Notes are passed over.
    pub(super) async fn records(
        &self,
        cursor: &mut CleanerCursor,
        limit: u64,
        mut takes: impl FnMut(&LogRecord) -> bool,
    ) -> IoResult<Vec<FoundChange>> {
        let (slot, used) = self.state.borrow().place_of(cursor);
        let (segment, from) = (cursor.segment, cursor.offset);
        let first = slot * SEGMENT_BLOCKS;
        let mut found = Vec::new();
        // A copy may be lost meanwhile, and is not to be tried twice.
        let copies = self.copies.readable();
        let data = self.memory((used - from) as usize * BLOCK_BYTES).await;
        let mut data = self.read_area(copies[0], first + from, data).await;
        while cursor.number < limit && cursor.offset < used {
            let (number, offset) = (cursor.number, cursor.offset);
            let at = (offset - from) as usize * BLOCK_BYTES;
            let record = match sound(&data[at..], number, segment, self) {
                Some(record) => record,
                None => {
                    // Reads the rest of the segment from the other copy.
                    let other = self.memory(data.len()).await;
                    let other = self.read_area(copies[1], first + from, other).await;
                    match sound(&other[at..], number, segment, self) {
                        Some(record) => {
                            let end = at + record.blocks() as usize * BLOCK_BYTES;
                            data[at..end].copy_from_slice(&other[at..end]);
                            record
                        }
                        None if found.is_empty() => return Err(unreadable(number)),
                        // The records before this one can be written back.
                        None => break,
                    }
                }
            };
            let blocks = record.blocks();
            if !record.extents.is_empty() {
                if !takes(&record) {
                    break;
                }
                let at = first + offset + 1;
                found.push(FoundChange { record, at });
            }
            cursor.number += 1;
            cursor.offset += blocks;
        }
        Ok(found)
    }

    /// Reads blocks of the area from a copy; zeroes if that fails.
    async fn read_area(&self, copy: Option<usize>, at: u32, mut buf: Buf) -> Buf {
        let mut read = false;
        if let Some(copy) = copy {
            let result;
            (buf, result) = self.copies.read(copy, at, buf).await;
            read = result.is_ok();
        }
        if !read {
            buf.fill(0);
        }
        buf
    }

    /// Takes memory that no other task waits for.
    pub(super) async fn memory(&self, bytes: usize) -> Buf {
        loop {
            match self.env.pool.try_get(bytes) {
                Some(buf) => return buf,
                None => self.env.timer.sleep(NO_MEMORY).await,
            }
        }
    }
}

/// Decodes the record `number` of a segment, if it begins here, is whole and is not void.
fn sound<P: Device>(
    bytes: &[u8],
    number: u64,
    segment: u64,
    log: &WriteBackShared<P>,
) -> Option<LogRecord> {
    let record = LogRecord::decode(&bytes[..BLOCK_BYTES], log.config.log).ok()?;
    let data = bytes.get(BLOCK_BYTES..record.blocks() as usize * BLOCK_BYTES)?;
    // A copy that has missed writes may have a void record of the same number here.
    let fenced = number >= log.state.borrow().fence;
    let ours = record.number == number
        && record.segment == segment
        && fenced == (record.incarnation == log.config.incarnation);
    (ours && record.log == LOG_NUMBER && record.has(data)).then_some(record)
}

fn unreadable(number: u64) -> IoError {
    let what = format!(
        "neither copy of record {number} of the write-back log can be read; attach the device that \
         is absent, or see `hotset pool recover`"
    );
    IoError::new(IoErrorKind::Corrupt, what)
}
