//! Cost of work: hardware and power over the years, by the work done at the rate of a run; the
//! servers that a load needs; and memory against flash by capacity.
//!
//! Left out: people, space, and discounting.

use advise::page::table;
use experiment::finished::Finished;
use serde::Deserialize;
use std::fmt::Write;
use toml::value::Datetime;

/// The prices that come with hotset.
const PRICES: &str = include_str!("../../../contrib/ownership.toml");
/// Prices of modules of memory and of flash drives, today's and of the time.
const CAPACITY: &str = include_str!("../../../contrib/capacity.toml");
const HOURS_PER_YEAR: f64 = 8_766.0;
/// The load that servers are counted for, in loads of the fastest server.
const LOAD: f64 = 10.0;
/// Capacities in GB.
const CAPACITIES: [f64; 5] = [32.0, 64.0, 128.0, 256.0, 512.0];

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
pub struct PriceList {
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
    watts: f64,
    power: f64,
    per_million: f64,
}

impl PriceList {
    /// The prices that come with hotset.
    pub fn shipped() -> PriceList {
        PriceList::parse(PRICES).expect("the shipped prices are well formed")
    }

    /// Reads prices; the error names the problem and its place.
    pub fn parse(text: &str) -> Result<PriceList, String> {
        let prices: PriceList = toml::from_str(text).map_err(|error| error.to_string())?;
        match prices.years > 0.0 {
            true => Ok(prices),
            false => Err("years is not above 0".into()),
        }
    }

    fn cost(&self, disks: f64, flash: f64, pages_per_second: f64) -> OwnershipCost {
        let parts = [(1.0, self.server), (disks, self.disk), (flash, self.flash)];
        let sum =
            |of: fn(HardwarePart) -> f64| parts.iter().map(|(n, part)| n * of(*part)).sum::<f64>();
        let hours = HOURS_PER_YEAR * self.years;
        let hardware = sum(|part| part.price);
        let watts = sum(|part| part.watts);
        let power = watts / 1e3 * hours * self.power_per_kwh;
        let millions = pages_per_second * hours * 3_600.0 / 1e6;
        OwnershipCost {
            hardware,
            watts,
            power,
            per_million: (hardware + power) / millions,
        }
    }
}

/// The cases of an experiment as markup; empty without any.
pub fn section(finished: &Finished, prices: &PriceList) -> String {
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
    let Some(&(unit, _)) = lines.first() else {
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
    out + &servers(finished, prices, unit)
}

/// Whole servers for a load, at the rate of one.
fn needed(load: f64, rate: f64) -> f64 {
    (load / rate).ceil()
}

/// The servers that each case needs for one load, their power and their cost.
fn servers(finished: &Finished, prices: &PriceList, unit: &str) -> String {
    let cases = CASES.iter();
    let cases = cases.filter(|case| case.experiment == finished.experiment);
    let rated = cases.filter_map(|case| Some((case, case.work.rate(finished)?)));
    let rated: Vec<_> = rated.collect();
    let load = LOAD * rated.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let line = |(case, rate): &(&OwnershipCase, f64)| {
        let (count, cost) = (
            needed(load, *rate),
            prices.cost(case.disks, case.flash, *rate),
        );
        let cells = [
            case.work.name().to_owned(),
            format!("{count:.0}"),
            format!("{:.0}", count * case.disks),
            format!("{:.0}", count * case.flash),
            format!("{:.2}", count * cost.watts / 1e3),
            format!("{:.1}", count * cost.watts / 1e3 * 24.0),
            format!("{:.0}", count * (cost.hardware + cost.power)),
        ];
        (cells.to_vec(), false)
    };
    let head = [
        "",
        "servers",
        "disks",
        "flash",
        "kW",
        "kWh a day",
        "hardware and power",
    ];
    let lines: Vec<_> = rated.iter().map(line).collect();
    format!(
        "<h3>Servers for {load:.0} {unit}/s</h3><p class=\"soft\">Ten times the rate of the fastest; \
         by the same prices.</p>{}",
        table(&head, &lines, &[])
    )
}

/// Prices of capacity at one time.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CapacityPrices {
    name: String,
    currency: String,
    memory: CapacityModule,
    flash: CapacityModule,
}

/// A module of memory or a flash drive.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CapacityModule {
    gb: f64,
    price: f64,
    price_source: String,
    watts: f64,
    watts_source: String,
}

impl CapacityModule {
    /// Price and watts of so many GB, in whole modules.
    fn of(&self, gb: f64) -> [f64; 2] {
        let modules = (gb / self.gb).ceil();
        [modules * self.price, modules * self.watts]
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapacityBook {
    book: Vec<CapacityPrices>,
}

/// Price and watts of memory against flash by capacity, as markup: today and at the time.
pub fn capacity() -> String {
    let CapacityBook { book } =
        toml::from_str(CAPACITY).expect("the shipped prices are well formed");
    let mut out = String::new();
    for prices in &book {
        let line = |gb: f64| {
            let [memory, flash] = [&prices.memory, &prices.flash].map(|module| module.of(gb));
            let cells = [
                gb,
                memory[0],
                flash[0],
                memory[0] / flash[0],
                memory[1],
                flash[1],
            ];
            let shown = cells.map(crate::report::short);
            (shown.to_vec(), false)
        };
        let sources = [
            ("memory, price", &prices.memory.price_source),
            ("watts", &prices.memory.watts_source),
            ("flash, price", &prices.flash.price_source),
            ("watts", &prices.flash.watts_source),
        ];
        let sources = sources.map(|(of, source)| format!("{of}: {}", advise::page::escape(source)));
        let head = ["GB", "memory", "flash", "times", "memory, W", "flash, W"];
        let lines: Vec<_> = CAPACITIES.map(line).into();
        let _ = write!(
            out,
            "<h3>{}, {}</h3>{}<p class=\"soft\">{}</p>",
            prices.name,
            prices.currency,
            table(&head, &lines, &[]),
            sources.join("; ")
        );
    }
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
        let shipped = PriceList::shipped();
        assert_eq!(PriceList::parse(PRICES), Ok(shipped));
        let wrong = PriceList::parse(&PRICES.replace("years = 5", "years = 0"));
        assert_eq!(wrong, Err("years is not above 0".into()));
        let unknown = PriceList::parse(&format!("colour = 1\n{PRICES}")).unwrap_err();
        assert!(unknown.contains("colour"), "{unknown}");
    }

    #[test]
    fn capacity_is_bought_in_whole_modules_and_a_load_needs_whole_servers() {
        let module = CapacityModule {
            gb: 48.0,
            price: 10.0,
            price_source: String::new(),
            watts: 3.0,
            watts_source: String::new(),
        };
        assert_eq!(module.of(48.0), [10.0, 3.0]);
        assert_eq!(module.of(49.0), [20.0, 6.0]);
        assert_eq!([needed(100.0, 50.0), needed(100.0, 49.0)], [2.0, 3.0]);
        assert_eq!(capacity().matches("<h3>").count(), 2);
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
