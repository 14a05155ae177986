//! The verdict in words: measurements with the printed value and ours, and the causes of those that
//! are not as printed.
//!
//! Not here: rows that are not counted.

use super::bounds::printed;
use super::short::short;
use advise::page::escape;
use experiment::figures::FigureVerdict;
use experiment::finished::Finished;
use experiment::verdict::{FigureRow, VerdictCounts};
use std::fmt::Write;

/// The sections of the experiments, as markup.
pub(super) fn of(all: &[Finished]) -> String {
    let mut out = String::new();
    for finished in all {
        let counts = VerdictCounts::of(&finished.rows);
        let says = match counts.judged() {
            0 => "Too little was run to judge by.".to_owned(),
            judged => format!("{} of {judged} measurements are as printed.", counts.met),
        };
        let name = escape(&finished.experiment);
        let _ = write!(out, "<h3>{name}</h3><p>{says}</p>");
        for (heading, verdict) in [
            ("Not as printed", FigureVerdict::Missed),
            ("The seeds do not say", FigureVerdict::Inconclusive),
            ("As printed", FigureVerdict::Met),
        ] {
            let rows = finished.rows.iter();
            let rows = rows.filter(|row| is_counted(row) && row.verdict == Some(verdict));
            let points: String = rows.map(|row| point(row, verdict)).collect();
            if !points.is_empty() {
                let _ = write!(out, "<p>{heading}:</p><ul>{points}</ul>");
            }
        }
    }
    out
}

fn is_counted(row: &FigureRow) -> bool {
    row.derived_from.is_none() && !row.is_insensitive()
}

/// A measurement: the printed value, ours, and what there is to know of a difference.
fn point(row: &FigureRow, verdict: FigureVerdict) -> String {
    let unit = match row.unit.as_str() {
        "ratio" => String::new(),
        unit => format!(" {unit}"),
    };
    let (ours, printed) = (short(row.ours), printed(row));
    let why = match (verdict, row.note.is_empty()) {
        (FigureVerdict::Met, _) => String::new(),
        (_, true) => "; no cause is known".to_owned(),
        (_, false) => format!("; {}", row.note),
    };
    let text = format!("{}: {printed}{unit} printed, {ours} here{why}", row.figure);
    format!("<li>{}</li>", escape(&text))
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;
    use experiment::figures::{AcceptedRange, FigureStatus};

    #[test]
    fn a_bound_is_named_and_a_miss_has_its_cause() {
        let missed = FigureRow {
            accepted: Some(AcceptedRange {
                least: Some(100.0),
                most: None,
            }),
            note: "a listen queue".into(),
            ..row("rate", FigureStatus::Blind, Some(FigureVerdict::Missed))
        };
        let text = "<li>rate: at least 100 1/s printed, 90 here; a listen queue</li>";
        assert_eq!(point(&missed, FigureVerdict::Missed), text);
        let text = "<li>rate: at least 100 1/s printed, 90 here</li>";
        assert_eq!(point(&missed, FigureVerdict::Met), text);
        let derived = FigureRow {
            derived_from: Some("other".into()),
            ..missed
        };
        assert!(!is_counted(&derived));
    }
}
