//! Charts of figures: published values and ours on one axis, and their distance.

use super::drawn::{Drawn, SIZE, TEXT};
use super::lines::DECADES;
use crate::report::bounds::{bound, printed};
use crate::report::short::short;
use advise::page::{FIRST, GRID, INK, MARK, PAPER, SECOND};
use experiment::figures::{Bound, FigureStatus, FigureVerdict};
use experiment::finished::Finished;
use experiment::verdict::FigureRow;
use plotters::prelude::*;
use std::error::Error;

/// A row of [`agreement`], and a bar of [`beside`].
const ROW_PIXELS: u32 = 20;
const BAR_PIXELS: u32 = 13;
/// Left edge of the figures, right of their names.
const LEFT: i32 = 200;
/// The unit of ratios, which [`agreement`] shows better.
const RATIO: &str = "ratio";

/// Units of which there are several figures, in order.
pub(super) fn units(finished: &Finished) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    for row in &finished.rows {
        let rows = finished.rows.iter().filter(|other| other.unit == row.unit);
        let known = row.unit.is_empty() || row.unit == RATIO || units.contains(&row.unit);
        if !known && rows.count() > 1 {
            units.push(row.unit.clone());
        }
    }
    units
}

/// An axis of bars: from nothing on, or logarithmic where values span decades.
struct BarAxis {
    least: f64,
    most: f64,
    is_logarithmic: bool,
    right: i32,
}

impl BarAxis {
    fn of(rows: &[&FigureRow], right: i32) -> BarAxis {
        let values = rows
            .iter()
            .flat_map(|row| [row.published, row.ours_min, row.ours_max]);
        let (least, most) = values
            .filter(|value| *value > 0.0)
            .fold((f64::INFINITY, 1e-9), |(least, most): (f64, f64), value| {
                (least.min(value), most.max(value))
            });
        BarAxis {
            // A power of ten, so far below that the least bar can be seen.
            least: 10f64.powi((least.log10() - 0.15).floor() as i32),
            most,
            is_logarithmic: most / least > DECADES,
            right,
        }
    }

    fn x(&self, value: f64) -> i32 {
        let share = match self.is_logarithmic {
            true => (value / self.least).ln() / (self.most / self.least).ln(),
            false => value / self.most,
        };
        LEFT + (share.max(0.0) * f64::from(self.right - LEFT)) as i32
    }

    fn name(&self, unit: &str) -> String {
        match self.is_logarithmic {
            true => format!("{} to {} {unit}, logarithmic", self.least, short(self.most)),
            false => format!("0 to {} {unit}", short(self.most)),
        }
    }
}

/// Draws a printed value: a bar, or of a bound a line to its open side from a stroke at its end.
fn printed_value(
    root: &Area,
    row: &FigureRow,
    axis: &BarAxis,
    top: i32,
) -> Result<(), Box<dyn Error>> {
    let (at, below) = (axis.x(row.published), top + BAR_PIXELS as i32 - 2);
    let open = match bound(row) {
        None => {
            root.draw(&Rectangle::new([(LEFT, top), (at, below)], INK.filled()))?;
            return Ok(());
        }
        Some(Bound::AtLeast) => axis.right,
        Some(Bound::AtMost) => LEFT,
    };
    let middle = (top + below) / 2;
    let stroke = INK.stroke_width(2);
    root.draw(&PathElement::new([(at, top), (at, below)], stroke))?;
    root.draw(&PathElement::new([(at, middle), (open, middle)], stroke))?;
    Ok(())
}

/// Published value and ours of every figure in one unit: two bars each, and over ours the span of
/// the seeds. A bound is a line to its open side.
pub(super) fn beside(finished: &Finished, unit: &str) -> Drawn {
    let rows: Vec<&FigureRow> = finished
        .rows
        .iter()
        .filter(|row| row.unit == unit)
        .collect();
    let axis = BarAxis::of(&rows, SIZE.0 as i32 - 56);
    let of_row = 2 * BAR_PIXELS + 6;
    let height = 60 + of_row * rows.len() as u32;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
        root.fill(&PAPER)?;
        let x = |value: f64| axis.x(value);
        let label = TEXT.into_font().color(&INK);
        let small = ("sans-serif", 13).into_font().color(&INK);
        for (i, row) in rows.iter().enumerate() {
            let y = 30 + (of_row * i as u32) as i32;
            name(&root, &row.figure, y + BAR_PIXELS as i32)?;
            printed_value(&root, row, &axis, y)?;
            let end = match bound(row) {
                Some(Bound::AtLeast) => axis.right,
                _ => x(row.published),
            };
            root.draw_text(&printed(row), &small, (end + 4, y - 2))?;
            let top = y + BAR_PIXELS as i32;
            let bar = [(LEFT, top), (x(row.ours), top + BAR_PIXELS as i32 - 2)];
            root.draw(&Rectangle::new(bar, style(row)))?;
            root.draw_text(&short(row.ours), &small, (x(row.ours_max) + 4, top - 2))?;
            let middle = y + BAR_PIXELS as i32 + 5;
            let span = [(x(row.ours_min), middle), (x(row.ours_max), middle)];
            root.draw(&PathElement::new(span, INK.stroke_width(1)))?;
        }
        legend(
            &root,
            &[
                ("printed", INK.filled()),
                ("blind", FIRST.filled()),
                ("calibrated, shape", SECOND.filled()),
                ("missed", MARK.filled()),
                ("not identifiable", INK.stroke_width(1)),
            ],
        )?;
        root.draw_text(&axis.name(unit), &label, (LEFT, height as i32 - 22))?;
        root.present()?;
    }
    Ok(svg)
}

