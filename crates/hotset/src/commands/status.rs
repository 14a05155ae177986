//! `hotset status`.

use super::table::{Table, bytes, count};
use crate::Failure;
use control::client::Client;
use control::explained::Policy;
use control::job::Job;
use control::status::{Device, Status};
use std::io::{IsTerminal, Write, stdout};
use std::path::Path;
use std::time::Duration;

/// Clears the screen and goes to its top (ECMA-48: ED 2, CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Prints `count` reports, or goes on for ever.
pub fn run(control: &Path, json: bool, interval: f64, count: Option<u64>) -> Result<(), Failure> {
    let mut client = Client::connect(control).map_err(Failure::runtime)?;
    let clear = count != Some(1) && !json && stdout().is_terminal();
    let mut left = count.unwrap_or(u64::MAX);
    while left > 0 {
        let status = client.status().map_err(Failure::runtime)?;
        let text = if json {
            let line = serde_json::to_string(&status).map_err(Failure::runtime)?;
            format!("{line}\n")
        } else {
            format!("{}{}", if clear { CLEAR } else { "" }, table(&status))
        };
        let mut out = stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(Failure::runtime)?;
        left -= 1;
        if left > 0 {
            std::thread::sleep(Duration::from_secs_f64(interval));
        }
    }
    Ok(())
}

fn table(status: &Status) -> String {
    let nbd = &status.nbd;
    let mut text = format!(
        "up {:.0} s, rates over {:.1} s, processor {:.1}%, memory {}\n\
         {}, {}, {} on {}\n\n",
        status.uptime_s,
        status.span_s,
        status.cpu_percent,
        bytes(status.resident_bytes),
        count(nbd.connections as usize, "connection"),
        count(nbd.requests as usize, "request"),
        count(nbd.errors as usize, "error"),
        nbd.listeners.join(", "),
    );
    text += &volumes(status).to_string();
    for volume in &status.volumes {
        if let Some(why) = &volume.trouble {
            text += &format!(
                "{}: its origin {} fails: {why}\n",
                volume.name, volume.origin
            );
        }
    }
    for volume in &status.waiting {
        text += &format!("{} is not served yet: {}\n", volume.name, volume.why);
    }
    text += "\n";
    text += &logs(status);
    text += &pools(status).to_string();
    for pool in status
        .pools
        .iter()
        .filter(|pool| pool.rule.active.is_some())
    {
        text += &format!("{}: {}\n", pool.name, rule(&pool.rule));
    }
    for array in &status.arrays {
        text += "\n";
        text += &super::array::text(array);
    }
    let running = |job: &&Job| job.state.is_open();
    let jobs: Vec<&Job> = status.jobs.iter().filter(running).collect();
    if !jobs.is_empty() {
        text += &format!("\n{}", super::job::table(jobs));
    }
    text += "\n";
    text += &devices(&status.devices).to_string();
    text
}

/// What a policy is doing, in one line.
pub fn rule(policy: &Policy) -> String {
    let mut text = format!("policy {}", policy.name);
    if let (Some(active), Some(since)) = (&policy.active, policy.active_for_s) {
        text += &format!(
            ", follows the rule {active} for {} ({} changes); of recent accesses would have missed:",
            advise::page::span(since),
            policy.changes.unwrap_or(0),
        );
        for (rule, share) in &policy.would_miss {
            text += &format!(" {rule} {:.1}%", 100.0 * share);
        }
    }
    text
}

/// A table of the volumes.
pub fn volumes(status: &Status) -> Table {
    let mut table = Table::new(&["VOLUME", "ORIGIN", "POOL", "MODE", "SIZE", "HIT %"]);
    for volume in &status.volumes {
        let hit = volume.hit_percent.map(|percent| format!("{percent:.1}"));
        let quiesced = if volume.quiesced { ", quiesced" } else { "" };
        let mode = format!("{}{quiesced}", volume.mode);
        table.row([
            volume.name.clone(),
            volume.origin.clone(),
            volume.pool.clone(),
            mode,
            bytes(volume.size_bytes),
            hit.unwrap_or_else(|| "-".into()),
        ]);
    }
    table
}

/// A table of the logs of volumes that are write-back; nothing if none is.
pub fn logs(status: &Status) -> String {
    let mut table = Table::new(&[
        "WRITE-BACK",
        "ORDER",
        "OWED",
        "LAG",
        "RATE",
        "COPIES",
        "TROUBLE",
    ]);
    let mut any = false;
    for volume in &status.volumes {
        let Some(log) = &volume.write_back else {
            continue;
        };
        any = true;
        table.row([
            volume.name.clone(),
            log.order.clone(),
            bytes(log.owed_bytes),
            format!("{:.1} s", log.lag_s),
            log.rate_bytes
                .map_or_else(|| "-".into(), |rate| format!("{}/s", bytes(rate))),
            log.copies.to_string(),
            log.trouble.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    match any {
        true => format!("{table}\n"),
        false => String::new(),
    }
}

/// A table of the pools and their devices.
pub fn pools(status: &Status) -> Table {
    let head = [
        "POOL",
        "POLICY",
        "LINE",
        "USED",
        "DEVICE",
        "CONTROLLER",
        "STATE",
        "SIZE",
        "FAULTS",
    ];
    let mut table = Table::new(&head);
    for pool in &status.pools {
        let used = 100.0 * f64::from(pool.lines_used) / f64::from(pool.lines.max(1));
        let mut cells = vec![
            pool.name.clone(),
            pool.policy.clone(),
            bytes(pool.line_bytes.into()),
            format!("{used:.0}%"),
        ];
        if pool.devices.is_empty() {
            cells.push("none".into());
            table.row(std::mem::take(&mut cells));
        }
        for device in &pool.devices {
            cells.resize(4, String::new());
            cells.extend([
                device.name.clone(),
                device.controller.clone(),
                device.state.clone(),
                bytes(device.capacity_bytes),
                device.faults.to_string(),
            ]);
            table.row(std::mem::take(&mut cells));
        }
    }
    table
}

fn devices(devices: &[Device]) -> Table {
    let mut table = Table::new(&[
        "DEVICE", "ROLE", "r/s", "r MB/s", "r us", "r us p99", "w/s", "w MB/s", "w us", "w us p99",
        "queue", "busy %", "wear %", "errors",
    ]);
    for device in devices {
        let mut cells = vec![device.name.clone(), device.role.clone()];
        for flow in [&device.read, &device.write] {
            cells.push(format!("{:.0}", flow.iops));
            cells.push(format!("{:.1}", flow.mb_s));
            cells.push(format!("{:.0}", flow.latency_us_mean));
            cells.push(format!("{:.0}", flow.latency_us_p99));
        }
        cells.push(format!("{:.1}", device.queue_mean));
        cells.push(format!("{:.0}", device.busy_percent));
        let wear = device.wear.map(|wear| wear.used_percent.to_string());
        cells.push(wear.unwrap_or_else(|| "-".into()));
        cells.push(device.errors.to_string());
        table.row(cells);
    }
    table
}
