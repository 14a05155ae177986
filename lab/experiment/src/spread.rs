//! Differences between seeds: the 95 % intervals of a ratio and of a mean.

use libm::{exp, log, sqrt};

/// Student's t at 97.5 %, by degrees of freedom from 1 on; beyond, the last is a little wide.
const T: [f64; 10] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
];

/// Most ratios that [`needed`] counts.
pub const NEEDED_MAX: usize = 100_000;

/// The mean of `values`; not a number without any.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of `values`, and their standard deviation; `None` for fewer than two.
fn moments(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values);
    let squares = values.iter().map(|value| (value - mean).powi(2));
    Some((mean, sqrt(squares.sum::<f64>() / (values.len() - 1) as f64)))
}

/// The same of the logarithms of `ratios`; `None` also if one of them is no ratio.
fn log_moments(ratios: &[f64]) -> Option<(f64, f64)> {
    if !ratios.iter().all(|ratio| *ratio > 0.0) {
        return None;
    }
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| log(*ratio)).collect();
    moments(&logarithms)
}

/// Half the width of the interval of so many logarithms.
fn width(deviation: f64, count: usize) -> f64 {
    T[(count - 2).min(T.len() - 1)] * deviation / sqrt(count as f64)
}

/// The interval of a ratio over seeds, by the logarithms of `ratios`; `None` for fewer than two, or
/// if one of them is no ratio.
pub fn interval(ratios: &[f64]) -> Option<[f64; 2]> {
    let (mean, deviation) = log_moments(ratios)?;
    let width = width(deviation, ratios.len());
    Some([exp(mean - width), exp(mean + width)])
}

/// The interval of the mean of `values` over seeds; `None` for fewer than two.
pub fn interval_of_mean(values: &[f64]) -> Option<[f64; 2]> {
    let (mean, deviation) = moments(values)?;
    let width = width(deviation, values.len());
    Some([mean - width, mean + width])
}

/// The number of ratios with an interval beside 1, if more of them spread as `ratios` do. `None` for
/// fewer than two, and if [`NEEDED_MAX`] are too few.
pub fn needed(ratios: &[f64]) -> Option<usize> {
    let (mean, deviation) = log_moments(ratios)?;
    (2..=NEEDED_MAX).find(|count| width(deviation, *count) < mean.abs())
}

/// Returns true if the interval leaves open which side is larger.
pub fn spans_one([from, to]: [f64; 2]) -> bool {
    from <= 1.0 && to >= 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::SimRng;

    #[test]
    fn a_ratio_that_seeds_agree_on_is_narrow_and_one_seed_says_nothing() {
        assert_eq!(interval(&[2.0]), None);
        assert_eq!(interval(&[2.0, -1.0]), None);
        let [from, to] = interval(&[2.0, 2.02, 1.98]).unwrap();
        assert!(from > 1.9 && from < 2.0 && to > 2.0 && to < 2.1);
        assert!(spans_one(interval(&[0.5, 2.0]).unwrap()) && !spans_one([1.01, 1.2]));
    }

    #[test]
    fn a_mean_may_be_nothing_and_what_all_seeds_say_is_a_point() {
        assert_eq!(interval_of_mean(&[0.0; 5]), Some([0.0, 0.0]));
        assert_eq!(interval_of_mean(&[8.0; 5]), Some([8.0, 8.0]));
        assert_eq!(interval_of_mean(&[8.0]), None);
        // Of five seeds, with a deviation of 1: 2.776 / sqrt(5) to either side.
        let [from, to] = interval_of_mean(&[9.0, 9.0, 10.0, 11.0, 11.0]).unwrap();
        assert!((to - 10.0 - 1.2415).abs() < 1e-4 && (to + from - 20.0).abs() < 1e-9);
    }

    /// The interval of as many ratios as are needed is beside 1, and that of one fewer spans 1.
    #[test]
    fn ratios_are_counted_until_their_interval_is_beside_one() {
        let ratios = [0.95, 1.25, 1.02];
        assert!(spans_one(interval(&ratios).unwrap()));
        let many = needed(&ratios).unwrap();
        let (mean, deviation) = log_moments(&ratios).unwrap();
        assert!(many > ratios.len() && width(deviation, many) < mean);
        assert!(width(deviation, many - 1) >= mean);
        assert_eq!(needed(&[1.5, 1.5, 1.5]), Some(2));
        assert_eq!(needed(&[0.5, 2.0]), None);
        assert_eq!(needed(&[2.0]), None);
    }

    /// Checks 2,000 experiments of five seeds each: 95 in 100 intervals hold the true ratio; those
    /// a third narrower do not.
    #[test]
    fn nineteen_of_twenty_intervals_hold_the_truth() {
        let mut rng = SimRng::new(3);
        // Twelve uniform numbers are nearly a normal one.
        let mut normal =
            || (0..12).map(|_| rng.below(1 << 20) as f64).sum::<f64>() / f64::from(1 << 20) - 6.0;
        let (mut held, mut held_narrow) = (0, 0);
        for _ in 0..2_000 {
            let ratios: Vec<f64> = (0..5).map(|_| 1.5 * exp(0.1 * normal())).collect();
            let [from, to] = interval(&ratios).unwrap();
            held += u32::from(from <= 1.5 && 1.5 <= to);
            let middle = sqrt(from * to);
            let narrow = |end: f64| middle * exp(log(end / middle) * 2.0 / 3.0);
            held_narrow += u32::from(narrow(from) <= 1.5 && 1.5 <= narrow(to));
        }
        assert!((1_860..1_940).contains(&held), "{held}");
        assert!(held_narrow < 1_860, "{held_narrow}");
    }
}
