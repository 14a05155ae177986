//! A section of the configuration as a request carries it: text without a title.

use std::fmt::Write;

/// The text of a section, built parameter by parameter.
#[derive(Default)]
pub struct Section(String);

/// Text as a basic string of TOML.
pub fn quoted(text: &str) -> String {
    // What JSON escapes, TOML escapes alike, and one character more.
    let json = serde_json::Value::from(text).to_string();
    json.replace('\u{7f}', "\\u007f")
}

impl Section {
    /// A parameter that is text.
    pub fn text(mut self, key: &str, value: &str) -> Section {
        let _ = writeln!(self.0, "{key} = {}", quoted(value));
        self
    }

    /// A parameter that is text, where given.
    pub fn optional(self, key: &str, value: Option<&str>) -> Section {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    /// A parameter that is a list of texts.
    pub fn list(mut self, key: &str, values: &[String]) -> Section {
        let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
        let _ = writeln!(self.0, "{key} = [{}]", values.join(", "));
        self
    }

    /// A parameter that is true, or left out.
    pub fn flag(mut self, key: &str, value: bool) -> Section {
        if value {
            let _ = writeln!(self.0, "{key} = true");
        }
        self
    }

    /// A parameter that is a number, where given.
    pub fn number(mut self, key: &str, value: Option<u32>) -> Section {
        if let Some(value) = value {
            let _ = writeln!(self.0, "{key} = {value}");
        }
        self
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}
