//! Texts without their secrets, for a reader outside of the site.
//!
//! Invariants:
//!     of a configuration, known sections, known parameters and their values stay, and nothing else
//!     each line keeps its number
//!     users, passwords and keys go, in the text that has them and in each text cleaned later
//!
//! Not here: opening the files of keys and tokens, which a caller leaves alone.

use crate::config::{Reference, sections};
use crate::section::quoted;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// The mark in the place of a secret.
pub const REMOVED: &str = "(removed)";

/// Characters of TOML that stand between keys and values.
const BETWEEN: &str = " \t\r[]{}=,.";
/// The beginning of a key or a certificate in PEM.
const PEM: &str = "-----BEGIN";
/// Shortest secret that is looked for in other texts; a shorter one is a part of common words.
const LEARNT_BYTES_MIN: usize = 4;
/// Length of a token of `hotset web`, in hexadecimal digits.
const TOKEN_DIGITS: usize = 64;

/// The secrets met so far.
#[derive(Default)]
pub struct Secrets(Vec<(String, String)>);

/// A value that stays in a configuration: its range, and the text in its place if it has a secret.
type KeptValue = (Range<usize>, Option<String>);

impl Secrets {
    /// Has `secret` replaced by `mark` in each text from now on.
    pub fn learn(&mut self, secret: &str, mark: &str) {
        let json = quoted(secret);
        // The identity of an export is in lower case.
        let forms = [secret, json.trim_matches('"'), &secret.to_ascii_lowercase()];
        for form in forms {
            let is_known = self.0.iter().any(|(known, _)| known == form);
            if form.len() >= LEARNT_BYTES_MIN && !is_known {
                self.0.push((form.to_owned(), mark.to_owned()));
            }
        }
        // A secret may be a part of another.
        self.0.sort_by_key(|(secret, _)| usize::MAX - secret.len());
    }

    /// The file of a configuration without its secrets, which are learnt. `None` if the text is no
    /// TOML: nothing distinguishes its values from its comments then.
    pub fn configuration(&mut self, text: &str) -> Option<String> {
        let (document, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            return None;
        }
        let known = sections();
        let mut kept = Vec::new();
        for (key, value) in document.get_ref() {
            let Some(section) = known.iter().find(|known| name(known) == key.get_ref()) else {
                continue;
            };
            kept.push((key.span(), None));
            match value.get_ref() {
                DeValue::Table(table) => self.section(section, table, &mut kept),
                DeValue::Array(all) => {
                    for table in all.iter().filter_map(|one| one.get_ref().as_table()) {
                        self.section(section, table, &mut kept);
                    }
                }
                _ => {}
            }
        }
        kept.sort_by_key(|(range, _)| range.start);
        Some(filtered(text, &kept, &known))
    }

    fn section(&mut self, known: &Reference, table: &DeTable<'_>, kept: &mut Vec<KeptValue>) {
        for (key, value) in table {
            if known.rows.iter().any(|row| row.name == key.get_ref()) {
                kept.push((key.span(), None));
                self.value(value.span(), value.get_ref(), kept);
            }
        }
    }

    fn value(&mut self, range: Range<usize>, value: &DeValue<'_>, kept: &mut Vec<KeptValue>) {
        match value {
            DeValue::Table(_) => {}
            DeValue::Array(all) => {
                let all = all.iter();
                all.for_each(|one| self.value(one.span(), one.get_ref(), kept));
            }
            DeValue::String(text) if text.contains(PEM) => {
                text.lines().for_each(|line| self.learn(line, REMOVED));
                kept.push((range, Some(quoted(REMOVED))));
            }
            DeValue::String(text) => {
                let mut found = Vec::new();
                let clean = clean_uri(text, &mut found);
                found.iter().for_each(|secret| self.learn(secret, REMOVED));
                let changed = (clean != **text).then(|| quoted(&clean));
                kept.push((range, changed));
            }
            _ => kept.push((range, None)),
        }
    }

    /// `text` without the secrets learnt, without users, passwords and queries of URIs, without
    /// logins before a host, and without tokens of `hotset web`.
    pub fn clean(&self, text: &str) -> String {
        let known = self.0.iter();
        let text = known.fold(text.to_owned(), |text, (secret, mark)| {
            text.replace(secret, mark)
        });
        without_tokens(&without_logins(&clean_uris(&text)))
    }
}

/// The key of a section in a file.
fn name(section: &Reference) -> &str {
    section.title.trim_matches(['[', ']'])
}

