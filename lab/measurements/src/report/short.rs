//! Figures in short form.

/// Four digits or all before the point; no more noughts than were measured or printed.
pub fn short(value: f64) -> String {
    digits(value, 3)
}

/// One digit less, for distances and errors.
pub(super) fn shorter(value: f64) -> String {
    digits(value, if value.abs() < 0.1 { 3 } else { 2 })
}

fn digits(value: f64, decimals: usize) -> String {
    let text = match value.abs() {
        large if large >= 1000.0 => return format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.decimals$}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_as_long_as_they_have_digits() {
        let shown = [0.0, 4.1, 0.025, 107.0, 36.54, 1280.4, -0.5].map(short);
        assert_eq!(shown, ["0", "4.1", "0.025", "107", "36.5", "1280", "-0.5"]);
        let shown = [4.126, 0.025, 107.04, 0.5].map(shorter);
        assert_eq!(shown, ["4.13", "0.025", "107", "0.5"]);
    }
}
