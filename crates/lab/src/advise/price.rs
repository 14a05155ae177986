//! What a pool costs over its life, from a price book that the user edits.

use serde::{Deserialize, Serialize};

/// Prices and ratings; amounts of money are in the currency it names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceBook {
    /// When the prices were taken, as YYYY-MM-DD.
    pub dated: String,
    /// The currency of every amount.
    pub currency: String,
    /// A gigabyte (10^9 bytes) of pool SSD.
    pub ssd_per_gb: f64,
    /// Full-device writes a day over `ssd_warranty_years` that it is rated for.
    pub ssd_writes_per_day: f64,
    /// Years of the endurance rating.
    pub ssd_warranty_years: f64,
    /// Power of the SSD under load, in watts for each terabyte.
    pub ssd_watts_per_tb: f64,
    /// A kilowatt-hour, cooling included.
    pub power_per_kwh: f64,
    /// Yearly rate at which later payments count for less.
    pub discount_rate: f64,
    /// Years over which costs are counted.
    pub years: u32,
}

impl Default for PriceBook {
    /// Illustrative figures of late 2026 for a read-intensive data-centre SSD.
    fn default() -> PriceBook {
        PriceBook {
            dated: "2026-11-01".into(),
            currency: "USD".into(),
            ssd_per_gb: 0.12,
            ssd_writes_per_day: 1.0,
            ssd_warranty_years: 5.0,
            ssd_watts_per_tb: 2.5,
            power_per_kwh: 0.2,
            discount_rate: 0.07,
            years: 5,
        }
    }
}

/// The cost of one pool.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Cost {
    /// Years until the rated writes are used up.
    pub endurance_years: f64,
    /// Net present value of the hardware, its replacements included.
    pub hardware: f64,
    /// Net present value of the power.
    pub power: f64,
    /// Their sum.
    pub total: f64,
}

impl PriceBook {
    /// The cost of `pool_bytes` written at `bytes_per_second` all the time.
    pub fn cost(&self, pool_bytes: f64, bytes_per_second: f64) -> Cost {
        const SECONDS_PER_DAY: f64 = 86_400.0;
        const DAYS_PER_YEAR: f64 = 365.25;
        let rated_bytes =
            pool_bytes * self.ssd_writes_per_day * self.ssd_warranty_years * DAYS_PER_YEAR;
        let written_per_year = bytes_per_second * SECONDS_PER_DAY * DAYS_PER_YEAR;
        let endurance_years = rated_bytes / written_per_year.max(f64::MIN_POSITIVE);
        let price = pool_bytes / 1e9 * self.ssd_per_gb;
        let years = f64::from(self.years);
        let discounted = |year: f64| (1.0 + self.discount_rate).powf(-year);
        // A device worn out within a day is not replaced daily but unusable;
        // the sum stays finite all the same.
        let interval = endurance_years.clamp(1.0 / DAYS_PER_YEAR, years.max(1.0));
        let purchases = (years / interval).ceil().max(1.0) as u32;
        let hardware: f64 = (0..purchases)
            .map(|n| price * discounted(f64::from(n) * interval))
            .sum();
        let kwh_per_year = pool_bytes / 1e12 * self.ssd_watts_per_tb / 1e3 * 24.0 * DAYS_PER_YEAR;
        let power: f64 = (0..self.years)
            .map(|year| kwh_per_year * self.power_per_kwh * discounted(f64::from(year) + 0.5))
            .sum();
        Cost {
            endurance_years,
            hardware,
            power,
            total: hardware + power,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worn_out_pool_is_bought_again_at_a_discount() {
        let book = PriceBook {
            discount_rate: 0.1,
            ..PriceBook::default()
        };
        let terabyte = 1e12;
        let idle = book.cost(terabyte, 0.0);
        assert_eq!(idle.hardware, 120.0);
        // Two writes a day use up five years at one a day in two and a half.
        let busy = book.cost(terabyte, 2.0 * terabyte / 86_400.0);
        assert!((busy.endurance_years - 2.5).abs() < 1e-9);
        assert!((busy.hardware - 120.0 * (1.0 + 1.1f64.powf(-2.5))).abs() < 1e-9);
        assert!(idle.power > 0.0 && idle.total == idle.hardware + idle.power);
    }
}
