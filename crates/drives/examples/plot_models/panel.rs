//! One plot: axes with units, lines, a legend.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;

/// Scale of an axis: the place of a quantity on the page.
#[derive(Clone, Copy)]
pub enum Scale {
    Linear,
    /// A step is a doubling.
    Log2,
    /// A step is a decade.
    Log10,
}

/// An axis from `least` to `most`, with a mark about every `1/marks` of it.
pub struct Axis {
    pub label: &'static str,
    pub scale: Scale,
    pub least: f64,
    pub most: f64,
    pub marks: usize,
}

/// A line through points in the axes' quantities.
pub struct Line {
    pub label: String,
    pub color: RGBColor,
    pub dashed: bool,
    pub points: Vec<(f64, f64)>,
}

/// One plot.
pub struct Panel {
    pub title: &'static str,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

/// Colours that stay apart for the colour-blind (Okabe and Ito).
pub const COLORS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];

const FONT: &str = "sans-serif";

/// The height of a row of the legend, and the number of rows that every plot leaves room for.
const ROW: u32 = 38;
const LEGEND_ROWS: u32 = 4;

impl Axis {
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log2 => value.log2(),
            Scale::Log10 => value.log10(),
        }
    }

    fn value(&self, place: f64) -> f64 {
        match self.scale {
            Scale::Linear => place,
            Scale::Log2 => place.exp2(),
            Scale::Log10 => 10_f64.powf(place),
        }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.place(self.least)..self.place(self.most)
    }

    /// The text of the mark at `place`; none between the steps of a log scale.
    fn mark(&self, place: f64) -> String {
        let whole = (place - place.round()).abs() < 1e-6;
        if !whole && !matches!(self.scale, Scale::Linear) {
            return String::new();
        }
        let value = (self.value(place) * 1e6).round() / 1e6;
        if value >= 1e6 {
            format!("{}M", value / 1e6)
        } else if value >= 10_000.0 {
            format!("{}k", value / 1e3)
        } else {
            format!("{value}")
        }
    }
}

impl Panel {
    /// Draws the plot on `area`, the legend below it.
    pub fn draw(&self, area: &DrawingArea<SVGBackend, Shift>) -> Result<(), Box<dyn Error>> {
        let (_, height) = area.dim_in_pixel();
        let (plot, legend) = area.split_vertically(height - LEGEND_ROWS * ROW);
        let mut chart = ChartBuilder::on(&plot)
            .caption(self.title, (FONT, 34))
            .margin(20)
            .margin_right(52)
            .x_label_area_size(84)
            .y_label_area_size(120)
            .build_cartesian_2d(self.x.range(), self.y.range())?;
        chart
            .configure_mesh()
            .x_labels(self.x.marks)
            .y_labels(self.y.marks)
            .x_label_formatter(&|place| self.x.mark(*place))
            .y_label_formatter(&|place| self.y.mark(*place))
            .x_desc(self.x.label)
            .y_desc(self.y.label)
            .axis_desc_style((FONT, 28))
            .label_style((FONT, 26))
            .bold_line_style(BLACK.mix(0.14))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (row, line) in self.lines.iter().enumerate() {
            let place = |point: &(f64, f64)| (self.x.place(point.0), self.y.place(point.1));
            let points: Vec<(f64, f64)> = line.points.iter().map(place).collect();
            let style = line.color.stroke_width(4);
            if line.dashed {
                chart.draw_series(DashedLineSeries::new(points, 12, 8, style))?;
            } else {
                chart.draw_series(LineSeries::new(points, style))?;
            }
            line.draw_key(&legend, row as i32 * ROW as i32, style)?;
        }
        Ok(())
    }
}

impl Line {
    /// Draws the line's sample and label at `top` of the legend.
    fn draw_key(
        &self,
        legend: &DrawingArea<SVGBackend, Shift>,
        top: i32,
        style: ShapeStyle,
    ) -> Result<(), Box<dyn Error>> {
        let middle = top + ROW as i32 / 2;
        let strokes: &[(i32, i32)] = match self.dashed {
            true => &[(136, 156), (164, 184)],
            false => &[(136, 184)],
        };
        for (from, to) in strokes {
            let ends = vec![(*from, middle), (*to, middle)];
            legend.draw(&PathElement::new(ends, style))?;
        }
        let text = (FONT, 26).into_font().into_text_style(legend);
        legend.draw_text(&self.label, &text, (204, top + 6))?;
        Ok(())
    }
}
