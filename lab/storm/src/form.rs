//! Forms of requests: words and addresses with places for the parts of a request.
//!
//! `{part}` stands for a part, and `{part?yes:no}` for one of two texts by a part that is true or
//! not. A word without its part is left out.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the parts of a section of the configuration, which has a line for each.
pub fn section(text: &str) -> Value {
    let pairs = text.lines().filter_map(|line| line.split_once(" = "));
    let parts = pairs.filter_map(|(key, value)| {
        let value: Value = serde_json::from_str(value).ok()?;
        Some((key.to_owned(), value))
    });
    Value::Object(parts.collect())
}

/// The parts of a request in words.
pub struct RequestParts(BTreeMap<String, String>);

impl RequestParts {
    /// The parts of this request. Those of a section are in the place of the section.
    pub fn of(request: &Value) -> RequestParts {
        let mut parts = BTreeMap::new();
        let sections = ["volume", "pool"].map(|of| section(request[of].as_str().unwrap_or("")));
        for (key, value) in [request]
            .into_iter()
            .chain(&sections)
            .filter_map(Value::as_object)
            .flatten()
        {
            parts.extend(word(value).map(|word| (key.clone(), word)));
        }
        RequestParts(parts)
    }

    fn part(&self, place: &str) -> Option<String> {
        let Some((part, texts)) = place.split_once('?') else {
            return self.0.get(place).cloned();
        };
        let is_so = self.0.get(part).is_some_and(|value| value == "true");
        let (yes, no) = texts.split_once(':').unwrap_or((texts, ""));
        let text = if is_so { yes } else { no };
        Some(text.to_owned()).filter(|text| !text.is_empty())
    }

    /// Fills a form in; `None` without one of its parts.
    pub fn fill(&self, form: &str) -> Option<String> {
        let mut filled = String::new();
        let mut rest = form;
        while let Some((before, place)) = rest.split_once('{') {
            let (place, after) = place.split_once('}')?;
            filled += before;
            filled += &self.part(place)?;
            rest = after;
        }
        Some(filled + rest)
    }

    /// Fills each word of a form in, and leaves words without their part out.
    pub fn words(&self, form: &str) -> Vec<String> {
        form.split(' ').filter_map(|word| self.fill(word)).collect()
    }
}

/// A value in a word: devices are named, and several are joined.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(is_so) => Some(is_so.to_string()),
        Value::Object(_) => word(&value["named"]),
        Value::Array(values) if !values.is_empty() => {
            let words: Vec<String> = values.iter().filter_map(word).collect();
            Some(words.join(","))
        }
        _ => None,
    }
}

/// Returns these parts of a request, with devices in the form of the API.
pub fn body(request: &Value, parts: &[&str]) -> Value {
    let body = parts
        .iter()
        .filter_map(|part| Some(((*part).to_owned(), api(request.get(*part)?))));
    Value::Object(body.collect())
}

/// A value in the form of the API.
pub fn api(value: &Value) -> Value {
    match (value.get("named"), value) {
        (Some(name), _) => json!({ "name": name }),
        (None, Value::Array(values)) => values.iter().map(api).collect(),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_parts_or_are_left_out() {
        let set = json!({"request": "set-mode", "volume": "back", "mode": "write-back",
            "log": [{"named": "log0"}, {"named": "log2"}], "off": true});
        let form = "volume set-mode {volume} {mode} --log={log} --journal={journal} {off?off:on}";
        let words = "volume set-mode back write-back --log=log0,log2 off";
        assert_eq!(RequestParts::of(&set).words(form).join(" "), words);
        let sent = json!({"mode": "write-back", "log": [{"name": "log0"}, {"name": "log2"}]});
        assert_eq!(body(&set, &["mode", "log", "journal"]), sent);
        let add =
            json!({"request": "add-pool", "pool": "name = \"lent\"\ndevices = [\"lent0\"]\n"});
        let words = RequestParts::of(&add).words("pool add {name} {devices} {force?--force:}");
        assert_eq!(words.join(" "), "pool add lent lent0");
    }
}
