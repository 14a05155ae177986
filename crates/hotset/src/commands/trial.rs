//! `hotset try`: serves two temporary files.

use super::init::First;
use crate::log::LogFormat;
use crate::{CommandFailure, serve};
use clap::Args;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The size of the file that is as slow as a disk.
const DISK_BYTES: u64 = 64 << 20;
/// The size of the file that is the SSD.
const SSD_BYTES: u64 = 96 << 20;

#[derive(Args)]
pub struct Try {
    /// A directory for the files: made, and removed at the end; one for temporary files unless given
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// A directory that is removed with its content.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn run(command: &Try) -> Result<(), CommandFailure> {
    let usual = || std::env::temp_dir().join(format!("hotset-try-{}", std::process::id()));
    let directory = command.directory.clone().unwrap_or_else(usual);
    let failure = |cause: std::io::Error| {
        let directory = directory.display();
        CommandFailure::Runtime(format!(
            "{directory}: {cause}; name a new directory with --directory"
        ))
    };
    let directory = std::path::absolute(&directory).map_err(failure)?;
    DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .map_err(failure)?;
    let place = Temporary(directory.clone());
    let made = |name: &str, bytes| {
        let path = place.0.join(name);
        let file = File::create_new(&path).and_then(|file| file.set_len(bytes));
        file.map(|()| path).map_err(failure)
    };
    let mut first = First {
        disk: Some(made("disk", DISK_BYTES)?),
        disk_lines: "model = \"ST3500320AS\"\n",
        ssds: vec![made("ssd", SSD_BYTES)?],
        pool_lines: "sequential = \"0B\"\n",
        run: Some(place.0.clone()),
        others: Vec::new(),
    };
    let config = place.0.join("hotset.toml");
    first.write(&config)?;
    command::print(lines(&place.0))?;
    serve::serve(&config, false, LogFormat::Text)
}

/// Commands to paste into another terminal.
fn lines(place: &Path) -> String {
    let place = place.display();
    format!(
        "A file as slow as a disk is served as volume data, with another file as its SSD, until Ctrl-C.\n\
         Paste into another terminal; the SSD answers the second nbdcopy:\n\n\
         export HOTSET_CONTROL={place}/control.sock\n\
         time nbdcopy 'nbd+unix:///data?socket={place}/nbd.sock' null:\n\
         time nbdcopy 'nbd+unix:///data?socket={place}/nbd.sock' null:\n\
         hotset status\n\
         hotset explain data 0+1MiB\n\n"
    )
}
