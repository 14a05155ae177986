//! `hotset attach` and `hotset detach`: the ublk devices of this machine.
//!
//! Listing and removing are asked of the kernel, not of a daemon, for a device outlives its daemon.

use super::daemon::ChangeOptions;
use super::table::TextTable;
use crate::CommandFailure;
use crate::platform::ublk::devices;
use command::{print, print_line};
use control::meant;
use control::protocol::ControlRequest;
use control::section::SectionText;
use std::io;
use std::path::Path;
use ublk::uapi::block_device;
use ublk::{DeviceInfo, UblkCommand, UblkControl, UblkState};

/// Has a running daemon attach a volume.
pub fn attach(
    volume: &str,
    queues: Option<u32>,
    depth: Option<u32>,
    change: &ChangeOptions,
) -> Result<(), CommandFailure> {
    let section = SectionText::default()
        .text("ublk", volume)
        .number("queues", queues)
        .number("depth", depth);
    let attach = section.finish();
    change.carry_out(&ControlRequest::Attach { attach })
}

/// Has a running daemon make a volume the disk of the virtual machine at `socket`.
pub fn give_guest(
    volume: &str,
    socket: &Path,
    change: &ChangeOptions,
) -> Result<(), CommandFailure> {
    let section = SectionText::default()
        .text("vhost_user", &place(socket)?)
        .text("volume", volume);
    let listen = section.finish();
    change.carry_out(&ControlRequest::Listen { listen })
}

/// Has a running daemon close the socket of a virtual machine.
pub fn take_from_guest(socket: &Path, change: &ChangeOptions) -> Result<(), CommandFailure> {
    let place = place(socket)?;
    change.carry_out(&ControlRequest::Close { place })
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
pub fn list(json: bool) -> Result<(), CommandFailure> {
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

/// Removes the device of a volume, served or not.
pub fn detach(volume: &str, force: bool) -> Result<(), CommandFailure> {
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
