//! Lines over one axis, and the published levels of a whole run.

use super::drawn::{Drawn, SIZE, TEXT};
use crate::report::bounds::printed;
use crate::report::short::short;
use advise::page::{GRID, INK, PAPER};
use experiment::verdict::FigureRow;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::RGBColor;
use std::error::Error;

/// Ratio of the most to the least from which values span decades.
pub(super) const DECADES: f64 = 100.0;

/// A line, and its name.
pub(super) struct ChartSeries {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) colour: RGBColor,
    pub(super) dashed: bool,
}

/// The lines over axes that are called so, from nothing on; values that span decades are on a
/// logarithmic axis.
pub(super) fn lines(axes: (&str, &str), series: &[ChartSeries], levels: &[&FigureRow]) -> Drawn {
    let all = || series.iter().flat_map(|series| &series.points);
    let values = all().map(|point| point.1);
    let values = values.chain(levels.iter().map(|row| row.published));
    let (least, most) = values
        .filter(|value| *value > 0.0)
        .fold((f64::INFINITY, 1e-9), |(least, most): (f64, f64), value| {
            (least.min(value), most.max(value))
        });
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&PAPER)?;
        let below = names(&root, series)?;
        let (_, area) = root.split_vertically(below);
        let plot = LinePlot {
            axes,
            end: all().map(|point| point.0).fold(1e-9, f64::max),
            series,
            levels,
        };
        match most / least > DECADES {
            true => plot.draw(&root, &area, (least / 1.2..most * 1.2).log_scale(), least)?,
            false => plot.draw(&root, &area, 0.0..most * 1.1, 0.0)?,
        }
        root.present()?;
    }
    Ok(svg)
}

/// Lines and levels over one axis.
struct LinePlot<'a> {
    axes: (&'a str, &'a str),
    /// End of the axis below.
    end: f64,
    series: &'a [ChartSeries],
    levels: &'a [&'a FigureRow],
}

impl LinePlot<'_> {
    /// Draws all points that are not below `least`.
    fn draw<Y>(
        &self,
        root: &Area<'_>,
        area: &Area<'_>,
        values: Y,
        least: f64,
    ) -> Result<(), Box<dyn Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(40)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..self.end, values)?;
        chart
            .configure_mesh()
            .x_desc(self.axes.0)
            .y_desc(self.axes.1)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .label_style(TEXT.into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(PAPER)
            .draw()?;
        for line in self.series {
            let (style, dashed) = (line.colour.stroke_width(2), line.dashed);
            let points = line.points.iter().copied();
            let points = points.filter(|point| point.1 >= least);
            match dashed {
                false => chart.draw_series(LineSeries::new(points, style))?,
                true => chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?,
            };
        }
        for row in self.levels {
            let ends = [(0.0, row.published), (self.end, row.published)];
            chart.draw_series(DashedLineSeries::new(ends, 6, 4, INK.stroke_width(1)))?;
            let text = format!("printed {}", printed(row));
            let (x, y) = chart.backend_coord(&(self.end, row.published));
            let left = x - 8 * text.len() as i32;
            root.draw_text(&text, &TEXT.into_font().color(&INK), (left, y - 16))?;
        }
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws the names of the lines above them, in as many rows as needed; returns the top of the plot.
fn names(root: &Area<'_>, series: &[ChartSeries]) -> Result<i32, Box<dyn Error>> {
    let (mut x, mut y) = (12, 12);
    for line in series {
        let width = 40 + 7 * line.name.len() as i32;
        if x > 12 && x + width > SIZE.0 as i32 {
            (x, y) = (12, y + 18);
        }
        let stroke = line.colour.stroke_width(2);
        let strokes = match line.dashed {
            false => vec![(x, x + 20)],
            true => vec![(x, x + 8), (x + 12, x + 20)],
        };
        for (from, to) in strokes {
            root.draw(&PathElement::new([(from, y), (to, y)], stroke))?;
        }
        let label = TEXT.into_font().color(&INK);
        root.draw_text(&line.name, &label, (x + 26, y - 6))?;
        x += width;
    }
    Ok(y + 12)
}
