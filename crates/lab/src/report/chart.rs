//! Charts of an experiment: its curves over time, and every figure against what was printed.

use advise::page::{FIRST, GRID, INK, MARK, PAPER, SECOND};
use experiment::figures::Status;
use experiment::finished::Finished;
use experiment::visitors::{Curve, Tally};
use plotters::prelude::*;
use plotters::style::RGBColor;
use std::error::Error;

/// Small, so that its text can still be read on a narrow screen.
const SIZE: (u32, u32) = (480, 300);
const TEXT: (&str, i32) = ("sans-serif", 14);
/// Curves of fewer points show nothing.
const POINTS_MIN: usize = 10;
/// A row of [`agreement`].
const ROW_PIXELS: u32 = 20;
const COLOURS: [RGBColor; 4] = [SECOND, FIRST, MARK, INK];

type Drawn = Result<String, Box<dyn Error>>;

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
            let title = "Page response in seconds";
            charts.push((title.into(), over_time(finished, "s", response)?));
        }
    }
    charts.extend(finished.charts.iter().cloned());
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
    let most = all().map(|point| point.1).fold(0.0, f64::max) * 1.25;
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
            .label_style(TEXT.into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(PAPER)
            .draw()?;
        for ((name, points), colour) in series.into_iter().zip(COLOURS.into_iter().cycle()) {
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2))
                });
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

/// How many times what was printed, as a power of two within one screen.
fn ratio(published: f64, ours: f64) -> Option<f64> {
    let ratio = ours / published;
    (ratio > 0.0 && ratio.is_finite()).then(|| ratio.log2().clamp(-2.0, 2.0))
}

/// A line for each figure: how many times what was printed came out.
fn agreement(finished: &Finished) -> Drawn {
    let rows: Vec<_> = finished
        .rows
        .iter()
        .filter_map(|row| Some((row, ratio(row.published, row.ours)?)))
        .collect();
    let height = 60 + ROW_PIXELS * rows.len() as u32;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
        root.fill(&PAPER)?;
        let (left, right, top) = (200, SIZE.0 as i32 - 16, 30);
        let bottom = height as i32 - 30;
        let x = |power: f64| left + ((power + 2.0) / 4.0 * f64::from(right - left)) as i32;
        let label = TEXT.into_font().color(&INK);
        for power in [-2.0f64, -1.0, 0.0, 1.0, 2.0] {
            let colour = if power == 0.0 { INK } else { GRID };
            let line = [(x(power), top), (x(power), bottom)];
            root.draw(&PathElement::new(line, colour.stroke_width(1)))?;
            let text = format!("{}", power.exp2());
            root.draw_text(&text, &label, (x(power) - 8, bottom + 6))?;
        }
        for (i, (row, power)) in rows.iter().enumerate() {
            let y = top + (ROW_PIXELS * i as u32 + ROW_PIXELS / 2) as i32;
            let name: String = row.figure.chars().take(27).collect();
            root.draw_text(&name, &label, (8, y - 7))?;
            let colour = match (row.met, row.status) {
                (Some(false), _) => MARK,
                (_, Status::NotIdentifiable) => GRID,
                (_, Status::Blind) => FIRST,
                _ => SECOND,
            };
            let line = [(x(0.0), y), (x(*power), y)];
            root.draw(&PathElement::new(line, colour.stroke_width(2)))?;
            root.draw(&Circle::new((x(*power), y), 4, colour.filled()))?;
        }
        for (i, (name, colour)) in [
            ("blind", FIRST),
            ("calibrated, shape", SECOND),
            ("out of tolerance", MARK),
        ]
        .into_iter()
        .enumerate()
        {
            let at = 12 + 130 * i as i32;
            root.draw(&Circle::new((at, 14), 4, colour.filled()))?;
            root.draw_text(name, &label, (at + 10, 7))?;
        }
        root.present()?;
    }
    Ok(svg)
}
