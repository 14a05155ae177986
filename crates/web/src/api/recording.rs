//! Requests of a volume's clients, recorded while the answer is sent.
//!
//! Invariants:
//!     an answer that ends without an error is a trace of all requests in its time
//!     the end of a client's connection ends its recording

use super::body::{Body, Path};
use crate::app::App;
use crate::gate::Operator;
use crate::problem::ProblemAnswer;
use axum::body::{Body as Content, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::recording::{ControlRecording, PERIOD};
use futures_util::stream::unfold;
use serde::Deserialize;
use std::io::{self, Write};
use std::path::Path as FilePath;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use trace::{Format, Writer};
use utoipa::ToSchema;

/// The longest time: a connection lasts 15 minutes.
const SECONDS_MAX: f64 = 600.0;
/// Pieces in flight to a slow client.
const PIECES_MAX: usize = 16;

/// The end of a recording.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordingEnd {
    /// The time to end after, 600 s at most.
    #[schema(exclusive_minimum = 0, maximum = 600)]
    seconds: f64,
    /// The number of requests to end after, if reached before the time.
    requests: Option<usize>,
}

/// Record the requests of a volume's clients
///
/// The answer is a binary trace, sent during the recording. If the daemon left requests out, or has
/// ended, the answer is cut off: all earlier requests are in it.
#[utoipa::path(post, path = "/api/v1/volumes/{volume}/recording", tag = "volumes",
    params(("volume" = String, Path)), request_body = RecordingEnd,
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream")))]
pub async fn record(
    _: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
    Body(end): Body<RecordingEnd>,
) -> Result<Response, ProblemAnswer> {
    if !(end.seconds > 0.0 && end.seconds <= SECONDS_MAX) {
        return Err(ProblemAnswer::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("a recording of {} s cannot be sent", end.seconds),
            format!(
                "give `seconds` above 0, up to {SECONDS_MAX}; `hotset trace record` has no bound"
            ),
        ));
    }
    let (recording, place) = app.daemon.record(volume).await?;
    let (sender, receiver) = channel(PIECES_MAX);
    tokio::task::spawn_blocking(move || {
        let _place = place;
        if let Err(cause) = send(recording, &end, &sender) {
            // A client that has gone needs no reason.
            let _ = sender.blocking_send(Err(cause));
        }
    });
    let next = |mut pieces: Receiver<_>| async move { Some((pieces.recv().await?, pieces)) };
    let content = Content::from_stream(unfold(receiver, next));
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, content).into_response())
}

/// A sink that sends a trace's bytes to the client.
struct TracePieces<'a>(&'a Sender<io::Result<Bytes>>);

impl Write for TracePieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        let sent = self.0.blocking_send(Ok(piece));
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn send(
    mut recording: ControlRecording,
    end: &RecordingEnd,
    sender: &Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let ends_at = Instant::now() + Duration::from_secs_f64(end.seconds);
    let mut left = end.requests.unwrap_or(usize::MAX);
    let mut trace = Writer::new(FilePath::new(""), TracePieces(sender), Format::Binary)
        .map_err(io::Error::other)?;
    let cut_off = loop {
        let now = Instant::now();
        std::thread::sleep(PERIOD.min(ends_at.saturating_duration_since(now)));
        let taken = match recording.take() {
            Ok(taken) => taken,
            Err(cause) => break Err(io::Error::other(cause)),
        };
        for record in &taken {
            if left == 0 {
                break;
            }
            trace.write(record).map_err(io::Error::other)?;
            left -= usize::from(!record.is_flush());
        }
        if sender.is_closed() {
            break Err(io::ErrorKind::BrokenPipe.into());
        }
        if left > 0 && recording.dropped() > 0 {
            break Err(io::Error::other("the daemon left requests out"));
        }
        // All requests before the end were taken.
        if left == 0 || now >= ends_at {
            break Ok(());
        }
    };
    trace.finish().map_err(io::Error::other)?;
    cut_off
}
