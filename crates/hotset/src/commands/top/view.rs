//! The layout of the screen.

use super::shown::TopShown;
use crate::commands::status::SpanFigures;
use crate::commands::table::{bytes, count};
use control::job::Job;
use control::status::{Flow, Status};
use control::trouble::{Trouble, TroubleSeverity};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, Wrap};
use std::collections::VecDeque;

/// Troubles that are named at a time.
const TROUBLES_SHOWN: usize = 4;
/// The least width of names.
const NAME_MIN: u16 = 8;

/// Draws the screen.
pub fn draw(frame: &mut Frame, shown: &TopShown) {
    let Some(status) = &shown.status else {
        let text = shown.away.as_deref().unwrap_or("waiting for the daemon");
        return frame.render_widget(Paragraph::new(text), frame.area());
    };
    let tables = [
        volume_table(shown, status),
        pool_table(status),
        array_table(status),
        job_table(status),
        device_table(shown, status),
    ];
    let height = |rows: usize| u16::try_from(rows + 2).unwrap_or(u16::MAX);
    let heights = tables.each_ref().map(|table| match table.kind {
        // Both share the rest of the screen.
        "Volumes" | "Devices" => Constraint::Min(4),
        _ if table.rows.is_empty() => Constraint::Length(0),
        _ => Constraint::Length(height(table.rows.len())),
    });
    let troubles = troubles(&status.troubles);
    let [volumes, pools, arrays, jobs, devices] = heights;
    let areas = Layout::vertical([
        Constraint::Length(if shown.away.is_some() { 2 } else { 1 }),
        Constraint::Length(u16::try_from(troubles.len()).unwrap_or(u16::MAX)),
        Constraint::Length(5),
        volumes,
        pools,
        arrays,
        jobs,
        devices,
        Constraint::Length(1),
    ]);
    let [head, wrong, sparks, rest @ .., foot] = areas.areas::<9>(frame.area());
    frame.render_widget(summary(shown, status), head);
    frame.render_widget(Text::from(troubles), wrong);
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(sparks);
    spark(frame, left, "requests/s", &shown.requests, None);
    spark(frame, right, "hit %", &shown.hits, Some(100));
    for (table, area) in tables.into_iter().zip(rest) {
        table.draw(frame, area, shown.skip);
    }
    frame.render_widget(Line::from(keys(shown)).dim(), foot);
}

/// A line for each trouble, and one for the troubles without a place.
fn troubles(troubles: &[Trouble]) -> Vec<Line<'_>> {
    let lines = troubles.iter().take(TROUBLES_SHOWN).map(|trouble| {
        let colour = match trouble.severity {
            TroubleSeverity::Critical => Color::Red,
            TroubleSeverity::Warning => Color::Yellow,
        };
        let text = format!("{} {}", trouble.subject, trouble.what);
        Line::from(vec![
            text.fg(colour).bold(),
            format!("  {}", trouble.remedy).into(),
        ])
    });
    let mut lines: Vec<Line> = lines.collect();
    if troubles.len() > TROUBLES_SHOWN {
        let more = troubles.len() - TROUBLES_SHOWN;
        lines.push(format!("and {more} more: see hotset status").red().into());
    }
    lines
}

fn summary<'a>(shown: &'a TopShown, status: &'a Status) -> Paragraph<'a> {
    if let Some(why) = &shown.away {
        let why = Paragraph::new(why.as_str()).wrap(Wrap { trim: true });
        return why.bold().red();
    }
    Paragraph::new(format!(
        "hotset  up {}  processor {}%  memory {}  {}  {}",
        advise::page::span(status.uptime_s),
        SpanFigures::of(status).show(Some(status.cpu_percent), 1),
        bytes(status.resident_bytes),
        count(status.nbd.connections as usize, "connection"),
        count(status.nbd.errors as usize, "error"),
    ))
}

fn keys(shown: &TopShown) -> String {
    if shown.filtering {
        return format!("filter: {}_   Enter keeps it, Esc ends it", shown.filter);
    }
    let filter = match &*shown.filter {
        "" => String::new(),
        filter => format!(" ({filter})"),
    };
    format!(
        "q ends   s sorts by ({})   / filters{filter}   arrows scroll",
        shown.sort.name()
    )
}

