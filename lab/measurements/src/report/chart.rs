//! Charts of an experiment: its curves over time, and every figure against the published value.

mod drawn;
mod lines;
mod rows;

use advise::page::{FIRST, INK, MARK, SECOND};
use drawn::Drawn;
use experiment::finished::Finished;
use experiment::registry::named;
use experiment::verdict::{FigureRow, ResultTable};
use experiment::visitors::{VisitCurve, VisitTally};
use lines::{ChartSeries, lines};
use plotters::style::RGBColor;
use rows::{agreement, beside, ratio, units};
use std::error::Error;

/// Curves of fewer points show nothing.
const POINTS_MIN: usize = 10;
const COLOURS: [RGBColor; 4] = [SECOND, FIRST, MARK, INK];

/// Titles and drawings.
pub fn of(finished: &Finished) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    // A part that is run takes a part of the time.
    let times = named(&finished.experiment).filter(|_| !finished.quick);
    let curves = CurveCharts {
        curves: &finished.curves,
        rows: &finished.rows,
        times: times.map_or(1.0, |experiment| experiment.times),
    };
    let mut charts = curves.draw()?;
    if let Some(drawn) = sweep(finished)? {
        let title = "Time to the first byte in seconds, over users; dashed: printed";
        charts.push((title.into(), drawn));
    }
    charts.extend(finished.charts.iter().cloned());
    for table in &finished.tables {
        if let Some(unit) = &table.drawn {
            let axes = (table.head[0].as_str(), unit.as_str());
            charts.push((table.title.clone(), lines(axes, &columns(table), &[])?));
        }
    }
    for unit in units(finished) {
        let title = format!("Printed and ours, {unit}; the line is the span of the seeds");
        charts.push((title, beside(finished, &unit)?));
    }
    if finished
        .rows
        .iter()
        .any(|row| ratio(row.published, row.ours).is_some())
    {
        let title = "Ours against what was printed, times; lines inside: half, the same, twice";
        charts.push((title.into(), agreement(finished)?));
    }
    Ok(charts)
}

/// Hits of shards in millions a second, modelled and as many times one.
pub fn of_shards(
    modelled: Vec<(f64, f64)>,
    linear: Vec<(f64, f64)>,
) -> Result<String, Box<dyn Error>> {
    let series = |name: &str, points, colour, dashed| ChartSeries {
        name: name.into(),
        points,
        colour,
        dashed,
    };
    let series = [
        series("modelled", modelled, SECOND, false),
        series("as many times one shard", linear, INK, true),
    ];
    lines(("shards", "million hits a second"), &series, &[])
}

/// Curves over time, and the published figures of the whole run.
pub struct CurveCharts<'a> {
    /// Curves by name.
    pub curves: &'a [(String, VisitCurve)],
    /// The published figures beside ours.
    pub rows: &'a [FigureRow],
    /// Factor from the time of the curves to that of the published run.
    pub times: f64,
}