/// The lines of `text` with the ranges `kept` and the signs between them alone.
fn filtered(text: &str, kept: &[KeptValue], known: &[Reference]) -> String {
    let (mut out, mut at) = (String::new(), 0);
    for line in text.split_inclusive('\n') {
        let end = at + line.trim_end_matches('\n').len();
        let bare = line.split('#').next().unwrap_or_default().trim();
        // A key has one range in the file, though its title stands there more than once.
        let title = known.iter().find(|section| section.title == bare);
        let (shown, is_whole) = match title {
            Some(section) => (section.title.to_owned(), bare == line.trim()),
            None => kept_of(text, at..end, kept),
        };
        let shown = shown.trim_end();
        out += shown;
        if !is_whole {
            out += if shown.is_empty() { "# " } else { "  # " };
            out += REMOVED;
        }
        if line.ends_with('\n') {
            out.push('\n');
        }
        at += line.len();
    }
    out
}

/// The kept parts of the line at `range`, and true if that is all of the line.
fn kept_of(text: &str, range: Range<usize>, kept: &[KeptValue]) -> (String, bool) {
    let (mut shown, mut at, mut is_whole, mut has_kept) = (String::new(), range.start, true, false);
    let ahead = kept.partition_point(|(value, _)| value.end <= at);
    let mut ahead = kept[ahead..].iter();
    let mut next = ahead.next();
    while at < range.end {
        let Some(sign) = text[at..range.end].chars().next() else {
            break;
        };
        while next.is_some_and(|(value, _)| value.end <= at) {
            next = ahead.next();
        }
        if let Some((value, changed)) = next.filter(|(value, _)| value.contains(&at)) {
            let end = value.end.min(range.end);
            match changed {
                Some(changed) if at == value.start => shown += changed,
                Some(_) => {}
                None => shown += &text[at..end],
            }
            (at, has_kept) = (end, true);
            continue;
        }
        match BETWEEN.contains(sign) {
            true => shown.push(sign),
            false => is_whole = false,
        }
        at += sign.len_utf8();
    }
    if !is_whole && !has_kept {
        shown.clear();
    }
    (shown, is_whole)
}

/// Every URI of a text without secrets.
fn clean_uris(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("://") {
        let ends = |c: char| c.is_whitespace() || "\"'`<>\\".contains(c);
        let scheme = rest[..at].rfind(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
        let begin = scheme.map_or(0, |before| {
            before + rest[before..].chars().next().map_or(1, char::len_utf8)
        });
        let end = rest[at..].find(ends).map_or(rest.len(), |len| at + len);
        out += &rest[..begin];
        out += &clean_uri(&rest[begin..end], &mut Vec::new());
        rest = &rest[end..];
    }
    out + rest
}

/// A URI without its user and password, and without parameters but the path of a socket; of one of
/// the web, the host alone. Another text is left as it is. Secrets are appended to `found`.
fn clean_uri(text: &str, found: &mut Vec<String>) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (user, rest) = match user_end(rest) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => ("", rest),
    };
    let mut out = format!("{scheme}://");
    if !user.is_empty() {
        let password = user.split_once(':').map(|(_, password)| password);
        for secret in [Some(user), password].into_iter().flatten() {
            // A message may have the part alone that was taken for the host.
            let part = secret.split('/').next().unwrap_or_default();
            found.extend([secret.to_owned(), part.to_owned()]);
        }
        out += &format!("{REMOVED}@");
    }
    if scheme.starts_with("http") {
        // The path of a webhook is its password.
        let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let path = match path.len() {
            0 | 1 => path.to_owned(),
            _ => format!("/{REMOVED}"),
        };
        return out + host + &path;
    }
    let Some((plain, parameters)) = rest.split_once('?') else {
        return out + rest;
    };
    let parameters = parameters.split('&').map(|one| {
        if one.starts_with("socket=") {
            return one;
        }
        found.push(one.to_owned());
        REMOVED
    });
    let parameters: Vec<&str> = parameters.collect();
    format!("{out}{plain}?{}", parameters.join("&"))
}

/// The place of the `@` after a URI's user and password. A password may have a slash that should
/// have been encoded: then a port that is no number stands before the slash.
fn user_end(rest: &str) -> Option<usize> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let is_port = port.ends_with(']') || port.bytes().all(|digit| digit.is_ascii_digit());
    authority.rfind('@').or_else(|| {
        let anywhere = rest.rfind('@');
        anywhere.filter(|_| !is_port)
    })
}

/// The text without words like `user:password@host`, as messages name the place of an NBD export.
fn without_logins(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "\"'`<>()\\".contains(c);
    let cleaned = text.split_inclusive(ends).map(|word| {
        let login = word.rfind('@').map(|at| word.split_at(at));
        match login.filter(|(login, _)| login.contains(':') && !login.contains('/')) {
            Some((_, host)) => format!("{REMOVED}{host}"),
            None => word.to_owned(),
        }
    });
    cleaned.collect()
}

