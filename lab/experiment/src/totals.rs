//! Work of a whole run, in the time of the published one.

use crate::verdict::ResultTable;
use crate::visitors::VisitCurve;

/// Pages, requests and megabytes of each of these curves in so many minutes, at the rates of their
/// whole runs.
pub fn totals(minutes: f64, curves: &[(String, VisitCurve)]) -> ResultTable {
    let line = |(name, curve): &(String, VisitCurve)| {
        let (sum, s) = curve.whole();
        let total = |of: u64| of as f64 / s * minutes * 60.0;
        vec![
            name.clone(),
            format!("{:.0}", total(sum.pages)),
            format!("{:.0}", total(sum.hits)),
            format!("{:.0}", total(sum.bytes) / 1e6),
        ]
    };
    ResultTable::new(
        format!("Totals of {minutes} minutes"),
        &["case", "pages", "hits", "MB"],
        curves.iter().map(line).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visitors::VisitTally;

    #[test]
    fn totals_are_those_of_the_rates_in_the_time() {
        let point = VisitTally {
            pages: 600,
            hits: 1,
            bytes: 3_000_000,
            ..VisitTally::default()
        };
        let curve = VisitCurve {
            interval_s: 60.0,
            points: vec![point; 90],
        };
        let lines = totals(9.0, &[("a".to_owned(), curve)]).lines;
        assert_eq!(lines, [["a", "5400", "9", "27"].map(String::from)]);
    }
}
