//! Lines over one axis, and the published levels of a whole run.

use super::drawn::{Drawn, SIZE, TEXT};
use crate::report::short::short;
use advise::page::{GRID, INK, PAPER};
use experiment::verdict::FigureRow;
use plotters::prelude::*;
use plotters::style::RGBColor;
use std::error::Error;

/// A line, and its name.
pub(super) struct ChartSeries {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) colour: RGBColor,
    pub(super) dashed: bool,
}

/// The lines over axes that are called so, from nothing on.
pub(super) fn lines((x, y): (&str, &str), series: &[ChartSeries], levels: &[&FigureRow]) -> Drawn {
    let all = || series.iter().flat_map(|series| &series.points);
    let end = all().map(|point| point.0).fold(1e-9, f64::max);
    let highest = all().map(|point| point.1);
    let highest = highest.chain(levels.iter().map(|row| row.published));
    let most = highest.fold(1e-9, f64::max) * 1.1;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&PAPER)?;
        let below = names(&root, series)?;
        let (_, area) = root.split_vertically(below);
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(40)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..end, 0.0..most)?;
        chart
            .configure_mesh()
            .x_desc(x)
            .y_desc(y)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .label_style(TEXT.into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(PAPER)
            .draw()?;
        for line in series {
            let (style, dashed) = (line.colour.stroke_width(2), line.dashed);
            let points = line.points.iter().copied();
            match dashed {
                false => chart.draw_series(LineSeries::new(points, style))?,
                true => chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?,
            };
        }
        for row in levels {
            let ends = [(0.0, row.published), (end, row.published)];
            chart.draw_series(DashedLineSeries::new(ends, 6, 4, INK.stroke_width(1)))?;
            let text = format!("printed {}", short(row.published));
            let (x, y) = chart.backend_coord(&(end, row.published));
            root.draw_text(&text, &TEXT.into_font().color(&INK), (x - 96, y - 16))?;
        }
        root.present()?;
    }
    Ok(svg)
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
