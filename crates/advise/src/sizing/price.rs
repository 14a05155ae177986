//! Cost of a pool over its life, from a price book that the user edits.

use serde::{Deserialize, Serialize};
use toml::value::Datetime;

/// The price book that comes with hotset: an example to edit.
pub const EXAMPLE: &str = include_str!("../../../../contrib/prices.toml");

const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_YEAR: f64 = 365.25;
/// Years over which costs may be counted.
const YEARS_MAX: u32 = 50;

/// Prices and ratings; amounts of money are in the currency of the book.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceBook {
    /// The day on which the prices were taken.
    #[serde(serialize_with = "as_text")]
    pub dated: Datetime,
    /// The currency of every amount.
    pub currency: String,
    /// Years over which costs are counted.
    pub years: u32,
    /// Yearly rate at which later payments count for less.
    pub discount_rate: f64,
    /// A kilowatt-hour, cooling included.
    pub power_per_kwh: f64,
    /// The pool's SSD.
    pub ssd: SsdPrice,
}

/// Price and rating of an SSD.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdPrice {
    /// A gigabyte (10^9 bytes).
    pub price_per_gb: f64,
    /// Full-device writes a day that the SSD is rated for, over `warranty_years`.
    pub writes_per_day: f64,
    /// Years of the endurance rating.
    pub warranty_years: f64,
    /// Power under load, in watts for each terabyte.
    pub watts_per_tb: f64,
}

fn as_text<S: serde::Serializer>(date: &Datetime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&date.to_string())
}

/// The cost of one pool.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PoolCost {
    /// Years until the rated writes are used up; none if no bytes are written or the rate is not
    /// known.
    pub endurance_years: Option<f64>,
    /// Net present value of the hardware, replacements for wear included.
    pub hardware: f64,
    /// Times the hardware is bought.
    pub purchases: u32,
    /// Net present value of the power.
    pub power: f64,
    /// Sum of hardware and power.
    pub total: f64,
}

