//! A section of the configuration as a request carries it: text without a title.

use std::fmt::Write;

/// The text of a section, built parameter by parameter.
#[derive(Default)]
pub struct SectionText(String);

/// Text as a basic string of TOML.
pub fn quoted(text: &str) -> String {
    // TOML escapes all characters that JSON escapes, and one more.
    let json = serde_json::Value::from(text).to_string();
    json.replace('\u{7f}', "\\u007f")
}

impl SectionText {
    /// Adds a parameter of text.
    pub fn text(mut self, key: &str, value: &str) -> SectionText {
        let _ = writeln!(self.0, "{key} = {}", quoted(value));
        self
    }

    /// Adds a parameter of text, if given.
    pub fn optional(self, key: &str, value: Option<&str>) -> SectionText {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    /// Adds a parameter that is a list of texts.
    pub fn list(mut self, key: &str, values: &[String]) -> SectionText {
        let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
        let _ = writeln!(self.0, "{key} = [{}]", values.join(", "));
        self
    }

    /// Adds a parameter that is true; leaves a false one out.
    pub fn flag(mut self, key: &str, value: bool) -> SectionText {
        if value {
            let _ = writeln!(self.0, "{key} = true");
        }
        self
    }

    /// Adds a parameter that is a number, if given.
    pub fn number(mut self, key: &str, value: Option<u32>) -> SectionText {
        if let Some(value) = value {
            let _ = writeln!(self.0, "{key} = {value}");
        }
        self
    }

    /// The text of the section.
    pub fn finish(self) -> String {
        self.0
    }
}
