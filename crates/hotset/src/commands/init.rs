//! `hotset init`: writes a first configuration.

use super::table::bytes;
use crate::CommandFailure;
use crate::configuration::{ConfigurationPlace, read_alone};
use clap::Args;
use control::section::quoted;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use web::{BlockDevice, block_devices};

/// Block devices that are made of others' data, or of volumes.
const MADE: [&str; 5] = [
    "/dev/loop",
    "/dev/zram",
    "/dev/ram",
    "/dev/nbd",
    "/dev/ublkb",
];
/// Names that udev gives to disks.
const BY_ID: &str = "/dev/disk/by-id";

#[derive(Args)]
pub struct Init {
    #[command(flatten)]
    config: ConfigurationPlace,
    /// The slow device or file to cache; the first free disk unless given
    #[arg(long, value_name = "PATH")]
    disk: Option<PathBuf>,
    /// An SSD or file to cache on, may be repeated; every blank SSD unless given
    #[arg(long, value_name = "PATH")]
    ssd: Vec<PathBuf>,
    /// The directory of sockets and state; the places of the system unless given
    #[arg(long, value_name = "DIRECTORY")]
    run: Option<PathBuf>,
}

/// The parts of a first configuration.
pub struct First {
    /// The origin.
    pub disk: Option<PathBuf>,
    /// Further lines of the origin's section.
    pub disk_lines: &'static str,
    /// The pool's devices.
    pub ssds: Vec<PathBuf>,
    /// Further lines of the pool's section.
    pub pool_lines: &'static str,
    /// The directory of sockets and state, if not in the places of the system.
    pub run: Option<PathBuf>,
    /// Lines on devices that are not used.
    pub others: Vec<String>,
}

pub fn run(command: Init) -> Result<(), CommandFailure> {
    let given = command.disk.is_some() && !command.ssd.is_empty();
    let found = if given { Vec::new() } else { block_devices() };
    let mut first = chosen(command, found)?;
    let file = &first.0;
    first.1.write(file)?;
    command::print(first.1.done(file))
}

/// The file to write, and the devices that are given or found.
fn chosen(command: Init, found: Vec<BlockDevice>) -> Result<(PathBuf, First), CommandFailure> {
    for path in command.disk.iter().chain(&command.ssd) {
        fs::metadata(path).map_err(|cause| {
            let path = path.display();
            CommandFailure::Usage(format!(
                "hotset: {path}: {cause}; name a file or block device"
            ))
        })?;
    }
    let mut first = First {
        disk: command.disk.as_deref().map(absolute),
        disk_lines: "",
        ssds: command.ssd.iter().map(|path| absolute(path)).collect(),
        pool_lines: "",
        run: command.run.as_deref().map(absolute),
        others: Vec::new(),
    };
    let wants_ssds = first.ssds.is_empty();
    for device in found {
        let partitioned = device
            .holds
            .as_ref()
            .is_some_and(|holds| holds.contains("partition"));
        if MADE.iter().any(|made| device.place.starts_with(made)) || partitioned {
            continue;
        }
        let free = device.used_by.is_none();
        let path = by_id(Path::new(&device.place), Path::new(BY_ID));
        match device.rotational {
            Some(true) if free && first.disk.is_none() => first.disk = Some(path),
            Some(false) if free && device.holds.is_none() && wants_ssds => first.ssds.push(path),
            _ => first.others.push(described(&device, &path)),
        }
    }
    Ok((command.config.file, first))
}