/// The text without runs of hexadecimal digits as long as a token.
fn without_tokens(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let is_digit = |c: char| c.is_ascii_hexdigit();
        let plain = rest.find(is_digit).unwrap_or(rest.len());
        out += &rest[..plain];
        rest = &rest[plain..];
        let run = rest.find(|c| !is_digit(c)).unwrap_or(rest.len());
        out += if run >= TOKEN_DIGITS {
            REMOVED
        } else {
            &rest[..run]
        };
        rest = &rest[run..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(text: &str) -> String {
        Secrets::default().configuration(text).unwrap()
    }

    #[test]
    fn a_configuration_without_secrets_stays_as_it_is() {
        let text = "[daemon]\ncontrol = '/run/c' \nrequests = 64\n\n[[device]]\nname = \"a\"\n\
                    nbd = \"nbd+unix:///a?socket=/run/x@y\"\n[[device]]\nname = \"b\"\npath = \"/b\"\n\
                    [[array]]\nname=\"r\"\nmembers = [\n  \"a\",\n  \"b\",\n]\nraw = true\n\
                    [[listen]]\ntcp = \"[::1]:10809\"";
        assert_eq!(configuration(text), text.replace("' \n", "'\n"));
    }

    #[test]
    fn comments_and_unknown_parts_go_and_lines_keep_their_numbers() {
        let text = "# hunter1\n[[device]] # hunter2\nname = \"a\" # hunter3\npassword = \"hunter4\"\n\
                    path = [ # hunter5\n  \"/a\",\n]\n[hunter6]\nhunter7 = { b = 'hunter8' }\n\
                    [[device]]\n\"hunter9\" = '''\nhunter10'''\npath.hunter11 = 'hunter12'\n";
        let expected = "# (removed)\n[[device]]  # (removed)\nname = \"a\"  # (removed)\n# (removed)\n\
                        path = [  # (removed)\n  \"/a\",\n]\n# (removed)\n# (removed)\n\
                        [[device]]\n# (removed)\n# (removed)\n# (removed)\n";
        let shown = configuration(text);
        assert!(!shown.contains("hunter"), "{shown}");
        assert_eq!(shown.lines().count(), text.lines().count());
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (shown, expected) = (lines(&shown), lines(expected));
        // A dotted key of a known parameter stays without its value.
        assert_eq!(shown[..12], expected[..12]);
    }

    #[test]
    fn users_and_passwords_go_however_they_are_written() {
        for (uri, expected) in [
            ("nbd://u:hunter2@h:10809/x", "nbd://(removed)@h:10809/x"),
            ("nbd://u:hunter2/@h/x", "nbd://(removed)@h/x"),
            ("nbd://u:hun@ter2@h/x@y", "nbd://(removed)@h/x@y"),
            ("nbd://h/vol@snap", "nbd://h/vol@snap"),
            ("nbd://[::1]/vol@snap", "nbd://[::1]/vol@snap"),
            (
                "nbd+unix:///x?socket=/s&key=hunter2",
                "nbd+unix:///x?socket=/s&(removed)",
            ),
            (
                "https://hooks.example/hunter2/hunter2",
                "https://hooks.example/(removed)",
            ),
            ("https://a.example/", "https://a.example/"),
            ("/dev/a:b@c", "/dev/a:b@c"),
        ] {
            assert_eq!(clean_uri(uri, &mut Vec::new()), expected);
            let text = format!("before \"{uri}\": after {uri} end");
            let clean = Secrets::default().clean(&text);
            assert_eq!(
                clean,
                format!("before \"{expected}\": after {expected} end")
            );
        }
        let escaped = "[[device]]\nnbd = \"nbd:\\u002f/u:hunter2@h/x\"\n";
        let shown = configuration(escaped);
        assert_eq!(shown, "[[device]]\nnbd = \"nbd://(removed)@h/x\"\n");
    }

    #[test]
    fn a_secret_of_the_configuration_is_found_in_other_texts() {
        let mut secrets = Secrets::default();
        let key = "-----BEGIN PRIVATE KEY-----\nTWFueSBoYW5kcw==\n-----END PRIVATE KEY-----\n";
        let text =
            format!("[[listen]]\ntls_key = '''{key}'''\n[[device]]\nnbd = 'nbd://me:a\"b c@h'\n");
        let shown = secrets.configuration(&text).unwrap();
        assert!(!shown.contains("TWFu") && !shown.contains("b c"), "{shown}");
        let said = secrets.clean("me:a\"b c and \"a\\\"b c\", TWFueSBoYW5kcw== too");
        assert_eq!(said, "(removed) and \"(removed)\", (removed) too");
        secrets.learn("0123456789abcdef", "(this machine)");
        assert_eq!(
            secrets.clean("host 0123456789abcdef"),
            "host (this machine)"
        );
    }

    #[test]
    fn tokens_go_and_shorter_numbers_stay() {
        let token = "0123456789abcdef".repeat(4);
        let clean = |text: &str| Secrets::default().clean(text);
        assert_eq!(
            clean(&format!("operator: {token}\n")),
            "operator: (removed)\n"
        );
        let commit = &token[..40];
        assert_eq!(clean(commit), commit);
    }

    #[test]
    fn a_text_that_is_no_toml_is_refused() {
        assert_eq!(Secrets::default().configuration("name = # hunter2"), None);
    }
}
