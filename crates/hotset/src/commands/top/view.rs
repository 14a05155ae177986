//! How what is shown is laid out.

use super::shown::Shown;
use crate::commands::table::bytes;
use control::job::Job;
use control::status::Status;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, Wrap};
use std::collections::VecDeque;

/// Draws all of it.
pub fn draw(frame: &mut Frame, shown: &Shown) {
    let Some(status) = &shown.status else {
        let text = shown.away.as_deref().unwrap_or("waiting for the daemon");
        return frame.render_widget(Paragraph::new(text), frame.area());
    };
    let parts = status
        .pools
        .iter()
        .map(|pool| pool.devices.len().max(1))
        .sum::<usize>();
    let arrays = status.arrays.len();
    let jobs = running(status).count();
    let rows = |n: usize| Constraint::Length(u16::try_from(n + 2).unwrap_or(u16::MAX));
    let areas = Layout::vertical([
        Constraint::Length(if shown.away.is_some() { 2 } else { 1 }),
        Constraint::Length(5),
        Constraint::Min(4),
        rows(parts),
        if arrays > 0 {
            rows(arrays)
        } else {
            Constraint::Length(0)
        },
        if jobs > 0 {
            rows(jobs)
        } else {
            Constraint::Length(0)
        },
        Constraint::Min(4),
        Constraint::Length(1),
    ]);
    let [
        head,
        sparks,
        volumes,
        pools,
        array_rows,
        job_rows,
        devices,
        foot,
    ] = areas.areas(frame.area());
    frame.render_widget(summary(shown, status), head);
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(sparks);
    spark(frame, left, "requests/s", &shown.requests, None);
    spark(frame, right, "hit %", &shown.hits, Some(100));
    frame.render_widget(volume_table(shown, status), volumes);
    frame.render_widget(pool_table(status), pools);
    frame.render_widget(array_table(status), array_rows);
    frame.render_widget(job_table(status), job_rows);
    frame.render_widget(device_table(shown, status), devices);
    frame.render_widget(Line::from(keys(shown)).dim(), foot);
}

fn summary<'a>(shown: &'a Shown, status: &'a Status) -> Paragraph<'a> {
    if let Some(why) = &shown.away {
        let why = Paragraph::new(why.as_str()).wrap(Wrap { trim: true });
        return why.bold().red();
    }
    Paragraph::new(format!(
        "hotset  up {:.0} s  processor {:.1}%  memory {}  {} connections  {} errors",
        status.uptime_s,
        status.cpu_percent,
        bytes(status.resident_bytes),
        status.nbd.connections,
        status.nbd.errors,
    ))
}

fn keys(shown: &Shown) -> String {
    if shown.filtering {
        return format!("filter: {}_   Enter keeps it, Esc ends it", shown.filter);
    }
    let filter = match &*shown.filter {
        "" => String::new(),
        filter => format!(" ({filter})"),
    };
    format!(
        "q ends   s sorts by ({})   / filters{filter}",
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

fn table<'a>(kind: &str, head: &[&'a str], rows: Vec<Row<'a>>) -> Table<'a> {
    let title = format!("{kind} ({})", rows.len());
    // Names are long, figures are not.
    let widths = head.iter().enumerate().map(|(at, name)| match (at, *name) {
        (0, _) => Constraint::Fill(2),
        // The longest mode.
        (_, "MODE") => Constraint::Min(13),
        _ => Constraint::Fill(1),
    });
    let head = Row::new(head.iter().map(|name| Cell::from(*name))).add_modifier(Modifier::BOLD);
    Table::new(rows, widths)
        .header(head)
        .block(Block::new().title(Span::from(title).bold().cyan()))
}

fn state(text: &str) -> Cell<'_> {
    let colour = match text {
        "online" | "healthy" => Color::Green,
        "leaving" | "rebuilding" | "resyncing" => Color::Yellow,
        _ => Color::Red,
    };
    Cell::from(text).style(Style::new().fg(colour))
}

