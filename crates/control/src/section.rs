//! A section of the configuration as a request carries it: text without a title.

use std::fmt::Write;

/// The text of a section, built parameter by parameter.
#[derive(Default)]
pub struct Section(String);

impl Section {
    /// A parameter that is text.
    pub fn text(mut self, key: &str, value: &str) -> Section {
        // What JSON escapes, TOML's basic strings escape alike.
        let quoted = serde_json::Value::from(value);
        let _ = writeln!(self.0, "{key} = {quoted}");
        self
    }

    /// A parameter that is text, where given.
    pub fn optional(self, key: &str, value: Option<&str>) -> Section {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    /// A parameter that is true, or left out.
    pub fn flag(mut self, key: &str, value: bool) -> Section {
        if value {
            let _ = writeln!(self.0, "{key} = true");
        }
        self
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}
