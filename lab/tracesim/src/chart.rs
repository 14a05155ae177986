//! Miss ratios as a picture: a panel for each trace and line length, a curve
//! for each policy over the size of the pool.

use super::plan::{BLOCK_BYTES, ResultRow};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

/// Colours that stay apart for most eyes (Okabe and Ito), then greys.
const COLOURS: [RGBColor; 13] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 40),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
    RGBColor(170, 60, 60),
    RGBColor(60, 120, 60),
    RGBColor(90, 60, 150),
    RGBColor(180, 180, 60),
];
const PANEL: (u32, u32) = (440, 320);
const COLUMNS_MAX: usize = 3;
/// A row of the legend below the panels.
const LEGEND_ROW: u32 = 24;
const LEGEND_ENTRY: u32 = 140;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws `rows` as SVG.
pub fn draw(path: &Path, rows: &[ResultRow]) -> Result<(), Box<dyn Error>> {
    let panels = distinct(rows, |row| (row.trace.as_str(), row.line_bytes));
    let policies = distinct(rows, |row| row.policy.as_str());
    let columns = panels.len().clamp(1, COLUMNS_MAX);
    let width = PANEL.0 * columns as u32;
    let in_a_row = (width / LEGEND_ENTRY).max(1);
    let legend = LEGEND_ROW * (policies.len() as u32).div_ceil(in_a_row) + 12;
    let height = PANEL.1 * panels.len().div_ceil(columns) as u32;
    let root = SVGBackend::new(path, (width, height + legend)).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(height);
    let areas = upper.split_evenly((panels.len().div_ceil(columns), columns));
    for (area, panel) in areas.iter().zip(&panels) {
        let inside = |row: &&ResultRow| (row.trace.as_str(), row.line_bytes) == *panel;
        let rows: Vec<&ResultRow> = rows.iter().filter(inside).collect();
        draw_panel(area, *panel, &rows, &policies)?;
    }
    draw_legend(&lower, &policies, in_a_row)?;
    root.present()?;
    Ok(())
}

/// The values of `key`, each once, in order of appearance.
fn distinct<'a, K: PartialEq>(rows: &'a [ResultRow], key: impl Fn(&'a ResultRow) -> K) -> Vec<K> {
    let mut seen = Vec::new();
    for row in rows {
        let key = key(row);
        if !seen.contains(&key) {
            seen.push(key);
        }
    }
    seen
}

fn draw_panel(
    area: &Area<'_>,
    (trace, line_bytes): (&str, u64),
    rows: &[&ResultRow],
    policies: &[&str],
) -> Result<(), Box<dyn Error>> {
    let mib = |row: &ResultRow| (row.cache_blocks * BLOCK_BYTES) as f64 / f64::from(1 << 20);
    let min = rows
        .iter()
        .map(|row| mib(row))
        .fold(f64::INFINITY, f64::min);
    let max = rows.iter().map(|row| mib(row)).fold(0.0, f64::max);
    // A single size is a point in the middle.
    let (min, max) = if min < max {
        (min, max)
    } else {
        (min / 2.0, max * 2.0)
    };
    let lines = match line_bytes {
        BLOCK_BYTES => String::new(),
        _ => format!(", lines of {} KiB", line_bytes >> 10),
    };
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{trace}{lines}"), ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d((min..max).log_scale(), 0.0..1.0)?;
    chart
        .configure_mesh()
        .x_desc("pool, MiB")
        .y_desc("miss ratio")
        .x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| format!("{y:.1}"))
        .light_line_style(WHITE)
        .label_style(("sans-serif", 12))
        .draw()?;
    for (policy, colour) in policies.iter().zip(COLOURS.iter().cycle()) {
        let mut points: Vec<(f64, f64)> = rows
            .iter()
            .filter(|row| row.policy == *policy)
            .map(|row| (mib(row), row.miss_ratio))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let dot = |point: &(f64, f64)| Circle::new(*point, 2, colour.filled());
        chart.draw_series(points.iter().map(dot))?;
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    Ok(())
}

fn short(mib: f64) -> String {
    match mib {
        _ if mib >= 10.0 => format!("{mib:.0}"),
        _ if mib >= 1.0 => format!("{mib:.1}"),
        _ => format!("{mib:.2}"),
    }
}

fn draw_legend(area: &Area<'_>, policies: &[&str], in_a_row: u32) -> Result<(), Box<dyn Error>> {
    for (i, (policy, colour)) in (0u32..).zip(policies.iter().zip(COLOURS.iter().cycle())) {
        let x = (i % in_a_row * LEGEND_ENTRY + 16) as i32;
        let y = (i / in_a_row * LEGEND_ROW + 12) as i32;
        let line = PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(2));
        area.draw(&line)?;
        let style = ("sans-serif", 14).into_font();
        area.draw(&Text::new((*policy).to_owned(), (x + 30, y - 7), style))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trace_and_policy_is_named_in_the_picture() {
        let row = |trace: &str, policy: &str, cache_blocks| ResultRow {
            trace: trace.into(),
            policy: policy.into(),
            size_fraction: 0.1,
            cache_blocks,
            accesses: 10,
            misses: 5,
            miss_ratio: 0.5,
            admitted_bytes: 0,
            seconds: 0.0,
            line_bytes: 4096,
            request_hit_ratio: 0.5,
            read_hit_ratio: 0.5,
            byte_hit_ratio: 0.5,
        };
        let rows = [
            row("first", "lru", 10),
            row("first", "arc", 1000),
            row("second", "lru", 10),
        ];
        let path = std::env::temp_dir().join(format!("hotset-chart-{}.svg", std::process::id()));
        draw(&path, &rows).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for word in ["first", "second", "lru", "arc", "miss ratio"] {
            assert!(svg.contains(word), "{word}");
        }
    }
}
