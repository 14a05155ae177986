//! `hotset attach` and `hotset detach`: the ublk devices of this machine.
//!
//! Listing and removing are asked of the kernel, not of a daemon, for a device outlives its daemon.

use super::daemon::ChangeOptions;
use super::table::TextTable;
use crate::CommandFailure;
use crate::platform::ublk::devices;
use clap::Args;
use command::{print, print_line};
use control::meant;
use control::protocol::ControlRequest;
use control::section::SectionText;
use std::io;
use std::path::{Path, PathBuf};
use ublk::uapi::block_device;
use ublk::{DeviceInfo, UblkCommand, UblkControl, UblkState};

/// The options of `hotset attach`.
#[derive(Args)]
pub struct AttachCommand {
    /// The volume; without one, the devices of all are listed
    volume: Option<String>,
    /// Hardware queues; one for each shard unless given
    #[arg(long, requires = "volume")]
    queues: Option<u32>,
    /// Requests at a time of each queue; 128 unless given
    #[arg(long, requires = "volume")]
    depth: Option<u32>,
    /// Socket for the monitor of a virtual machine, which has the volume as its disk
    #[arg(long, value_name = "SOCKET", requires = "volume",
          conflicts_with_all = ["queues", "depth"])]
    guest: Option<PathBuf>,
    #[command(flatten)]
    change: ChangeOptions,
    /// List them as JSON
    #[arg(long, conflicts_with = "volume")]
    json: bool,
}

/// The options of `hotset detach`.
#[derive(Args)]
pub struct DetachCommand {
    /// The volume
    #[arg(required_unless_present = "guest", conflicts_with = "guest")]
    volume: Option<String>,
    /// Remove the device even if it is in use, or has no daemon; pending I/O fails
    #[arg(long, conflicts_with = "guest")]
    force: bool,
    /// Socket of a virtual machine, which loses its disk
    #[arg(long, value_name = "SOCKET")]
    guest: Option<PathBuf>,
    #[command(flatten)]
    change: ChangeOptions,
}

/// Lists devices, or has a running daemon attach a volume, or open a virtual machine's socket.
pub fn attach(command: &AttachCommand) -> Result<(), CommandFailure> {
    let Some(volume) = &command.volume else {
        return list(command.json);
    };
    let section = SectionText::default();
    let request = match &command.guest {
        Some(socket) => {
            let section = section.text("vhost_user", &place(socket)?);
            let listen = section.text("volume", volume).finish();
            ControlRequest::Listen { listen }
        }
        None => {
            let section = section
                .text("ublk", volume)
                .number("queues", command.queues);
            let attach = section.number("depth", command.depth).finish();
            ControlRequest::Attach { attach }
        }
    };
    command.change.carry_out(&request)
}

/// Removes the device of a volume, served or not, or has a running daemon close the socket of a
/// virtual machine.
pub fn detach(command: &DetachCommand) -> Result<(), CommandFailure> {
    match (&command.guest, &command.volume) {
        (Some(socket), _) => {
            let place = place(socket)?;
            command.change.carry_out(&ControlRequest::Close { place })
        }
        (None, volume) => remove_device(volume.as_deref().unwrap_or_default(), command.force),
    }
}

/// The path of a socket for the daemon, which has another working directory.
fn place(socket: &Path) -> Result<String, CommandFailure> {
    let absolute = std::path::absolute(socket).map_err(CommandFailure::runtime)?;
    match absolute.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(CommandFailure::Runtime(format!(
            "{}: not UTF-8; give the socket another path",
            socket.display()
        ))),
    }
}

