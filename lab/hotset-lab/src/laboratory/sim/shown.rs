//! Common arguments and output of both simulators.

use baselines::registry::POLICIES;
use indicatif::{ProgressBar, ProgressStyle};

pub(super) fn policies(names: &[String]) -> Vec<String> {
    let mut chosen = Vec::new();
    for name in names {
        let all = POLICIES.iter().map(|name| (*name).to_owned());
        let named = match name.as_str() {
            "all" => all.collect(),
            _ => vec![name.clone()],
        };
        for name in named {
            if !chosen.contains(&name) {
                chosen.push(name);
            }
        }
    }
    chosen
}

pub(super) fn threads(asked: Option<u32>) -> usize {
    match asked {
        Some(n) => n as usize,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// A progress bar on standard error, and only on a terminal.
pub(super) fn progress(cells: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} cells, {eta} left {wide_msg}");
    ProgressBar::new(cells).with_style(style.expect("a sound template"))
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

/// Three significant digits, without trailing zeroes.
pub(super) fn significant(value: f64) -> String {
    let digits = (2.0 - value.abs().max(1e-9).log10().floor()).max(0.0) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact_enough() {
        for (value, text) in [
            (0.1, "0.1"),
            (10.0, "10"),
            (30.0, "30"),
            (1.0 / 3.0, "0.333"),
        ] {
            assert_eq!(significant(value), text);
        }
        assert_eq!(significant(1234.5), "1234");
    }

    #[test]
    fn all_names_each_policy_once() {
        let all = policies(&["lru".into(), "all".into()]);
        assert_eq!(all.len(), POLICIES.len());
        assert_eq!(all[0], "lru");
    }
}