/// Style of a figure's mark: filled with the colour of its worth, or hollow for an unidentifiable
/// figure.
fn style(row: &FigureRow) -> ShapeStyle {
    match (row.verdict, row.status) {
        (Some(FigureVerdict::Missed), _) => MARK.filled(),
        (_, FigureStatus::NotIdentifiable) => INK.stroke_width(1),
        (_, FigureStatus::Blind) => FIRST.filled(),
        _ => SECOND.filled(),
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// A figure's name around this height; a longer one in smaller letters, and at last on two lines.
fn name(root: &Area, name: &str, y: i32) -> Result<(), Box<dyn Error>> {
    const LONG: usize = 27;
    const ONE_LINE: usize = 32;
    const LINE: usize = 36;
    if name.len() <= LONG {
        root.draw_text(name, &TEXT.into_font().color(&INK), (8, y - 7))?;
        return Ok(());
    }
    if name.len() <= ONE_LINE {
        let smaller = ("sans-serif", 12).into_font().color(&INK);
        root.draw_text(name, &smaller, (8, y - 6))?;
        return Ok(());
    }
    let end = name
        .char_indices()
        .nth(LINE)
        .map_or(name.len(), |(at, _)| at);
    let end = name[..end]
        .rfind(' ')
        .filter(|_| end < name.len())
        .unwrap_or(end);
    let small = ("sans-serif", 10).into_font().color(&INK);
    let rest: String = name[end..].trim_start().chars().take(LINE).collect();
    root.draw_text(&name[..end], &small, (8, y - 9))?;
    root.draw_text(&rest, &small, (8, y + 1))?;
    Ok(())
}

fn legend(root: &Area, entries: &[(&str, ShapeStyle)]) -> Result<(), Box<dyn Error>> {
    let label = TEXT.into_font().color(&INK);
    let mut at = 12;
    for (name, style) in entries {
        root.draw(&Circle::new((at, 12), 4, *style))?;
        root.draw_text(name, &label, (at + 10, 7))?;
        at += 22 + 7 * name.len() as i32;
    }
    Ok(())
}

/// Base-2 logarithm of ours over the published value.
pub(super) fn ratio(published: f64, ours: f64) -> Option<f64> {
    let ratio = ours / published;
    (ratio > 0.0 && ratio.is_finite()).then(|| ratio.log2())
}

/// A line for each figure: ours as a multiple of the published value.
pub(super) fn agreement(finished: &Finished) -> Drawn {
    let rows: Vec<_> = finished
        .rows
        .iter()
        .filter_map(|row| Some((row, ratio(row.published, row.ours)?)))
        .collect();
    // Doublings to either side, so that the furthest is there.
    let reach = rows.iter().map(|(_, power)| power.abs().ceil());
    let reach = reach.fold(2.0, f64::max);
    let height = 60 + ROW_PIXELS * rows.len() as u32;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
        root.fill(&PAPER)?;
        let (left, right, top) = (LEFT, SIZE.0 as i32 - 16, 30);
        let bottom = height as i32 - 30;
        let x =
            |power: f64| left + ((power + reach) / (2.0 * reach) * f64::from(right - left)) as i32;
        let label = TEXT.into_font().color(&INK);
        for power in [-reach, -1.0, 0.0, 1.0, reach] {
            let colour = if power == 0.0 { INK } else { GRID };
            let line = [(x(power), top), (x(power), bottom)];
            root.draw(&PathElement::new(line, colour.stroke_width(1)))?;
            // The half and the twice have no name where there is no room beside.
            if power.abs() != 1.0 || reach < 6.0 {
                let at = (x(power) - 8, bottom + 6);
                root.draw_text(&short(power.exp2()), &label, at)?;
            }
        }
        for (i, (row, power)) in rows.iter().enumerate() {
            let y = top + (ROW_PIXELS * i as u32 + ROW_PIXELS / 2) as i32;
            name(&root, &row.figure, y)?;
            let style = style(row);
            let line = [(x(0.0), y), (x(*power), y)];
            let stroke = style.color.stroke_width(if style.filled { 2 } else { 1 });
            root.draw(&PathElement::new(line, stroke))?;
            root.draw(&Circle::new((x(*power), y), 4, style))?;
        }
        legend(
            &root,
            &[
                ("blind", FIRST.filled()),
                ("calibrated, shape", SECOND.filled()),
                ("missed", MARK.filled()),
                ("not identifiable", INK.stroke_width(1)),
            ],
        )?;
        root.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::row;
    use super::*;

    #[test]
    fn an_axis_shows_every_value_and_a_ratio_is_not_cut_off() {
        let at = |published: f64, ours: f64| {
            let row = FigureRow {
                published,
                ours_min: ours,
                ours_max: ours,
                ..row("a", FigureStatus::Blind, None)
            };
            let axis = BarAxis::of(&[&row], 424);
            let least = axis.x(published.min(ours)) - LEFT;
            (axis.is_logarithmic, least, axis.x(published.max(ours)))
        };
        assert_eq!(at(100.0, 50.0), (false, 112, 424));
        let (is_logarithmic, least, most) = at(0.001, 134.0);
        assert!(is_logarithmic && least > 5 && most == 424, "{least} {most}");
        let name = |least: f64| {
            let row = FigureRow {
                published: 134.0,
                ours_min: least,
                ..row("a", FigureStatus::Blind, None)
            };
            BarAxis::of(&[&row], 424).name("s")
        };
        assert_eq!(name(0.0007), "0.0001 to 134 s, logarithmic");
        assert_eq!(ratio(1.0, 1024.0), Some(10.0));
        assert_eq!(ratio(0.0, 1.0), None);
    }
}
