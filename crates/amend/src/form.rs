//! The form of a file outside its TOML, which a change keeps.

/// A byte order mark, and line ends.
pub(crate) struct FileForm {
    has_mark: bool,
    /// Every line ends in a carriage return too.
    has_returns: bool,
}

/// The byte order mark.
const MARK: char = '\u{feff}';

impl FileForm {
    /// The form of `text`.
    pub(crate) fn of(text: &str) -> FileForm {
        let has_returns =
            text.contains("\r\n") && text.matches("\r\n").count() == text.matches('\n').count();
        FileForm {
            has_mark: text.starts_with(MARK),
            has_returns,
        }
    }

    /// Returns the text without mark and carriage returns.
    pub(crate) fn plain(&self, text: &str) -> String {
        let text = text.strip_prefix(MARK).unwrap_or(text);
        match self.has_returns {
            true => text.replace("\r\n", "\n"),
            false => text.to_owned(),
        }
    }

    /// Returns the text in this form.
    pub(crate) fn apply(&self, text: &str) -> String {
        let mark = if self.has_mark {
            MARK.to_string()
        } else {
            String::new()
        };
        let text = match self.has_returns {
            true => text.replace('\n', "\r\n"),
            false => text.to_owned(),
        };
        mark + &text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_and_the_ends_of_lines_stay() {
        for text in [
            "a\nb\n",
            "\u{feff}a\nb\n",
            "a\r\nb\r\n",
            "\u{feff}a\r\nb\r\n",
        ] {
            let form = FileForm::of(text);
            assert_eq!(form.plain(text), "a\nb\n");
            assert_eq!(form.apply("a\nb\n"), text);
        }
        // A file with both kinds of line ends keeps each line.
        let mixed = "a\r\nb\n";
        assert_eq!(FileForm::of(mixed).plain(mixed), mixed);
    }
}
