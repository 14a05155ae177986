//! Tables of text with columns as wide as their cells, and numbers with their units.

use std::fmt;

/// Rows under a head; the first column and those of text are flush left, the others right.
pub struct TextTable {
    rows: Vec<Vec<String>>,
    text: Vec<usize>,
}

impl TextTable {
    /// A table without rows.
    pub fn new(head: &[&str]) -> TextTable {
        let head = head.iter().map(ToString::to_string).collect();
        TextTable {
            rows: vec![head],
            text: vec![0],
        }
    }

    /// Puts these columns flush left too.
    pub fn text(mut self, columns: &[usize]) -> TextTable {
        self.text.extend(columns);
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                if column > 0 {
                    line += "  ";
                }
                line += &match self.text.contains(&column) {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A number and the noun `what`, whose plural is regular.
pub fn count(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// Bytes in a binary unit, to three digits or so.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 100.0);
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&["A", "B"]);
        table.row(["long".to_owned(), "1".to_owned()]);
        assert_eq!(table.to_string(), "A     B\nlong  1\n");
        let mut table = TextTable::new(&["A", "what", "B"]).text(&[1]);
        table.row(["long", "x", "10"].map(String::from));
        assert_eq!(table.to_string(), "A     what   B\nlong  x     10\n");
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(200 << 30), "200 GiB");
    }
}
