//! The reasons why a volume is cached or not, as a page of one file with a heat map.

use crate::page::{FIRST, GRID, HtmlPage, INK, SECOND, bytes, span, table, themed};
use control::explained::Explained;
use plotters::prelude::*;
use std::error::Error;

/// Cells of a row.
const COLUMNS: usize = 64;
/// Pixels of a cell, and those above and beside the cells.
const CELL: usize = 13;
const LEFT: usize = 84;
const TOP: usize = 8;

type Drawn<T = ()> = Result<T, Box<dyn Error>>;

/// The page.
pub fn page(explained: &Explained) -> Drawn<String> {
    let policy = &explained.policy;
    let mut page = HtmlPage::new(
        &format!("Why volume {} is cached or not", explained.volume),
        &format!(
            "{}: {}. Policy: {}.",
            explained.mode, explained.mode_help, policy.name
        ),
    );
    let used = f64::from(explained.lines_used) / f64::from(explained.lines.max(1));
    let mut facts = vec![
        ("volume", bytes(explained.size_bytes as f64)),
        ("line", bytes(explained.line_bytes as f64)),
        ("pool in use", format!("{:.0}%", 100.0 * used)),
    ];
    if let (Some(active), Some(since)) = (&policy.active, policy.active_for_s) {
        facts.push(("rule in force", active.clone()));
        facts.push(("for", span(since)));
    }
    page.facts(&facts);
    let lost = explained
        .lost_devices
        .iter()
        .map(|lost| format!("pool device {lost}"));
    page.warnings(&lost.collect::<Vec<_>>());
    maps(explained, &mut page)?;
    tables(explained, &mut page);
    Ok(page.finish())
}

/// The maps of accesses and of residence.
fn maps(explained: &Explained, page: &mut HtmlPage) -> Drawn {
    let (regions, cell_bytes) = (&explained.regions, explained.region_bytes);
    let mut map = |head, title, values: Vec<f64>, colour, text: String| -> Drawn {
        let chart = draw(title, &values, cell_bytes, colour)?;
        page.section(head, &format!("{chart}<p class=\"soft\">{text}</p>"));
        Ok(())
    };
    let hottest = regions.iter().map(|r| r.heat()).max().unwrap_or(0);
    let log = |n: u64| (n as f64 + 1.0).ln();
    let heat = regions
        .iter()
        .map(|r| log(r.heat()) / log(hottest).max(f64::MIN_POSITIVE));
    let text = format!(
        "One cell is {}. The hottest had {hottest} accesses to lines; counts are halved every ten minutes. \
         Shades are by the logarithm.",
        bytes(cell_bytes as f64)
    );
    map(
        "What is asked for",
        "Heat map",
        heat.collect(),
        SECOND,
        text,
    )?;
    let estimated = match explained.sampled {
        true => " Estimated from 64 lines of each cell.",
        false => "",
    };
    let text = format!("The share of each cell whose blocks are valid in the pool.{estimated}");
    let resident = regions.iter().map(|r| r.resident).collect();
    map(
        "What is in the pool",
        "Share in the pool",
        resident,
        FIRST,
        text,
    )
}

/// The rules of the policy, the lines asked for, and all reasons.
fn tables(explained: &Explained, page: &mut HtmlPage) {
    let policy = &explained.policy;
    if !policy.would_miss.is_empty() {
        let rows = policy.would_miss.iter().map(|(rule, share)| {
            let chosen = policy.active.as_ref() == Some(rule);
            (vec![rule.clone(), format!("{:.1}", 100.0 * share)], chosen)
        });
        let rows: Vec<_> = rows.collect();
        page.section(
            "What each rule would have missed lately",
            &table(&["rule", "misses %"], &rows, &[]),
        );
    }
    if let Some(range) = &explained.range {
        let rows = range.lines.iter().map(|line| {
            let since = line.admitted_s.filter(|_| line.device.is_some());
            let cells = vec![
                line.start.to_string(),
                line.device.clone().unwrap_or_else(|| "-".into()),
                since.map_or("-".into(), span),
                line.why.clone(),
            ];
            (cells, false)
        });
        let rows: Vec<_> = rows.collect();
        let head = format!("Lines from {} to {}", range.start, range.end);
        page.section(
            &head,
            &table(&["line at byte", "device", "since", "why"], &rows, &[3]),
        );
    }
    let rows = explained.reasons.iter().map(|reason| {
        let (name, help) = (reason.name.clone(), reason.help.clone());
        (vec![name, reason.count.to_string(), help], false)
    });
    let rows: Vec<_> = rows.collect();
    page.section(
        "Reasons",
        &table(&["reason", "count", "meaning"], &rows, &[2]),
    );
}

