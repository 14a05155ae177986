//! The figures as cells of tables, for text and for the page.

use super::found::{LogGain, ModeGain, WriteBackGain};
use super::rates::Rate;
use crate::page::{HtmlPage, bytes, escape, table};

/// Shown where a mode has no such figure.
const NONE: &str = "-";
/// Heads of the page's columns, in the order of [`mode_rows`].
const HEAD: [&str; 12] = [
    "mode",
    "origin writes/s",
    "flushes/s",
    "MB/s",
    "takes MB/s",
    "busy %",
    "absorbed %",
    "log's time %",
    "behind %",
    "log",
    "log GB/day",
    "journal MB/s",
];

/// A row each: writes a second and MB/s on average, in the busiest second and the busiest 30 s.
pub fn rate_rows(write_back: &WriteBackGain) -> Vec<Vec<String>> {
    let row = |name: &str, rate: &Rate| {
        let writes = format!("{:.1}", rate.writes_per_second);
        vec![name.to_owned(), writes, mega(rate.bytes_per_second)]
    };
    vec![
        row("mean", &write_back.mean),
        row("busiest second", &write_back.busiest_second),
        row("busiest 30 s", &write_back.busiest_30_seconds),
    ]
}

/// The pattern of flushes and the pattern of overwrites of the clients, in a line each.
pub fn pattern(write_back: &WriteBackGain) -> [String; 2] {
    let a_second = |count: u64| count as f64 / write_back.seconds;
    let between = match &write_back.intervals {
        None => "none, so that all is one interval".to_owned(),
        Some(intervals) => format!(
            "{:.2} and {:.2} a second, {} blocks of 4 KiB between two (median; mean {:.1})",
            a_second(write_back.flushes),
            a_second(write_back.forced_writes),
            intervals.blocks_median,
            intervals.blocks_mean
        ),
    };
    [
        format!("flushes and forced writes: {between}"),
        match write_back.overwritten_share {
            Some(share) => format!(
                "overwritten within 30 s: {:.1}% of the blocks written",
                100.0 * share
            ),
            None => "overwritten within 30 s: not known".into(),
        },
    ]
}

/// A row a mode: its name; writes, flushes and MB a second of the origin; the origin's highest
/// MB/s, and the part of the time in which the origin works; blocks absorbed, writes that take the
/// log's time, and time behind, in percent; bytes of the log; GB a day; MB/s of the journal.
pub fn mode_rows(modes: &[ModeGain]) -> Vec<Vec<String>> {
    let row = |mode: &ModeGain| {
        let log = |f: fn(&LogGain) -> String| mode.log.as_ref().map_or(NONE.to_owned(), f);
        let journal = mode.log.as_ref().and_then(|log| log.journal);
        vec![
            mode.mode.to_owned(),
            format!("{:.1}", mode.origin_writes_per_second),
            format!("{:.2}", mode.origin_flushes_per_second),
            mega(mode.origin_bytes_per_second),
            log(|log| mega(log.origin_bytes_per_second_max)),
            log(|log| percent(log.origin_busy)),
            log(|log| log.absorbed_share.map_or(NONE.to_owned(), percent)),
            log(|log| percent(log.unpaced_share)),
            log(|log| percent(log.behind_share)),
            log(|log| bytes(log.device_bytes as f64)),
            log(|log| format!("{:.1}", log.device_bytes_per_day / 1e9)),
            journal.map_or(NONE.to_owned(), |journal| mega(journal.bytes_per_second)),
        ]
    };
    modes.iter().map(row).collect()
}

/// Puts the result on a page.
pub(crate) fn section(page: &mut HtmlPage, write_back: &WriteBackGain) {
    let mut inner = format!("<p>{}</p>\n", escape(&write_back.verdict));
    if !write_back.modes.is_empty() {
        let plain = |rows: Vec<Vec<String>>| rows.into_iter().map(|row| (row, false));
        let modes: Vec<_> = plain(mode_rows(&write_back.modes)).collect();
        let rates: Vec<_> = plain(rate_rows(write_back)).collect();
        inner += &table(&HEAD, &modes, &[]);
        inner += &table(&["writes", "a second", "MB/s"], &rates, &[]);
        for line in pattern(write_back) {
            inner += &format!("<p class=\"soft\">{}</p>\n", escape(&line));
        }
    }
    for note in &write_back.notes {
        inner += &format!("<p class=\"soft\">{}</p>\n", escape(note));
    }
    page.section("What write-back would bring", &inner);
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn mega(bytes_per_second: f64) -> String {
    format!("{:.2}", bytes_per_second / 1e6)
}