fn spark(frame: &mut Frame, area: Rect, title: &str, samples: &VecDeque<u64>, max: Option<u64>) {
    let last = samples.back().map_or("-".to_owned(), u64::to_string);
    let width = usize::from(area.width.saturating_sub(2));
    let seen: Vec<u64> = samples
        .iter()
        .skip(samples.len().saturating_sub(width))
        .copied()
        .collect();
    let mut spark = Sparkline::default()
        .block(Block::bordered().title(format!(" {title}: {last} ")))
        .style(Style::new().fg(Color::Cyan))
        .data(seen);
    if let Some(max) = max {
        spark = spark.max(max);
    }
    frame.render_widget(spark, area);
}

/// A table without a layout.
struct TableRows<'a> {
    kind: &'static str,
    head: &'static [&'static str],
    rows: Vec<(Vec<String>, Style)>,
    /// The column that is a state, with its colour.
    state: Option<usize>,
    /// The first columns of this many are text, and flush left.
    text: &'a [usize],
}

impl TableRows<'_> {
    /// Draws the columns that have room, each as wide as its longest cell, and the rows after the
    /// first `skip`. A column is visible as a whole, but for long names.
    fn draw(self, frame: &mut Frame, area: Rect, skip: usize) {
        let room = usize::from(area.height.saturating_sub(2)).max(1);
        let skip = skip.min(self.rows.len().saturating_sub(room));
        let below = self.rows.len().saturating_sub(skip + room);
        let more = match (skip, below) {
            (0, 0) => String::new(),
            (above, below) => format!(", {above} above, {below} below"),
        };
        let title = format!("{} ({}{more})", self.kind, self.rows.len());
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|(cells, _)| cells.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            u16::try_from(widest.max(self.head[column].len())).unwrap_or(u16::MAX)
        };
        let mut left = area
            .width
            .saturating_sub(width(0).min(NAME_MIN.max(area.width / 4)));
        let mut widths = vec![Constraint::Fill(1)];
        for column in 1..self.head.len() {
            let wide = width(column).min(area.width / 2);
            if left < wide + 1 {
                break;
            }
            left -= wide + 1;
            widths.push(Constraint::Length(wide));
        }
        let shown = widths.len();
        let cell = |(column, text): (usize, String)| {
            let side = match column == 0 || self.text.contains(&column) {
                true => Alignment::Left,
                false => Alignment::Right,
            };
            let style = match self.state == Some(column) {
                true => state(&text),
                false => Style::new(),
            };
            Cell::from(Text::from(text).alignment(side)).style(style)
        };
        let row = |cells: Vec<String>| {
            Row::new(
                cells
                    .into_iter()
                    .take(shown)
                    .enumerate()
                    .map(cell)
                    .collect::<Vec<_>>(),
            )
        };
        let head = row(self.head.iter().map(ToString::to_string).collect());
        let rows = self.rows.iter().skip(skip).take(room);
        let rows = rows.map(|(cells, style)| row(cells.clone()).style(*style));
        let table = Table::new(rows.collect::<Vec<_>>(), widths)
            .header(head.style(Style::new().add_modifier(Modifier::BOLD)))
            .block(Block::new().title(Span::from(title).bold().cyan()));
        frame.render_widget(table, area);
    }
}

fn state(text: &str) -> Style {
    let colour = match text {
        "online" | "healthy" => Color::Green,
        "leaving" | "rebuilding" | "resyncing" => Color::Yellow,
        _ => Color::Red,
    };
    Style::new().fg(colour)
}

fn volume_table<'a>(shown: &TopShown, status: &Status) -> TableRows<'a> {
    let rates = SpanFigures::of(status);
    let served = shown.volumes(status).into_iter().map(|volume| {
        let cells = vec![
            volume.name.clone(),
            volume.standing(),
            rates.show(volume.hit_percent, 1),
            rates.show(Some(volume.read.iops), 0),
            rates.show(Some(volume.write.iops), 0),
            rates.show(Some(volume.read.mb_s + volume.write.mb_s), 1),
            rates.show(volume.read.latency_us_p50, 0),
            rates.show(volume.read.latency_us_p99, 0),
            rates.show(volume.write.latency_us_p99, 0),
            bytes(volume.size_bytes),
            volume.origin.clone(),
            volume.pool.clone(),
        ];
        (cells, Style::new())
    });
    let waiting = status
        .waiting
        .iter()
        .filter(|volume| shown.is_wanted(&volume.name));
    let waiting = waiting.map(|volume| {
        let cells = vec![volume.name.clone(), "not served".to_owned()];
        (cells, Style::new().fg(Color::Red))
    });
    TableRows {
        kind: "Volumes",
        head: &[
            "NAME", "MODE", "HIT %", "r/s", "w/s", "MB/s", "r us p50", "r us p99", "w us p99",
            "SIZE", "ORIGIN", "POOL",
        ],
        rows: served.chain(waiting).collect(),
        state: None,
        text: &[1, 10, 11],
    }
}

