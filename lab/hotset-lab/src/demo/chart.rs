//! The warm-up as a picture: page times over a run, without and with the cache.

use crate::web::visits::PageVisit;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// One run to draw.
pub struct DemoSeries<'a> {
    /// Name in the legend.
    pub name: &'a str,
    /// Visits of the run.
    pub visits: &'a [PageVisit],
}

const COLOURS: [RGBColor; 2] = [RGBColor(200, 80, 40), RGBColor(20, 110, 180)];
/// Pages averaged into one point.
const POINT_PAGES: usize = 20;

/// Draws, for up to two series, the mean time of a page against the number of pages loaded, as SVG.
pub fn draw(path: &Path, title: &str, series: &[DemoSeries]) -> Result<(), Box<dyn Error>> {
    let points: Vec<Vec<(f64, f64)>> = series.iter().map(|s| means(s.visits)).collect();
    let all = || points.iter().flatten();
    let x_max = all().map(|p| p.0).fold(1.0, f64::max);
    let y_max = all().map(|p| p.1).fold(1.0, f64::max) * 1.1;
    let root = SVGBackend::new(path, (900, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
    chart
        .configure_mesh()
        .x_desc("pages loaded")
        .y_desc("page with its images, ms")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .label_style(("sans-serif", 14))
        .light_line_style(WHITE)
        .draw()?;
    for ((series, points), colour) in series.iter().zip(&points).zip(COLOURS) {
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
        chart
            .draw_series(line)?
            .label(series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font(("sans-serif", 15))
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

fn means(visits: &[PageVisit]) -> Vec<(f64, f64)> {
    let ms = |span: Duration| span.as_secs_f64() * 1e3;
    let chunk = |(i, visits): (usize, &[PageVisit])| {
        let total: f64 = visits.iter().map(|v| ms(v.page)).sum();
        let middle = i * POINT_PAGES + visits.len() / 2;
        (middle as f64, total / visits.len() as f64)
    };
    visits.chunks(POINT_PAGES).enumerate().map(chunk).collect()
}
