//! `hotset explain`: the reasons why a volume, or a range of one, is cached or not.

use super::status::rule;
use super::table::{TextTable, bytes};
use crate::CommandFailure;
use crate::commands::daemon::ControlOption;
use clap::Args;
use command::print;
use control::client::ControlClient;
use control::config::ByteCount;
use control::explained::{Explained, ExplainedLine, ExplainedRange};
use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

/// Cells of a row of the heat map.
const COLUMNS: usize = 64;
/// From cold to hot.
const SHADES: [char; 10] = [' ', '.', ':', '-', '=', '+', '*', '#', '%', '@'];
/// The shades as backgrounds of a terminal of 256 colours.
const COLOURS: [u8; 10] = [233, 17, 18, 19, 54, 90, 125, 160, 202, 220];
/// Lines listed one by one in the table.
const ROWS: usize = 64;

#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    control: ControlOption,
    /// The volume
    volume: String,
    /// Bytes to list line by line: START-END, START+LENGTH or one place, such as 1GiB+256KiB
    #[arg(value_parser = range)]
    range: Option<(u64, u64)>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a page with the heat map, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let bytes = |text: &str| match text.parse() {
        Ok(n) => Ok(n),
        Err(_) => ByteCount::parse(text).map(|ByteCount(n)| n),
    };
    let beyond = || "ends beyond 2^64 bytes".to_owned();
    let (start, end) = if let Some((start, len)) = text.split_once('+') {
        let start = bytes(start)?;
        (start, start.checked_add(bytes(len)?).ok_or_else(beyond)?)
    } else if let Some((start, end)) = text.split_once('-') {
        (bytes(start)?, bytes(end)?)
    } else {
        let start = bytes(text)?;
        (start, start.checked_add(1).ok_or_else(beyond)?)
    };
    if start < end {
        Ok((start, end))
    } else {
        Err("the range is empty; let it end after it begins".into())
    }
}

pub fn run(command: &Explain) -> Result<(), CommandFailure> {
    let mut client =
        ControlClient::connect(&command.control.control).map_err(CommandFailure::runtime)?;
    let explained = client
        .explain(&command.volume, command.range)
        .map_err(CommandFailure::runtime)?;
    if let Some(file) = &command.html {
        let page = advise::heatmap::page(&explained).map_err(CommandFailure::runtime)?;
        std::fs::write(file, page).map_err(|cause| {
            let place = file.display();
            CommandFailure::runtime(format!(
                "{place} cannot be written ({cause}); choose another place"
            ))
        })?;
    }
    let text = if command.json {
        serde_json::to_string(&explained).map_err(CommandFailure::runtime)? + "\n"
    } else {
        text(&explained, stdout().is_terminal())
    };
    print(text)
}

fn text(explained: &Explained, coloured: bool) -> String {
    let mut out = format!(
        "volume {}, {} in lines of {}, {}: {}\npool {}, {} of {} lines used\n",
        explained.volume,
        bytes(explained.size_bytes),
        bytes(explained.line_bytes),
        explained.mode,
        explained.mode_help,
        explained.pool,
        explained.lines_used,
        explained.lines,
    );
    for lost in &explained.lost_devices {
        let _ = writeln!(
            out,
            "pool device {lost}: what it held is asked of the origin"
        );
    }
    out += &rule(&explained.policy);
    out += "\n";
    if let Some(range) = &explained.range {
        out += "\n";
        out += &lines(range);
    } else {
        out += &map(explained, coloured);
    }
    out += "\n";
    out += &reasons(explained).to_string();
    out
}

