//! The recorded requests of a volume, until they are fetched.
//!
//! Invariants:
//!     a volume is recorded ⟺ one [`RecordingSink`] of it is held
//!     memory is bounded: requests not fetched in time are dropped and counted

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use block::{Fua, Nanos};
use control::config::Name;
use control::protocol::RecordingPiece;
use filter::{AccessVerb, Begin, RawAccess, Tap};
use trace::{RecordOp, RecordTape, TraceRecord};

/// Most bytes held between two fetches: about 150,000 requests.
const TAPE_BYTES: usize = 1 << 20;

/// Puts requests on a tape.
pub struct Sink(RecordTape);

impl Begin for Sink {
    fn begin(&mut self, now: Nanos, access: &RawAccess) {
        let op = match access.verb {
            AccessVerb::Read => RecordOp::Read,
            AccessVerb::Write | AccessVerb::Zero => RecordOp::Write,
            AccessVerb::Flush => return self.0.push(&TraceRecord::flush(now, 0)),
            AccessVerb::Discard | AccessVerb::Extents => return,
        };
        // A request of no bytes has no place in a trace; a request too long for the format is cut.
        let len = access.extent.len.bytes();
        if len > 0 {
            self.0.push(&TraceRecord {
                time: now,
                op,
                offset_bytes: access.extent.start.byte(),
                len_bytes: u32::try_from(len).unwrap_or(u32::MAX),
                volume: 0,
                forced: access.fua == Fua::Yes,
            });
        }
    }
}

/// A recording, which lasts until this is dropped.
pub struct RecordingSink {
    pub(crate) volume: Name,
    tap: Tap<Sink>,
}

impl RecordingSink {
    /// Begins a recording; `None` if the volume is already being recorded.
    pub(crate) fn begin(volume: Name, tap: Tap<Sink>) -> Option<RecordingSink> {
        let begun = tap.put(Sink(RecordTape::new(TAPE_BYTES)));
        begun.then(|| RecordingSink { volume, tap })
    }

    /// Takes the requests recorded since the last call.
    pub(crate) fn take(&self) -> RecordingPiece {
        let taken = self.tap.with(|sink| (sink.0.take(), sink.0.dropped()));
        let (piece, dropped) = taken.unwrap_or_default();
        RecordingPiece {
            piece: STANDARD.encode(piece),
            dropped,
        }
    }
}

impl Drop for RecordingSink {
    fn drop(&mut self) {
        self.tap.take();
    }
}
