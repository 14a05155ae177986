//! The report: JSON for programs, a table for `docs/performance.md`.

use super::BenchRow;
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// The rows as a table, under the line that names their origin.
pub fn table(rows: &[BenchRow], made_by: &str) -> String {
    let mut out = format!("{made_by}\n\n");
    out += "| what | ours | peer | ratio (least to greatest) | runs | goal | met |\n";
    out += "|---|---|---|---|---|---|---|\n";
    for row in rows {
        let peer = match (&row.peer_name, row.peer) {
            (Some(name), Some(value)) => format!("{} ({name})", figure(value)),
            _ => "none".into(),
        };
        let ratio = match (row.ratio_median, row.ratio_min, row.ratio_max) {
            (Some(m), Some(a), Some(b)) => format!("{m:.2} ({a:.2} to {b:.2})"),
            _ => String::new(),
        };
        let met = match row.met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        writeln!(
            out,
            "| {} | {} {} | {peer} | {ratio} | {} | {} | {met} |",
            row.name,
            figure(row.ours),
            row.unit,
            row.runs,
            row.goal.as_deref().unwrap_or(""),
        )
        .expect("a string takes all");
    }
    out
}

fn figure(value: f64) -> String {
    match value.abs() {
        x if x >= 1000.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Writes the rows as JSON to `json`, and as a table between the marks of the page at `page`. A
/// page without the marks is left alone.
pub fn write(rows: &[BenchRow], made_by: &str, json: &Path, page: &Path) -> io::Result<()> {
    fs::write(json, serde_json::to_string_pretty(rows)? + "\n")?;
    let text = fs::read_to_string(page)?;
    let parts = text
        .split_once(BEGIN)
        .and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let Some((head, tail)) = parts else {
        let what = format!("{} lacks the lines {BEGIN} and {END}", page.display());
        return Err(io::Error::other(what));
    };
    let table = table(rows, made_by);
    fs::write(page, format!("{head}{BEGIN}\n{table}{END}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Goal, alone, paired};

    #[test]
    fn the_page_keeps_what_is_around_the_table() {
        let dir = std::env::temp_dir().join(format!("bench-report-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (json, page) = (dir.join("bench.json"), dir.join("page.md"));
        fs::write(&page, format!("before\n{BEGIN}\nold\n{END}\nafter\n")).unwrap();
        let rows = [
            paired(
                "a",
                "ns",
                "peer",
                Some(Goal::RatioAtMost(0.5)),
                &[(1.0, 1.0)],
            ),
            alone("b", "ns", None, &[2000.0]),
        ];
        write(&rows, "made by a test", &json, &page).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("\nafter\n"));
        assert!(text.contains("made by a test") && !text.contains("old"));
        assert!(text.contains("| a | 1.00 ns | 1.00 (peer) | 1.00 (1.00 to 1.00) | 1 |"));
        let parsed: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(parsed[0]["met"], false);
        fs::write(&page, "no marks").unwrap();
        assert!(write(&rows, "x", &json, &page).is_err());
        assert_eq!(fs::read_to_string(&page).unwrap(), "no marks");
        fs::remove_dir_all(&dir).unwrap();
    }
}