fn volume_table<'a>(shown: &Shown, status: &'a Status) -> Table<'a> {
    let served = shown.volumes(status).into_iter().map(|volume| {
        let hit = volume
            .hit_percent
            .map_or("-".into(), |percent| format!("{percent:.1}"));
        let mode = if volume.quiesced {
            format!("{}, quiesced", volume.mode)
        } else {
            volume.mode.clone()
        };
        Row::new([
            volume.name.clone(),
            format!("{:.0}", shown.rate(volume)),
            hit,
            mode,
            bytes(volume.size_bytes),
            volume.origin.clone(),
            volume.pool.clone(),
        ])
    });
    let waiting = status
        .waiting
        .iter()
        .filter(|volume| shown.is_wanted(&volume.name));
    let waiting = waiting.map(|volume| {
        let cells = [
            volume.name.clone(),
            "-".into(),
            "-".into(),
            format!("waits: {}", volume.why),
        ];
        Row::new(cells).style(Style::new().fg(Color::Red))
    });
    let rows = served.chain(waiting).collect();
    table(
        "Volumes",
        &[
            "NAME", "BLOCKS/s", "HIT %", "MODE", "SIZE", "ORIGIN", "POOL",
        ],
        rows,
    )
}

fn pool_table(status: &Status) -> Table<'_> {
    let rows = status.pools.iter().flat_map(|pool| {
        let used = format!("{}/{}", pool.lines_used, pool.lines);
        let head = [pool.name.clone(), used];
        let none = pool.devices.is_empty().then(|| {
            Row::new([
                Cell::from(head[0].clone()),
                Cell::from(head[1].clone()),
                state("no device"),
            ])
        });
        let devices = pool.devices.iter().map(move |device| {
            Row::new([
                Cell::from(head[0].clone()),
                Cell::from(head[1].clone()),
                state(&device.state),
                Cell::from(device.name.clone()),
                Cell::from(bytes(device.capacity_bytes)),
                Cell::from(device.faults.to_string()),
            ])
        });
        none.into_iter().chain(devices)
    });
    table(
        "Pools",
        &["NAME", "LINES USED", "STATE", "DEVICE", "SIZE", "FAULTS"],
        rows.collect(),
    )
}

fn array_table(status: &Status) -> Table<'_> {
    let rows = status.arrays.iter().map(|array| {
        let members = array.members.iter();
        let lacking = members.filter(|member| member.state != "in sync").count();
        let progress = array.progress.as_ref();
        let progress = progress.map_or("-".into(), |progress| format!("{:.1}%", progress.percent));
        Row::new([
            Cell::from(array.name.clone()),
            Cell::from(array.level.clone()),
            state(&array.state),
            Cell::from(bytes(array.size_bytes)),
            Cell::from(format!("{lacking} of {}", array.members.len())),
            Cell::from(progress),
        ])
    });
    table(
        "Arrays",
        &["NAME", "LEVEL", "STATE", "SIZE", "NOT IN SYNC", "PROGRESS"],
        rows.collect(),
    )
}

fn running(status: &Status) -> impl Iterator<Item = &Job> {
    let jobs = status.jobs.iter();
    jobs.filter(|job| job.state.is_open())
}

fn job_table(status: &Status) -> Table<'_> {
    let rows = running(status).map(|job| {
        let percent = job.percent.map(|percent| format!("{percent:.1}%"));
        let left = job.left_s.map(advise::page::span);
        Row::new([
            job.name.clone(),
            percent.unwrap_or_else(|| "-".into()),
            left.unwrap_or_else(|| "-".into()),
            job.about.clone(),
        ])
    });
    table("Jobs", &["NAME", "DONE", "LEFT", "ABOUT"], rows.collect())
}

fn device_table<'a>(shown: &Shown, status: &'a Status) -> Table<'a> {
    let rows = shown.devices(status).into_iter().map(|device| {
        let errors = Cell::from(device.errors.to_string());
        let errors = if device.errors > 0 {
            errors.style(Style::new().fg(Color::Red))
        } else {
            errors
        };
        Row::new([
            Cell::from(device.name.clone()),
            Cell::from(device.role.clone()),
            Cell::from(format!("{:.0}", device.read.iops)),
            Cell::from(format!("{:.0}", device.write.iops)),
            Cell::from(format!("{:.1}", device.read.mb_s + device.write.mb_s)),
            Cell::from(format!("{:.0}", device.read.latency_us_p99)),
            Cell::from(format!("{:.0}", device.busy_percent)),
            errors,
        ])
    });
    let head = [
        "NAME", "USE", "r/s", "w/s", "MB/s", "r us p99", "BUSY %", "ERRORS",
    ];
    table("Devices", &head, rows.collect())
}
