//! `hotset support`: one archive for a report of a fault.
//!
//! Invariants:
//!     the list of the parts is printed before a byte is written
//!     each part, and each reason for a missing one, passes [`Secrets::clean`]
//!     of a device, superblocks alone are read, and no byte of them is copied
//!     a part that cannot be had is a line of the archive and ends nothing
//!     the archive is there as a whole or not at all

mod archive;
mod gather;
mod headers;
mod part;

use super::daemon::ControlOption;
use super::table::{TextTable, bytes, count};
use crate::CommandFailure;
use crate::configuration::ConfigurationPlace;
use crate::platform::machine;
use clap::Args;
use command::print;
use control::plain;
use control::secrets::Secrets;
use gather::{GatheredParts, MachineGatherer};
use part::SupportPart;
use std::path::{Path, PathBuf};

/// Length of a machine's id, in hexadecimal digits; machine-id(5) has it as confidential.
const MACHINE_ID_DIGITS: usize = 32;

#[derive(Args)]
pub struct Support {
    #[command(flatten)]
    config: ConfigurationPlace,
    #[command(flatten)]
    control: ControlOption,
    /// The archive; hotset-support-HOST-TIME.tar.gz in the current directory unless given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if there is one
    #[arg(long)]
    yes: bool,
    /// Print the list of the parts and write nothing
    #[arg(long, conflicts_with_all = ["out", "yes"])]
    list: bool,
    /// The directory of `hotset web`, for its events
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/hotset-web")]
    web_state: PathBuf,
}

pub fn run(command: &Support) -> Result<(), CommandFailure> {
    let out = command.out.clone().unwrap_or_else(usual_name);
    let out = std::path::absolute(&out).map_err(|cause| failure(&out, cause))?;
    if !command.list {
        refuse_existing(&out, command.yes)?;
    }
    let mut secrets = Secrets::default();
    let host = machine::host();
    if host.len() >= MACHINE_ID_DIGITS {
        secrets.learn(&host, "(this machine)");
    }
    let mut gathered = GatheredParts::default();
    let gatherer = MachineGatherer {
        config: &command.config.file,
        control: &command.control.control,
        web_state: &command.web_state,
    };
    gatherer.gather(&mut secrets, &mut gathered);
    let parts = cleaned(gathered.end(), &secrets);
    print(table(&parts).to_string())?;
    if command.list {
        return Ok(());
    }
    refuse_existing(&out, command.yes)?;
    let replaced = out.exists();
    let size = archive::write(&out, &parts).map_err(|cause| failure(&out, cause))?;
    command::print_line(format!(
        "{}: {} of {}, readable by its owner alone{}",
        out.display(),
        bytes(size),
        count(parts.len(), "part"),
        if replaced {
            "; the former file is gone"
        } else {
            ""
        },
    ))
}

fn failure(path: &Path, cause: impl std::fmt::Display) -> CommandFailure {
    let path = path.display();
    CommandFailure::Runtime(format!(
        "{path}: cannot be written ({cause}); name another file with --out"
    ))
}

/// Refuses to replace a file without the user's word.
fn refuse_existing(out: &Path, yes: bool) -> Result<(), CommandFailure> {
    let is_there = out.symlink_metadata().is_ok();
    if out.is_dir() {
        return Err(failure(out, "it is a directory"));
    }
    match is_there && !yes {
        false => Ok(()),
        true => Err(CommandFailure::Runtime(format!(
            "{}: the file exists; name another with --out, or give --yes to replace it",
            out.display()
        ))),
    }
}

/// The name of the archive where none is given.
fn usual_name() -> PathBuf {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || ".-".contains(*c);
    let host: String = host.chars().filter(is_plain).collect();
    let time = machine::calendar(machine::time_of_day());
    PathBuf::from(format!("hotset-support-{host}-{time}.tar.gz"))
}

/// The parts without secrets, with a last one that names what is missing.
fn cleaned(parts: Vec<SupportPart>, secrets: &Secrets) -> Vec<SupportPart> {
    let clean = |text: String| secrets.clean(&text);
    let cleaned = parts.into_iter().map(|part| SupportPart {
        name: part.name,
        from: clean(part.from),
        text: part.text.map(clean).map_err(|why| {
            plain(clean(why))
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        }),
    });
    let mut parts: Vec<SupportPart> = cleaned.collect();
    let missing = parts.iter().filter_map(|part| {
        let why = part.text.as_ref().err()?;
        Some(format!("{}: {why}\n", part.name))
    });
    let missing: String = missing.collect();
    if !missing.is_empty() {
        parts.push(SupportPart {
            name: "missing.txt".into(),
            from: "the reasons above".into(),
            text: Ok(missing),
        });
    }
    parts
}

fn table(parts: &[SupportPart]) -> TextTable {
    let mut table = TextTable::new(&["PART", "SIZE", "FROM"]).text(&[2]);
    for part in parts {
        let (size, from) = match &part.text {
            Ok(text) => (bytes(text.len() as u64), part.from.clone()),
            Err(why) => ("-".into(), format!("missing: {why}")),
        };
        table.row([part.name.clone(), size, from]);
    }
    table
}
