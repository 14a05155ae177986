//! `hotset attach` and `hotset detach`: what this machine has of ublk's devices.
//!
//! Listing and removing are asked of the kernel, not of a daemon, for a device outlives its daemon.

use super::daemon::Change;
use super::table::Table;
use crate::Failure;
use crate::platform::ublk::devices;
use control::protocol::Request;
use control::section::Section;
use ublk::uapi::block_device;
use ublk::{Command, Control, DeviceInfo, State, mark};

/// Has a running daemon attach a volume.
pub fn attach(
    volume: &str,
    queues: Option<u32>,
    depth: Option<u32>,
    change: &Change,
) -> Result<(), Failure> {
    let section = Section::default()
        .text("ublk", volume)
        .number("queues", queues)
        .number("depth", depth);
    let attach = section.finish();
    change.carry_out(&Request::Attach { attach })
}

/// Lists the devices of hotset's volumes.
pub fn list(json: bool) -> Result<(), Failure> {
    let found = ours()?;
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
        let rows: Vec<_> = rows.collect();
        println!("{}", serde_json::Value::from(rows));
        return Ok(());
    }
    let mut table =
        Table::new(&["volume", "device", "state", "pid", "queues", "depth"]).text(&[1, 2]);
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
    print!("{table}");
    Ok(())
}

/// Removes the device of a volume, served or not.
pub fn detach(volume: &str, force: bool) -> Result<(), Failure> {
    let found = ours()?;
    let found = found.iter().find(|(name, _)| name == volume);
    let Some((_, info)) = found else {
        return Err(Failure::Runtime(format!(
            "no device of volume {volume} is attached; see `hotset attach`"
        )));
    };
    let path = format!("/dev/{}", block_device(info.id));
    // Opening one whose daemon is gone would wait for it.
    let in_use = info.state == State::Live && devices::in_use(info.id).map_err(Failure::runtime)?;
    if !force && in_use {
        return Err(Failure::Runtime(format!(
            "{path} is mounted or in use; unmount it first, or detach with --force, which fails its I/O"
        )));
    }
    if !force && info.state != State::Live {
        return Err(Failure::Runtime(format!(
            "{path} has no daemon, and writes that it was given may wait in it; start the daemon, or \
             detach with --force, which loses them"
        )));
    }
    for command in [Command::Stop, Command::Delete] {
        let answer =
            uring::ublk_control(Control::of(command, info.id)).map_err(Failure::runtime)?;
        answer.map_err(|number| {
            let cause = std::io::Error::from_raw_os_error(number);
            Failure::Runtime(format!("{path}: the kernel refused to remove it ({cause})"))
        })?;
    }
    devices::forget(info.id);
    Ok(())
}

/// The devices that daemons have made, with the names of their volumes.
fn ours() -> Result<Vec<(String, DeviceInfo)>, Failure> {
    uring::ublk_available().map_err(Failure::runtime)?;
    let all = devices::all().map_err(Failure::runtime)?;
    let named = all.into_iter().filter_map(|info| {
        let name = devices::name(info.id)?;
        (info.mark == mark(&name)).then_some((name, info))
    });
    Ok(named.collect())
}

fn state(info: &DeviceInfo) -> &'static str {
    match info.state {
        State::Dead => "stopped",
        State::Live if devices::runs(info.pid) => "served",
        State::Live | State::Quiesced => "waits for its daemon",
        State::Other(_) => "unknown",
    }
}