fn pool_table<'a>(status: &Status) -> TableRows<'a> {
    let rows = status.pools.iter().flat_map(|pool| {
        let used = format!("{}/{}", pool.lines_used, pool.lines);
        let head = vec![pool.name.clone(), used];
        let none = pool.devices.is_empty();
        let none = none.then(|| [head.clone(), vec!["no device".into()]].concat());
        let devices = pool.devices.iter().map(move |device| {
            let cells = vec![
                device.state.clone(),
                device.name.clone(),
                bytes(device.capacity_bytes),
                device.faults.to_string(),
            ];
            [head.clone(), cells].concat()
        });
        none.into_iter().chain(devices)
    });
    TableRows {
        kind: "Pools",
        head: &["NAME", "LINES USED", "STATE", "DEVICE", "SIZE", "FAULTS"],
        rows: rows.map(|cells| (cells, Style::new())).collect(),
        state: Some(2),
        text: &[2, 3],
    }
}

fn array_table<'a>(status: &Status) -> TableRows<'a> {
    let rows = status.arrays.iter().map(|array| {
        let members = array.members.iter();
        let lacking = members.filter(|member| member.state != "in sync").count();
        let progress = array.progress.as_ref();
        let progress = progress.map_or("-".into(), |progress| format!("{:.1}%", progress.percent));
        let cells = vec![
            array.name.clone(),
            array.level.clone(),
            array.state.clone(),
            bytes(array.size_bytes),
            format!("{lacking} of {}", array.members.len()),
            progress,
        ];
        (cells, Style::new())
    });
    TableRows {
        kind: "Arrays",
        head: &["NAME", "LEVEL", "STATE", "SIZE", "NOT IN SYNC", "PROGRESS"],
        rows: rows.collect(),
        state: Some(2),
        text: &[1, 2],
    }
}

fn job_table<'a>(status: &Status) -> TableRows<'a> {
    let running = status.jobs.iter().filter(|job: &&Job| job.state.is_open());
    let rows = running.map(|job| {
        let percent = job.percent.map(|percent| format!("{percent:.1}%"));
        let left = job.left_s.map(advise::page::span);
        let cells = vec![
            job.name.clone(),
            percent.unwrap_or_else(|| "-".into()),
            left.unwrap_or_else(|| "-".into()),
            job.about.clone(),
        ];
        (cells, Style::new())
    });
    TableRows {
        kind: "Jobs",
        head: &["NAME", "DONE", "LEFT", "ABOUT"],
        rows: rows.collect(),
        state: None,
        text: &[3],
    }
}

fn device_table<'a>(shown: &TopShown, status: &Status) -> TableRows<'a> {
    let rates = SpanFigures::of(status);
    let p99 = |flow: &Flow| {
        let some = (flow.iops > 0.0).then_some(flow.latency_us_p99);
        rates.show(some, 0)
    };
    let rows = shown.devices(status).into_iter().map(|device| {
        let cells = vec![
            device.name.clone(),
            device.role.clone(),
            rates.show(Some(device.read.iops), 0),
            rates.show(Some(device.write.iops), 0),
            rates.show(Some(device.read.mb_s + device.write.mb_s), 1),
            p99(&device.read),
            p99(&device.write),
            rates.show(Some(device.busy_percent), 0),
            device.errors.to_string(),
        ];
        let style = match device.errors {
            0 => Style::new(),
            _ => Style::new().fg(Color::Red),
        };
        (cells, style)
    });
    TableRows {
        kind: "Devices",
        head: &[
            "NAME", "USE", "r/s", "w/s", "MB/s", "r us p99", "w us p99", "BUSY %", "ERRORS",
        ],
        rows: rows.collect(),
        state: None,
        text: &[1],
    }
}
