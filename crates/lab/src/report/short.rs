//! Figures as they are shown.

/// Four digits or all before the point; no more noughts than were measured or printed.
pub fn short(value: f64) -> String {
    let text = match value.abs() {
        large if large >= 1000.0 => return format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
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
    }
}