fn lines(range: &ExplainedRange) -> String {
    let mut table = TextTable::new(&[
        "LINE AT", "DEVICE", "SINCE", "HEAT", "LAST USE", "DECISION", "AGO",
    ]);
    let ago = |s: Option<f64>| s.map_or("-".into(), advise::page::span);
    let listed = &range.lines[..range.lines.len().min(ROWS)];
    let mut whys: Vec<(&str, Vec<&ExplainedLine>)> = Vec::new();
    for line in listed {
        table.row([
            bytes_exact(line.start),
            line.device.clone().unwrap_or_else(|| "-".into()),
            ago(line.admitted_s.filter(|_| line.device.is_some())),
            line.region_heat.to_string(),
            ago(line.region_idle_s.map(f64::from)),
            line.decision.clone(),
            ago(line.decided_s),
        ]);
        match whys.iter_mut().find(|(why, _)| *why == line.why) {
            Some((_, lines)) => lines.push(line),
            None => whys.push((&line.why, vec![line])),
        }
    }
    let mut out = table.to_string();
    if (listed.len() as u64) < range.lines_in_range {
        let left = range.lines_in_range - listed.len() as u64;
        let _ = writeln!(out, "and {left} more; ask for a smaller range to see them");
    }
    out += "\n";
    for (why, lines) in whys {
        let first = bytes_exact(lines[0].start);
        let more = match lines.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let _ = writeln!(out, "{first}{more}: {why}");
    }
    out
}

/// Bytes in the largest binary unit that loses nothing, as a range takes them.
fn bytes_exact(n: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units
        .iter()
        .find(|(shift, _)| n > 0 && n.is_multiple_of(1 << shift));
    unit.map_or_else(
        || format!("{n}B"),
        |(shift, name)| format!("{}{name}", n >> shift),
    )
}

/// Heat above, residence below, for each row of regions.
fn map(explained: &Explained, coloured: bool) -> String {
    let regions = &explained.regions;
    let hottest = regions
        .iter()
        .map(|region| region.heat())
        .max()
        .unwrap_or(0);
    let estimated = if explained.sampled { ", estimated" } else { "" };
    let cell = |shade| cells(&[shade], 1, coloured);
    let mut out = format!(
        "\none cell is {}; left: accesses of the last minutes, right: share in the pool{estimated}; \
         none `{}`, least `{}`, most `{}`\n",
        bytes(explained.region_bytes),
        cell(0),
        cell(1),
        cell(9),
    );
    let width = COLUMNS.min(regions.len());
    for (n, row) in regions.chunks(COLUMNS).enumerate() {
        let at = bytes_exact((n * COLUMNS) as u64 * explained.region_bytes);
        let heat: Vec<usize> = row
            .iter()
            .map(|r| shade_of_heat(r.heat(), hottest))
            .collect();
        let resident: Vec<usize> = row.iter().map(|r| shade(r.resident)).collect();
        let _ = writeln!(
            out,
            "{at:>10} |{}| |{}|",
            cells(&heat, width, coloured),
            cells(&resident, width, coloured)
        );
    }
    out
}

/// Heat spans orders of magnitude, so its shade is by the logarithm.
fn shade_of_heat(heat: u64, hottest: u64) -> usize {
    let log = |n: u64| (n as f64 + 1.0).ln();
    shade(log(heat) / log(hottest).max(f64::MIN_POSITIVE))
}

/// 0 is no shade at all; anything above none is seen.
fn shade(share: f64) -> usize {
    let steps = (SHADES.len() - 1) as f64;
    ((share * steps).ceil() as usize).min(SHADES.len() - 1)
}

fn cells(shades: &[usize], width: usize, coloured: bool) -> String {
    let mut out = String::new();
    for shade in shades {
        if coloured {
            // ECMA-48: SGR 48;5 sets the background of a terminal of 256 colours.
            let _ = write!(out, "\x1b[48;5;{}m \x1b[0m", COLOURS[*shade]);
        } else {
            out.push(SHADES[*shade]);
        }
    }
    out + &" ".repeat(width.saturating_sub(shades.len()))
}