impl CurveCharts<'_> {
    /// Titles and drawings; none of curves that are too short.
    pub fn draw(&self) -> Result<Vec<(String, String)>, Box<dyn Error>> {
        let mut charts = Vec::new();
        if self.longest().is_none_or(|points| points < POINTS_MIN) {
            return Ok(charts);
        }
        let mbit = |point: &VisitTally, s: f64| point.bytes as f64 * 8e-6 / s;
        charts.push(("Mbit/s".into(), self.over_time(("Mbit/s", "mbps.o"), mbit)?));
        let visited = |(_, curve): &(String, VisitCurve)| curve.points.iter().any(|p| p.pages > 0);
        if self.curves.iter().any(visited) {
            let pages = |point: &VisitTally, s: f64| point.pages as f64 / s;
            let title = "Pages a second";
            charts.push((title.into(), self.over_time(("pages/s", "rate."), pages)?));
            let hits = |point: &VisitTally, s: f64| point.hits as f64 / s;
            let title = "Requests a second";
            charts.push((title.into(), self.over_time(("hits/s", "hits."), hits)?));
            let title = "Time to the first byte in seconds";
            let first = |point: &VisitTally, _: f64| point.first_byte_s();
            charts.push((title.into(), self.over_time(("s", "ttfb.o"), first)?));
            let title = "Page response in seconds";
            let response = |point: &VisitTally, _: f64| point.response_s();
            charts.push((title.into(), self.over_time(("s", "page.mean"), response)?));
        } else {
            let mean = |point: &VisitTally, _: f64| point.request_s() * 1e3;
            let title = "Mean time of a request in ms";
            charts.push((title.into(), self.over_time(("ms", "latency"), mean)?));
        }
        Ok(charts)
    }

    /// Points of the longest curve.
    fn longest(&self) -> Option<usize> {
        self.curves
            .iter()
            .map(|(_, curve)| curve.points.len())
            .max()
    }

    /// The curves that are as long as the longest, in a unit, and the figures of that unit with this
    /// prefix.
    fn over_time(
        &self,
        (unit, figures): (&str, &str),
        value: impl Fn(&VisitTally, f64) -> f64,
    ) -> Drawn {
        let mut series = Vec::new();
        for (name, curve) in self.curves {
            if Some(curve.points.len()) == self.longest() {
                let points = curve.points.iter().enumerate().map(|(i, point)| {
                    let minutes = (i as f64 + 0.5) * curve.interval_s * self.times / 60.0;
                    (minutes, value(point, curve.interval_s))
                });
                let colour = COLOURS[series.len() % COLOURS.len()];
                series.push(ChartSeries {
                    name: name.clone(),
                    points: points.filter(|(_, y)| y.is_finite()).collect(),
                    colour,
                    // Beyond the colours, the same ones dashed.
                    dashed: series.len() >= COLOURS.len(),
                });
            }
        }
        let minutes = match self.times {
            1.0 => "minutes",
            _ => "minutes of the published run",
        };
        lines((minutes, unit), &series, &self.levels(unit, figures))
    }

    /// Published values of a whole run, in the unit of a chart.
    fn levels(&self, unit: &str, figures: &str) -> Vec<&FigureRow> {
        let of = |row: &&FigureRow| row.unit == unit && row.figure.starts_with(figures);
        self.rows.iter().filter(of).collect()
    }
}

/// The columns of a table over its first one; lines that are no numbers are left out.
fn columns(table: &ResultTable) -> Vec<ChartSeries> {
    let named = table.head.iter().enumerate().skip(1);
    let series = named.map(|(column, name)| {
        let number = |line: &[String], column: usize| line.get(column)?.parse::<f64>().ok();
        let points = table.lines.iter();
        let points = points.filter_map(|line| Some((number(line, 0)?, number(line, column)?)));
        ChartSeries {
            name: name.clone(),
            points: points.collect(),
            colour: COLOURS[(column - 1) % COLOURS.len()],
            dashed: column > COLOURS.len(),
        }
    });
    series.collect()
}

/// Figures called `sweep.X.SERIES`, over X: ours, and the published values dashed.
fn sweep(finished: &Finished) -> Result<Option<String>, Box<dyn Error>> {
    let of = |row: &FigureRow| {
        let (x, name) = row.figure.strip_prefix("sweep.")?.split_once('.')?;
        Some((x.parse::<f64>().ok()?, name.to_owned()))
    };
    let rows: Vec<_> = finished
        .rows
        .iter()
        .filter_map(|row| Some((of(row)?, row)))
        .collect();
    let mut series: Vec<ChartSeries> = Vec::new();
    for ((x, name), row) in &rows {
        for (dashed, y) in [(false, row.ours), (true, row.published)] {
            let name = format!("{name}{}", if dashed { ", printed" } else { "" });
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push((*x, y)),
                None => series.push(ChartSeries {
                    name,
                    points: vec![(*x, y)],
                    colour: COLOURS[series.len() / 2 % COLOURS.len()],
                    dashed,
                }),
            }
        }
    }
    let unit = rows.first().map_or("", |(_, row)| row.unit.as_str());
    match series.is_empty() {
        true => Ok(None),
        false => lines(("users", unit), &series, &[]).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_drawn_by_its_columns_without_its_sum() {
        let lines = [
            ["1", "5.0", "2.0"],
            ["2", "6.0", "-"],
            ["all", "11.0", "2.0"],
        ];
        let lines = lines.map(|line| line.map(String::from).to_vec());
        let table = ResultTable::new("t", &["query", "a", "b"], lines.to_vec());
        let series = columns(&table);
        assert_eq!(series[0].points, [(1.0, 5.0), (2.0, 6.0)]);
        assert_eq!(series[1].points, [(1.0, 2.0)]);
    }
}
