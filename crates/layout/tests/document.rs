//! `docs/format.md` has the tables of the definitions.

use layout::{
    BitmapRow, EntryRow, JournalCommitRow, JournalSuperblockRow, LogSuperblockRow, MemberRow,
    PageHeader, RecordExtentRow, RecordRow, Row, SegmentRow, SuperblockRow, VolumeRow,
};
use std::fmt::Write;

fn table(rows: &[Row]) -> String {
    let mut text = String::from("| Offset | Bytes | Field | Meaning |\n|---|---|---|---|\n");
    for row in rows {
        let Row {
            offset,
            bytes,
            name,
            help,
        } = row;
        writeln!(text, "| {offset} | {bytes} | `{name}` | {help} |").unwrap();
    }
    text
}

/// To renew a table: copy what the failure prints.
#[test]
fn the_tables_are_those_of_the_definitions() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    let page = std::fs::read_to_string(page).unwrap();
    for rows in [
        SuperblockRow::ROWS,
        MemberRow::ROWS,
        VolumeRow::ROWS,
        PageHeader::ROWS,
        BitmapRow::ROWS,
        EntryRow::ROWS,
        LogSuperblockRow::ROWS,
        SegmentRow::ROWS,
        RecordRow::ROWS,
        RecordExtentRow::ROWS,
        JournalSuperblockRow::ROWS,
        JournalCommitRow::ROWS,
    ] {
        let table = table(rows);
        assert!(page.contains(&table), "docs/format.md lacks:\n{table}");
    }
    assert!(!page.contains("| 4 | 4 | `nothing` |"));
}
