//! `hotset pool recover`: what is left of a write-back volume that its log cannot serve.

use super::array::alone;
use crate::Failure;
use control::client::{Client, Error};
use node::Platform;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

/// Whether a daemon answers there. What one had open that was killed the kernel ends a while
/// later, and until then a question to it waits.
fn answers(control: &Path) -> bool {
    let Ok(mut daemon) = Client::connect(control) else {
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

pub fn run(file: &Path, volume: &str, rewind: bool) -> Result<(), Failure> {
    let config = crate::configuration::read_alone(file)?;
    if answers(&config.daemon.control.value) {
        let what = "a daemon runs by this configuration: stop it, and try again";
        return Err(Failure::Runtime(format!("{}: {what}", file.display())));
    }
    let mut volumes = config.volumes.iter();
    let Some(found) = volumes.find(|v| v.name.as_str() == volume) else {
        let what =
            format!("hotset: the configuration has no [[volume]] {volume}; correct the name");
        return Err(Failure::Usage(what));
    };
    let found = found.clone();
    let name = found.name.value.clone();
    let (text, witness) = alone(&config, async move |devices, platform| {
        let logs = platform.logs().map_err(|error| error.to_string())?;
        let recovered = node::recover(devices, platform, &found, &logs, rewind).await?;
        let mut logs = logs.into_iter();
        let witness = logs.find(|log| log.superblock.volume == name.as_str());
        Ok((recovered.to_string(), witness.map(|witness| witness.file)))
    })?;
    if let (true, Some(witness)) = (rewind, witness) {
        let gone = fs::remove_file(&witness).and_then(|()| {
            let directory = witness.parent().unwrap_or(Path::new("."));
            File::open(directory)?.sync_all()
        });
        gone.map_err(|cause| {
            Failure::Runtime(format!("{}: cannot be removed: {cause}", witness.display()))
        })?;
    }
    println!("{text}");
    if rewind {
        println!("{volume} owes nothing any more: its log is given up");
    }
    Ok(())
}
