//! The sweep and the loss as pictures.

use super::loss::{ControllerLoss, SideRates};
use super::scale::WORKLOADS;
use super::sweep::SweepPoint;
use advise::page::{FIRST, GRID, INK, MARK, PAPER, SECOND};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;

const SIZE: (u32, u32) = (900, 620);
const LOSS_SIZE: (u32, u32) = (900, 300);
const TEXT: (&str, i32) = ("sans-serif", 14);
const TITLE: (&str, i32) = ("sans-serif", 17);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<String, Box<dyn Error>>;
type Curve = Vec<(f64, f64)>;

/// Two curves over one axis.
struct CurvePanel<'a> {
    title: &'a str,
    /// Names of the axes.
    axes: (&'a str, &'a str),
    /// Ends of the axes.
    ends: (f64, f64),
    x_label: fn(f64) -> String,
    curves: [(&'a str, Curve); 2],
    /// Place of a line across.
    mark: Option<f64>,
    legend: SeriesLabelPosition,
}

/// Requests a second over threads, a panel a workload.
pub fn rates(points: &[SweepPoint]) -> Drawn {
    sweep(points, "requests/s", |point| point.iops)
}

/// Megabytes a second over threads, a panel a workload.
pub fn throughputs(points: &[SweepPoint]) -> Drawn {
    sweep(points, "MB/s", |point| point.mb_s)
}

/// Latency over threads, a panel a workload.
pub fn latencies(points: &[SweepPoint]) -> Drawn {
    sweep(points, "mean latency, ms", |point| point.latency_ms_mean)
}

fn sweep(points: &[SweepPoint], unit: &str, value: impl Fn(&SweepPoint) -> f64) -> Drawn {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&PAPER)?;
        for (area, workload) in root.split_evenly((2, 2)).iter().zip(WORKLOADS) {
            let of = |controllers: usize| -> Curve {
                let ours = points
                    .iter()
                    .filter(|p| p.controllers == controllers && p.workload == workload.name);
                ours.map(|p| ((p.threads as f64).log2(), value(p)))
                    .collect()
            };
            let curves = [("one controller", of(1)), ("two controllers", of(2))];
            let all = || curves.iter().flat_map(|(_, curve)| curve);
            let end = all().map(|point| point.0).fold(1.0, f64::max);
            let most = all().map(|point| point.1).fold(0.0, f64::max);
            let panel = CurvePanel {
                title: &format!("{}s", workload.name),
                axes: ("threads", unit),
                ends: (end, most * 1.1),
                x_label: |x| format!("{:.0}", x.exp2()),
                curves,
                mark: None,
                legend: SeriesLabelPosition::LowerRight,
            };
            draw(area, panel)?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// Reads and writes of both sides over the loss of a drive.
pub fn loss(loss: &ControllerLoss) -> Drawn {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, LOSS_SIZE).into_drawing_area();
        root.fill(&PAPER)?;
        let all = loss.seconds.iter().flatten();
        let most = all.map(|rates| rates.reads_per_s.max(rates.writes_per_s));
        let most = most.fold(1.0, f64::max);
        let titles = ["the side that loses a drive", "the survivor"];
        for (side, area) in root.split_evenly((1, 2)).iter().enumerate() {
            let line = |which: fn(&SideRates) -> f64| -> Curve {
                let seconds = loss.seconds.iter().enumerate();
                seconds
                    .map(|(i, rates)| (i as f64 + 0.5, which(&rates[side])))
                    .collect()
            };
            let panel = CurvePanel {
                title: titles[side],
                axes: ("seconds", "a second"),
                ends: (loss.seconds.len() as f64, most * 1.4),
                x_label: |x| format!("{x:.0}"),
                curves: [
                    ("reads", line(|rates| rates.reads_per_s)),
                    ("writes", line(|rates| rates.writes_per_s)),
                ],
                mark: Some(loss.pulled_s as f64),
                legend: SeriesLabelPosition::UpperLeft,
            };
            draw(area, panel)?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn draw(area: &Area<'_>, panel: CurvePanel<'_>) -> Result<(), Box<dyn Error>> {
    let (end, most) = panel.ends;
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, TITLE.into_font().color(&INK))
        .margin(8)
        .margin_right(20)
        .x_label_area_size(40)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..end, 0.0..most)?;
    chart
        .configure_mesh()
        .x_desc(panel.axes.0)
        .y_desc(panel.axes.1)
        .x_labels(9)
        .x_label_formatter(&|x| (panel.x_label)(*x))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .label_style(TEXT.into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(PAPER)
        .draw()?;
    for ((name, curve), colour) in panel.curves.into_iter().zip([FIRST, SECOND]) {
        chart
            .draw_series(LineSeries::new(curve, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
    }
    if let Some(mark) = panel.mark {
        let line = [(mark, 0.0), (mark, most)];
        chart.draw_series(LineSeries::new(line, MARK.stroke_width(1)))?;
    }
    chart
        .configure_series_labels()
        .position(panel.legend)
        .label_font(TEXT.into_font().color(&INK))
        .background_style(PAPER)
        .border_style(GRID)
        .draw()?;
    Ok(())
}
