//! Experiments on a terminal: the parts that are done, and the results.

use crate::CommandFailure;
use command::print_line;
use command::table::TextTable;
use experiment::finished::Finished;
use experiment::verdict::{FigureRow, ResultTable, VerdictCounts};
use measurements::report;

/// Reports parts that are done, unless JSON is printed.
pub fn progress(json: bool) -> impl Fn(&str) + Sync {
    move |part: &str| {
        if !json {
            eprintln!("done: {part}");
        }
    }
}

/// Prints the results, or the rows as JSON.
pub fn show(all: &[Finished], json: bool) -> Result<(), CommandFailure> {
    let rows = || all.iter().flat_map(|finished| &finished.rows);
    if json {
        let rows: Vec<&FigureRow> = rows().collect();
        let text = serde_json::to_string_pretty(&rows).map_err(CommandFailure::runtime)?;
        return print_line(text);
    }
    for finished in all {
        // Tables are long.
        if all.len() == 1 {
            finished
                .tables
                .iter()
                .try_for_each(|table| print_line(result_table(table)))?;
        }
        print_line(format!(
            "{}\n{}",
            finished.experiment,
            table(&finished.rows)
        ))?;
        let mut tried = TextTable::new(&report::SENSITIVITY_HEAD).text(&[1]);
        let cells = finished.rows.iter().filter_map(report::sensitivity_cells);
        let cells: Vec<_> = cells.collect();
        if !cells.is_empty() {
            cells.into_iter().for_each(|cells| tried.row(cells));
            print_line(tried)?;
        }
        for fitted in &finished.fitted {
            print_line(format!(
                "fitted: {} = {}, to {}",
                fitted.parameter, fitted.value, fitted.figure
            ))?;
        }
        for assumed in &finished.assumed {
            print_line(format!("assumed: {assumed}"))?;
        }
        if finished.quick {
            print_line("the quick form: too few requests to judge by")?;
        }
        print_line(format!("{}\n", VerdictCounts::of(&finished.rows)))?;
    }
    if all.len() > 1 {
        print_line(format!("all: {}", VerdictCounts::of(rows())))?;
    }
    Ok(())
}

/// A table of an experiment's own.
pub fn result_table(of: &ResultTable) -> TextTable {
    let head: Vec<&str> = of.head.iter().map(String::as_str).collect();
    let mut table = TextTable::new(&head);
    of.lines.iter().for_each(|line| table.row(line.clone()));
    table
}

fn table(rows: &[FigureRow]) -> TextTable {
    // The unit, the verdict, and the status.
    let mut table = TextTable::new(&report::ROW_HEAD).text(&[3, 5, 6]);
    for row in rows {
        table.row(report::cells(row));
    }
    table
}
