//! A timeline as a picture: writes, lag and dirty bytes over one axis, and marks of the events.

use super::{MeasuredTimeline, TimelineSample, TimelineStretch};
use advise::page::{FIRST, GRID, INK, MARK, PAPER, SECOND, standalone};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::error::Error;

const SIZE: (u32, u32) = (900, 640);
/// Pixels of the picture's height for the names of events.
const HEAD: u32 = 44;
const TEXT: (&str, i32) = ("sans-serif", 14);
/// Above the recovery, where no line is.
const LEGEND: (i32, i32) = (300, 6);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Value = fn(&TimelineSample) -> f64;

/// A quantity over time.
struct TimelinePanel {
    unit: &'static str,
    lines: &'static [(&'static str, Value)],
    /// A level that the quantity may not exceed, and the level's name.
    limit: Option<(f64, String)>,
}

/// The picture, as a file of its own.
pub fn chart(timeline: &MeasuredTimeline) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&PAPER)?;
        let (head, below) = root.split_vertically(HEAD);
        let panels = panels(timeline);
        let areas = below.split_evenly((panels.len(), 1));
        for (at, (area, panel)) in areas.iter().zip(&panels).enumerate() {
            let names = (at == 0).then_some(&head);
            draw(area, panel, timeline, names, at + 1 == panels.len())?;
        }
        root.present()?;
    }
    Ok(standalone(&svg))
}

fn panels(timeline: &MeasuredTimeline) -> [TimelinePanel; 3] {
    [
        TimelinePanel {
            unit: "4 KiB writes/s",
            lines: &[
                ("answered to clients", |sample| sample.writes_per_s),
                ("at the origin", |sample| sample.origin_blocks_per_s),
            ],
            limit: None,
        },
        TimelinePanel {
            unit: "lag, s",
            lines: &[("", |sample| sample.lag_s)],
            limit: Some((
                timeline.max_lag_s,
                format!("max_lag = {} s", timeline.max_lag_s),
            )),
        },
        TimelinePanel {
            unit: "dirty, MB",
            lines: &[("", |sample| sample.dirty_bytes as f64 / 1e6)],
            limit: None,
        },
    ]
}

/// Name of a marked stretch.
fn event(stretch: TimelineStretch) -> Option<&'static str> {
    match stretch {
        TimelineStretch::Quiet | TimelineStretch::Load | TimelineStretch::OneDevice => None,
        TimelineStretch::Burst => Some("burst"),
        TimelineStretch::Recovery => Some("burst ends"),
        TimelineStretch::Loss => Some("log SSD lost"),
        TimelineStretch::Restart => Some("both SSDs"),
        TimelineStretch::Again => None,
        TimelineStretch::Detach => Some("detach"),
        TimelineStretch::WriteThrough => Some("detached"),
    }
}

fn draw(
    area: &Area<'_>,
    panel: &TimelinePanel,
    timeline: &MeasuredTimeline,
    names: Option<&Area<'_>>,
    is_last: bool,
) -> Result<(), Box<dyn Error>> {
    let end = timeline.samples.last().map_or(1.0, |sample| sample.at_s);
    let values = |value: Value| timeline.samples.iter().map(value);
    let highest = panel.lines.iter().flat_map(|(_, value)| values(*value));
    let limit = panel.limit.iter().map(|(limit, _)| *limit);
    let most = highest.chain(limit).fold(1e-9, f64::max) * 1.15;
    let mut chart = ChartBuilder::on(area)
        .margin(4)
        .margin_right(24)
        .x_label_area_size(if is_last { 40 } else { 8 })
        .y_label_area_size(66)
        .build_cartesian_2d(0.0..end, 0.0..most)?;
    draw_mesh(&mut chart, panel.unit, is_last)?;
    for phase in timeline.phases.iter() {
        if event(phase.stretch).is_some() {
            let line = [(phase.from_s, 0.0), (phase.from_s, most)];
            chart.draw_series(DashedLineSeries::new(line, 4, 3, MARK.stroke_width(1)))?;
        }
    }
    for ((name, value), colour) in panel.lines.iter().zip([FIRST, SECOND]) {
        let points = timeline.samples.iter().map(|s| (s.at_s, value(s)));
        let line = chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        if !name.is_empty() {
            line.label(*name).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2))
            });
        }
    }
    if panel.lines.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::Coordinate(LEGEND.0, LEGEND.1))
            .label_font(TEXT.into_font().color(&INK))
            .background_style(PAPER)
            .border_style(GRID)
            .draw()?;
    }
    if let Some((limit, name)) = &panel.limit {
        let line = [(0.0, *limit), (end, *limit)];
        chart.draw_series(DashedLineSeries::new(line, 6, 4, INK.stroke_width(1)))?;
        let label = Text::new(
            name.clone(),
            (end / 2.0, *limit * 0.98),
            TEXT.into_font().color(&INK),
        );
        chart.draw_series([label])?;
    }
    match names {
        Some(head) => name_events(head, &chart, timeline),
        None => Ok(()),
    }
}

/// Draws the axes; the seconds below the last panel alone.
fn draw_mesh(chart: &mut Chart<'_, '_>, unit: &str, is_last: bool) -> Result<(), Box<dyn Error>> {
    let seconds = |x: &f64| match is_last {
        true => format!("{x:.0}"),
        false => String::new(),
    };
    let mut mesh = chart.configure_mesh();
    if is_last {
        mesh.x_desc("seconds");
    }
    mesh.y_desc(unit)
        .x_labels(12)
        .y_labels(5)
        .x_label_formatter(&seconds)
        .y_label_formatter(&|y| format!("{y:.0}"))
        .label_style(TEXT.into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(PAPER)
        .draw()?;
    Ok(())
}

/// Names the events above the lines that mark them, in two rows so that names do not meet.
fn name_events(
    head: &Area<'_>,
    chart: &Chart<'_, '_>,
    timeline: &MeasuredTimeline,
) -> Result<(), Box<dyn Error>> {
    let marked = timeline.phases.iter();
    let marked = marked.filter_map(|phase| Some((phase.from_s, event(phase.stretch)?)));
    for (number, (at_s, name)) in marked.enumerate() {
        let (x, _) = chart.backend_coord(&(at_s, 0.0));
        let y = if number % 2 == 0 { 6 } else { 24 };
        head.draw_text(name, &TEXT.into_font().color(&MARK), (x - 4, y))?;
    }
    Ok(())
}
