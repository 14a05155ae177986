//! One page of all experiments: the verdict first, then each with its charts and figures.

mod bounds;
mod chart;
mod short;
mod words;

use crate::ablation::Ablated;
use crate::choices::{self, Tried};
use crate::ownership::{self, PriceList};
use advise::page::{HtmlPage, escape, span, table, themed};
pub use chart::{CurveCharts, of_shards as shard_chart};
use experiment::figures::{FigureStatus, FigureVerdict};
use experiment::finished::Finished;
use experiment::verdict::{CostedFigure, FigureRow, VerdictCounts};
pub use short::short;
use short::shorter;
use std::error::Error;
use std::fmt::Write;

/// Heads of the columns of [`cells`].
pub const ROW_HEAD: [&str; 10] = [
    "figure",
    "published",
    "ours",
    "unit",
    "error %",
    "verdict",
    "status",
    "accepted",
    "95 %",
    "seeds",
];

/// Heads of the columns of [`sensitivity_cells`].
pub const SENSITIVITY_HEAD: [&str; 7] = [
    "blind measurement",
    "device under test",
    "accepted",
    "ours",
    "at no cost",
    "at twice its cost",
    "counts",
];

/// The cells of a row that was tried with its device at other costs.
pub fn sensitivity_cells(row: &FigureRow) -> Option<[String; 7]> {
    let (tried, device) = (row.sensitivity?, row.device?);
    let costed = |at: CostedFigure| {
        let ours = at.ours.map_or("-".into(), short);
        format!("{ours} {}", at.verdict.map_or("", FigureVerdict::name))
    };
    Some([
        row.figure.clone(),
        device.cost().trim_end_matches("_cost").into(),
        accepted(row),
        short(row.ours),
        costed(tried.free),
        costed(tried.twice),
        if row.is_insensitive() {
            "no, insensitive"
        } else {
            "yes"
        }
        .into(),
    ])
}

/// The accepted values.
fn accepted(row: &FigureRow) -> String {
    let accepted = row.accepted.map(|accepted| (accepted.least, accepted.most));
    match accepted {
        Some((Some(least), Some(most))) => format!("{}..{}", shorter(least), shorter(most)),
        Some((Some(least), None)) => format!("at least {}", shorter(least)),
        Some((None, Some(most))) => format!("at most {}", shorter(most)),
        Some((None, None)) | None => "-".into(),
    }
}

/// A row's cells, as pages and terminals show them. The verdict of a row that is not counted is in
/// brackets.
pub fn cells(row: &FigureRow) -> [String; 10] {
    let verdict = match row.is_insensitive() {
        true => "insensitive",
        false => row.verdict.map_or("-", FigureVerdict::name),
    };
    let span = |[from, to]: [f64; 2]| format!("{}..{}", shorter(from), shorter(to));
    [
        row.figure.clone(),
        short(row.published),
        short(row.ours),
        row.unit.clone(),
        format!("{:+.1}", row.error_percent),
        match row.derived_from {
            Some(_) if row.verdict.is_some() => format!("({verdict})"),
            _ => verdict.into(),
        },
        match &row.derived_from {
            None => row.status.name().into(),
            Some(of) => format!("from {of}"),
        },
        accepted(row),
        row.interval.map_or("-".into(), span),
        span([row.ours_min, row.ours_max]),
    ]
}

/// Measurements that were met, of those with a verdict and this status.
fn met<'a>(rows: impl Iterator<Item = &'a FigureRow>, status: FigureStatus) -> String {
    let counts = VerdictCounts::of(rows.filter(|row| row.status == status));
    match counts.judged() {
        0 => "-".into(),
        judged => format!("{} of {judged}", counts.met),
    }
}