fn reasons(explained: &Explained) -> TextTable {
    let listed = explained.reasons.iter().filter(|reason| reason.count > 0);
    let width = listed
        .clone()
        .map(|reason| reason.help.chars().count())
        .max()
        .unwrap_or(0);
    // All but the first column are flush right: padded cells put the last one flush left.
    let mut table = TextTable::new(&["REASON", "COUNT", &format!("{:<width$}", "MEANING")]);
    for reason in listed {
        table.row([
            reason.name.clone(),
            reason.count.to_string(),
            format!("{:<width$}", reason.help),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::explained::{PolicyReport, ReasonCount};
    use control::status::NamedCounters;

    fn two_lines() -> ExplainedRange {
        let line = |start, decision: &str, ago, why: &str, heat, idle| ExplainedLine {
            start,
            len: 64 << 10,
            valid: Vec::new(),
            device: (decision == "admitted").then(|| "ssd0".into()),
            admitted_s: Some(ago),
            decision: decision.into(),
            decided_s: Some(ago),
            why: why.into(),
            region_heat: heat,
            region_idle_s: Some(idle),
        };
        let (first, refused) = (1 << 30, "lines not admitted: part of a sequential stream");
        let second = first + (64 << 10);
        ExplainedRange {
            start: first,
            end: second + (64 << 10),
            lines_in_range: 2,
            lines: vec![
                line(first, "admitted", 180.0, "in the pool, whole", 17, 2),
                line(second, "rejected_sequential", 40.0, refused, 2, 40),
            ],
        }
    }

    fn sample() -> Explained {
        let rules = [
            ("reuse", 0.052),
            ("recency", 0.041),
            ("frequency", 0.063),
            ("tenure", 0.07),
        ];
        let reason = |name: &str, count| {
            let described = NamedCounters::described().find(|(known, _)| *known == name);
            ReasonCount {
                name: name.into(),
                count,
                help: described.expect("a counter of that name").1.into(),
            }
        };
        Explained {
            volume: "web".into(),
            size_bytes: 2 << 30,
            pool: "fast".into(),
            mode: "write-through".into(),
            mode_help: "reads are cached, writes go to the origin and to the pool".into(),
            line_bytes: 64 << 10,
            lines_used: 312,
            lines: 1023,
            lost_devices: Vec::new(),
            policy: PolicyReport {
                name: "auto".into(),
                active: Some("recency".into()),
                active_for_s: Some(720.0),
                changes: Some(1),
                would_miss: rules.map(|(rule, share)| (rule.into(), share)).to_vec(),
            },
            reasons: vec![
                reason("rejected_sequential", 214),
                reason("lines_evicted", 1205),
            ],
            counters: NamedCounters::default(),
            regions: Vec::new(),
            region_bytes: 0,
            sampled: false,
            range: Some(two_lines()),
        }
    }

    #[test]
    fn the_manual_shows_what_is_printed() {
        let page = include_str!("../../../../docs/commands/explain.md");
        let indented = |line: &str| match line {
            "" => "\n".to_owned(),
            line => format!("    {line}\n"),
        };
        let text = text(&sample(), false);
        let shown: String = text.lines().map(indented).collect();
        assert!(page.contains(&shown), "{shown}");
    }

    #[test]
    fn ranges_are_read_in_each_form() {
        assert_eq!(range("1MiB-2MiB"), Ok((1 << 20, 2 << 20)));
        assert_eq!(range("1MiB+4KiB"), Ok((1 << 20, (1 << 20) + 4096)));
        assert_eq!(range("0"), Ok((0, 1)));
        assert_eq!(range("512+512"), Ok((512, 1024)));
        for bad in [
            "",
            "x",
            "2-1",
            "1-1",
            "1+0",
            "-",
            "+",
            "18446744073709551615B+1",
            "1-2-3",
        ] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn places_are_written_as_a_range_takes_them() {
        for n in [0, 1, 4096, 65536, 1 << 30, (1 << 30) + 512, 3 << 40] {
            assert_eq!(range(&bytes_exact(n)), Ok((n, n + 1)));
        }
    }

    #[test]
    fn a_single_access_is_seen_beside_a_million() {
        assert_eq!(shade_of_heat(0, 1_000_000), 0);
        assert_eq!(shade_of_heat(1, 1_000_000), 1);
        assert_eq!(shade_of_heat(1_000_000, 1_000_000), 9);
        assert_eq!((shade(0.0), shade(0.001), shade(1.0)), (0, 1, 9));
        assert_eq!(shade_of_heat(0, 0), 0);
    }
}
