//! Cost of work: hardware and power over the years, by the work done at the rate of a run.
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

/// Work that is counted, and the source of its rate.
#[derive(Clone, Copy, Debug)]
enum WorkUnit {
    /// Pages of this curve in the last ninth of the run.
    Pages(&'static str),
    /// Megabytes of all of this curve.
    Megabytes(&'static str),
    /// The figure of this name.
    Figure(&'static str),
}

impl WorkUnit {
    fn name(self) -> &'static str {
        match self {
            WorkUnit::Pages(name) | WorkUnit::Megabytes(name) | WorkUnit::Figure(name) => name,
        }
    }

    /// The rate a second, if measured.
    fn rate(self, finished: &Finished) -> Option<f64> {
        let curve = |name| finished.curves.iter().find(|(known, _)| known == name);
        match self {
            WorkUnit::Pages(name) => {
                let (_, curve) = curve(name)?;
                let end = curve.interval_s * curve.points.len() as f64;
                let (sum, s) = curve.over(end * 8.0 / 9.0, end);
                Some(sum.pages as f64 / s)
            }
            WorkUnit::Megabytes(name) => {
                let (sum, s) = curve(name)?.1.whole();
                Some(sum.bytes as f64 / 1e6 / s)
            }
            WorkUnit::Figure(name) => {
                let row = finished.rows.iter().find(|row| row.figure == name)?;
                Some(row.ours)
            }
        }
    }
}

/// A machine and its work: the experiment, disks, flash drives, and the work.
struct OwnershipCase {
    experiment: &'static str,
    disks: f64,
    flash: f64,
    work: WorkUnit,
    /// Unit of the work; the price is for a million of these.
    unit: &'static str,
}

const fn case(
    experiment: &'static str,
    disks: f64,
    flash: f64,
    work: WorkUnit,
    unit: &'static str,
) -> OwnershipCase {
    OwnershipCase {
        experiment,
        disks,
        flash,
        work,
        unit,
    }
}

/// The evaluations, each with its drives. Decision support is without the storage system, because
/// its drives were not printed; `perc` does no work that could be paid for.
const CASES: [OwnershipCase; 13] = [
    case("cachecade", 6.0, 0.0, WorkUnit::Pages("hdd"), "pages"),
    case("cachecade", 6.0, 1.0, WorkUnit::Pages("ssd1"), "pages"),
    case("cachecade", 6.0, 2.0, WorkUnit::Pages("ssd2"), "pages"),
    case("cachecade", 6.0, 3.0, WorkUnit::Pages("ssd3"), "pages"),
    case(
        "maxiq",
        3.0,
        0.0,
        WorkUnit::Pages("1500 users, cache off"),
        "pages",
    ),
    case(
        "maxiq",
        3.0,
        1.0,
        WorkUnit::Pages("1500 users, cache on"),
        "pages",
    ),
    case(
        "redskin",
        2.0,
        0.0,
        WorkUnit::Figure("hour.hdd.elevator.tps"),
        "requests",
    ),
    case(
        "redskin",
        0.0,
        1.0,
        WorkUnit::Figure("hour.x25-m.elevator.tps"),
        "requests",
    ),
    case(
        "redskin",
        0.0,
        2.0,
        WorkUnit::Figure("hour.x25-e.elevator.tps"),
        "requests",
    ),
    case(
        "nytro",
        0.0,
        0.0,
        WorkUnit::Megabytes("without the cache"),
        "MB",
    ),
    case("nytro", 0.0, 1.0, WorkUnit::Megabytes("warm"), "MB"),
    case(
        "perc-mail",
        14.0,
        0.0,
        WorkUnit::Figure("iops.average"),
        "reads and writes",
    ),
    case(
        "perc-oltp",
        14.0,
        0.0,
        WorkUnit::Figure("tps"),
        "transactions",
    ),
];

/// Prices; amounts are in `currency`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceList {
    dated: Datetime,
    currency: String,
    years: f64,
    power_per_kwh: f64,
    server: HardwarePart,
    disk: HardwarePart,
    flash: HardwarePart,
}

/// A piece of hardware.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HardwarePart {
    price: f64,
    watts: f64,
}

/// Cost of one case.
#[derive(Clone, Copy, PartialEq, Debug)]
struct OwnershipCost {
    hardware: f64,
    power: f64,
    per_million: f64,
}

impl PriceList {
    fn cost(&self, disks: f64, flash: f64, pages_per_second: f64) -> OwnershipCost {
        let parts = [(1.0, self.server), (disks, self.disk), (flash, self.flash)];
        let sum =
            |of: fn(HardwarePart) -> f64| parts.iter().map(|(n, part)| n * of(*part)).sum::<f64>();
        let hours = HOURS_PER_YEAR * self.years;
        let hardware = sum(|part| part.price);
        let power = sum(|part| part.watts) / 1e3 * hours * self.power_per_kwh;
        let millions = pages_per_second * hours * 3_600.0 / 1e6;
        OwnershipCost {
            hardware,
            power,
            per_million: (hardware + power) / millions,
        }
    }
}

/// The cases of an experiment as markup; empty without any.
pub fn section(finished: &Finished) -> String {
    let prices: PriceList = toml::from_str(PRICES).expect("the shipped prices are well formed");
    let cases = CASES.iter();
    let cases = cases.filter(|case| case.experiment == finished.experiment);
    let line = |case: &OwnershipCase| {
        let rate = case.work.rate(finished)?;
        let cost = prices.cost(case.disks, case.flash, rate);
        let cells = vec![
            case.work.name().to_owned(),
            format!("{:.0}", case.disks),
            format!("{:.0}", case.flash),
            format!("{rate:.1}"),
            format!("{:.0}", cost.hardware),
            format!("{:.0}", cost.power),
            format!("{:.3}", cost.per_million),
        ];
        Some((case.unit, (cells, false)))
    };
    let lines: Vec<_> = cases.filter_map(line).collect();
    let Some((unit, _)) = lines.first() else {
        return String::new();
    };
    let (rate, million) = (format!("{unit}/s"), format!("a million {unit}"));
    let head = ["", "disks", "flash", &rate, "hardware", "power", &million];
    let lines: Vec<_> = lines.into_iter().map(|(_, line)| line).collect();
    let mut out = String::from("<h3>Cost of ownership</h3>");
    let _ = write!(
        out,
        "<p class=\"soft\">{} over {} years at the rate of the run, of pages that of its end, by \
         prices of {} that are an example; people, space and a storage system are left out.</p>{}",
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
    use experiment::registry::named;

    #[test]
    fn a_page_costs_its_part_of_hardware_and_power() {
        let part = |price, watts| HardwarePart { price, watts };
        let prices = PriceList {
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
        assert!(toml::from_str::<PriceList>(PRICES).is_ok());
    }

    #[test]
    fn what_is_paid_for_as_a_figure_was_printed() {
        for case in CASES {
            let experiment = named(case.experiment).expect("it is registered");
            if let WorkUnit::Figure(name) = case.work {
                let printed = (experiment.figures)().printed;
                assert!(printed.iter().any(|p| p.figure == name), "{name}");
            }
        }
    }
}