fn absolute(path: &Path) -> PathBuf {
    // A daemon may run in another directory.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A name of the device at `path` that stays when drives change places, or `path`.
fn by_id(path: &Path, names: &Path) -> PathBuf {
    let links = fs::read_dir(names).into_iter().flatten().flatten();
    let links = links.map(|link| link.path());
    let mut same: Vec<_> = links
        .filter(|link| link.canonicalize().is_ok_and(|target| target == path))
        .collect();
    // Names with model and serial number come before those of numbers alone.
    let is_number = |link: &PathBuf| {
        let name = link
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        name.starts_with("wwn-") || name.starts_with("nvme-eui") || name.starts_with("nvme-nvme")
    };
    same.sort_by_key(|link| (is_number(link), link.as_os_str().len(), link.clone()));
    same.into_iter().next().unwrap_or_else(|| path.to_owned())
}

fn described(device: &BlockDevice, path: &Path) -> String {
    let mut line = format!(
        "{}: {}",
        path.display(),
        bytes(device.size_bytes.unwrap_or(0))
    );
    let holds = device.holds.as_ref().map(|holds| format!("holds {holds}"));
    for more in [&device.model, &holds, &device.used_by]
        .into_iter()
        .flatten()
    {
        line += &format!(", {more}");
    }
    line
}

impl First {
    /// True if there is a volume.
    fn is_whole(&self) -> bool {
        self.disk.is_some() && !self.ssds.is_empty()
    }

    /// The configuration.
    fn text(&self) -> String {
        let mut text = String::from(
            "# Made by `hotset init`. `hotset check` finds errors, `hotset reload` applies a change, and\n\
             # hotset.toml(5) has every parameter.\n\n",
        );
        let run = self.run.as_deref();
        if let Some(run) = run {
            let [control, state] = ["control.sock", "state"].map(|name| written(&run.join(name)));
            text += &format!("[daemon]\ncontrol = {control}\nstate = {state}\n\n");
        }
        let nbd = run.unwrap_or(Path::new("/run/hotset")).join("nbd.sock");
        text += &format!(
            "# Clients of this machine reach every volume here.\n[[listen]]\nunix = {}\n\n",
            written(&nbd)
        );
        let mark = if self.is_whole() { "" } else { "#" };
        text.extend(self.sections().lines().map(|line| {
            match line.starts_with('#') || line.is_empty() {
                true => format!("{line}\n"),
                false => format!("{mark}{line}\n"),
            }
        }));
        if !self.others.is_empty() {
            text += "\n# Devices that were found and are not used here:\n";
        }
        text.extend(self.others.iter().map(|line| format!("# {line}\n")));
        text
    }

    fn sections(&self) -> String {
        let disk = self
            .disk
            .as_deref()
            .unwrap_or(Path::new("/dev/disk/by-id/SLOW_DISK"));
        let example = [PathBuf::from("/dev/disk/by-id/FAST_SSD")];
        let ssds = match self.ssds.as_slice() {
            [] => &example[..],
            ssds => ssds,
        };
        let mut text = format!(
            "# The slow device. Its bytes stay as they are, and complete without hotset.\n\
             [[device]]\nname = \"disk\"\npath = {}\n{}\n\
             # SSDs for the cache: each may be lost at any time. An SSD must be blank.\n",
            written(disk),
            self.disk_lines,
        );
        let names: Vec<String> = (0..ssds.len()).map(|n| format!("ssd{n}")).collect();
        for (name, path) in names.iter().zip(ssds) {
            text += &format!(
                "[[device]]\nname = \"{name}\"\npath = {}\n\n",
                written(path)
            );
        }
        text += &format!(
            "[[pool]]\nname = \"fast\"\ndevices = {names:?}\n{}\n",
            self.pool_lines
        );
        text += "# The slow device as clients see it. `mode` may be \"write-around\" or \"pass-through\" as well.\n\
                 [[volume]]\nname = \"data\"\norigin = \"disk\"\npool = \"fast\"\nmode = \"write-through\"\n";
        text
    }

    /// Writes the configuration to a new file, which stays only if it is right.
    pub fn write(&mut self, file: &Path) -> Result<(), CommandFailure> {
        let parent = file
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let made = parent.map_or(Ok(()), fs::create_dir_all);
        let written = made
            .and_then(|()| File::create_new(file))
            .and_then(|mut to| to.write_all(self.text().as_bytes()));
        written.map_err(|cause| {
            let path = file.display();
            CommandFailure::Runtime(match cause.kind() {
                ErrorKind::AlreadyExists => {
                    format!(
                        "{path}: the file exists; remove it first, or name another with --config"
                    )
                }
                _ => {
                    format!("{path}: cannot be written ({cause}); name another file with --config")
                }
            })
        })?;
        read_alone(file).map(drop).inspect_err(|_| {
            // This command has made the file, which is of no use.
            let _ = fs::remove_file(file);
        })
    }

    /// Lines on the file, and the next command.
    fn done(&self, file: &Path) -> String {
        let path = file.display();
        match &self.disk {
            Some(disk) if self.is_whole() => {
                let ssds: Vec<_> = self
                    .ssds
                    .iter()
                    .map(|ssd| ssd.display().to_string())
                    .collect();
                format!(
                    "{path}: volume data of {}, cached on {}\nnext: hotset serve --config {path}\n",
                    disk.display(),
                    ssds.join(" and ")
                )
            }
            disk => {
                let (what, option) = match disk {
                    None => ("disk", "--disk"),
                    Some(_) => ("blank SSD", "--ssd"),
                };
                format!(
                    "{path}: no free {what} was found, so that the volume is a comment\n\
                     next: edit the file, or remove it and name one with {option}\n"
                )
            }
        }
    }
}

/// A path as a string of TOML.
fn written(path: &Path) -> String {
    quoted(&path.display().to_string())
}