/// Lists the devices of hotset's volumes.
fn list(json: bool) -> Result<(), CommandFailure> {
    let found = ours()?;
    let removed = devices::removed();
    if json {
        let rows = found.iter().map(|(name, info)| {
            serde_json::json!({
                "volume": name,
                "device": format!("/dev/{}", block_device(info.id)),
                "state": state(info),
                "pid": info.pid,
                "queues": info.queues,
                "depth": info.depth,
            })
        });
        let gone = removed.iter().map(|(name, id, at)| {
            serde_json::json!({
                "volume": name,
                "device": format!("/dev/{}", block_device(*id)),
                "state": REMOVED,
                "mounted": at,
            })
        });
        let rows: Vec<_> = rows.chain(gone).collect();
        return print_line(serde_json::Value::from(rows));
    }
    let mut table =
        TextTable::new(&["volume", "device", "state", "pid", "queues", "depth"]).text(&[1, 2]);
    for (name, info) in &found {
        table.row([
            name.clone(),
            format!("/dev/{}", block_device(info.id)),
            state(info).into(),
            info.pid.to_string(),
            info.queues.to_string(),
            info.depth.to_string(),
        ]);
    }
    for (name, id, at) in &removed {
        let device = format!("/dev/{}", block_device(*id));
        let state = format!("{REMOVED}, mounted on {}", at.display());
        let none = || "-".to_owned();
        table.row([name.clone(), device, state, none(), none(), none()]);
    }
    print(table.to_string())
}

fn remove_device(volume: &str, force: bool) -> Result<(), CommandFailure> {
    let all = ours()?;
    let found = all.iter().find(|(name, _)| name == volume);
    let Some((_, info)) = found else {
        let meant = meant(volume, all.iter().map(|(name, _)| name.as_str()));
        return Err(CommandFailure::Runtime(format!(
            "no device of volume {volume} is attached{meant}; see `hotset attach`"
        )));
    };
    let path = format!("/dev/{}", block_device(info.id));
    // To open a device without a daemon would wait for the daemon.
    let in_use = info.state == UblkState::Live
        && devices::in_use(info.id).map_err(CommandFailure::runtime)?;
    if !force && in_use {
        return Err(CommandFailure::Runtime(format!(
            "{path} is mounted or in use; unmount it first, or detach with --force, which fails its I/O"
        )));
    }
    if !force && info.state != UblkState::Live {
        return Err(CommandFailure::Runtime(format!(
            "{path} has no daemon, and writes that it was given may wait in it; start the daemon, or \
             detach with --force, which loses them"
        )));
    }
    remove(info.id, force).map_err(|cause| {
        CommandFailure::Runtime(format!("{path}: the kernel refused to remove it ({cause})"))
    })?;
    devices::forget(info.id);
    match devices::still_mounted(info.id) {
        None => Ok(()),
        Some(at) => print_line(format!(
            "{path} is removed and still mounted on {}, where all I/O fails; unmount it now",
            at.display()
        )),
    }
}

/// Has the kernel remove a device; with `force` its users are not waited for.
fn remove(id: u32, force: bool) -> io::Result<()> {
    let ask = |command| {
        let answer = uring::ublk_control(UblkControl::of(command, id)).map_err(io::Error::other)?;
        answer.map(drop).map_err(io::Error::from_raw_os_error)
    };
    if force {
        devices::record_removal(id);
    }
    ask(UblkCommand::Stop)?;
    // Linux before 6.7 cannot but wait.
    if force && ask(UblkCommand::DeleteAsync).is_ok() {
        return Ok(());
    }
    ask(UblkCommand::Delete)
}

/// The state of a device that was removed while mounted.
const REMOVED: &str = "removed";

/// The devices that daemons have made, with the names of their volumes.
fn ours() -> Result<Vec<(String, DeviceInfo)>, CommandFailure> {
    uring::ublk_available().map_err(CommandFailure::runtime)?;
    devices::ours().map_err(CommandFailure::runtime)
}

fn state(info: &DeviceInfo) -> &'static str {
    match info.state {
        UblkState::Dead => "stopped",
        UblkState::Live if devices::is_served(info) => "served",
        UblkState::Live | UblkState::Quiesced => "waits for its daemon",
        UblkState::Other(_) => "unknown",
    }
}
