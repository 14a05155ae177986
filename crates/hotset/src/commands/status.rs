//! `hotset status`.

use super::table::{TextTable, bytes, count};
use crate::CommandFailure;
use command::print;
use control::client::ControlClient;
use control::explained::PolicyReport;
use control::job::Job;
use control::status::{DeviceActivity, Status};
use serde::Serialize;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::time::Duration;

/// Clears the screen and goes to its top (ECMA-48: ED 2, CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// The age from which rates of a daemon are shown.
const UPTIME_MIN_S: f64 = 1.0;

/// Prints `count` reports, or reports for ever. Returns the number of troubles in the last one.
pub fn run(
    control: &Path,
    json: bool,
    interval: f64,
    count: Option<u64>,
) -> Result<usize, CommandFailure> {
    let mut client = ControlClient::connect(control).map_err(CommandFailure::runtime)?;
    let clear = count != Some(1) && !json && stdout().is_terminal();
    let mut left = count.unwrap_or(u64::MAX);
    let mut troubles = 0;
    while left > 0 {
        let status = client.status().map_err(CommandFailure::runtime)?;
        troubles = status.troubles.len();
        let text = if json {
            let line = serde_json::to_string(&status).map_err(CommandFailure::runtime)?;
            format!("{line}\n")
        } else {
            format!("{}{}", if clear { CLEAR } else { "" }, table(&status))
        };
        print(text)?;
        left -= 1;
        if left > 0 {
            std::thread::sleep(Duration::from_secs_f64(interval));
        }
    }
    Ok(troubles)
}

/// The processor time of each of several shards: a shard at 100% holds clients up.
fn shards(status: &Status, rates: SpanFigures) -> String {
    if status.shards.len() < 2 {
        return String::new();
    }
    let each = status.shards.iter();
    let each = each.map(|shard| format!("{}%", rates.show(Some(shard.cpu_percent), 1)));
    format!(" (shards {})", each.collect::<Vec<_>>().join(", "))
}

/// The report for a person.
pub fn table(status: &Status) -> String {
    let nbd = &status.nbd;
    let rates = SpanFigures::of(status);
    let mut text = troubles(status);
    text += &format!(
        "up {}, rates over {:.1} s, processor {}%{}, memory {}\n\
         {}, {}, {} on {}\n\n",
        advise::page::span(status.uptime_s),
        status.span_s,
        rates.show(Some(status.cpu_percent), 1),
        shards(status, rates),
        bytes(status.resident_bytes),
        count(nbd.connections as usize, "connection"),
        count(nbd.requests as usize, "request"),
        count(nbd.errors as usize, "error"),
        nbd.listeners.join(", "),
    );
    text += &volumes(status).to_string();
    text += "\n";
    text += &clients(status, rates).to_string();
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
    text += &devices(&status.devices, rates).to_string();
    text
}

/// Prints a list as a line of JSON, or as a table.
pub fn listed(json: bool, list: &impl Serialize, table: &TextTable) -> Result<(), CommandFailure> {
    let text = match json {
        true => serde_json::to_string(list).map_err(CommandFailure::runtime)? + "\n",
        false => table.to_string(),
    };
    print(text)
}

/// Figures that are over a span of time; none is shown of a daemon's first second.
#[derive(Clone, Copy)]
pub struct SpanFigures(bool);

impl SpanFigures {
    pub fn of(status: &Status) -> SpanFigures {
        SpanFigures(status.uptime_s >= UPTIME_MIN_S)
    }

    /// A figure, or `-` if there is none.
    pub fn show(self, figure: Option<f64>, digits: usize) -> String {
        let figure = figure.filter(|_| self.0);
        figure.map_or_else(|| "-".into(), |figure| format!("{figure:.digits$}"))
    }
}

/// The troubles, with their costs and remedies.
fn troubles(status: &Status) -> String {
    let mut text = String::new();
    for trouble in &status.troubles {
        text += &format!(
            "{}: {} {} ({}, for {})\n  costs: {}\n  mend:  {}\n",
            trouble.severity.name(),
            trouble.subject,
            trouble.what,
            trouble.kind.name(),
            advise::page::span(trouble.for_s),
            trouble.cost,
            trouble.remedy
        );
    }
    if !text.is_empty() {
        text += "\n";
    }
    text
}

