//! Manual pages in the macros of man(7), which `mandoc -T lint` accepts.
//! Lines have at most [`WIDTH`] bytes.

/// Bytes of a line of text.
const WIDTH: usize = 78;
/// The day of the last change of the pages.
const EDITED: &str = "2026-11-28";

/// A manual page under construction.
pub struct RoffPage(String);

impl RoffPage {
    /// The head of the page `name` of a section of the manual.
    pub fn new(name: &str, section: u8, about: &str) -> RoffPage {
        let title = escaped(&name.to_uppercase());
        let version = env!("CARGO_PKG_VERSION");
        let mut page = RoffPage(format!(
            ".TH {title} {section} {EDITED} \"hotset {version}\"\n"
        ));
        page.heading("NAME");
        let line = format!(
            "{} \\- {}",
            escaped(name),
            formatted(about.trim_end_matches('.'))
        );
        page.wrapped(&line);
        page
    }

    /// The text of the page.
    pub fn finish(self) -> String {
        self.0
    }

    /// Begins a section.
    pub fn heading(&mut self, heading: &str) {
        self.0 += &format!(".SH {}\n", quoted(heading));
    }

    /// Adds paragraphs, which empty lines separate.
    pub fn text(&mut self, text: &str) {
        for (at, paragraph) in text.split("\n\n").enumerate() {
            if at > 0 {
                self.0 += ".PP\n";
            }
            self.wrapped(&formatted(paragraph));
        }
    }

    /// Adds the synopsis of a command; continued lines are indented.
    pub fn synopsis(&mut self, line: &str) {
        self.wrapped(&format!("\\fB{}\\fR", escaped(line)));
    }

    /// Adds a term and its meaning.
    pub fn item(&mut self, term: &str, meaning: &str) {
        self.0 += &format!(".TP\n\\fB{}\\fR\n", escaped(term));
        self.text(&meaning.replace("\n\n", " "));
    }

    /// Adds lines without filling.
    pub fn code(&mut self, lines: &str) {
        self.0 += ".EX\n";
        for line in lines.lines() {
            self.0 += &match line.is_empty() {
                true => "\\&\n".to_owned(),
                false => format!("{}\n", guarded(&escaped(line))),
            };
        }
        self.0 += ".EE\n";
    }

    fn wrapped(&mut self, text: &str) {
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
                self.0 += &format!("{}\n", guarded(&line));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        if !line.is_empty() {
            self.0 += &format!("{}\n", guarded(&line));
        }
    }
}

/// A line that does not begin as a request of roff does.
fn guarded(line: &str) -> String {
    match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    }
}

fn quoted(text: &str) -> String {
    match text.contains(' ') {
        true => format!("\"{}\"", escaped(text)),
        false => escaped(text),
    }
}

/// Escapes the characters of `text` that have a meaning in roff.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out += "\\e",
            '-' => out += "\\-",
            '~' => out += "\\(ti",
            '^' => out += "\\(ha",
            '`' => out += "\\(ga",
            c => out.push(c),
        }
    }
    out
}

/// Markdown's links without their targets, and its code in bold.
fn formatted(text: &str) -> String {
    let text = without_targets(text);
    let parts = text.split('`').map(escaped).enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        1 => format!("\\fB{part}\\fR"),
        _ => part,
    });
    parts.collect()
}

fn without_targets(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        let link = after.split_once("](").and_then(|(name, after)| {
            let (_, after) = after.split_once(')')?;
            (!name.contains('[')).then_some((name, after))
        });
        out += before;
        rest = match link {
            Some((name, after)) => {
                out += name;
                after
            }
            None => {
                out.push('[');
                after
            }
        };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_roff_mean_themselves() {
        let mut page = RoffPage::new("a-b", 5, "Does `x -y`.");
        page.text(".hidden \\n, see [the page](other.md#part) or `[[x]]`\n\nNext.");
        page.code(".line\n\n'x");
        let text = page.finish();
        assert!(text.starts_with(".TH A\\-B 5 "), "{text}");
        for expected in [
            "a\\-b \\- Does \\fBx \\-y\\fR\n",
            "\n\\&.hidden \\en, see the page or \\fB[[x]]\\fR\n.PP\nNext.\n",
            ".EX\n\\&.line\n\\&\n\\&'x\n.EE\n",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn lines_are_wrapped() {
        let mut page = RoffPage::new("a", 1, "x");
        page.text(&"word ".repeat(100));
        assert!(page.finish().lines().all(|line| line.len() <= WIDTH));
    }
}
