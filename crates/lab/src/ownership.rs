//! What a page costs: hardware and power over the years, by the pages served at the rate at
//! the end of a run.
//!
//! Left out: people, space, and discounting.

use advise::page::table;
use experiment::finished::Finished;
use serde::Deserialize;
use std::fmt::Write;
use toml::value::Datetime;

/// The prices that come with hotset.
const PRICES: &str = include_str!("../../../contrib/ownership.toml");
const HOURS_PER_YEAR: f64 = 8_766.0;

/// Drives of the evaluations that printed a cost or a rate of pages: the experiment, its
/// curve, disks, and flash drives.
const CASES: [(&str, &str, f64, f64); 6] = [
    ("cachecade", "hdd", 6.0, 0.0),
    ("cachecade", "ssd1", 6.0, 1.0),
    ("cachecade", "ssd2", 6.0, 2.0),
    ("cachecade", "ssd3", 6.0, 3.0),
    ("maxiq", "1500 users, cache off", 3.0, 0.0),
    ("maxiq", "1500 users, cache on", 3.0, 1.0),
];

/// Prices; amounts are in the currency that it names.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Prices {
    dated: Datetime,
    currency: String,
    years: f64,
    power_per_kwh: f64,
    server: Part,
    disk: Part,
    flash: Part,
}

/// A piece of hardware.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    price: f64,
    watts: f64,
}

/// What one case costs.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cost {
    hardware: f64,
    power: f64,
    per_million: f64,
}

impl Prices {
    fn cost(&self, disks: f64, flash: f64, pages_per_second: f64) -> Cost {
        let parts = [(1.0, self.server), (disks, self.disk), (flash, self.flash)];
        let sum = |of: fn(Part) -> f64| parts.iter().map(|(n, part)| n * of(*part)).sum::<f64>();
        let hours = HOURS_PER_YEAR * self.years;
        let hardware = sum(|part| part.price);
        let power = sum(|part| part.watts) / 1e3 * hours * self.power_per_kwh;
        let millions = pages_per_second * hours * 3_600.0 / 1e6;
        Cost {
            hardware,
            power,
            per_million: (hardware + power) / millions,
        }
    }
}

/// The cases of an experiment as markup; nothing if it has none.
pub fn section(finished: &Finished) -> String {
    let prices: Prices = toml::from_str(PRICES).expect("the shipped prices are well formed");
    let cases = CASES.iter().filter(|case| case.0 == finished.experiment);
    let line = |(_, name, disks, flash): &(&str, &str, f64, f64)| {
        let (_, curve) = finished.curves.iter().find(|(known, _)| known == name)?;
        let end = curve.interval_s * curve.points.len() as f64;
        let (sum, s) = curve.over(end * 8.0 / 9.0, end);
        let rate = sum.pages as f64 / s;
        let cost = prices.cost(*disks, *flash, rate);
        let cells = vec![
            (*name).to_owned(),
            format!("{disks:.0}"),
            format!("{flash:.0}"),
            format!("{rate:.1}"),
            format!("{:.0}", cost.hardware),
            format!("{:.0}", cost.power),
            format!("{:.3}", cost.per_million),
        ];
        Some((cells, false))
    };
    let lines: Vec<_> = cases.filter_map(line).collect();
    if lines.is_empty() {
        return String::new();
    }
    let head = [
        "",
        "disks",
        "flash",
        "pages/s",
        "hardware",
        "power",
        "a million pages",
    ];
    let mut out = String::from("<h3>Cost of ownership</h3>");
    let _ = write!(
        out,
        "<p class=\"soft\">{} over {} years at the rate of the run's end, by prices of {} that \
         are an example; people and space are left out.</p>{}",
        prices.currency,
        prices.years,
        prices.dated,
        table(&head, &lines, &[])
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_costs_its_part_of_hardware_and_power() {
        let part = |price, watts| Part { price, watts };
        let prices = Prices {
            dated: "2026-11-01".parse().unwrap(),
            currency: "USD".into(),
            years: 2.0,
            power_per_kwh: 0.5,
            server: part(1_000.0, 100.0),
            disk: part(100.0, 10.0),
            flash: part(50.0, 2.0),
        };
        let cost = prices.cost(3.0, 2.0, 10.0);
        assert_eq!(cost.hardware, 1_400.0);
        // 134 W over 17,532 hours.
        assert!((cost.power - 1_174.644).abs() < 1e-6, "{cost:?}");
        assert!((cost.per_million - 2_574.644 / 631.152).abs() < 1e-9);
        assert!(toml::from_str::<Prices>(PRICES).is_ok());
    }
}