/// The page, with the choices tried and the parts left out; `missing` have not ended.
pub fn page(
    all: &[Finished],
    tried: &[Tried],
    ablated: &[Ablated],
    missing: &[&str],
    prices: &PriceList,
) -> Result<String, Box<dyn Error>> {
    let mut page = HtmlPage::new(
        "Published evaluations, run again",
        "In virtual time, on models of the drives that were evaluated, by the engine and arrays that serve.",
    );
    let rows = || all.iter().flat_map(|finished| &finished.rows);
    let counts = VerdictCounts::of(rows());
    let share = format!("{} of {}", counts.met, counts.judged());
    page.section("Verdict", &words::of(all));
    page.facts(&[
        ("measurements met", share),
        ("missed", counts.missed.to_string()),
        ("inconclusive", counts.inconclusive.to_string()),
        ("insensitive, not counted", counts.insensitive.to_string()),
        ("blind", met(rows(), FigureStatus::Blind)),
        ("calibrated", met(rows(), FigureStatus::Calibrated)),
        ("shape", met(rows(), FigureStatus::Shape)),
        ("not identifiable", counts.not_identifiable.to_string()),
        ("derived rows, not counted", counts.derived.to_string()),
    ]);
    page.section("Counts", &verdict(all));
    page.warnings(&warnings(all, missing));
    for finished in all {
        let mut inner = section(finished)? + &ownership::section(finished, prices);
        let of = |tried: &&Tried| tried.experiment == finished.experiment;
        inner += &tried
            .iter()
            .filter(of)
            .map(tried_section)
            .collect::<String>();
        let of = |ablated: &&Ablated| ablated.experiment == finished.experiment;
        inner += &ablated
            .iter()
            .filter(of)
            .map(ablated_section)
            .collect::<String>();
        page.section(&finished.experiment, &inner);
    }
    page.section("Memory against flash, by capacity", &ownership::capacity());
    Ok(page.finish())
}

/// A line for each experiment.
fn verdict(all: &[Finished]) -> String {
    let line = |finished: &Finished| {
        let of = |status: FigureStatus| met(finished.rows.iter(), status);
        let cells = vec![
            finished.experiment.clone(),
            of(FigureStatus::Blind),
            of(FigureStatus::Calibrated),
            of(FigureStatus::Shape),
            finished.seeds.to_string(),
            span(finished.virtual_seconds),
            span(finished.wall_seconds),
        ];
        (cells, false)
    };
    let head = [
        "experiment",
        "blind",
        "calibrated",
        "shape",
        "seeds",
        "virtual time",
        "took",
    ];
    let lines: Vec<_> = all.iter().map(line).collect();
    table(&head, &lines, &[])
}

fn warnings(all: &[Finished], missing: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    if !missing.is_empty() {
        out.push(format!("Not run, or not ended: {}.", missing.join(", ")));
    }
    for finished in all.iter().filter(|finished| finished.quick) {
        let name = &finished.experiment;
        out.push(format!(
            "{name} is of the quick form: too little to judge by."
        ));
    }
    out
}

fn section(finished: &Finished) -> Result<String, Box<dyn Error>> {
    let mut out = format!("<p>{}</p>", escape(&finished.title));
    let _ = write!(
        out,
        "<p class=\"soft\">{}<br>virtual time; <code>{}</code>, commit {}</p>",
        escape(&finished.source),
        escape(&finished.command),
        escape(&finished.commit)
    );
    for (title, svg) in chart::of(finished)? {
        let _ = write!(out, "<figure>{}", themed(&svg, &title));
        let _ = write!(
            out,
            "<figcaption>{}, virtual time</figcaption></figure>",
            escape(&title)
        );
    }
    let lines: Vec<_> = finished
        .rows
        .iter()
        .map(|row| {
            (
                cells(row).into(),
                row.verdict == Some(FigureVerdict::Missed),
            )
        })
        .collect();
    out += &table(&ROW_HEAD, &lines, &[]);
    for of in &finished.tables {
        let head: Vec<&str> = of.head.iter().map(String::as_str).collect();
        let lines: Vec<_> = of.lines.iter().map(|line| (line.clone(), false)).collect();
        let _ = write!(
            out,
            "<h3>{}</h3>{}",
            escape(&of.title),
            table(&head, &lines, &[])
        );
    }
    out += &sensitivity_section(finished);
    let noted = finished.rows.iter();
    let noted =
        noted.filter(|row| !row.note.is_empty() && row.status != FigureStatus::NotIdentifiable);
    out += &list("Notes", &notes(noted));
    let fitted = finished.fitted.iter();
    let fitted = fitted.map(|f| format!("{} = {}, to {}", f.parameter, f.value, f.figure));
    out += &list("Fitted", &fitted.collect::<Vec<_>>());
    let engine = finished.rows.iter().find_map(|row| row.engine.as_ref());
    let engine = engine.map(|commit| {
        format!("nothing was fitted to a blind figure; the engine's defaults are those of {commit}")
    });
    out += &list("Blind", engine.as_slice());
    let open = finished
        .rows
        .iter()
        .filter(|row| row.status == FigureStatus::NotIdentifiable);
    out += &list("Not identifiable", &notes(open));
    out += &list("Not published, and assumed", &finished.assumed);
    out += &list(
        "Where the source contradicts itself",
        &finished.contradictions,
    );
    Ok(out)
}