impl PriceBook {
    /// Reads a price book; the error is one line without the file's name.
    pub fn parse(text: &str) -> Result<PriceBook, String> {
        let book: PriceBook = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map(|span| text[..span.start].lines().count().max(1));
            let place = line.map_or(String::new(), |line| format!("line {line}: "));
            let what = error.message().trim_end();
            format!("{place}{what}; see the example that `hotset advise --example-prices` prints")
        })?;
        book.check()?;
        Ok(book)
    }

    fn check(&self) -> Result<(), String> {
        if self.dated.date.is_none() {
            return Err(format!(
                "dated = {} is no day; write it as 2026-11-01",
                self.dated
            ));
        }
        if !(1..=YEARS_MAX).contains(&self.years) {
            return Err(format!(
                "years = {}; choose from 1 to {YEARS_MAX}",
                self.years
            ));
        }
        let ssd = &self.ssd;
        let zero_or_more = [
            ("discount_rate", self.discount_rate),
            ("power_per_kwh", self.power_per_kwh),
            ("ssd.price_per_gb", ssd.price_per_gb),
            ("ssd.watts_per_tb", ssd.watts_per_tb),
        ];
        let more = [
            ("ssd.writes_per_day", ssd.writes_per_day),
            ("ssd.warranty_years", ssd.warranty_years),
        ];
        for (name, value) in zero_or_more {
            if !value.is_finite() || value < 0.0 {
                return Err(format!("{name} = {value}; write a number from 0 on"));
            }
        }
        for (name, value) in more {
            if !value.is_finite() || value <= 0.0 {
                return Err(format!("{name} = {value}; write a number above 0"));
            }
        }
        if self.discount_rate > 1.0 {
            let what = "discount_rate = {}; write 7% as 0.07";
            return Err(what.replace("{}", &self.discount_rate.to_string()));
        }
        Ok(())
    }

    /// Days from the date of the prices to `now`, counted from 1970.
    pub fn age_days(&self, now: u64) -> Option<u64> {
        let date = self.dated.date?;
        let dated = days_from_civil(date.year.into(), date.month.into(), date.day.into());
        u64::try_from(now as i64 - dated).ok()
    }

    /// The cost of `pool_bytes` that are written at a steady rate, if that is
    /// known.
    pub fn cost(&self, pool_bytes: f64, written_bytes_per_second: Option<f64>) -> PoolCost {
        let ssd = &self.ssd;
        let rated_bytes = pool_bytes * ssd.writes_per_day * ssd.warranty_years * DAYS_PER_YEAR;
        let per_year = |bytes: f64| bytes * SECONDS_PER_DAY * DAYS_PER_YEAR;
        let written = written_bytes_per_second.filter(|bytes| *bytes > 0.0);
        let endurance_years = written.map(|bytes| rated_bytes / per_year(bytes));
        let price = pool_bytes / 1e9 * ssd.price_per_gb;
        let years = f64::from(self.years);
        let discounted = |year: f64| (1.0 + self.discount_rate).powf(-year);
        // A device that wears out within a day is not replaced daily but unusable; the sum stays
        // finite all the same.
        let interval = endurance_years.unwrap_or(years);
        let interval = interval.clamp(1.0 / DAYS_PER_YEAR, years);
        let purchases = (years / interval).ceil().max(1.0) as u32;
        let hardware = (0..purchases).map(|n| price * discounted(f64::from(n) * interval));
        let hardware = hardware.sum();
        let kwh_per_year = pool_bytes / 1e12 * ssd.watts_per_tb / 1e3 * 24.0 * DAYS_PER_YEAR;
        let power = (0..self.years)
            .map(|year| kwh_per_year * self.power_per_kwh * discounted(f64::from(year) + 0.5))
            .sum();
        PoolCost {
            endurance_years,
            hardware,
            purchases,
            power,
            total: hardware + power,
        }
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar (Hinnant,
/// "chrono-compatible low-level date algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> PriceBook {
        PriceBook::parse(EXAMPLE).unwrap()
    }

    #[test]
    fn a_worn_out_pool_is_bought_again_at_a_discount() {
        let book = PriceBook {
            discount_rate: 0.1,
            ..example()
        };
        let terabyte = 1e12;
        let idle = book.cost(terabyte, Some(0.0));
        assert_eq!(
            (idle.hardware, idle.purchases, idle.endurance_years),
            (120.0, 1, None)
        );
        assert_eq!(idle, book.cost(terabyte, None));
        // Two writes a day use up five years at one a day in two and a half.
        let busy = book.cost(terabyte, Some(2.0 * terabyte / SECONDS_PER_DAY));
        assert!((busy.endurance_years.unwrap() - 2.5).abs() < 1e-9);
        assert!((busy.hardware - 120.0 * (1.0 + 1.1f64.powf(-2.5))).abs() < 1e-9);
        assert!(busy.purchases == 2 && idle.total == idle.hardware + idle.power);
        // 2.5 W for a year at 0.2 is 4.383; discounted from the middle of each.
        let power: f64 = (0..5)
            .map(|y| 4.383 * 1.1f64.powf(-(f64::from(y) + 0.5)))
            .sum();
        assert!((idle.power - power).abs() < 1e-9);
        assert!(book.cost(terabyte, Some(1e18)).total.is_finite());
    }

    #[test]
    fn what_is_wrong_with_a_book_is_reported_in_one_line() {
        for (from, to, expected) in [
            ("years = 5", "", "missing field `years`"),
            ("years = 5", "years = 0", "choose from 1 to 50"),
            ("years = 5", "years = \"x\"", "line 14: invalid type"),
            ("years = 5", "yeers = 5", "unknown field `yeers`"),
            ("= 0.07", "= 7", "write 7% as 0.07"),
            ("= 0.07", "= nan", "discount_rate"),
            ("= 0.12", "= -1", "ssd.price_per_gb"),
            ("_day = 1.0", "_day = 0", "ssd.writes_per_day"),
            ("2026-11-01", "\"soon\"", "line 8"),
            ("2026-11-01", "07:32:00", "is no day"),
            ("[ssd]", "[ssd", "line"),
        ] {
            let changed = EXAMPLE.replacen(from, to, 1);
            assert_ne!(changed, EXAMPLE, "{from}");
            let error = PriceBook::parse(&changed).unwrap_err();
            assert!(
                error.contains(expected) && !error.contains('\n'),
                "{from} {to}: {error}"
            );
        }
    }

    #[test]
    fn the_age_of_the_prices_is_known() {
        assert_eq!(days_from_civil(1970, 1, 1), 0);
        assert_eq!(days_from_civil(2000, 3, 1), 11_017);
        assert_eq!(days_from_civil(2026, 11, 1), 20_758);
        assert_eq!(example().age_days(20_768), Some(10));
        assert_eq!(example().age_days(0), None);
    }
}
