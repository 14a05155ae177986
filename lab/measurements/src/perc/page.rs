//! The report as files: JSON, a page of one file, and its charts by themselves.

use super::compare::ComparisonRow;
use super::sweep::SweepPoint;
use super::{PercReport, chart};
use advise::page::{HtmlPage, standalone, table, themed};
use std::error::Error;
use std::fs;
use std::path::Path;

type Charts = [(&'static str, &'static str, String); 3];

fn drawn(report: &PercReport) -> Result<Charts, Box<dyn Error>> {
    let latencies = chart::latencies(&report.points)?;
    Ok([
        ("rates", "Requests a second", chart::rates(&report.points)?),
        ("latencies", "Mean latency", latencies),
        ("loss", "The loss of a drive", chart::loss(&report.loss)?),
    ])
}

/// Charts of the report: titles and drawings, with the page's stand-ins for colours.
pub fn charts(report: &PercReport) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let all = drawn(report)?.into_iter();
    Ok(all.map(|(_, title, svg)| (title.to_owned(), svg)).collect())
}

/// Writes `perc.html` and the charts into `directory`, made if missing.
pub fn write(report: &PercReport, directory: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    let charts = drawn(report)?;
    fs::write(directory.join("perc.html"), page(report, &charts))?;
    for (name, _, svg) in &charts {
        fs::write(directory.join(format!("perc-{name}.svg")), standalone(svg))?;
    }
    Ok(())
}

fn page(report: &PercReport, charts: &[(&str, &str, String)]) -> String {
    let mut page = HtmlPage::new(
        "Two mirrored controllers",
        "4 KiB random and 256 KiB sequential requests on one controller with a stripe of seven drives, and \
         on two that are mirrored, in virtual time.",
    );
    let rows = &report.rows;
    let missed = rows.iter().filter(|row| row.within == Some(false)).count();
    page.facts(&[
        ("seed", report.seed.to_string()),
        ("comparisons", rows.len().to_string()),
        ("out of tolerance", missed.to_string()),
    ]);
    let mut notes: Vec<String> = report
        .fitted
        .iter()
        .map(|f| format!("Fitted: {} = {}, on {}", f.what, f.value, f.on))
        .collect();
    if report.quick {
        notes.push("The quick form: too few requests to judge by.".into());
    }
    page.warnings(&notes);
    let cells = rows
        .iter()
        .map(|row| (cells(row).into(), row.within == Some(false)));
    let head = [
        "what",
        "label",
        "published",
        "ours",
        "tolerance",
        "within",
        "note",
    ];
    page.section(
        "Published and ours",
        &table(&head, &cells.collect::<Vec<_>>(), &[0, 3, 6]),
    );
    for (_, title, svg) in charts {
        page.section(title, &themed(svg, title));
    }
    let points = report
        .points
        .iter()
        .map(|point| (figures(point).into(), false));
    page.section(
        "Every point",
        &table(&POINT_HEAD, &points.collect::<Vec<_>>(), &[]),
    );
    page.finish()
}

/// A row's cells, as pages and terminals show them.
pub fn cells(row: &ComparisonRow) -> [String; 7] {
    let within = match row.within {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "too short to judge",
    };
    [
        row.what.clone(),
        row.label.into(),
        row.published.into(),
        row.ours.clone(),
        row.tolerance.into(),
        within.into(),
        row.note.into(),
    ]
}

/// Heads of the columns of [`figures`].
pub const POINT_HEAD: [&str; 10] = [
    "workload",
    "controllers",
    "threads",
    "requests",
    "IOPS",
    "MB/s",
    "mean ms",
    "p99 ms",
    "daemon %",
    "host %",
];

/// A point's cells.
pub fn figures(point: &SweepPoint) -> [String; 10] {
    let cpu = |share: Option<f64>| share.map_or("-".into(), |share| format!("{share:.0}"));
    [
        point.workload.into(),
        point.controllers.to_string(),
        point.threads.to_string(),
        point.operations.to_string(),
        format!("{:.0}", point.iops),
        format!("{:.1}", point.mb_s),
        format!("{:.3}", point.latency_ms_mean),
        format!("{:.3}", point.latency_ms_p99),
        cpu(point.cpu_daemon_percent),
        cpu(point.cpu_host_percent),
    ]
}
