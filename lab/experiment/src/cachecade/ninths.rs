//! The published figures of the curves, in the terms of the source: ninths of the run, which are
//! ten minutes each.

use crate::totals::totals;
use crate::verdict::{ResultTable, SeedOutcome};
use crate::visitors::{VisitCurve, VisitTally};

/// A curve in the terms of the source: ninths of the run, which are ten minutes each.
struct Ninths<'a>(&'a VisitCurve);

impl Ninths<'_> {
    fn over(&self, from: u32, to: u32) -> (VisitTally, f64) {
        let ninth = self.0.interval_s * self.0.points.len() as f64 / 9.0;
        self.0.over(ninth * f64::from(from), ninth * f64::from(to))
    }

    /// Pages a second in the ninth that begins at `from`.
    fn rate(&self, from: u32) -> f64 {
        let (sum, s) = self.over(from, from + 1);
        sum.pages as f64 / s
    }

    fn end(&self) -> (VisitTally, f64) {
        self.over(8, 9)
    }

    /// Time at which the page rate, as the mean of `WINDOW` points around it, is first within 5 %
    /// of the rate at the end; in minutes, of 90.
    fn settles(&self) -> f64 {
        const WINDOW: usize = 5;
        let (sum, s) = self.end();
        let enough = 0.95 * sum.pages as f64 / s * self.0.interval_s * WINDOW as f64;
        let windows = self.0.points.windows(WINDOW);
        let pages =
            |window: &[VisitTally]| window.iter().map(|point| point.pages as f64).sum::<f64>();
        let found = windows.map(pages).position(|pages| pages >= enough);
        let middle = found.unwrap_or(self.0.points.len()) + WINDOW / 2;
        90.0 * middle as f64 / self.0.points.len() as f64
    }
}

/// Improvement over `before` of each measurement, as a factor: pages, bytes, the responses of a
/// page and of a request, and the first byte.
fn gains((now, now_s): (VisitTally, f64), (before, before_s): (VisitTally, f64)) -> [f64; 5] {
    [
        now.pages as f64 / now_s / (before.pages as f64 / before_s),
        now.bytes as f64 / now_s / (before.bytes as f64 / before_s),
        before.response_s() / now.response_s(),
        before.request_s() / now.request_s(),
        before.first_byte_s() / now.first_byte_s(),
    ]
}

/// Sets the published figures, from the curves.
pub(super) fn compare(measured: &mut SeedOutcome) {
    let curves = std::mem::take(&mut measured.curves);
    let of = |name: &str| {
        let found = curves.iter().find(|(known, _)| known == name);
        Ninths(&found.expect("every case has run").1)
    };
    let hdd = of("hdd");
    let flash = ["ssd1", "ssd2", "ssd3"];
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    for name in ["ssd1", "ssd2"] {
        let ended = gains(of(name).end(), hdd.end());
        measured.set(format!("gain.{name}"), ended[0]);
        measured.set(format!("least.{name}"), least(&ended));
        let total = gains(of(name).over(0, 9), hdd.over(0, 9));
        measured.set(format!("total.{name}"), total[0]);
    }
    // In 90 minutes, at the rate of all of the run.
    let pages = curves.iter().map(|(_, curve)| {
        let (sum, s) = curve.whole();
        sum.pages as f64 / s * 90.0 * 60.0
    });
    let responses = flash.map(|name| of(name).end().0.response_s());
    let faster = flash.map(|name| {
        let ended = gains(of(name).end(), hdd.end());
        ended[2] / ended[0]
    });
    let end = |name: &str| of(name).rate(8);
    for (figure, value) in [
        ("rate.hdd", hdd.rate(8)),
        ("requests", pages.fold(f64::INFINITY, f64::min)),
        ("response", responses.into_iter().fold(0.0, f64::max)),
        ("claim.hdd.flat", hdd.rate(8) / hdd.rate(1)),
        ("claim.ssd1.climbs", of("ssd1").settles()),
        ("claim.ssd1.flat", end("ssd1") / of("ssd1").rate(7)),
        ("claim.ssd2.climbs", end("ssd2") / of("ssd2").rate(7)),
        ("claim.ssd3", end("ssd3") / end("ssd2")),
        ("claim.both", end("ssd2") / end("web")),
        ("claim.content", end("web") / end("os")),
        ("claim.partial", end("ssd1") / end("hdd")),
        ("claim.response", least(&faster)),
    ] {
        measured.set(figure, value);
    }
    let line = |(name, curve): &(String, VisitCurve)| {
        let rates = (0..9).map(|from| format!("{:.1}", Ninths(curve).rate(from)));
        [name.clone()].into_iter().chain(rates).collect()
    };
    let minutes = (0..9).map(|ninth| format!("from {}", ninth * 10));
    let head: Vec<String> = ["case".to_owned()].into_iter().chain(minutes).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let lines = curves.iter().map(line).collect();
    let title = "Pages a second in each ten minutes of the published run";
    measured.tables = vec![ResultTable::new(title, &head, lines), totals(90.0, &curves)];
    measured.curves = curves;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(rate: impl Fn(f64) -> f64) -> VisitCurve {
        let point = |n: u32| VisitTally {
            pages: (60.0 * rate(f64::from(n) + 0.5)) as u64,
            hits: 1,
            page_s: 1.0,
            ..VisitTally::default()
        };
        VisitCurve {
            interval_s: 60.0,
            points: (0..90).map(point).collect(),
        }
    }

    /// A rate that rises in a line to a plateau is within 5 % of the plateau at 0.95 of the rise.
    #[test]
    fn a_climb_ends_where_it_comes_near_the_plateau() {
        for end in [20.0, 60.0, 75.0] {
            let climb = curve(|minute| 1_000.0 * f64::min(minute / end, 1.0));
            let settles = Ninths(&climb).settles();
            assert!((settles - 0.95 * end).abs() < 1.5, "{settles} of {end}");
        }
        assert!(Ninths(&curve(|_| 10.0)).settles() < 3.0);
    }
}
