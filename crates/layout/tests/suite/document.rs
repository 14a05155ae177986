//! `docs/format.md` and `docs/array-format.md` have the tables of the definitions.

use layout::array::{bitmap, journal, superblock};
use layout::{
    BitmapRow, EntryRow, FieldRow, HintRow, JournalCommitRow, JournalSuperblockRow,
    LogSuperblockRow, MemberRow, PageHeader, RecordExtentRow, RecordRow, SegmentRow, SummaryRow,
    SuperblockRow, VolumeRow,
};
use std::fmt::Write;

fn table(rows: &[FieldRow]) -> String {
    let mut text = String::from("| Offset | Bytes | Field | Meaning |\n|---|---|---|---|\n");
    for row in rows {
        let FieldRow {
            offset,
            bytes,
            name,
            help,
        } = row;
        writeln!(text, "| {offset} | {bytes} | `{name}` | {help} |").unwrap();
    }
    text
}

/// Compares a page's tables with the definitions. To renew a table, copy the text that the failure
/// prints.
fn holds(page: &str, tables: &[&[FieldRow]]) {
    let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    for rows in tables {
        let table = table(rows);
        assert!(text.contains(&table), "docs/{page} lacks:\n{table}");
    }
    assert!(!text.contains("| 4 | 4 | `nothing` |"));
}

#[test]
fn the_tables_are_those_of_the_definitions() {
    let tables = [
        SuperblockRow::ROWS,
        MemberRow::ROWS,
        VolumeRow::ROWS,
        PageHeader::ROWS,
        BitmapRow::ROWS,
        EntryRow::ROWS,
        HintRow::ROWS,
        LogSuperblockRow::ROWS,
        SegmentRow::ROWS,
        SummaryRow::ROWS,
        RecordRow::ROWS,
        RecordExtentRow::ROWS,
        JournalSuperblockRow::ROWS,
        JournalCommitRow::ROWS,
    ];
    holds("format.md", &tables);
}

#[test]
fn so_are_those_of_arrays() {
    let tables = [
        superblock::FieldsRow::ROWS,
        superblock::SuperblockRow::ROWS,
        superblock::RoleRow::ROWS,
        superblock::StartRow::ROWS,
        superblock::LostRow::ROWS,
        bitmap::SectorRow::ROWS,
        journal::HeaderRow::ROWS,
        journal::RunRow::ROWS,
    ];
    holds("array-format.md", &tables);
}
