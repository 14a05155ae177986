//! `hotset pool recover`: the dirty data of a write-back volume that its log cannot serve.
//!
//! Invariant: a new file is whole, or removed.

use super::array::alone;
use super::elsewhere::renamed;
use crate::CommandFailure;
use clap::Args;
use command::print_line;
use control::client::{ControlClient, Error};
use control::meant;
use node::{Platform, RecoverAction, RecoverTarget};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Tests for a daemon at `control`. The kernel closes the sockets of a killed daemon a while later,
/// and questions wait until then.
fn answers(control: &Path) -> bool {
    let Ok(mut daemon) = ControlClient::connect(control) else {
        return false;
    };
    match daemon.status() {
        Err(Error::Unreachable(_, cause)) => !matches!(
            cause.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        ),
        _ => true,
    }
}

/// The action: one at most.
#[derive(Args)]
pub struct Options {
    /// Change nothing; as without an option
    #[arg(long)]
    check: bool,
    /// Discard the log and its dirty data, and go on from the origin; the journal of a journaled
    /// volume is replayed first, so that the origin has an earlier state
    #[arg(long, conflicts_with = "check")]
    discard: bool,
    /// Write the log's data back, even if it may be overtaken, or of another origin
    #[arg(long, conflicts_with_all = ["check", "discard"])]
    write_back: bool,
    /// Write the result to another file or block device, and leave origin and log as they are
    #[arg(long, value_name = "PATH", conflicts_with = "check")]
    to: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true)]
    keep: bool,
    #[arg(long, hide = true)]
    rewind: bool,
}

impl Options {
    fn action(&self) -> Result<RecoverAction, CommandFailure> {
        if self.keep {
            return Err(renamed("--keep", "--write-back"));
        }
        if self.rewind {
            return Err(renamed("--rewind", "--discard"));
        }
        match (self.discard, self.write_back, &self.to) {
            (true, ..) => Ok(RecoverAction::Discard),
            (_, true, _) => Ok(RecoverAction::WriteBack),
            (false, false, None) => Ok(RecoverAction::Inspect),
            (false, false, Some(_)) => {
                let what = "hotset: `--to` needs an action: give `--write-back` or `--discard` too";
                Err(CommandFailure::Usage(what.into()))
            }
        }
    }
}

pub fn run(file: &Path, volume: &str, options: Options) -> Result<(), CommandFailure> {
    let action = options.action()?;
    let config = crate::configuration::read_alone(file)?;
    if answers(&config.daemon.control.value) {
        let what = "a daemon runs by this configuration, or the kernel is still ending what one \
                    that was killed had in flight: stop it, and try again";
        return Err(CommandFailure::Runtime(format!(
            "{}: {what}",
            file.display()
        )));
    }
    let mut volumes = config.volumes.iter();
    let Some(found) = volumes.find(|v| v.name.as_str() == volume) else {
        let meant = meant(volume, config.volumes.iter().map(|v| v.name.as_str()));
        let what = format!(
            "hotset: the configuration has no [[volume]] {volume}{meant}; correct the name"
        );
        return Err(CommandFailure::Usage(what));
    };
    let found = found.clone();
    let name = found.name.value.clone();
    let discards = action == RecoverAction::Discard && options.to.is_none();
    let json = options.json;
    let (report, witness) = alone(&config, async move |devices, platform| {
        let logs = platform.logs().await.map_err(|error| error.to_string())?;
        let recovered = match &options.to {
            None => node::recover(devices, platform, &found, &logs, action, None).await?,
            Some(path) => {
                let made = New::default();
                let make = |bytes| made.make(path, bytes);
                let make: &dyn Fn(u64) -> Result<(), String> = &make;
                let target = RecoverTarget {
                    path,
                    make: (!path.exists()).then_some(make),
                };
                let done = node::recover(devices, platform, &found, &logs, action, Some(&target));
                let done = done.await?;
                made.keep();
                done
            }
        };
        let mut logs = logs.into_iter();
        let witness = logs.find(|log| log.superblock.volume == name.as_str());
        Ok((recovered.report(), witness.map(|witness| witness.file)))
    })?;
    if let (true, Some(witness)) = (discards, witness) {
        let gone = fs::remove_file(&witness).and_then(|()| synced(&witness));
        gone.map_err(|cause| {
            CommandFailure::Runtime(format!("{}: cannot be removed: {cause}", witness.display()))
        })?;
    }
    if json {
        let text = serde_json::to_string(&report).map_err(CommandFailure::runtime)?;
        return print_line(text);
    }
    report.lines.iter().try_for_each(print_line)?;
    if discards {
        let what = "its log is discarded, and has no dirty data any more";
        print_line(format!("volume {volume}: {what}"))?;
    }
    Ok(())
}

/// Makes the entry of a file in its directory durable.
fn synced(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// A new file that is removed again unless kept.
#[derive(Default)]
struct New(RefCell<Option<PathBuf>>);

impl New {
    fn make(&self, path: &Path, bytes: u64) -> Result<(), String> {
        let made = File::create_new(path).and_then(|file| {
            *self.0.borrow_mut() = Some(path.to_owned());
            file.set_len(bytes)?;
            synced(path)
        });
        made.map_err(|cause| format!("{}: cannot be made: {cause}", path.display()))
    }

    fn keep(&self) {
        self.0.take();
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // The first failure is reported.
            let _ = fs::remove_file(path);
        }
    }
}
