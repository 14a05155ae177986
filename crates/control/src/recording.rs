//! Clients' requests of a volume, fetched from the daemon that records them.
//!
//! Invariant: the requests taken, joined, are those that were not dropped, in order; times
//! count from the first.

use crate::client::{ControlClient, Error};
use crate::protocol::{ControlRequest, Reply};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use block::Nanos;
use std::fmt;
use std::time::Duration;
use trace::{TapeReader, TraceRecord};

/// Interval of fetching; the daemon has room for about 150,000 requests.
pub const PERIOD: Duration = Duration::from_millis(100);

/// A recording, which lasts until this value is dropped.
pub struct ControlRecording {
    client: ControlClient,
    reader: TapeReader,
    first: Option<Nanos>,
    dropped: u64,
}

impl ControlRecording {
    /// Makes the daemon start to record `volume`.
    pub fn begin(mut client: ControlClient, volume: &str) -> Result<ControlRecording, Error> {
        let volume = volume.to_owned();
        client.command(&ControlRequest::Record { volume })?;
        Ok(ControlRecording {
            client,
            reader: TapeReader::default(),
            first: None,
            dropped: 0,
        })
    }

    /// Takes the requests recorded since the last call.
    pub fn take(&mut self) -> Result<Vec<TraceRecord>, Error> {
        let wrong = |what: &dyn fmt::Display| {
            let remedy = "use hotset and a daemon of the same version";
            Error::Refused(format!("the daemon sent no records ({what}); {remedy}"))
        };
        let records = match self.client.ask(&ControlRequest::TakeRecords)? {
            Reply::Records(records) => records,
            other => return Err(wrong(&format_args!("but `{}`", other.name()))),
        };
        self.dropped = records.dropped;
        let piece = STANDARD.decode(records.piece).map_err(|e| wrong(&e))?;
        let mut taken = self.reader.records(&piece).map_err(|e| wrong(&e))?;
        for record in &mut taken {
            let first = *self.first.get_or_insert(record.time);
            record.time = Nanos(record.time.since(first).0);
        }
        Ok(taken)
    }

    /// Number of requests left out so far, for they were not taken in time.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