/// The section on measurements with another device; empty if none was tried.
fn sensitivity_section(finished: &Finished) -> String {
    let tried = finished.rows.iter().filter_map(sensitivity_cells);
    let tried: Vec<_> = tried.map(|cells| (cells.into(), false)).collect();
    if tried.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Another device</h3><p>Blind measurements that are met, with the device under test at \
         other costs. One that another device meets as well is not counted.</p>{}",
        table(&SENSITIVITY_HEAD, &tried, &[])
    )
}

/// The section on choices that the source could not try.
fn tried_section(tried: &Tried) -> String {
    let of = |row: &choices::ChoiceRow| (choices::cells(row).into(), row.says == "slower");
    let rows: Vec<_> = tried.rows.iter().map(of).collect();
    let advised: Vec<_> = tried
        .advised
        .iter()
        .map(|row| (choices::advice_cells(row).into(), false))
        .collect();
    let met = if tried.met { "within" } else { "NOT within" };
    let quick = match tried.quick {
        true => "<p>Of the quick form: too little to judge by.</p>",
        false => "",
    };
    format!(
        "<h3>Choices of today{}</h3>{quick}<p>The default is {:.1} % behind the best fixed policy or \
         admission, {}: {met} 5 %. The load runs twice; the second time is shown, but for its first \
         third.</p>{}<h3>The advice after the first minutes</h3>{}{}<p class=\"soft\">virtual time; \
         <code>{}</code>, commit {}</p>",
        choices::on_flash(tried),
        tried.behind_percent,
        escape(&tried.best),
        table(&choices::HEAD, &rows, &[]),
        table(&choices::ADVICE_HEAD, &advised, &[]),
        list("What it warned of", &tried.warnings),
        escape(&tried.command),
        escape(&tried.commit)
    )
}

/// The section on the effect of the model's parts on missed figures.
fn ablated_section(ablated: &Ablated) -> String {
    let missed = ablated.missed();
    if missed.is_empty() {
        return String::new();
    }
    let head = ablated.head(&missed);
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let lines = ablated.cells(&missed, short);
    let lines: Vec<_> = lines.into_iter().map(|line| (line, false)).collect();
    let quick = match ablated.quick {
        true => "<p>Of the quick form: too little to judge by.</p>",
        false => "",
    };
    format!(
        "<h3>What the parts of the model move</h3>{quick}<p>Figures that are missed, with all of the \
         model and without one part at a time; nothing is fitted again.</p>{}<p class=\"soft\">virtual \
         time; <code>{}</code>, commit {}</p>",
        table(&head, &lines, &[]),
        escape(&ablated.command),
        escape(&ablated.commit)
    )
}

/// The notes, once for all figures with the same note.
fn notes<'a>(rows: impl Iterator<Item = &'a FigureRow>) -> Vec<String> {
    let mut notes: Vec<(&str, String)> = Vec::new();
    for row in rows {
        match notes.iter_mut().find(|(note, _)| *note == row.note) {
            Some((_, figures)) => *figures += &format!(", {}", row.figure),
            None => notes.push((&row.note, row.figure.clone())),
        }
    }
    let notes = notes.into_iter();
    notes
        .map(|(note, figures)| format!("{figures}: {note}"))
        .collect()
}