/// The table of the volumes' requests from clients.
fn clients(status: &Status, rates: SpanFigures) -> TextTable {
    let mut table = TextTable::new(&[
        "CLIENTS", "r/s", "r MB/s", "r us p50", "r us p99", "w/s", "w MB/s", "w us p50", "w us p99",
    ]);
    for volume in &status.volumes {
        let mut cells = vec![volume.name.clone()];
        for pace in [&volume.read, &volume.write] {
            cells.push(rates.show(Some(pace.iops), 0));
            cells.push(rates.show(Some(pace.mb_s), 1));
            cells.push(rates.show(pace.latency_us_p50, 0));
            cells.push(rates.show(pace.latency_us_p99, 0));
        }
        table.row(cells);
    }
    table
}

/// The state of a policy, in one line.
pub fn rule(policy: &PolicyReport) -> String {
    let mut text = format!("policy {}", policy.name);
    if let (Some(active), Some(since)) = (&policy.active, policy.active_for_s) {
        text += &format!(
            ", follows the rule {active} for {} ({}); of recent accesses would have missed:",
            advise::page::span(since),
            count(policy.changes.unwrap_or(0) as usize, "change"),
        );
        for (rule, share) in &policy.would_miss {
            text += &format!(" {rule} {:.1}%", 100.0 * share);
        }
    }
    text
}

/// A table of the volumes.
pub fn volumes(status: &Status) -> TextTable {
    let mut table = TextTable::new(&["VOLUME", "ORIGIN", "POOL", "MODE", "SIZE", "HIT %"]);
    for volume in &status.volumes {
        let hit = SpanFigures::of(status).show(volume.hit_percent, 1);
        table.row([
            volume.name.clone(),
            volume.origin.clone(),
            volume.pool.clone(),
            volume.standing(),
            bytes(volume.size_bytes),
            hit,
        ]);
    }
    for volume in &status.waiting {
        table.row([
            volume.name.clone(),
            volume.origin.clone(),
            volume.pool.clone(),
            "not served".into(),
        ]);
    }
    table
}

/// A table of the logs of volumes that are write-back; nothing if none is.
pub fn logs(status: &Status) -> String {
    let mut table = TextTable::new(&["WRITE-BACK", "ORDER", "DIRTY", "LAG", "RATE", "COPIES"]);
    let mut any = false;
    for volume in &status.volumes {
        let Some(log) = &volume.write_back else {
            continue;
        };
        any = true;
        table.row([
            volume.name.clone(),
            log.order.clone(),
            bytes(log.dirty_bytes),
            format!("{:.1} s", log.lag_s),
            log.rate_bytes
                .map_or_else(|| "-".into(), |rate| format!("{}/s", bytes(rate))),
            log.copies.to_string(),
        ]);
    }
    match any {
        true => format!("{table}\n"),
        false => String::new(),
    }
}

/// A table of the pools and their devices.
pub fn pools(status: &Status) -> TextTable {
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
    let mut table = TextTable::new(&head);
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

fn devices(devices: &[DeviceActivity], rates: SpanFigures) -> TextTable {
    let mut table = TextTable::new(&[
        "DEVICE", "ROLE", "r/s", "r MB/s", "r us", "r us p99", "w/s", "w MB/s", "w us", "w us p99",
        "queue", "busy %", "wear %", "errors",
    ]);
    for device in devices {
        let mut cells = vec![device.name.clone(), device.role.clone()];
        for flow in [&device.read, &device.write] {
            let latency = |us: f64| Some(us).filter(|us| *us > 0.0);
            cells.push(rates.show(Some(flow.iops), 0));
            cells.push(rates.show(Some(flow.mb_s), 1));
            cells.push(rates.show(latency(flow.latency_us_mean), 0));
            cells.push(rates.show(latency(flow.latency_us_p99), 0));
        }
        cells.push(rates.show(Some(device.queue_mean), 1));
        cells.push(rates.show(Some(device.busy_percent), 0));
        let wear = device.wear.map(|wear| wear.used_percent.to_string());
        cells.push(wear.unwrap_or_else(|| "-".into()));
        cells.push(device.errors.to_string());
        table.row(cells);
    }
    table
}
