//! `hotset trace record`.

use crate::CommandFailure;
use crate::commands::daemon::ControlOption;
use crate::commands::table::count;
use crate::commands::traces::{OWN, format};
use clap::Args;
use command::convert::{TraceOutput, output_format};
use command::print_line;
use control::client::ControlClient;
use control::recording::{ControlRecording, PERIOD};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trace::Format;

#[derive(Args)]
pub struct RecordCommand {
    #[command(flatten)]
    control: ControlOption,
    /// The volume
    volume: String,
    /// The file to write: .hottrace, .csv or .csv.zst
    file: PathBuf,
    /// The form to write, if the file's ending names none
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    to_format: Option<Format>,
    /// Replace the file if there is one
    #[arg(long)]
    force: bool,
    /// End after this time
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// End after this many requests; 100 million take about 500 MB
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    requests: u64,
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.ok_or_else(|| "give a number of seconds".into())
}

pub fn run(record: &RecordCommand) -> Result<(), CommandFailure> {
    let format = output_format(&record.file, record.to_format, &OWN)?;
    let client =
        ControlClient::connect(&record.control.control).map_err(CommandFailure::runtime)?;
    let mut output = TraceOutput::create(&record.file, format, record.force, &OWN)?;
    let mut recording =
        ControlRecording::begin(client, &record.volume).map_err(CommandFailure::runtime)?;
    let ended = end_on_signals()
        .map_err(|cause| CommandFailure::of("signals cannot be waited for", cause))?;
    eprintln!("hotset: recording {}; interrupt to end", record.volume);
    let began = Instant::now();
    let mut requests = 0;
    let failure = loop {
        // Requests before the end are still fetched.
        let over = ended.load(Ordering::Relaxed)
            || record.seconds.is_some_and(|span| began.elapsed() >= span);
        if !over {
            std::thread::sleep(PERIOD);
        }
        let taken = match recording.take() {
            Ok(taken) => taken,
            Err(error) => break Some(error),
        };
        for request in taken {
            if requests == record.requests {
                break;
            }
            output.write(&request)?;
            requests += u64::from(!request.is_flush());
        }
        if over || requests == record.requests {
            break None;
        }
    };
    output.finish()?;
    print_line(format!(
        "{}: {} in {:.1} s, {} dropped",
        record.file.display(),
        count(requests as usize, "request"),
        began.elapsed().as_secs_f64(),
        recording.dropped()
    ))?;
    match failure {
        None => Ok(()),
        Some(error) => Err(CommandFailure::Runtime(format!(
            "the recording ended early, {} has what came before: {error}",
            record.file.display()
        ))),
    }
}

/// Set by the first signal.
fn end_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    Ok(ended)
}
