//! Drills as a page of one file with its charts.

use super::load::POINT;
use super::row::DrillRow;
use super::setup::DrillSetup;
use advise::page::{FIRST, GRID, HtmlPage, INK, MARK, PAPER, SECOND, table, themed};
use plotters::prelude::*;
use std::error::Error;

const SIZE: (u32, u32) = (900, 260);
const TEXT: (&str, i32) = ("sans-serif", 14);

/// The page.
pub fn page(setup: &DrillSetup, rows: &[DrillRow]) -> Result<String, Box<dyn Error>> {
    let about = format!(
        "{}. Parts are pulled and come back; every byte is read back and compared.",
        setup.about()
    );
    let mut page = HtmlPage::new("Availability drills", &about);
    let wrong: u64 = rows.iter().map(|row| row.wrong_bytes).sum();
    let errors: u64 = rows.iter().map(|row| row.errors).sum();
    let most = |of: fn(&DrillRow) -> f64| rows.iter().map(of).fold(0.0, f64::max);
    let (longest, limit) = (
        most(|row| row.longest_stall_ms),
        most(|row| row.detail.limit_ms),
    );
    page.facts(&[
        ("cells", rows.len().to_string()),
        ("errors", errors.to_string()),
        ("wrong bytes", wrong.to_string()),
        ("longest stall", format!("{longest:.0} ms")),
        ("longest stall allowed", format!("{limit:.0} ms")),
    ]);
    let failed = rows.iter().filter(|row| !row.is_right());
    let failed = failed.map(|row| {
        let why = row.error.as_deref().unwrap_or("too long a stall");
        format!("{}: {why}", title(row))
    });
    page.warnings(&failed.collect::<Vec<_>>());
    let not_run = setup.not_run();
    if !not_run.is_empty() {
        let not_run = not_run.into_iter().map(|why| (vec![why], false));
        let not_run = table(&["not run"], &not_run.collect::<Vec<_>>(), &[]);
        page.section("What this set-up cannot survive", &not_run);
    }
    page.section("Every cell", &cells(rows));
    for row in rows.iter().filter(|row| row.io) {
        let (chart, members) = (chart(row)?, members(row));
        let text = "Reads (first colour) and writes a second of clients; the lines mark the loss, the return, and when \
                    all was whole again.";
        page.section(
            &title(row),
            &format!("{chart}<p class=\"soft\">{text}</p>{members}"),
        );
    }
    Ok(page.finish())
}

fn cells(rows: &[DrillRow]) -> String {
    let cells = rows.iter().map(|row| {
        let cells = vec![
            row.scenario.clone(),
            row.side.clone(),
            load(row).to_owned(),
            row.place.to_owned(),
            format!("{:.0}", row.longest_stall_ms),
            row.errors.to_string(),
            row.wrong_bytes.to_string(),
            format!("{:.0}", row.reads_per_s),
            format!("{:.0}", row.writes_per_s),
        ];
        (cells, !row.is_right())
    });
    let head = [
        "scenario",
        "side",
        "load",
        "where",
        "longest stall ms",
        "errors",
        "wrong bytes",
        "reads/s",
        "writes/s",
    ];
    table(&head, &cells.collect::<Vec<_>>(), &[])
}

fn members(row: &DrillRow) -> String {
    let members = row.detail.members.iter().map(|(name, before, away)| {
        let rates = before.iter().chain(away).map(|rate| format!("{rate:.0}"));
        ([name.clone()].into_iter().chain(rates).collect(), false)
    });
    let head = [
        "part",
        "reads/s before",
        "writes/s before",
        "reads/s without",
        "writes/s without",
    ];
    table(&head, &members.collect::<Vec<_>>(), &[])
}

fn load(row: &DrillRow) -> &'static str {
    if row.io { "with I/O" } else { "idle" }
}

fn title(row: &DrillRow) -> String {
    let (scenario, side, place) = (&row.scenario, &row.side, row.place);
    format!("{scenario} of side {side}, {}, {place}", load(row))
}

fn chart(row: &DrillRow) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&PAPER)?;
        let step = POINT.as_secs_f64();
        let line = &row.detail.line;
        let rate = |count: u32| f64::from(count) / step;
        let most = line
            .iter()
            .map(|(r, w)| rate(*r.max(w)))
            .fold(1.0, f64::max);
        let end = (line.len() as f64 * step).max(1.0);
        let mut chart = ChartBuilder::on(&root)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..end, 0.0..most * 1.1)?;
        chart
            .configure_mesh()
            .x_desc("seconds")
            .y_desc("a second")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .label_style(TEXT.into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(PAPER)
            .draw()?;
        let points = |which: fn(&(u32, u32)) -> u32| {
            let at = move |(i, point): (usize, &(u32, u32))| (i as f64 * step, rate(which(point)));
            line.iter().enumerate().map(at).collect::<Vec<_>>()
        };
        chart.draw_series(LineSeries::new(points(|p| p.0), FIRST.stroke_width(2)))?;
        chart.draw_series(LineSeries::new(points(|p| p.1), SECOND.stroke_width(2)))?;
        for mark in row.detail.marks_s {
            let line = [(mark, 0.0), (mark, most * 1.1)];
            chart.draw_series(LineSeries::new(line, MARK.stroke_width(1)))?;
        }
        root.present()?;
    }
    Ok(themed(&svg, &title(row)))
}