/// A heading and its points; empty without points.
fn list(heading: &str, points: &[String]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let points: String = points
        .iter()
        .map(|p| format!("<li>{}</li>", escape(p)))
        .collect();
    format!("<h3>{}</h3><ul>{points}</ul>", escape(heading))
}

#[cfg(test)]
mod tests {
    use super::*;
    use advise::page::assert_self_contained;
    use experiment::figures::AcceptedRange;
    use experiment::finished::FORMAT;
    use experiment::visitors::{VisitCurve, VisitTally};

    pub fn row(figure: &str, status: FigureStatus, verdict: Option<FigureVerdict>) -> FigureRow {
        FigureRow {
            experiment: "x".into(),
            figure: figure.into(),
            unit: "1/s".into(),
            published: 100.0,
            ours: 90.0,
            ours_min: 89.0,
            ours_max: 91.0,
            seeds: 2,
            error_percent: -10.0,
            status,
            device: None,
            derived_from: None,
            accepted: verdict.map(|_| AcceptedRange {
                least: Some(95.0),
                most: Some(105.0),
            }),
            interval: Some([89.1, 90.9]),
            verdict,
            sensitivity: None,
            note: "<b>".into(),
            engine: Some("0123abc".into()),
            virtual_seconds: 1.0,
            wall_seconds: 1.0,
        }
    }

    fn finished() -> Finished {
        let points = (0..20).map(|i| VisitTally {
            pages: 10 + i,
            hits: 100,
            bytes: 1_000_000 * i,
            page_s: 5.0,
            ..VisitTally::default()
        });
        Finished {
            format: FORMAT,
            experiment: "x".into(),
            title: "a title".into(),
            source: "a paper".into(),
            quick: false,
            seed: 1,
            seeds: 2,
            settings: Vec::new(),
            command: "hotset-lab run x".into(),
            commit: "abc".into(),
            virtual_seconds: 10.0,
            wall_seconds: 1.0,
            rows: vec![
                row("rate", FigureStatus::Blind, Some(FigureVerdict::Missed)),
                row("spread", FigureStatus::NotIdentifiable, None),
            ],
            fitted: Vec::new(),
            assumed: vec!["much".into()],
            contradictions: Vec::new(),
            curves: vec![(
                "cache on".into(),
                VisitCurve {
                    interval_s: 60.0,
                    points: points.collect(),
                },
            )],
            charts: Vec::new(),
            tables: Vec::new(),
        }
    }

    #[test]
    fn the_verdict_comes_first_and_the_page_needs_nothing_else() {
        let page = page(&[finished()], &[], &[], &["y"], &PriceList::shipped()).unwrap();
        assert_self_contained(&page);
        let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("no {what}"));
        let order = [
            "<h2>Verdict",
            "Not as printed",
            "measurements met",
            "<h2>Counts",
            "<figure>",
        ];
        assert!(order.map(at).is_sorted(), "{:?}", order.map(at));
        for what in [
            "MISSED",
            "95..105",
            "Not run, or not ended: y",
            "0123abc",
            "virtual time",
        ] {
            at(what);
        }
        assert!(!page.contains("<b>"), "a note stays text");
    }

    #[test]
    fn a_note_of_several_figures_is_listed_once() {
        let other = FigureRow {
            note: "other".into(),
            ..row("c", FigureStatus::Blind, None)
        };
        let rows = [
            row("a", FigureStatus::Blind, None),
            other,
            row("b", FigureStatus::Blind, None),
        ];
        assert_eq!(notes(rows.iter()), ["a, b: <b>", "c: other"]);
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let finished = finished();
        let text = serde_json::to_string(&finished).unwrap();
        assert_eq!(Finished::parse(&text).unwrap(), finished);
        let other = text.replace("\"format\":2", "\"format\":9");
        assert!(Finished::parse(&other).unwrap_err().contains("format 9"));
        assert!(Finished::parse(&text[..text.len() / 2]).is_err());
    }
}