/// Cells in rows, each shaded by its value from 0 to 1.
fn draw(title: &str, values: &[f64], cell_bytes: u64, colour: RGBColor) -> Drawn<String> {
    let rows = values.len().div_ceil(COLUMNS).max(1);
    let size = (LEFT + COLUMNS * CELL + 8, TOP + rows * CELL + 8);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (size.0 as u32, size.1 as u32));
        let area = area.into_drawing_area();
        let style = ("sans-serif", 11).into_font().color(&INK);
        for (n, value) in values.iter().enumerate() {
            let (x, y) = (
                (LEFT + n % COLUMNS * CELL) as i32,
                (TOP + n / COLUMNS * CELL) as i32,
            );
            let cell = [(x, y), (x + CELL as i32 - 1, y + CELL as i32 - 1)];
            // Anything above none is to be seen.
            let shade = if *value > 0.0 {
                0.12 + 0.88 * value.min(1.0)
            } else {
                0.0
            };
            area.draw(&Rectangle::new(cell, GRID.mix(0.45).filled()))?;
            if shade > 0.0 {
                area.draw(&Rectangle::new(cell, colour.mix(shade).filled()))?;
            }
            if n % COLUMNS == 0 {
                let at = bytes((n as u64 * cell_bytes) as f64);
                area.draw(&Text::new(at, (2, y + 2), style.clone()))?;
            }
        }
        area.present()?;
    }
    Ok(themed(&svg, title))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_self_contained;
    use control::explained::{
        ExplainedLine, ExplainedRange, ExplainedRegion, PolicyReport, ReasonCount,
    };

    #[test]
    fn the_page_holds_everything_it_needs() {
        let region = |n: u32| ExplainedRegion {
            reads: n,
            writes: 0,
            idle_s: Some(1),
            resident: f64::from(n) / 200.0,
        };
        let line = ExplainedLine {
            start: 65536,
            len: 65536,
            valid: vec![(0, 16)],
            device: Some("<ssd>".into()),
            admitted_s: Some(9.0),
            decision: "admitted".into(),
            decided_s: Some(9.0),
            why: "in the pool, whole".into(),
            region_heat: 3,
            region_idle_s: Some(1),
        };
        let explained = Explained {
            volume: "<v>".into(),
            size_bytes: 200 << 20,
            pool: "p".into(),
            mode: "write-through".into(),
            mode_help: "Help.".into(),
            line_bytes: 65536,
            lines_used: 5,
            lines: 10,
            lost_devices: vec!["d was ejected (failed)".into()],
            policy: PolicyReport {
                name: "auto".into(),
                active: Some("recency".into()),
                active_for_s: Some(100.0),
                changes: Some(1),
                would_miss: vec![("recency".into(), 0.5)],
            },
            reasons: vec![ReasonCount {
                name: "rejected_sequential".into(),
                count: 7,
                help: "Why.".into(),
            }],
            counters: Default::default(),
            regions: (0..200).map(region).collect(),
            region_bytes: 1 << 20,
            sampled: true,
            range: Some(ExplainedRange {
                start: 65536,
                end: 131_072,
                lines_in_range: 1,
                lines: vec![line],
            }),
        };
        let page = page(&explained).unwrap();
        assert_self_contained(&page);
        assert_eq!(page.matches("<rect").count(), 2 * (200 + 199));
        for expected in [
            "&lt;v&gt;",
            "&lt;ssd&gt;",
            "recency",
            "ejected",
            "rejected_sequential",
            "192 MiB",
        ] {
            assert!(page.contains(expected), "no {expected:?}");
        }
    }
}
