//! The part of the advice about write-back, as text.

use crate::commands::table::TextTable;
use advise::writeback::{WriteBackGain, mode_rows, pattern, rate_rows};
use std::fmt::Write as _;

const MODES: [&str; 12] = [
    "MODE",
    "ORIGIN WRITES/s",
    "FLUSHES/s",
    "MB/s",
    "TAKES MB/s",
    "BUSY %",
    "ABSORBED %",
    "LOG'S TIME %",
    "BEHIND %",
    "LOG",
    "LOG GB/day",
    "JOURNAL MB/s",
];

/// The section; the verdict comes after the figures. A daemon that counts no writes has none.
pub fn section(write_back: Option<&WriteBackGain>) -> String {
    let Some(write_back) = write_back else {
        return "write-back: this daemon does not count writes; start a newer one, or record the \
                volume with `hotset trace record` and name the trace\n"
            .into();
    };
    let mut out = String::new();
    if !write_back.modes.is_empty() {
        let rates = table(&["WRITES", "A SECOND", "MB/s"], rate_rows(write_back));
        let modes = table(&MODES, mode_rows(&write_back.modes));
        let _ = writeln!(out, "{rates}");
        for line in pattern(write_back) {
            let _ = writeln!(out, "{line}");
        }
        let _ = writeln!(out, "\n{modes}");
    }
    let _ = writeln!(out, "write-back: {}", write_back.verdict);
    for note in &write_back.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn table(head: &[&str], rows: Vec<Vec<String>>) -> TextTable {
    let mut table = TextTable::new(head);
    rows.into_iter().for_each(|row| table.row(row));
    table
}
