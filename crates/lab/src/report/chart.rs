//! Charts of an experiment: its curves over time, and every figure against what was printed.

mod drawn;
mod rows;

use super::short::short;
use advise::page::{FIRST, GRID, INK, MARK, PAPER, SECOND};
use drawn::{Drawn, SIZE, TEXT};
use experiment::finished::Finished;
use experiment::verdict::Row;
use experiment::visitors::{Curve, Tally};
use plotters::prelude::*;
use plotters::style::RGBColor;
use rows::{agreement, beside, ratio, units};
use std::error::Error;

/// Curves of fewer points show nothing.
const POINTS_MIN: usize = 10;
const COLOURS: [RGBColor; 4] = [SECOND, FIRST, MARK, INK];

/// Titles and drawings.
pub fn of(finished: &Finished) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut charts = Vec::new();
    let longest = finished
        .curves
        .iter()
        .map(|(_, curve)| curve.points.len())
        .max();
    if longest.is_some_and(|points| points >= POINTS_MIN) {
        let mbit = |point: &Tally, s: f64| point.bytes as f64 * 8e-6 / s;
        charts.push(("Mbit/s".into(), over_time(finished, "Mbit/s", mbit)?));
        let response = |point: &Tally, _: f64| point.response_s();
        let visited = |(_, curve): &(String, Curve)| curve.points.iter().any(|p| p.pages > 0);
        if finished.curves.iter().any(visited) {
            let pages = |point: &Tally, s: f64| point.pages as f64 / s;
            let title = "Pages a second";
            charts.push((title.into(), over_time(finished, "pages/s", pages)?));
            let title = "Page response in seconds";
            charts.push((title.into(), over_time(finished, "s", response)?));
        }
    }
    charts.extend(finished.charts.iter().cloned());
    for unit in units(finished) {
        let title = format!("Printed and ours, {unit}; the line is the span of the seeds");
        charts.push((title, beside(finished, &unit)?));
    }
    if finished
        .rows
        .iter()
        .any(|row| ratio(row.published, row.ours).is_some())
    {
        let title = "Ours against what was printed, times; lines: half, the same, and twice";
        charts.push((title.into(), agreement(finished)?));
    }
    Ok(charts)
}

/// The curves that are as long as the longest.
fn over_time(finished: &Finished, unit: &str, value: impl Fn(&Tally, f64) -> f64) -> Drawn {
    let longest = finished
        .curves
        .iter()
        .map(|(_, curve)| curve.points.len())
        .max();
    let mut series = Vec::new();
    for (name, curve) in &finished.curves {
        if Some(curve.points.len()) == longest {
            let points = curve.points.iter().enumerate().map(|(i, point)| {
                let minutes = (i as f64 + 0.5) * curve.interval_s / 60.0;
                (minutes, value(point, curve.interval_s))
            });
            let points: Vec<(f64, f64)> = points.filter(|(_, y)| y.is_finite()).collect();
            series.push((name, points));
        }
    }
    let all = || series.iter().flat_map(|(_, points)| points);
    let end = all().map(|point| point.0).fold(1.0, f64::max);
    let levels = levels(finished, unit);
    let highest = all()
        .map(|point| point.1)
        .chain(levels.iter().map(|row| row.published));
    let most = highest.fold(0.0, f64::max) * 1.25;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&PAPER)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(40)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..end, 0.0..most.max(1e-9))?;
        chart
            .configure_mesh()
            .x_desc("minutes")
            .y_desc(unit)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .label_style(TEXT.into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(PAPER)
            .draw()?;
        for (i, (name, points)) in series.into_iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let style = colour.stroke_width(2);
            // Beyond the colours, the same ones dashed.
            let solid = i < COLOURS.len();
            let drawn = match solid {
                true => chart.draw_series(LineSeries::new(points, style))?,
                false => chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?,
            };
            drawn.label(name).legend(move |(x, y)| {
                let end = if solid { x + 20 } else { x + 8 };
                PathElement::new([(x, y), (end, y)], style)
            });
        }
        for row in levels {
            let ends = [(0.0, row.published), (end, row.published)];
            chart.draw_series(DashedLineSeries::new(ends, 6, 4, INK.stroke_width(1)))?;
            let text = format!("printed {}", short(row.published));
            let (x, y) = chart.backend_coord(&(end, row.published));
            root.draw_text(&text, &TEXT.into_font().color(&INK), (x - 96, y - 16))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(TEXT.into_font().color(&INK))
            .background_style(PAPER)
            .border_style(GRID)
            .draw()?;
        root.present()?;
    }
    Ok(svg)
}

/// What was printed of a whole run, in the unit of a chart.
fn levels<'a>(finished: &'a Finished, unit: &str) -> Vec<&'a Row> {
    let means = |row: &&Row| {
        let figure = row.figure.as_str();
        row.unit == unit
            && ["mbps.o", "page.mean", "rate."]
                .iter()
                .any(|of| figure.starts_with(of))
    };
    finished.rows.iter().filter(means).collect()
}
